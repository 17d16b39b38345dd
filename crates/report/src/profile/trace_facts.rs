//! What a trace says of itself, and what it cannot say.

use super::text::{Lines, number, share, time};
use machine::Machine;
use profile::{Counts, Profile};
use serde::Serialize;
use std::fmt;
use trace::{About, Loss, SourceNote};

/// What a trace says of itself, and what it cannot say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceFacts {
    /// Where it is.
    pub path: String,
    /// What wrote it.
    pub written_by: String,
    /// Whether the recording came to its end.
    pub complete: bool,
    /// The program that was recorded, with its arguments; empty for what ran already.
    pub command: Vec<String>,
    /// The name of the machine, as `hostname` prints it.
    pub host: String,
    /// Its kernel.
    pub kernel: String,
    /// The machine was the lab's.
    pub simulated: bool,
    /// The name of the machine's description.
    pub machine: String,
    /// Where that description is from.
    pub machine_from: String,
    /// Its nodes.
    pub nodes: usize,
    /// Its CPUs.
    pub cpus: usize,
    /// The first access, ns of the trace's clock, or the first record where there is no access: times in text are since
    /// then.
    pub start_ns: u64,
    /// Where the time that is looked at begins, ns of the trace's clock: the start, unless a part was chosen.
    pub from_ns: u64,
    /// How long that time is, ns: all of the trace from its first access to its last, unless a part was chosen.
    pub duration_ns: u64,
    /// What else its reader should know, a sentence each: why there are no objects, or no samples.
    pub notes: Vec<String>,
    /// Who observed, and what it could not see.
    pub sources: Vec<SourceNote>,
    /// What should be there and is not.
    pub lost: Vec<Loss>,
    /// Files whose insides have no names, and why.
    pub unnamed_files: Vec<String>,
}

impl TraceFacts {
    /// Of a profile. `lost` is what reading it has lost as well.
    pub fn of(path: String, about: &About, lost: Vec<Loss>, profile: &Profile, machine_from: String) -> Self {
        let machine: &Machine = profile.machine();
        let (start_ns, end_ns) = profile.span_ns().unwrap_or((0, 0));
        let left_out = [
            ("samples whose physical address is no memory", profile.outside_memory()),
            ("samples beyond the first 4,294,967,295", profile.too_many()),
        ];
        let left_out = left_out.into_iter().filter(|(_, count)| *count > 0);
        let left_out = left_out.map(|(what, count)| Loss { what: what.to_owned(), count });
        Self {
            path,
            written_by: about.written_by.clone(),
            complete: about.complete,
            command: about.command.clone(),
            host: about.host.clone(),
            kernel: about.kernel.clone(),
            simulated: about.simulated,
            machine: machine.name.clone(),
            machine_from,
            nodes: machine.nodes.len(),
            cpus: machine.cpus().len(),
            start_ns,
            from_ns: start_ns,
            duration_ns: end_ns - start_ns,
            notes: about.notes.clone(),
            sources: about.sources.clone(),
            lost: lost.into_iter().chain(left_out).collect(),
            unnamed_files: Vec::new(),
        }
    }

    /// Of a trace without accesses, whose records are of this time, ns.
    #[must_use]
    pub fn with_records(self, (first_ns, last_ns): (u64, u64)) -> Self {
        Self { start_ns: first_ns, from_ns: first_ns, duration_ns: last_ns.saturating_sub(first_ns), ..self }
    }

    /// Of what is in this time only, ns, as far as the trace goes: rates are over it.
    #[must_use]
    pub fn within(self, (first_ns, last_ns): (u64, u64)) -> Self {
        let end_ns = self.start_ns.saturating_add(self.duration_ns);
        let from_ns = first_ns.clamp(self.start_ns, end_ns);
        Self { from_ns, duration_ns: last_ns.min(end_ns).saturating_sub(from_ns), ..self }
    }
}

/// What a trace says of itself, as text.
pub(crate) struct TraceText<'a> {
    pub facts: &'a TraceFacts,
    /// All accesses that are looked at.
    pub counts: &'a Counts,
    /// The share to what is no known object, 0 to 1.
    pub unknown_share: f64,
    /// What was chosen of the trace; empty for all.
    pub filter: &'a [String],
}

impl TraceText<'_> {
    /// A line each, by what it is about.
    pub fn lines(&self) -> Lines {
        let Self { facts, counts, unknown_share, filter } = self;
        let mut lines = Lines::default();
        let command = facts.command.join(" ");
        let command = if command.is_empty() { "what ran already" } else { &command };
        lines.add("recorded", &format!("{command} ({}, by {})", facts.path, facts.written_by));
        let plural = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let size = format!("{}, {}", plural(facts.nodes, "node"), plural(facts.cpus, "CPU"));
        let simulated = if facts.simulated { ", simulated" } else { "" };
        lines.add("machine", &format!("{}: {size}{simulated} ({})", facts.machine, facts.machine_from));
        let stand_for = if (counts.accesses - counts.samples as f64).abs() < 0.5 {
            String::new()
        } else {
            format!(", which stand for {} accesses", crate::count(counts.accesses as u64))
        };
        let duration = time(facts.duration_ns);
        lines.add("samples", &format!("{} in {duration}{stand_for}", number(counts.samples)));
        if !filter.is_empty() {
            lines.add("only", &filter.join(", "));
        }
        lines.add("unknown", &format!("{} of the accesses are to no known object", share(Some(*unknown_share))));
        if !facts.complete {
            lines.add("lost", "the recording was cut off: what came last is missing");
        }
        for loss in &facts.lost {
            lines.add("lost", &format!("{} {}", number(loss.count), loss.what));
        }
        for file in &facts.unnamed_files {
            lines.add("no names", file);
        }
        for note in &facts.notes {
            lines.add("note", note);
        }
        for source in &facts.sources {
            lines.add("source", &source.event);
            for sentence in &source.cannot_see {
                lines.add("  cannot see", sentence);
            }
        }
        lines
    }
}

impl fmt::Display for TraceText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().fmt(f)
    }
}
