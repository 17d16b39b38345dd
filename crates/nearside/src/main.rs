//! The command line: parses arguments and calls the crates. One file per verb.

mod agent;
mod bind;
mod compare;
mod diff;
mod doctor;
mod interrupt;
mod lab;
mod machine_source;
mod manual;
mod measure;
mod memory;
mod migrate;
mod open_trace;
mod output;
mod pages;
mod pictures;
mod place;
mod places;
mod policy;
mod ranges;
mod record;
mod replay;
mod report;
mod residences;
mod run;
mod shared_memory_policy;
mod show;
#[cfg(feature = "sql")]
mod sql;
mod system;
mod target;
mod threads;
mod top;
mod topology;
mod trace_filter;
mod trace_of_process;
mod usage_error;
mod verify;
mod watch;

use clap::{Parser, Subcommand};
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

/// nearside finds, explains and fixes NUMA problems on Linux, on the machine you have or on one it builds for you.
#[derive(Debug, Parser)]
#[command(name = "nearside", version, arg_required_else_help = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  all went well
  1  it failed; the message says what was tried, why it failed and what to do
  2  the command line is wrong";

#[derive(Debug, Subcommand)]
enum Command {
    Topology(topology::Arguments),
    Measure(measure::Arguments),
    Show(show::Arguments),
    Pages(pages::Arguments),
    Memory(memory::Arguments),
    Run(Box<run::Arguments>),
    Migrate(migrate::Arguments),
    Bind(bind::Arguments),
    Record(record::Arguments),
    Compare(Box<compare::Arguments>),
    Doctor(doctor::Arguments),
    Report(Box<report::Arguments>),
    Diff(Box<diff::Arguments>),
    #[cfg(feature = "sql")]
    Sql(sql::Arguments),
    Top(top::Arguments),
    Agent(agent::Arguments),
    Place(Box<place::Arguments>),
    Replay(replay::Arguments),
    Lab(lab::Arguments),
    Manual(manual::Arguments),
}

fn main() -> ExitCode {
    // The lab's virtual machines run this same program as their init process.
    if ::lab::guest::is_guest() {
        ::lab::guest::main();
        return ExitCode::FAILURE;
    }
    interrupt::survive_file_limits();
    let result = match Cli::parse().command {
        Command::Topology(arguments) => topology::run(&arguments),
        Command::Measure(arguments) => measure::run(&arguments),
        Command::Show(arguments) => show::run(&arguments),
        Command::Pages(arguments) => pages::run(&arguments),
        Command::Memory(arguments) => memory::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Migrate(arguments) => migrate::run(&arguments),
        Command::Bind(arguments) => bind::run(&arguments),
        Command::Record(arguments) => Ok(record::run(&arguments)),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        #[cfg(feature = "sql")]
        Command::Sql(arguments) => sql::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Agent(arguments) => agent::run(&arguments),
        Command::Place(arguments) => Ok(place::run(&arguments)),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Lab(arguments) => lab::run(&arguments),
        Command::Manual(arguments) => manual::run(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            report(error.as_ref());
            if error.is::<usage_error::UsageError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// Prints an error and those causes that its own message does not contain.
fn report(error: &dyn Error) {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message = format!("{message}\n  because {text}");
        }
        cause = error.source();
    }
    // With standard error closed there is nowhere to report this.
    let _ = writeln!(std::io::stderr(), "nearside: {message}");
}
