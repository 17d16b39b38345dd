//! Sums over all CPUs.

use crate::counters::CpuCounters;
use crate::cpu::{CountValues, Cpu};
use crate::resources::{Lines, columns};
use crate::windows::lines_so_far;
use std::iter::repeat;

/// Sums over all CPUs since the model was created.
#[derive(Default)]
pub(crate) struct Totals {
    pub time_ps: u64,
    pub counts: CountValues,
    /// By pair of nodes.
    pub lines: Vec<u64>,
    /// For each CPU: the same, and its lines by column.
    cpus: Vec<(CountValues, Vec<u64>)>,
}

impl Totals {
    pub(crate) fn new(time_ps: u64, cpus: &[Cpu], nodes: usize) -> Self {
        let lines = lines_so_far(cpus, nodes);
        let cpus: Vec<_> = cpus
            .iter()
            .map(|cpu| (cpu.counts.values().plus(cpu.found_hits.values()), cpu.lines.sums(columns(nodes))))
            .collect();
        let counts = cpus.iter().fold(CountValues::default(), |sum, (counts, _)| sum.plus(*counts));
        Self { time_ps, counts, lines, cpus }
    }

    /// Counts of a measurement on no CPU.
    pub(crate) fn zero(pairs: usize) -> Self {
        Self { lines: vec![0; pairs], ..Self::default() }
    }

    /// Each CPU's counters since a measurement began.
    pub(crate) fn cpus_since(&self, began: &Self, nodes: usize) -> Vec<CpuCounters> {
        let none = (CountValues::default(), vec![0; columns(nodes)]);
        let cpus = self.cpus.iter().zip(began.cpus.iter().chain(repeat(&none)));
        let counters = cpus.map(|((counts, lines), (counts_before, lines_before))| {
            let counts = counts.since(*counts_before);
            let lines: Vec<u64> =
                lines.iter().zip(lines_before).map(|(now, before)| now.wrapping_sub(*before)).collect();
            let by_node = |kind: Lines| (0..nodes).map(|node| lines[kind.column(nodes, node)]).collect();
            CpuCounters {
                l1_hits: counts.l1_hits(),
                l2_hits: counts.l2_hits,
                l3_hits: counts.l3_hits,
                peer_clean_hits: counts.peer_hits.saturating_sub(counts.peer_modified_hits),
                peer_modified_hits: counts.peer_modified_hits,
                dram_accesses_by_node: by_node(Lines::Read),
                write_backs_by_node: by_node(Lines::Written),
                transfers_by_node: by_node(Lines::Transferred),
            }
        });
        counters.collect()
    }
}
