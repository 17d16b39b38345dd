//! Runs commands in the lab as a user does, and reads what came of them: what the demo, the benchmarks and the experiments
//! share.

mod error;
mod exit;
mod run;

pub use error::Error;
pub use exit::exit_code;
pub use run::{FULL, Machine, Report, Run, nearside, programs, run, shown};
