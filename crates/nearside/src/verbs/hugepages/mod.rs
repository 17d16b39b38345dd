//! `nearside hugepages`: huge pages that nodes share falsely.

mod cure;
mod find;
mod prevent;
mod watch;

use crate::output::terminal::Terminal;
use crate::verbs::compare;
use clap::{Args, Subcommand};
use std::error::Error;
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
    /// Run a program with huge pages, without, and with the falsely shared ones cured, and compare
    ///
    /// `nearside compare` with the policies first-touch, no-huge-pages and hugepages: runs take turns, and a sentence names
    /// the fastest, if the difference is significant. --policies hugepages:SECONDS changes the length of the cure's
    /// recordings, of which there are five from the program's start on.
    #[command(mut_arg("policies", |policies| policies.default_value("first-touch,no-huge-pages,hugepages")))]
    Confirm(Box<compare::Arguments>),
    Watch(watch::Arguments),
}

pub fn run(arguments: &Arguments, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
    match &arguments.command {
        Command::Find(arguments) => Ok(find::run(arguments, terminal)),
        Command::Cure(arguments) => Ok(cure::run(arguments)),
        Command::Confirm(arguments) => compare::run(arguments, terminal),
        Command::Watch(arguments) => watch::run(arguments),
    }
}
