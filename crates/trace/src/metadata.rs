//! The metadata of a trace: `trace.toml`.

use crate::Source;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The trace format that this version writes.
pub const FORMAT: u32 = 6;
/// The oldest format that it reads: without the counters of single CPUs.
pub const OLDEST_FORMAT: u32 = 5;

/// The metadata of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The [`FORMAT`] of the version that wrote it.
    pub format: u32,
    /// The program that wrote it: `nearside 0.1.0`, or perf with its version.
    pub written_by: String,
    /// Whether the recording ended normally. If not, the last rows are missing: the recorder was killed, or the disk
    /// was full.
    pub complete: bool,
    /// Whether the program had ended when the recording did: not so if a duration or the user ended that. Older traces
    /// do not say.
    #[serde(default = "unsaid")]
    pub program_ended: bool,
    /// Its exit status, 128 + n where signal n ended it. Older traces do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<i32>,
    /// The recorded program with its arguments; empty for a recording of running processes.
    pub command: Vec<String>,
    /// Host name, as printed by `hostname`.
    pub host: String,
    /// Kernel release, as printed by `uname -r`.
    pub kernel: String,
    /// Architecture, as printed by `uname -m`.
    pub architecture: String,
    /// The clock of all times.
    pub clock: Clock,
    /// Start of the recording, in seconds since 1970; 0 if unknown.
    pub began_unix_s: u64,
    /// Size of a base page, in bytes.
    pub page_bytes: u64,
    /// Whether the machine was simulated by the lab.
    pub simulated: bool,
    /// Further notes for the reader, one sentence each: why there are no objects, or no samples.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The sources, with what each cannot see.
    #[serde(default)]
    pub sources: Vec<SourceNote>,
    /// Data that are missing.
    #[serde(default)]
    pub lost: Vec<Loss>,
    /// Number of files of each table that grows, of a complete trace. Older traces do not say.
    #[serde(default)]
    pub files: BTreeMap<String, u64>,
}

/// A clock of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// `CLOCK_MONOTONIC`.
    Monotonic,
    /// perf's default clock, that of the kernel's scheduler. Its times can be compared within one recording only.
    Perf,
}

/// A source of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceNote {
    /// The source.
    pub source: Source,
    /// The event in perf's notation, or another name of what was observed.
    pub event: String,
    /// What the source cannot see, one sentence each.
    pub cannot_see: Vec<String>,
}

/// Lost data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// What was lost, and why.
    pub what: String,
    /// Number of lost items.
    pub count: u64,
}

fn unsaid() -> bool {
    true
}

impl About {
    /// Metadata of a new recording of `command` by this version. The other fields are empty.
    pub fn of_command(command: Vec<String>) -> Self {
        Self {
            format: FORMAT,
            written_by: concat!("nearside ", env!("CARGO_PKG_VERSION")).to_owned(),
            complete: false,
            program_ended: true,
            exit_status: None,
            command,
            host: String::new(),
            kernel: String::new(),
            architecture: String::new(),
            clock: Clock::Monotonic,
            began_unix_s: 0,
            page_bytes: 4096,
            simulated: false,
            sources: Vec::new(),
            lost: Vec::new(),
            notes: Vec::new(),
            files: BTreeMap::new(),
        }
    }

    /// Whether it is of a program from its start to its end, without a failure. perf does not say whether its command line started one.
    pub fn is_whole_run(&self) -> bool {
        let is_whole = self.complete && self.program_ended && self.exit_status.is_none_or(|status| status == 0);
        is_whole && !self.command.is_empty() && self.written_by.starts_with("nearside ")
    }

    /// Counts a loss, added to earlier losses of the same kind.
    pub fn lose(&mut self, what: &str, count: u64) {
        Loss::add(&mut self.lost, what, count);
    }
}

impl Loss {
    /// Counts a loss, added to earlier losses of the same kind.
    pub fn add(all: &mut Vec<Self>, what: &str, count: u64) {
        match all.iter_mut().find(|loss| loss.what == what) {
            _ if count == 0 => {}
            Some(loss) => loss.count = loss.count.saturating_add(count),
            None => all.push(Self { what: what.to_owned(), count }),
        }
    }
}
