//! `nearside hugepages`: huge pages that nodes share falsely.

mod cure;
mod find;

use crate::output::terminal::Terminal;
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Find and cure huge pages of which different nodes use different parts
///
/// A huge page lies on one node as a whole. Where nodes use different parts of one, most of them wait for remote memory,
/// although small pages could be local to all: the page is falsely shared.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Find(Box<find::Arguments>),
    Cure(Box<cure::Arguments>),
}

pub fn run(arguments: &Arguments, terminal: Terminal) -> ExitCode {
    match &arguments.command {
        Command::Find(arguments) => find::run(arguments, terminal),
        Command::Cure(arguments) => cure::run(arguments),
    }
}
