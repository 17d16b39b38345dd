//! The command line: parses arguments and calls the crates.

mod explore;
mod interrupt;
mod open_trace;
mod options;
mod output;
mod process;
mod verbs;

use clap::Parser;
use options::usage_error::UsageError;
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use verbs::Verb;

/// nearside finds, explains and fixes NUMA problems on Linux, on the machine you have or on one it builds for you.
#[derive(Debug, Parser)]
#[command(name = "nearside", version, arg_required_else_help = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  all went well
  1  it failed; the message says what was tried, why it failed and what to do
  2  the command line is wrong
Commands that start programs pass on their exit status; some commands have further codes. Each command's --help lists its own.";

fn main() -> ExitCode {
    // The lab's virtual machines run this same program as their init process.
    if lab::guest::is_guest() {
        lab::guest::main();
        return ExitCode::FAILURE;
    }
    interrupt::survive_file_limits();
    match Cli::parse().verb.run() {
        Ok(code) => code,
        Err(error) => {
            print_error(error.as_ref());
            if error.is::<UsageError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// Prints an error with its causes.
fn print_error(error: &(dyn Error + 'static)) {
    // With standard error closed there is nowhere to report this.
    let _ = writeln!(std::io::stderr(), "nearside: {}", machine::chain(error));
}
