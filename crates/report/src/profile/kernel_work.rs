//! What the kernel did meanwhile: the memory that it allocated, and the threads that it moved.

use super::text::{Lines, number};
use machine::size;
use profile::Profile;
use serde::Serialize;
use std::collections::BTreeMap;
use trace::Counter;

/// What the kernel did during the recording, if that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelWork {
    /// Allocations of physical memory for the recorded processes, by size.
    pub page_allocations: Vec<AllocationsOfSize>,
    /// Moves of threads of all programs; none if they were not counted.
    pub thread_moves: Option<ThreadMoves>,
}

/// Allocations of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AllocationsOfSize {
    /// The size.
    pub bytes: u64,
    /// Their number.
    pub allocations: u64,
    /// Those whose virtual address a sample shows.
    pub mapped: u64,
    /// Those without a sample.
    pub unmapped: u64,
}

/// Moves of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadMoves {
    /// By the scheduler, to another CPU.
    pub migrations: u64,
    /// By NUMA balancing, to another node.
    pub numa_moves: u64,
    /// Moves that NUMA balancing wanted and did not make.
    pub numa_stays: u64,
    /// Pairs that NUMA balancing exchanged.
    pub numa_swaps: u64,
}

impl KernelWork {
    /// Of a trace.
    pub fn new(profile: &Profile) -> Self {
        let mut by_size: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for allocation in profile.page_allocations() {
            let (all, mapped) = by_size.entry(allocation.bytes).or_default();
            *all += 1;
            *mapped += u64::from(allocation.address.is_some());
        }
        let of_size = |(bytes, (allocations, mapped)): (u64, (u64, u64))| AllocationsOfSize {
            bytes,
            allocations,
            mapped,
            unmapped: allocations - mapped,
        };
        let moves = profile.thread_moves();
        let count = |counter| moves.get(&counter).copied().unwrap_or(0);
        let thread_moves = moves.contains_key(&Counter::ThreadMigrations).then(|| ThreadMoves {
            migrations: count(Counter::ThreadMigrations),
            numa_moves: count(Counter::NumaMoves),
            numa_stays: count(Counter::NumaStays),
            numa_swaps: count(Counter::NumaSwaps),
        });
        Self { page_allocations: by_size.into_iter().rev().map(of_size).collect(), thread_moves }
    }

    /// One line a size, and one for threads.
    pub(crate) fn add_to(&self, lines: &mut Lines) {
        for AllocationsOfSize { bytes, allocations, unmapped, .. } in &self.page_allocations {
            let unmapped = match unmapped {
                0 => "all with samples".to_owned(),
                unmapped => format!("{} of them unmapped, as no sample is in them", number(*unmapped)),
            };
            let text =
                format!("{} times {} of physical memory, {unmapped}", number(*allocations), size::rounded(*bytes));
            lines.add("allocated", &text);
        }
        if let Some(ThreadMoves { migrations, numa_moves, numa_stays, numa_swaps }) = self.thread_moves {
            let text = format!(
                "threads of all programs: {} moved to another CPU; by NUMA balancing {} moved, {} pairs exchanged, {} left \
                 where they were",
                number(migrations),
                number(numa_moves),
                number(numa_swaps),
                number(numa_stays)
            );
            lines.add("scheduler", &text);
        }
    }
}
