//! What a trace says of itself: `trace.toml`.

use crate::Source;
use serde::{Deserialize, Serialize};

/// The format of traces that this version writes, and the only one that it reads.
pub const FORMAT: u32 = 3;

/// What a trace says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// [`FORMAT`], of the version that wrote it.
    pub format: u32,
    /// What wrote it: `nearside 0.1.0`, or perf with its version.
    pub written_by: String,
    /// Whether the recording came to its end. If not, the last rows are missing: the recorder was killed, or its disk full.
    pub complete: bool,
    /// The program that was recorded, with its arguments; empty for a recording of what ran already.
    pub command: Vec<String>,
    /// The name of the machine, as `hostname` prints it.
    pub host: String,
    /// Its kernel, as `uname -r` prints it.
    pub kernel: String,
    /// Its architecture, as `uname -m` prints it.
    pub architecture: String,
    /// What all times are of.
    pub clock: Clock,
    /// When the recording began, s since 1970; 0 where it is not known.
    pub began_unix_s: u64,
    /// The size of a base page, bytes.
    pub page_bytes: u64,
    /// The machine was the lab's, not a real one.
    pub simulated: bool,
    /// What else its reader should know, a sentence each: why there are no objects, or no samples.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Who observed, and what it could not.
    #[serde(default)]
    pub sources: Vec<SourceNote>,
    /// What should be here and is not.
    #[serde(default)]
    pub lost: Vec<Loss>,
}

/// A clock of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// `CLOCK_MONOTONIC`.
    Monotonic,
    /// perf's own, which is that of the kernel's scheduler: times of one recording can be compared with each other only.
    Perf,
}

/// A source of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceNote {
    /// The source.
    pub source: Source,
    /// The event, as perf names it, or whatever names what was observed.
    pub event: String,
    /// What it cannot see, a sentence each.
    pub cannot_see: Vec<String>,
}

/// What was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// What, and why.
    pub what: String,
    /// How many.
    pub count: u64,
}

impl About {
    /// Of a recording that begins, by this version, of a command; the rest is empty.
    pub fn of_command(command: Vec<String>) -> Self {
        Self {
            format: FORMAT,
            written_by: concat!("nearside ", env!("CARGO_PKG_VERSION")).to_owned(),
            complete: false,
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
        }
    }

    /// Counts what was lost, with what was lost before for the same reason.
    pub fn lose(&mut self, what: &str, count: u64) {
        Loss::add(&mut self.lost, what, count);
    }
}

impl Loss {
    pub(crate) fn add(all: &mut Vec<Self>, what: &str, count: u64) {
        match all.iter_mut().find(|loss| loss.what == what) {
            _ if count == 0 => {}
            Some(loss) => loss.count = loss.count.saturating_add(count),
            None => all.push(Self { what: what.to_owned(), count }),
        }
    }
}
