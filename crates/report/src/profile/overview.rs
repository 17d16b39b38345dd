//! The overview of a trace.

use super::advice::AdviceRow;
use super::kernel_work::KernelWork;
use super::nodes::{Controller, controllers};
use super::ranked::{By, FunctionRow, ObjectRow, ProcessRow, Ranked, Ranks, SiteRow, SmallRow, ThreadRow};
use super::trace_facts::TraceFacts;
use super::without_samples::WithoutSamples;
use machine::NodeId;
use profile::{Avoidable, Counts, LatencyPart, NodePair, Tally, Together, Verdict, View, Waiting};
use serde::Serialize;
use std::thread;

/// Sites for which advice is sought, whatever number of rows is shown.
const ADVISED: usize = 32;

/// The extent of an overview.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Rows of each ranking.
    pub top: usize,
    /// The order of rankings.
    pub by: By,
    /// The filter as text; empty for everything.
    pub filter: Vec<String>,
}

/// The overview of a trace. Its JSON form has everything in the text, and more of each row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfileReport {
    /// Whether NUMA is the problem.
    pub verdict: Verdict,
    /// Facts about the trace.
    pub trace: TraceFacts,
    /// What the kernel did meanwhile, whatever the filter.
    pub kernel: KernelWork,
    /// The filter as text; empty for everything.
    pub filter: Vec<String>,
    /// The order of rankings.
    pub by: By,
    /// All accesses of the view.
    pub counts: Counts,
    /// Those of threads that wait for others.
    pub waiting: Waiting,
    /// Remote accesses of threads to what they allocated themselves, over all objects, by what would have made them
    /// local.
    pub avoidable: Avoidable,
    /// Advice for the most expensive sites.
    pub advice: Vec<AdviceRow>,
    /// Whether there is none because the filter hides other accesses to the objects.
    pub is_advice_hidden: bool,
    /// Actions that gain more for several of these sites than for each alone.
    pub together: Vec<Together>,
    /// Objects, in the requested order.
    pub objects: Ranked<ObjectRow>,
    /// Sites.
    pub sites: Ranked<SiteRow>,
    /// Threads, with their nodes and those of the memory that they access.
    pub threads: Ranked<ThreadRow>,
    /// Processes.
    pub processes: Ranked<ProcessRow>,
    /// Functions.
    pub functions: Ranked<FunctionRow>,
    /// Allocations that were only counted, by site, the most bytes first. Not filtered, as filters apply to accesses.
    pub small_objects: Ranked<SmallRow>,
    /// Accesses that reached memory, by node of the CPU and node of the memory.
    pub nodes: Vec<NodePair>,
    /// The memory of each node.
    pub controllers: Vec<Controller>,
    /// The latency of each node's memory over time.
    pub latency_over_time: Vec<LatencyPart>,
}

impl ProfileReport {
    /// For the accesses of a view.
    pub fn new(view: &View, trace: TraceFacts, wanted: Wanted) -> Self {
        let Wanted { top, by, filter } = wanted;
        let profile = view.profile();
        // Filters select accesses: without accesses they select nothing.
        let without_samples = WithoutSamples::new(profile, |_| filter.is_empty());
        let ranks = Ranks { view, by, most: top, all: view.tally(), without_samples: &without_samples };
        let cells = view.thread_nodes();
        let matrix = view.matrix();
        let pair = |((from, to), tally): (&(NodeId, NodeId), &Tally)| NodePair {
            from: *from,
            to: *to,
            counts: tally.counts(view.tally()),
        };
        // Each of advice and rankings needs a pass over the accesses, so they run in parallel.
        thread::scope(|scope| {
            let advised = if view.hides_accesses() { 0 } else { ADVISED };
            let advice = scope.spawn(move || view.advice(advised));
            let sites = scope.spawn(|| ranks.sites());
            let waiting = scope.spawn(|| view.waiting());
            let latency_over_time = view.flow().latency_over_time();
            let objects = ranks.objects();
            let advice = advice.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Self {
                verdict: view.verdict(view.measured()),
                counts: view.tally().counts(view.tally()),
                waiting: waiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                avoidable: view.avoidable(),
                together: view.together(&advice),
                is_advice_hidden: view.hides_accesses(),
                advice: advice.into_iter().map(|advice| AdviceRow::new(profile, advice)).collect(),
                objects,
                sites: sites.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                threads: ranks.threads(&cells),
                processes: ranks.processes(),
                functions: ranks.functions(),
                small_objects: ranks.small_objects(),
                nodes: matrix.iter().map(pair).collect(),
                controllers: controllers(view, &matrix, &latency_over_time, trace.duration_ns),
                latency_over_time,
                trace,
                kernel: KernelWork::new(profile),
                filter,
                by,
            }
        })
    }
}
