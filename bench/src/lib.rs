//! Runs commands in the lab as a user does, and reads their results: shared by the demo, the benchmarks and the
//! experiments.

pub mod attacks;
mod error;
mod exit;
mod run;

pub use error::Error;
pub use exit::exit_code;
pub use run::{FULL, Machine, Report, Run, nearside, programs, run, shown};
