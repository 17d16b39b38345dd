//! How a demo or a benchmark ends.

use std::fmt::Display;
use std::process::ExitCode;

/// The exit status of the program of this name. Where it could not be finished, says why.
pub fn exit_code(program: &str, done: Result<ExitCode, impl Display>) -> ExitCode {
    done.unwrap_or_else(|error| {
        eprintln!("{program}: {error}");
        ExitCode::FAILURE
    })
}
