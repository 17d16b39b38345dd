//! The most expensive objects, one by one.

use super::axis::Span;
use super::lines::Line;
use super::timeline::Timeline;
use crate::ProfileReport;
use crate::escape::escape_name;
use crate::profile::advice::{kind_words, place};
use crate::profile::facts_text::{counts_lines, facts_lines};
use crate::profile::text::Lines;
use machine::size;
use profile::{ObjectId, View};

/// An object with its timeline.
pub(super) struct ObjectPart {
    pub title: String,
    pub lines: Vec<Line>,
    /// The call chain that allocated it, innermost first.
    pub chain: Vec<String>,
    pub timeline: Timeline,
}

/// The first of a report's objects; none if there are no accesses to them.
pub(super) fn parts(view: &View, report: &ProfileReport, most: usize) -> Vec<ObjectPart> {
    if report.counts.samples == 0 {
        return Vec::new();
    }
    let rows = report.objects.first.get(..most).unwrap_or(&report.objects.first);
    let ids: Vec<ObjectId> = rows.iter().map(|row| row.summary.object).collect();
    let flows = view.flows_of_objects(&ids);
    let span = Span::of(&report.trace);
    let part = |(row, flow): (&crate::ObjectRow, &profile::Flow)| {
        let object = view.profile().objects().get(row.summary.object.0 as usize)?;
        let summary = &row.summary;
        let name = escape_name(&place(&summary.label, row.source.as_deref()));
        let mut lines = Lines::default();
        let size = if summary.bytes > 0 { format!(", {}", size::rounded(summary.bytes)) } else { String::new() };
        let at = if summary.address > 0 { format!(" at {:#x}", summary.address) } else { String::new() };
        lines.add("what", &format!("{}{size}{at}, of process {}", kind_words(summary.kind), summary.process.pid));
        if let Some(tid) = summary.allocated_by_tid {
            let node = summary.allocated_on_node.map_or_else(String::new, |node| format!(" on node {node}"));
            lines.add("allocated", &format!("by thread {tid}{node}"));
        }
        counts_lines(&mut lines, &row.counts);
        facts_lines(&mut lines, &row.facts, &row.counts, report.trace.start_ns);
        let frame = |frame: &profile::Frame| escape_name(&place(&frame.label, frame.source.as_deref()));
        Some(ObjectPart {
            title: format!("Object {}: {name}", summary.object),
            lines: super::lines::lines(lines),
            chain: summary.allocated_from.iter().map(frame).collect(),
            timeline: Timeline::new(flow, &row.facts, object, span),
        })
    };
    rows.iter().zip(&flows).filter_map(part).collect()
}
