//! `nearside sql` in a build without it.

use crate::options::usage_error::UsageError;
use clap::Args;
use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;

/// Query the tables of a trace in SQL (not in this build)
#[derive(Debug, Args)]
pub struct Arguments {
    /// What the command would take
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    words: Vec<OsString>,
}

/// Says how to get it.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let Arguments { words: _ } = arguments;
    Err(UsageError::boxed(
        "this build has no `sql`, which needs 200 more packages: `cargo build --release --features nearside/sql` builds \
         it. `nearside export TRACE --parquet FILE` writes a table for DuckDB, pandas and Spark",
    ))
}
