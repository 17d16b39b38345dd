//! State of one CPU. Only the CPU's own thread writes it, so its atomics are plain loads and stores; other threads
//! read.

use crate::AccessKind;
use crate::core::Core;
use crate::own_counts::{SLOTS, add};
use crate::siblings::PathUse;
use crate::streams::Streams;
use crate::throttle::Throttle;
use crate::tlb::Tlb;
use crate::write_buffer::WriteBuffer;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Index for a level at which a CPU has no cache.
pub(crate) const NO_CACHE: u32 = u32::MAX;

/// One CPU. Aligned so that no two share a cache line of the host, nor the pair of lines that its prefetcher fetches.
#[repr(align(128))]
pub(crate) struct Cpu {
    /// The index of its node.
    pub node: u16,
    /// The indexes of its caches.
    pub caches: CpuCaches,
    /// The number of its core: CPUs of one core share their private caches.
    pub core_index: usize,
    pub core: Core,
    pub tlb: Option<Tlb>,
    pub path_use: PathUse,
    pub counts: Counts,
    /// L1 hits that the caller of the model has found, added by any thread.
    pub found_hits: Counts,
    pub streams: Streams,
    pub lines: LineCounts,
    pub write_buffer: WriteBuffer,
    /// The ways of its L3 cache that it fills.
    pub level3_ways: AtomicU64,
    pub throttle: Throttle,
}

/// Indexes of one CPU's caches in the model's list, or [`NO_CACHE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuCaches {
    pub data: u32,
    pub instruction: u32,
    pub level2: u32,
    pub level3: u32,
    /// The last level, which writes lines back.
    pub last: u32,
}

/// Declares the counts of a CPU once, for their atomics and for their values.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of a CPU since the model was created. Its memory accesses are in [`LineCounts`].
        #[derive(Default)]
        pub(crate) struct Counts {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        /// The values of [`Counts`] at one time, or their sums or differences.
        #[derive(Clone, Copy, Default)]
        pub(crate) struct CountValues {
            $(pub $name: u64,)*
        }

        impl Counts {
            pub(crate) fn values(&self) -> CountValues {
                CountValues { $($name: self.$name.load(Relaxed),)* }
            }
        }

        impl CountValues {
            pub(crate) fn plus(self, other: Self) -> Self {
                Self { $($name: self.$name.wrapping_add(other.$name),)* }
            }

            pub(crate) fn since(self, before: Self) -> Self {
                Self { $($name: self.$name.wrapping_sub(before.$name),)* }
            }
        }
    };
}

counts! {
    loads,
    stores,
    instructions,
    l1_misses,
    l2_hits,
    l3_hits,
    /// L1 misses that continued a stream.
    stream_misses,
    /// Sum over all memory accesses, ps.
    dram_latency_ps,
    /// Dirty lines evicted from the last-level cache.
    write_backs,
    /// Misses served by other caches.
    peer_hits,
    /// Pages that were in no TLB.
    page_walks,
    /// Those of `peer_hits` whose line was modified.
    peer_modified_hits,
}

impl Counts {
    #[inline]
    pub(crate) fn of(&self, kind: AccessKind) -> &AtomicU64 {
        match kind {
            AccessKind::Load => &self.loads,
            AccessKind::Store => &self.stores,
            AccessKind::Instruction => &self.instructions,
        }
    }
}

impl CountValues {
    pub(crate) fn l1_hits(&self) -> u64 {
        (self.loads + self.stores + self.instructions).saturating_sub(self.l1_misses)
    }
}

/// Lines that a CPU read from each node and wrote back to it, by window. Counts only grow: the count of one window is a
/// difference.
pub(crate) struct LineCounts {
    /// For each slot of the ring of windows, one count per column ([`crate::resources::columns`]); whole blocks, so
    /// that no two CPUs share one.
    blocks: Box<[Block]>,
    blocks_per_slot: usize,
}

const BLOCK: usize = 16;

#[derive(Default)]
#[repr(align(128))]
struct Block([AtomicU64; BLOCK]);

impl LineCounts {
    pub(crate) fn new(columns: usize) -> Self {
        let blocks_per_slot = columns.div_ceil(BLOCK);
        Self { blocks: (0..SLOTS * blocks_per_slot).map(|_| Block::default()).collect(), blocks_per_slot }
    }

    #[inline]
    pub(crate) fn add(&self, slot: usize, column: usize) {
        add(&self.blocks[slot * self.blocks_per_slot + column / BLOCK].0[column % BLOCK], 1);
    }

    /// All counts, of a number of columns.
    pub(crate) fn sums(&self, columns: usize) -> Vec<u64> {
        let mut sums = vec![0_u64; columns];
        for slot in 0..SLOTS {
            for (sum, count) in sums.iter_mut().zip(self.of_slot(slot)) {
                *sum = sum.wrapping_add(count);
            }
        }
        sums
    }

    /// A slot's counts, by column; up to a block's worth of zeros follow.
    pub(crate) fn of_slot(&self, slot: usize) -> impl Iterator<Item = u64> + '_ {
        let blocks = &self.blocks[slot * self.blocks_per_slot..][..self.blocks_per_slot];
        blocks.iter().flat_map(|block| block.0.iter().map(|count| count.load(Relaxed)))
    }
}
