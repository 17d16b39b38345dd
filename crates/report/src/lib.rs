//! What nearside found, as tables for terminals; the same values, serialised, are its JSON.

mod lab;
mod measure;
mod number;
mod table;

pub use self::measure::{MeasureText, measure_svg};
pub use lab::{LabReport, Samples};
pub use number::{bytes, count, percent};
pub use table::Table;
