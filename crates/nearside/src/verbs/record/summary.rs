//! Summary of a recording, as text and JSON.

use super::options::RecordOptions;
use crate::output;
use crate::output::json;
use observe::Recorded;
use report::{RecordLoss, RecordReport, RecordSource, escape_message};
use std::error::Error;
use std::io::Write;
use std::path::Path;

/// Prints the summary.
pub fn print(
    options: &RecordOptions,
    json: Option<&Path>,
    recorded: &Recorded,
    exit_status: Option<i32>,
) -> Result<(), Box<dyn Error>> {
    let Recorded { folder, about, counts, processes, duration } = recorded;
    let sources = about
        .sources
        .iter()
        .map(|source| RecordSource { event: source.event.clone(), cannot_see: source.cannot_see.clone() });
    let lost = about.lost.iter().map(|loss| RecordLoss { what: loss.what.clone(), count: loss.count });
    let report = RecordReport {
        trace: folder.display().to_string(),
        bytes: bytes(folder),
        simulated: about.simulated,
        exit_status,
        seconds: duration.as_secs_f64(),
        samples: counts.samples,
        events: counts.events,
        objects: counts.objects,
        small_objects: counts.small_objects,
        processes: *processes,
        sources: sources.collect(),
        lost: lost.collect(),
        notes: about.notes.clone(),
    };
    if !options.quiet {
        // With standard error closed there is nowhere to report this.
        let trace = if options.scratch { String::new() } else { report.trace.clone() };
        let told = RecordReport { trace, ..report.clone() };
        let _ = write!(std::io::stderr(), "{}", escape_message(&told.to_string()));
    }
    if let Some(json) = json {
        output::write_to(&json::document(&report)?, json)?;
    }
    Ok(())
}

/// Total size of a folder's files. Files removed in the meantime count as empty.
fn bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}
