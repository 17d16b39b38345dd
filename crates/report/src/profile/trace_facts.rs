//! Facts about a trace, and its limits.

use super::cpu_accesses::{self, NodeAccesses};
use super::kernel_work::KernelWork;
use super::text::{LONGEST_NAME, Lines, number, share, short, time};
use crate::escape::escape_sentence;
use machine::number::counted;
use machine::{Machine, presets};
use profile::{Counts, Profile, Waiting};
use serde::Serialize;
use std::fmt;
use trace::{About, Loss, SourceNote};

/// Facts about a trace, and its limits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceFacts {
    /// Its path.
    pub path: String,
    /// The program that wrote it.
    pub written_by: String,
    /// Whether the recording was finished.
    pub complete: bool,
    /// The recorded program with its arguments; empty for programs that already ran.
    pub command: Vec<String>,
    /// Whether the program had ended when the recording did, as far as the trace says.
    pub program_ended: bool,
    /// Its exit status, 128 + n where signal n ended it; none if the trace does not say.
    pub exit_status: Option<i32>,
    /// The name of the machine, as `hostname` prints it.
    pub host: String,
    /// Its kernel.
    pub kernel: String,
    /// Whether the machine was the lab's.
    pub simulated: bool,
    /// The name of the machine's description.
    pub machine: String,
    /// Where that description comes from.
    pub machine_from: String,
    /// Its nodes.
    pub nodes: usize,
    /// Its CPUs.
    pub cpus: usize,
    /// Time of the first access, ns of the trace's clock, or of the first record if there is no access; times in text
    /// are relative to it.
    pub start_ns: u64,
    /// Begin of the time range, ns of the trace's clock: the start, unless a part was selected.
    pub from_ns: u64,
    /// Length of the time range, ns: from the first access to the last, unless a part was selected.
    pub duration_ns: u64,
    /// Time of the program's run, ns: from its first access to its last. None if the recording does not have all of it
    /// (the program was running already, or the recording was cut off), if perf made it, or if a part was selected.
    pub run_ns: Option<u64>,
    /// Notes for the reader, a sentence each: why there are no objects, or no samples.
    pub notes: Vec<String>,
    /// Sources of accesses, and their limits.
    pub sources: Vec<SourceNote>,
    /// What served the accesses of each node's CPUs, of all programs and whatever the filter; empty where that was not
    /// counted.
    pub cpu_accesses: Vec<NodeAccesses>,
    /// Lost records.
    pub lost: Vec<Loss>,
    /// Files without symbols, and why.
    pub unnamed_files: Vec<String>,
}

impl TraceFacts {
    /// For a profile. `lost` are losses of reading the trace.
    pub fn new(path: String, about: &About, lost: Vec<Loss>, profile: &Profile, machine_from: String) -> Self {
        let machine: &Machine = profile.machine();
        let (start_ns, end_ns) = profile.span_ns().unwrap_or((0, 0));
        let left_out = [
            ("samples whose physical address is no memory", profile.outside_memory()),
            ("samples from CPUs that this description of the machine lacks", profile.outside_cpus()),
            ("samples beyond the first 4,294,967,295", profile.too_many()),
        ];
        let left_out = left_out.into_iter().filter(|(_, count)| *count > 0);
        let left_out = left_out.map(|(what, count)| Loss { what: what.to_owned(), count });
        Self {
            path,
            written_by: about.written_by.clone(),
            complete: about.complete,
            command: about.command.clone(),
            program_ended: about.program_ended,
            exit_status: about.exit_status,
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
            run_ns: (about.is_whole_run() && end_ns > start_ns).then_some(end_ns - start_ns),
            notes: about.notes.clone(),
            sources: about.sources.clone(),
            cpu_accesses: cpu_accesses::by_node(profile),
            lost: lost.into_iter().chain(left_out).collect(),
            unnamed_files: Vec::new(),
        }
    }

    /// For a trace without accesses, whose records are from this time, ns.
    #[must_use]
    pub fn with_records(self, (first_ns, last_ns): (u64, u64)) -> Self {
        Self { start_ns: first_ns, from_ns: first_ns, duration_ns: last_ns.saturating_sub(first_ns), ..self }
    }

    /// The lab's preset that it was recorded on, if it is one.
    pub fn preset(&self) -> Option<&str> {
        Some(self.machine.as_str()).filter(|name| self.simulated && presets::find(name).is_ok())
    }

    /// The exit status of a program that failed: it may not have done its work.
    pub fn failure(&self) -> Option<i32> {
        self.exit_status.filter(|status| *status != 0)
    }

    /// How the program ended, if not as it should.
    fn ending(&self) -> Option<String> {
        match self.failure() {
            Some(status) => Some(format!("failed with exit code {status}: it may not have done all of its work")),
            None if !self.program_ended && !self.command.is_empty() => Some("ended after the recording".to_owned()),
            None => None,
        }
    }

    /// What is missing, as text.
    pub fn losses(&self) -> Vec<String> {
        let cut = "the recording was cut off: what came last is missing".to_owned();
        let cut = (!self.complete).then_some(cut);
        cut.into_iter()
            .chain(self.lost.iter().map(|loss| format!("{} {}", number(loss.count), escape_sentence(&loss.what))))
            .collect()
    }

    /// Restricts to this time, ns, within the trace: rates refer to it.
    #[must_use]
    pub fn within(self, (first_ns, last_ns): (u64, u64)) -> Self {
        let end_ns = self.start_ns.saturating_add(self.duration_ns);
        let from_ns = first_ns.clamp(self.start_ns, end_ns);
        Self { from_ns, duration_ns: last_ns.min(end_ns).saturating_sub(from_ns), run_ns: None, ..self }
    }
}

/// Facts about a trace, as text.
pub(crate) struct TraceText<'a> {
    pub facts: &'a TraceFacts,
    /// All accesses of the view.
    pub counts: &'a Counts,
    /// The share of accesses that are not to a known object, 0 to 1.
    pub unknown_share: f64,
    /// Accesses of threads that wait for others.
    pub waiting: &'a Waiting,
    /// The filter as text; empty for everything.
    pub filter: &'a [String],
    /// What the kernel did meanwhile.
    pub kernel: &'a KernelWork,
}

impl TraceText<'_> {
    /// One line per fact, by name.
    pub fn lines(&self) -> Lines {
        let Self { facts, counts, unknown_share, waiting, filter, kernel } = self;
        let mut lines = Lines::default();
        let command = facts.command.join(" ");
        let command = if command.is_empty() { "programs that already ran" } else { &command };
        lines.add("recorded", &format!("{command} ({}, by {})", facts.path, facts.written_by));
        if let Some(ending) = facts.ending() {
            lines.add("program", &ending);
        }
        let size = format!("{}, {}", counted(facts.nodes, "node"), counted(facts.cpus, "CPU"));
        let simulated = if facts.simulated { ", simulated" } else { "" };
        lines.add("machine", &format!("{}: {size}{simulated} ({})", facts.machine, facts.machine_from));
        let stand_for = if (counts.accesses - counts.samples as f64).abs() < 0.5 {
            String::new()
        } else {
            format!(", which stand for {} accesses", machine::number::count(counts.accesses as u64))
        };
        let duration = time(facts.duration_ns);
        lines.add("samples", &format!("{} in {duration}{stand_for}", number(counts.samples)));
        if !filter.is_empty() {
            lines.add("only", &filter.join(", "));
        }
        lines.add(
            "unknown",
            &format!(
                "{} of the accesses are not to a known object",
                share(Some(*unknown_share).filter(|_| counts.samples > 0))
            ),
        );
        if waiting.samples > 0 {
            lines.add("waiting", &waiting_text(waiting));
        }
        cpu_accesses::add_to(&facts.cpu_accesses, &mut lines);
        kernel.add_to(&mut lines);
        for lost in facts.losses() {
            lines.add("lost", &lost);
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

fn waiting_text(waiting: &Waiting) -> String {
    let Waiting { share: of_accesses, memory_time_share, lines, functions, .. } = waiting;
    let time = memory_time_share.map_or_else(String::new, |time| format!(", with {} of the cost,", share(Some(time))));
    let at = match lines {
        0 => String::new(),
        1 => " at one cache line".to_owned(),
        lines => format!(" at {lines} cache lines"),
    };
    let functions: Vec<String> = functions.iter().map(|name| short(name, LONGEST_NAME)).collect();
    let of = share(Some(*of_accesses));
    format!("{of} of the accesses{time} are of threads that wait for others{at}, in {}", functions.join(", "))
}

impl fmt::Display for TraceText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().fmt(f)
    }
}
