//! The result of a recording.

use crate::LabReport;
use crate::shell::quoted;
use machine::number::{count, rounded_count};
use machine::size;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The output of `nearside record`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordReport {
    /// The trace's folder.
    pub trace: String,
    /// Its size, bytes.
    pub bytes: u64,
    /// Whether the machine was the lab's.
    pub simulated: bool,
    /// The program's exit status, 128 + n if signal n ended it; none if it goes on, or none was started.
    pub exit_status: Option<i32>,
    /// Duration, s; simulated time in the lab.
    pub seconds: f64,
    /// Sampled accesses.
    pub samples: u64,
    /// Number of events.
    pub events: u64,
    /// Number of allocated objects among the events.
    pub objects: u64,
    /// Objects that were too small to be recorded one by one, and were counted by site.
    pub small_objects: u64,
    /// Number of recorded processes.
    pub processes: usize,
    /// Sources of accesses, and their limits.
    pub sources: Vec<RecordSource>,
    /// Lost records.
    pub lost: Vec<RecordLoss>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// A source of accesses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordSource {
    /// The observed event.
    pub event: String,
    /// What it cannot observe, a sentence each.
    pub cannot_see: Vec<String>,
}

/// Records that were lost for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordLoss {
    /// The records, and the reason.
    pub what: String,
    /// Number of records.
    pub count: u64,
}

/// The output of `nearside lab record`: of the virtual machine, and of the recording on it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LabRecordReport<'a> {
    /// The machine's measurements during the recording, with the command and its exit status.
    pub run: &'a LabReport,
    /// The result of the recording; none if it failed.
    pub recording: Option<&'a RecordReport>,
}

/// A trace without a name is not mentioned.
impl fmt::Display for RecordReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { samples, objects, processes, seconds, .. } = self;
        let simulated = if self.simulated { " simulated" } else { "" };
        let kept = format!(": {} ({})", self.trace, size::rounded(self.bytes));
        writeln!(
            f,
            "nearside: recorded {} and {} of {} in {seconds:.3} s{simulated}{}",
            rounded_count(*samples, "sample"),
            rounded_count(*objects, "object"),
            if *processes == 1 { "1 process".to_owned() } else { format!("{processes} processes") },
            if self.trace.is_empty() { "" } else { &kept }
        )?;
        if self.small_objects > 0 {
            writeln!(f, "  {}, counted by site", rounded_count(self.small_objects, "small object"))?;
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
        if *samples + *objects > 0 && !self.trace.is_empty() {
            writeln!(f, "  next: nearside report {}", quoted(&self.trace))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_reported() {
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
            "nearside: recorded 12.3 k samples and 1 object of 1 process in 0.250 s simulated: nearside-trace (121 KiB)\n  \
             samples: first-level misses\n  next: nearside report nearside-trace\n"
        );
        report.trace = "it's new".into();
        assert!(report.to_string().ends_with("\n  next: nearside report 'it'\\''s new'\n"), "{report}");
        report.trace.clear();
        assert!(!report.to_string().contains("next"), "there is nothing to report on: {report}");
        report.lost.push(RecordLoss { what: "samples".into(), count: 7 });
        report.notes.push("there are no objects".into());
        assert!(report.to_string().contains("  lost: 7 samples\n  note: there are no objects\n"));
    }
}
