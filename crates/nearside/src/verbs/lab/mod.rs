//! `nearside lab`: a machine you do not have.

mod machine_options;
mod presets;
mod record;
mod run;
mod sample_line;
mod setup;
mod terminal;

pub use machine_options::MachineOptions;
pub use record::{Arguments as LabRecordArguments, run as record_in_lab};
pub use run::{Arguments as LabArguments, FAILED as LAB_FAILED, Recording, run as run_in_lab};

use crate::output::terminal::Terminal;
use clap::{Args, Subcommand};
use std::error::Error;
use std::process::ExitCode;

/// Run programs on a machine you do not have
///
/// The lab is a virtual NUMA machine. QEMU boots an unmodified Linux kernel on the nodes, CPUs and links of a machine
/// file, with this host's own files; a model of that machine's memory drives the guest's clock. Unmodified programs see
/// the times that they would see on such a machine. The lab needs no NUMA hardware, no KVM and no privileges.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Setup(setup::Arguments),
    List(presets::ListArguments),
    Show(presets::ShowArguments),
    Run(run::Arguments),
    Record(record::Arguments),
}

pub fn run(arguments: &Arguments, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    match &arguments.command {
        Command::Setup(arguments) => setup::run(arguments),
        Command::List(arguments) => presets::list(arguments, terminal),
        Command::Show(arguments) => presets::show(arguments, terminal),
        Command::Run(arguments) => Ok(run::run(arguments)),
        Command::Record(arguments) => Ok(record::run(arguments)),
    }
}
