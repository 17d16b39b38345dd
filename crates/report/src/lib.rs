//! What nearside found, as tables for terminals; the same values, serialised, are its JSON.

mod lab;
mod number;
mod table;

pub use lab::{LabReport, Samples};
pub use number::{bytes, count, percent};
pub use table::Table;
