//! Runs commands in the lab as a user does, and reads what came of them: what the demo and the benchmarks share.

mod error;
mod run;

pub use error::Error;
pub use run::{Report, Run, run, shown};
