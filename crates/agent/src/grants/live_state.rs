//! What the agent knows of its grants at present: a file that other processes read, beside the records of the grants.

use super::records::RecordsError;
use linux::{Pid, PrivateFolder, Process};
use machine::bounded;
use reserve::{Flow, GrantId, ReadWrite};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// The file. It does not end as records do.
const FILE: &str = "state";
/// Its longest content, in bytes: flows of thousands of grants.
const MOST_BYTES: u64 = 16 << 20;

/// What the agent knows of its grants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveState {
    /// The agent's process.
    pub pid: Pid,
    /// Start time of that process, in clock ticks since boot.
    pub started: u64,
    /// Each of its grants.
    pub grants: BTreeMap<GrantId, GrantState>,
    /// What was drawn from memory in the last period; empty where nothing is counted.
    pub drawn: Vec<Flow>,
    /// The most that was drawn in one of the last periods, by which forecasts are made.
    pub most: Vec<Flow>,
}

/// What the agent knows of a grant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GrantState {
    /// By how much others slow it by forecast, as a part of its time; none where nothing is known of the machine's memory.
    pub forecast_slowdown: Option<f64>,
    /// How often that has risen above its bound since the agent began, as others draw more than when the grant was made.
    pub times_above_bound: u64,
}

impl LiveState {
    /// That of this process, which makes grants.
    pub(crate) fn new(
        grants: BTreeMap<GrantId, GrantState>,
        drawn: Vec<Flow>,
        most: Vec<Flow>,
    ) -> Result<Self, RecordsError> {
        let pid = Pid(std::process::id());
        let start = Process::open(pid).and_then(|process| process.start_time());
        let started = start.map_err(|error| RecordsError::Write(io::Error::other(error)))?.ticks;
        Ok(Self { pid, started, grants, drawn, most })
    }

    /// Writes it for other processes. Readers find the former content or this one.
    pub(crate) fn write(&self, folder: &PrivateFolder) -> Result<(), RecordsError> {
        let text = serde_json::to_vec(self).map_err(|error| RecordsError::Write(io::Error::from(error)))?;
        Ok(folder.replace(FILE, 0o644, &text)?)
    }

    /// Removes what was written.
    pub(crate) fn remove(folder: &PrivateFolder) {
        let _ = folder.remove(FILE);
    }

    /// That of the agent that lives; none if there is no such agent. Needs no privileges.
    pub fn read(folder: &Path) -> Option<Self> {
        let state: Self = serde_json::from_slice(&bounded::bytes(&folder.join(FILE), MOST_BYTES).ok()?).ok()?;
        let start = Process::open(state.pid).and_then(|process| process.start_time());
        start.is_ok_and(|start| start.ticks == state.started).then_some(state)
    }

    /// What a grant, or the rest of the machine, has drawn in the last period, bytes/s. None where it was not counted.
    pub fn drawn_by(&self, of: Option<GrantId>) -> Option<ReadWrite> {
        drawn_by(&self.drawn, of)
    }
}

/// The sum of the flows of a grant, or of the rest of the machine. None without any.
pub(crate) fn drawn_by(flows: &[Flow], of: Option<GrantId>) -> Option<ReadWrite> {
    let loads = flows.iter().filter(|flow| flow.of == of).map(|flow| flow.load);
    loads.reduce(|sum, load| ReadWrite { read: sum.read + load.read, write: sum.write + load.write })
}
