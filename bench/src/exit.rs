//! Exit codes of demos and benchmarks.

use machine::chain;
use std::error::Error;
use std::process::ExitCode;

/// Exit code of the program with this name. Prints the error, if there is one.
pub fn exit_code(program: &str, done: Result<ExitCode, impl Into<Box<dyn Error>>>) -> ExitCode {
    done.unwrap_or_else(|error| {
        eprintln!("{program}: {}", chain(error.into().as_ref()));
        ExitCode::FAILURE
    })
}
