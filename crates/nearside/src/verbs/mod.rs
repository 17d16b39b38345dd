//! One file or folder per verb.

mod agent;
mod assert;
mod bind;
mod compare;
pub mod completions;
mod diff;
mod doctor;
mod explore;
mod export;
mod hugepages;
pub mod lab;
mod lessons;
mod manual;
mod measure;
mod memory;
pub mod migrate;
mod pages;
pub mod place;
pub mod record;
mod replay;
mod replicate;
mod report;
mod reserve;
mod run;
mod show;
#[cfg(not(feature = "sql"))]
#[path = "no_sql.rs"]
mod sql;
#[cfg(feature = "sql")]
mod sql;
mod steady;
mod top;
mod topology;

use crate::output::terminal::Terminal;
use clap::Subcommand;
use std::error::Error;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub enum Verb {
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
    Explore(Box<explore::Arguments>),
    Doctor(doctor::Arguments),
    Report(Box<report::Arguments>),
    Hugepages(hugepages::Arguments),
    Diff(Box<diff::Arguments>),
    Assert(Box<assert::Arguments>),
    Export(Box<export::Arguments>),
    #[cfg_attr(not(feature = "sql"), command(hide = true))]
    Sql(sql::Arguments),
    Top(top::Arguments),
    Agent(agent::Arguments),
    Place(Box<place::Arguments>),
    Replay(replay::Arguments),
    Reserve(reserve::Arguments),
    Lab(lab::Arguments),
    Completions(completions::Arguments),
    Manual(manual::Arguments),
}

impl Verb {
    /// Whether it runs with an unusable configuration file: it helps to mend the host, or explains nearside.
    pub fn works_without_configuration(&self) -> bool {
        matches!(self, Self::Doctor(_) | Self::Completions(_) | Self::Manual(_))
    }

    /// Does it, and returns the exit status.
    pub fn run(&self, terminal: Terminal) -> Result<ExitCode, Box<dyn Error>> {
        match self {
            Self::Topology(arguments) => topology::run(arguments, terminal),
            Self::Measure(arguments) => measure::run(arguments, terminal),
            Self::Show(arguments) => show::run(arguments, terminal),
            Self::Pages(arguments) => pages::run(arguments, terminal),
            Self::Memory(arguments) => memory::run(arguments, terminal),
            Self::Run(arguments) => run::run(arguments),
            Self::Migrate(arguments) => migrate::run(arguments),
            Self::Bind(arguments) => bind::run(arguments),
            Self::Record(arguments) => Ok(record::run(arguments)),
            Self::Compare(arguments) => compare::run(arguments, terminal),
            Self::Explore(arguments) => explore::run(arguments),
            Self::Doctor(arguments) => doctor::run(arguments, terminal),
            Self::Report(arguments) => report::run(arguments, terminal),
            Self::Hugepages(arguments) => hugepages::run(arguments, terminal),
            Self::Diff(arguments) => diff::run(arguments, terminal),
            Self::Assert(arguments) => Ok(assert::run(arguments, terminal)),
            Self::Export(arguments) => export::run(arguments),
            Self::Sql(arguments) => sql::run(arguments),
            Self::Top(arguments) => top::run(arguments, terminal),
            Self::Agent(arguments) => agent::run(arguments),
            Self::Place(arguments) => Ok(place::run(arguments)),
            Self::Replay(arguments) => replay::run(arguments),
            Self::Reserve(arguments) => Ok(reserve::run(arguments, terminal)),
            Self::Lab(arguments) => lab::run(arguments, terminal),
            Self::Completions(arguments) => completions::run(arguments),
            Self::Manual(arguments) => manual::run(arguments),
        }
    }
}
