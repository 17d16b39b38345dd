//! Exit codes of demos and benchmarks.

use std::fmt::Display;
use std::process::ExitCode;

/// Exit code of the program with this name. Prints the error, if there is one.
pub fn exit_code(program: &str, done: Result<ExitCode, impl Display>) -> ExitCode {
    done.unwrap_or_else(|error| {
        eprintln!("{program}: {error}");
        ExitCode::FAILURE
    })
}
