//! What came of a recording.

use crate::{LabReport, bytes, count};
use serde::{Deserialize, Serialize};
use std::fmt;

/// All that `nearside record` tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordReport {
    /// The trace's folder.
    pub trace: String,
    /// Its size, bytes.
    pub bytes: u64,
    /// Whether the machine was the lab's.
    pub simulated: bool,
    /// The program's exit status, 128 + n where signal n ended it; nothing where it goes on, or none was started.
    pub exit_status: Option<i32>,
    /// How long it took, s; in the lab, simulated.
    pub seconds: f64,
    /// Accesses that were sampled.
    pub samples: u64,
    /// What happened around them.
    pub events: u64,
    /// How many of those are objects that began.
    pub objects: u64,
    /// Objects that were too small to be told one by one, and counted by site.
    pub small_objects: u64,
    /// Processes that it is about.
    pub processes: usize,
    /// What observed accesses, and what it cannot see.
    pub sources: Vec<RecordSource>,
    /// What was lost.
    pub lost: Vec<RecordLoss>,
    /// What else to know.
    pub notes: Vec<String>,
}

/// Who observed accesses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordSource {
    /// What was observed.
    pub event: String,
    /// What it cannot see, a sentence each.
    pub cannot_see: Vec<String>,
}

/// What was lost for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordLoss {
    /// What, and why.
    pub what: String,
    /// How many.
    pub count: u64,
}

/// All that `nearside lab record` tells: of the virtual machine, and of the recording on it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LabRecordReport<'a> {
    /// What the machine measured while the program was recorded. The command and its status are those of the recording.
    pub run: &'a LabReport,
    /// What came of the recording; nothing where it failed.
    pub recording: Option<&'a RecordReport>,
}

impl fmt::Display for RecordReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { samples, objects, processes, seconds, .. } = self;
        let many = |number: u64, what: &str| format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" });
        let simulated = if self.simulated { " simulated" } else { "" };
        writeln!(
            f,
            "nearside: recorded {} and {} of {} in {seconds:.3} s{simulated}: {} ({})",
            many(*samples, "sample"),
            many(*objects, "object"),
            if *processes == 1 { "1 process".to_owned() } else { format!("{processes} processes") },
            self.trace,
            bytes(self.bytes)
        )?;
        if self.small_objects > 0 {
            writeln!(f, "  {}, counted by site", many(self.small_objects, "small object"))?;
        }
        for source in &self.sources {
            writeln!(f, "  samples: {}", source.event)?;
        }
        for RecordLoss { what, count: number } in &self.lost {
            writeln!(f, "  lost: {} {what}", count(*number))?;
        }
        for note in &self.notes {
            writeln!(f, "  note: {note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_is_told() {
        let mut report = RecordReport {
            trace: "nearside-trace".into(),
            bytes: 123_456,
            simulated: true,
            exit_status: Some(0),
            seconds: 0.25,
            samples: 12_345,
            events: 700,
            objects: 1,
            small_objects: 0,
            processes: 1,
            sources: vec![RecordSource { event: "first-level misses".into(), cannot_see: vec!["hits".into()] }],
            lost: vec![],
            notes: vec![],
        };
        let said = report.to_string();
        assert_eq!(
            said,
            "nearside: recorded 12.3 k samples and 1 object of 1 process in 0.250 s simulated: nearside-trace (123 kB)\n  \
             samples: first-level misses\n"
        );
        report.lost.push(RecordLoss { what: "samples".into(), count: 7 });
        report.notes.push("there are no objects".into());
        assert!(report.to_string().ends_with("  lost: 7 samples\n  note: there are no objects\n"));
    }
}
