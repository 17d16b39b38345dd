//! How many pages each thread's hint faults found on which node (`task_numa_fault`, `task_numa_placement`).

use machine::NodeId;
use std::collections::BTreeMap;

type Pages = BTreeMap<NodeId, u64>;

/// Pages by node, of one thread or summed over a group.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    /// By the node of the memory.
    pub(super) memory: Pages,
    /// By the node of the thread's CPU.
    pub(super) cpus: Pages,
}

impl Faults {
    fn add(&mut self, memory: NodeId, cpu: NodeId, pages: u64) {
        *self.memory.entry(memory).or_default() += pages;
        *self.cpus.entry(cpu).or_default() += pages;
    }

    /// Old faults count half, and those of this pass count whole.
    fn age(&mut self, new: Faults) {
        for (old, new) in [(&mut self.memory, new.memory), (&mut self.cpus, new.cpus)] {
            for pages in old.values_mut() {
                *pages /= 2;
            }
            for (node, pages) in new {
                *old.entry(node).or_default() += pages;
            }
        }
    }

    pub(super) fn sum<'a>(all: impl Iterator<Item = &'a Faults>) -> Faults {
        all.fold(Faults::default(), |mut sum, faults| {
            for (into, from) in [(&mut sum.memory, &faults.memory), (&mut sum.cpus, &faults.cpus)] {
                for (node, pages) in from {
                    *into.entry(*node).or_default() += pages;
                }
            }
            sum
        })
    }

    /// The node of most memory faults; the lowest of equals.
    pub(super) fn most_used(&self) -> Option<NodeId> {
        let used = self.memory.iter().filter(|(_, pages)| **pages > 0);
        used.max_by_key(|(node, pages)| (**pages, std::cmp::Reverse(**node))).map(|(node, _)| *node)
    }

    /// Whether a page that several threads of the group use moves: if `to` has many more of the group's faulting CPUs,
    /// or more of them for its memory. A quarter of hysteresis keeps pages from moving back and forth.
    pub(super) fn favour(&self, from: NodeId, to: NodeId) -> bool {
        let of = |pages: &Pages, node| u128::from(pages.get(&node).copied().unwrap_or(0));
        let (cpus_from, cpus_to) = (of(&self.cpus, from), of(&self.cpus, to));
        cpus_to > 3 * cpus_from || 3 * cpus_to * of(&self.memory, from) > 4 * cpus_from * of(&self.memory, to)
    }
}

/// What the kernel knows of a thread.
#[derive(Clone, Debug, Default)]
pub(super) struct ThreadFaults {
    /// Of the passes that have ended for this thread.
    pub(super) faults: Faults,
    /// Of this pass.
    new: Faults,
    /// Passes of the scanner at its last fault.
    pub(super) passes: u32,
    /// The node of most of its faults; `None` until a pass has ended.
    pub(super) preferred: Option<NodeId>,
    /// Whether it shares pages with another thread.
    pub(super) is_grouped: bool,
}

impl ThreadFaults {
    /// Counts a fault. Returns whether a pass of the scanner has ended since the thread's last one: then its earlier
    /// faults have been counted, and its preferred node is due.
    pub(super) fn count(&mut self, memory: NodeId, cpu: NodeId, pages: u64, passes: u32) -> bool {
        let is_new_pass = passes != self.passes;
        if is_new_pass {
            self.passes = passes;
            self.faults.age(std::mem::take(&mut self.new));
        }
        self.new.add(memory, cpu, pages);
        is_new_pass
    }
}
