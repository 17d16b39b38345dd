//! Advice for the most expensive objects.

use super::next_steps::NextSteps;
use super::site_key::source_of;
use super::text::{LONGEST_NAME, Lines, share, short, time};
use super::trace_facts::TraceFacts;
use crate::layout::{Layout, Tone};
use machine::size;
use profile::{Action, Advice, Confidence, Gain, ObjectKind, Profile, Together};
use serde::Serialize;
use std::fmt;

/// Advice for the objects of a site.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AdviceRow {
    /// The advice.
    #[serde(flatten)]
    pub advice: Advice,
    /// The line of source that allocates them.
    pub source: Option<String>,
    /// What to do about it; none for [`Action::LeaveAlone`].
    pub next_steps: Option<NextSteps>,
}

impl AdviceRow {
    /// Adds the line of source and the next steps.
    pub fn new(profile: &Profile, advice: Advice) -> Self {
        let are_sharers_seen = advice.evidence.iter().any(|evidence| evidence.what == "processes");
        let of_processes = match advice.action {
            Action::Replicate => are_sharers_seen,
            Action::Migrate => are_sharers_seen || advice.may_be_shared,
            _ => !advice.processes.is_empty(),
        };
        let next_steps = NextSteps::new(advice.action, advice.kind, of_processes);
        Self { source: source_of(profile, advice.site), next_steps, advice }
    }
}

/// Advice as text, by rank. Times are relative to the start.
pub(crate) struct AdviceText<'a> {
    pub rows: &'a [AdviceRow],
    pub together: &'a [Together],
    pub trace: &'a TraceFacts,
}

impl fmt::Display for AdviceText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = Layout::of(f);
        for (row, rank) in self.rows.iter().filter(|row| row.acts()).zip(1..) {
            f.write_str(&self.row(rank, row, layout))?;
        }
        for together in self.together {
            f.write_str(&layout.wrapped("  together  ", &together_text(together)))?;
        }
        let rest = self.rows.iter().filter(|row| !row.acts());
        let (few, known): (Vec<_>, Vec<_>) = rest.partition(|row| row.is_of_few_samples());
        for row in known.iter().take(MOST_LEFT_ALONE) {
            let why = row.why_not();
            let label = place(&row.advice.label, row.source.as_deref());
            f.write_str(&layout.wrapped("  leave alone  ", &format!("{label}: {why}")))?;
        }
        if known.len() > MOST_LEFT_ALONE {
            let more = format!("{} less costly ones: --json has the reasons", known.len() - MOST_LEFT_ALONE);
            f.write_str(&layout.wrapped("  leave alone  ", &more))?;
        }
        few_text(few.len(), self.rows.len()).map_or(Ok(()), |text| f.write_str(&layout.wrapped("  ", &text)))
    }
}

/// What placing several sites gains.
pub(crate) fn together_text(together: &Together) -> String {
    let labels: Vec<String> = together.labels.iter().map(|label| short(label, LONGEST_NAME)).collect();
    format!("{}, all of {}: {}", words(together.action), labels.join("; "), gain(&together.gain))
}

/// What is said of the sites, `few` of `all`, that have no advice because too few of their samples reached memory.
pub(crate) fn few_text(few: usize, all: usize) -> Option<String> {
    let sites = match (few, few == all) {
        (0, _) => return None,
        (1, true) => "the only site".to_owned(),
        (few, true) => format!("any of {few} sites"),
        (1, false) => "another one".to_owned(),
        (few, false) => format!("{few} others"),
    };
    let its = if few == 1 { "its" } else { "their" };
    Some(format!("no advice for {sites}: too few of {its} samples reached memory"))
}

impl AdviceText<'_> {
    fn row(&self, rank: usize, row: &AdviceRow, layout: Layout) -> String {
        let AdviceRow { advice, source, .. } = row;
        let to_do = format!("{}: {}", words(advice.action), place(&advice.label, source.as_deref()));
        let title = layout.painted_lines(Tone::Heading, &layout.wrapped(&format!("  {rank}. "), &to_do));
        let lines = row.lines(self.trace).0;
        let line = |(name, text): &(String, String)| layout.wrapped(&format!("     {name:<12}"), text);
        title + &lines.iter().map(line).collect::<String>()
    }
}

impl AdviceRow {
    /// Whether it recommends a change that is worth it, as far as that can be predicted.
    pub(crate) fn acts(&self) -> bool {
        self.advice.action != Action::LeaveAlone
            && self.advice.gain.as_ref().is_none_or(|gain| gain.speedup >= LEAST_SPEEDUP)
    }

    /// Why it recommends no change.
    pub(crate) fn why_not(&self) -> String {
        let Advice { action, gain, evidence, .. } = &self.advice;
        if let Some((ruled_out, speedup)) = self.advice.predicted_loss() {
            return format!("to {} would make the program {speedup:.3} times as fast", words(ruled_out).to_lowercase());
        }
        match gain {
            Some(gain) if *action != Action::LeaveAlone => {
                format!("to {} would make the program {:.3} times as fast", words(*action).to_lowercase(), gain.speedup)
            }
            _ => evidence.last().map_or_else(String::new, |evidence| evidence.text.clone()),
        }
    }

    /// Whether there is no advice because too few samples reached memory.
    pub(crate) fn is_of_few_samples(&self) -> bool {
        self.advice.evidence.iter().any(|evidence| evidence.what == "samples")
    }

    /// The objects, the expected gain and the reasons. Times are relative to the trace's start.
    pub(crate) fn lines(&self, trace: &TraceFacts) -> Lines {
        let advice = &self.advice;
        let mut lines = Lines::default();
        let mut line = |name: &str, text: &str| lines.add(name, text);
        let objects = match (advice.objects, advice.object) {
            (1, Some(object)) => format!("object {object}"),
            (count, Some(object)) => format!("object {object} of {count}"),
            (1, None) => "an object".to_owned(),
            (count, None) => format!("{count} objects"),
        };
        let of_all = share(Some(advice.counts.share));
        let kind = kind_words(advice.kind);
        let size = if advice.bytes > 0 { format!(" of up to {}", size::rounded(advice.bytes)) } else { String::new() };
        line("what", &format!("{kind}, {objects}{size}, {of_all} of the accesses"));
        if let Some(node) = advice.node {
            line("to", &format!("node {node}"));
        }
        if let Some(after_ns) = advice.after_ns {
            line(
                "when",
                &format!(
                    "after its initialisation, {} after the first access",
                    time(after_ns.saturating_sub(trace.start_ns))
                ),
            );
        }
        if !advice.processes.is_empty() {
            let of: Vec<String> = advice.processes.iter().map(|to| format!("{} on node {}", to.pid, to.node)).collect();
            line("processes", &of.join(", "));
        }
        let unknown = match advice.action {
            Action::Pad => "not predicted: the model of gains knows where memory is, not how cores share lines",
            _ => "not known: the trace or the machine's description has no latencies",
        };
        line("gain", &advice.gain.as_ref().map_or_else(|| unknown.to_owned(), gain));
        line("confidence", confidence(advice.confidence));
        for (evidence, at) in advice.evidence.iter().zip(0..) {
            line(if at == 0 { "because" } else { "" }, &evidence.text);
        }
        for ruled_out in &advice.ruled_out {
            line("not", &format!("{}: {}", words(ruled_out.action).to_lowercase(), ruled_out.because.text));
        }
        if let Some(steps) = self.next_steps {
            let [try_with, apply] = steps.commands(&trace.command, trace.preset());
            line("try", &try_with);
            line("apply", &apply);
            line("in code", steps.in_code);
        }
        lines
    }
}

/// Most sites that are listed although nothing is to be done about them.
const MOST_LEFT_ALONE: usize = 8;
/// A smaller predicted speedup is no advice: it would be shown as 1.00.
const LEAST_SPEEDUP: f64 = 1.005;
/// Objects that are in use for this part of the time count as always in use.
const NEARLY_ALWAYS: f64 = 0.95;

fn gain(gain: &Gain) -> String {
    let in_use = if gain.time_in_use < NEARLY_ALWAYS {
        format!(
            ", {:.2} in the {} of the time in which it is in use",
            gain.speedup_in_use,
            share(Some(gain.time_in_use))
        )
    } else {
        String::new()
    };
    format!(
        "{:.2} times as fast{in_use}: memory takes {:.0} ns instead of {:.0}, {} of the accesses are local instead of {}",
        gain.speedup,
        gain.latency_after_ns,
        gain.latency_before_ns,
        share(Some(gain.local_access_ratio_after)),
        share(Some(gain.local_access_ratio_before)),
    )
}

/// A label and its line of source.
pub(crate) fn place(label: &str, source: Option<&str>) -> String {
    let label = short(label, LONGEST_NAME);
    let name = |source: &str| short(source.rsplit('/').next().unwrap_or(source), LONGEST_NAME);
    source.map_or_else(|| label.clone(), |source| format!("{label} ({})", name(source)))
}

/// The action as reports print it.
pub fn words(action: Action) -> &'static str {
    match action {
        Action::AllocateLocally => "Allocate on the node that uses it",
        Action::Interleave => "Interleave",
        Action::Replicate => "Replicate on each node",
        Action::Migrate => "Migrate to its users",
        Action::PinThreads => "Pin the threads",
        Action::SplitHugePages => "Split huge pages",
        Action::Pad => "Pad to cache lines",
        Action::LeaveAlone => "Leave alone",
    }
}

fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Low => "low: there are few samples, a share is near its threshold, or users change over time",
        Confidence::Medium => "medium (95 %)",
        Confidence::High => "high (99 %)",
    }
}

/// The kind of an object, as text.
pub(crate) fn kind_words(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Heap => "heap",
        ObjectKind::Static => "static",
        ObjectKind::Region => "region",
        ObjectKind::MappedFile => "file",
        ObjectKind::BinarySection => "section",
        ObjectKind::Stacks => "stacks",
        ObjectKind::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_are_others_only_beside_some() {
        let said = |few, all| few_text(few, all).unwrap_or_default();
        assert_eq!(said(6, 6), "no advice for any of 6 sites: too few of their samples reached memory");
        assert_eq!(said(1, 1), "no advice for the only site: too few of its samples reached memory");
        assert_eq!(said(6, 7), "no advice for 6 others: too few of their samples reached memory");
        assert_eq!(said(1, 7), "no advice for another one: too few of its samples reached memory");
        assert_eq!(few_text(0, 7), None);
    }
}
