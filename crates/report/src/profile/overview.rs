//! What a trace shows as a whole.

use super::advice::AdviceRow;
use super::nodes::{Controller, controllers};
use super::ranked::{By, FunctionRow, ObjectRow, ProcessRow, Ranked, Ranks, SiteRow, SmallRow, ThreadRow};
use super::trace_facts::TraceFacts;
use super::unseen::Unseen;
use machine::NodeId;
use profile::{Avoidable, Counts, LatencyPart, NodePair, Tally, Verdict, View};
use serde::Serialize;
use std::thread;

/// What of a trace to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Rows of each ranking.
    pub top: usize,
    /// What decides who comes first.
    pub by: By,
    /// What was chosen of the trace, in words; empty for all of it.
    pub filter: Vec<String>,
}

/// What a trace shows as a whole. Its JSON form is all that the text has, and more of each row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfileReport {
    /// Whether NUMA is the problem.
    pub verdict: Verdict,
    /// What the trace says of itself.
    pub trace: TraceFacts,
    /// What was chosen of it, in words; empty for all.
    pub filter: Vec<String>,
    /// All accesses that are looked at.
    pub counts: Counts,
    /// What threads did to what they allocated themselves, of all objects, and what would have had it local.
    pub avoidable: Avoidable,
    /// What to do about the sites that cost most.
    pub advice: Vec<AdviceRow>,
    /// Objects, what decides who comes first being asked for.
    pub objects: Ranked<ObjectRow>,
    /// Where objects come from.
    pub sites: Ranked<SiteRow>,
    /// Threads, with where they run and whose memory they access.
    pub threads: Ranked<ThreadRow>,
    /// Processes.
    pub processes: Ranked<ProcessRow>,
    /// Functions.
    pub functions: Ranked<FunctionRow>,
    /// What was allocated and only counted, by site, the most bytes first; whatever the filter, which is of accesses.
    pub small_objects: Ranked<SmallRow>,
    /// Accesses that reached memory, by node of the CPU and node of the memory.
    pub nodes: Vec<NodePair>,
    /// The memory of each node.
    pub controllers: Vec<Controller>,
    /// The latency of each node's memory over time.
    pub latency_over_time: Vec<LatencyPart>,
}

impl ProfileReport {
    /// Of the accesses of a view.
    pub fn of(view: &View, trace: TraceFacts, wanted: Wanted) -> Self {
        let Wanted { top, by, filter } = wanted;
        let profile = view.profile();
        // A filter is of accesses: it chooses none where there are none.
        let unseen = Unseen::of(profile, |_| filter.is_empty());
        let ranks = Ranks { view, by, most: top, all: view.tally(), unseen: &unseen };
        let cells = view.thread_nodes();
        let matrix = view.matrix();
        let pair = |((from, to), tally): (&(NodeId, NodeId), &Tally)| NodePair {
            from: *from,
            to: *to,
            counts: tally.counts(view.tally()),
        };
        // Advice looks at the accesses once more, as rankings do.
        thread::scope(|scope| {
            let advice = scope.spawn(|| view.advice(top));
            let latency_over_time = view.flow().latency_over_time();
            let objects = ranks.objects();
            let advice = advice.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Self {
                verdict: view.verdict(view.measured()),
                counts: view.tally().counts(view.tally()),
                avoidable: view.avoidable(),
                advice: advice.into_iter().map(|advice| AdviceRow::of(profile, advice)).collect(),
                objects,
                sites: ranks.sites(),
                threads: ranks.threads(&cells),
                processes: ranks.processes(),
                functions: ranks.functions(),
                small_objects: ranks.small_objects(),
                nodes: matrix.iter().map(pair).collect(),
                controllers: controllers(view, &matrix, &latency_over_time, trace.duration_ns),
                latency_over_time,
                trace,
                filter,
            }
        })
    }
}
