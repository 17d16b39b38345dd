//! What `lab run --shake` decides: which threads go to another node, and which pages. Every decision follows from the
//! seed, the machine and the numbers of the round and of the thread or process, so that a seed can be tried again.

use linux::{Extent, NodeId, NodeState};
use machine::Random;

/// A thread moves in one of this many rounds, on average.
const ROUNDS_A_MOVE: usize = 4;
/// Bytes of a process that move in a round, at most, but one page of any size: a controller reads them in about 0.1 ms.
const BYTES_A_ROUND: u64 = 1 << 20;
/// Kinds of decisions, which must not have the same random numbers.
const OF_THREADS: u64 = 1;
const OF_PAGES: u64 = 2;

/// The decisions of a seed on a machine.
#[derive(Clone, Debug)]
pub(crate) struct Decisions {
    seed: u64,
    with_cpus: Vec<NodeId>,
    with_memory: Vec<NodeId>,
}

/// Which pages of a process move in a round.
#[derive(Clone, Debug)]
pub(crate) struct PageMove {
    random: Random,
    /// Where they go.
    pub to: NodeId,
}

impl Decisions {
    /// The decisions of this seed on a machine with these nodes.
    pub fn new(seed: u64, nodes: &NodeState) -> Self {
        let with_cpus = nodes.cpus.iter().filter(|(_, cpus)| !cpus.is_empty()).map(|(node, _)| *node).collect();
        Self { seed, with_cpus, with_memory: nodes.with_memory.iter().collect() }
    }

    fn random(&self, kind: u64, round: u64, number: u64) -> Random {
        [kind, round, number].into_iter().fold(Random(self.seed), |mut random, part| Random(random.bits() ^ part))
    }

    /// The node that a thread is moved to for a round, which may be the one that it is on; `None` leaves it free. Threads
    /// are numbered in the order in which they were first seen.
    pub fn node_of_thread(&self, round: u64, thread: u64) -> Option<NodeId> {
        let mut random = self.random(OF_THREADS, round, thread);
        if random.below(ROUNDS_A_MOVE) != 0 {
            return None;
        }
        self.with_cpus.get(random.below(self.with_cpus.len())).copied()
    }

    /// Which pages of a process move; `None` without memory. A process has the number of its first thread.
    pub fn pages(&self, round: u64, process: u64) -> Option<PageMove> {
        let mut random = self.random(OF_PAGES, round, process);
        let to = *self.with_memory.get(random.below(self.with_memory.len()))?;
        Some(PageMove { random, to })
    }
}

impl PageMove {
    /// The first page among this many.
    pub fn first(&mut self, pages: u64) -> u64 {
        self.random.below(usize::try_from(pages).unwrap_or(usize::MAX)) as u64
    }
}

/// Addresses of the page at this offset into the extents, and of those that follow, as many as move in a round. The
/// offset is in bytes of present pages.
pub(crate) fn pages_from(extents: &[Extent], offset: u64) -> Vec<u64> {
    let (mut skipped, mut left) = (offset, BYTES_A_ROUND);
    let mut pages = Vec::new();
    for Extent { range, page_bytes } in extents {
        let bytes = range.end.saturating_sub(range.start);
        if skipped >= bytes {
            skipped -= bytes;
            continue;
        }
        let mut page = range.start + skipped - skipped % page_bytes;
        skipped = 0;
        while page < range.end && left > 0 {
            pages.push(page);
            page += page_bytes;
            left = left.saturating_sub(*page_bytes);
        }
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(of_cpus: &str, with_memory: &str) -> NodeState {
        let with_cpus: linux::NodeSet = of_cpus.parse().unwrap();
        let with_memory: linux::NodeSet = with_memory.parse().unwrap();
        let cpus = (0..8).map(NodeId).map(|node| {
            let own = if with_cpus.contains(node) { node.to_string() } else { String::new() };
            (node, own.parse().unwrap())
        });
        NodeState { online: "0-7".parse().unwrap(), with_memory, cpus: cpus.collect() }
    }

    #[test]
    fn a_seed_decides_the_same_again_and_another_seed_differently() {
        let all = |seed: u64| {
            let decisions = Decisions::new(seed, &nodes("0-3", "0-3"));
            let threads: Vec<_> = (0..400).map(|i| decisions.node_of_thread(i / 8, i % 8)).collect();
            let page = |i| decisions.pages(i, 3).map(|mut pages| (pages.to, pages.first(1000)));
            (threads, (0..100).map(page).collect::<Vec<_>>())
        };
        assert_eq!(all(7), all(7));
        assert_ne!(all(7).0, all(8).0);
        assert_ne!(all(7).1, all(8).1);
        // About a quarter of 400 moves, to each of four nodes.
        let moves: Vec<NodeId> = all(7).0.into_iter().flatten().collect();
        assert!((70..130).contains(&moves.len()), "{}", moves.len());
        assert!((0..4).all(|node| moves.contains(&NodeId(node))));
    }

    #[test]
    fn threads_go_where_cpus_are_and_pages_where_memory_is() {
        let decisions = Decisions::new(1, &nodes("2,5", "3-4"));
        for round in 0..200 {
            assert!(decisions.node_of_thread(round, 0).is_none_or(|node| [2, 5].contains(&node.0)));
            assert!([3, 4].contains(&decisions.pages(round, 0).unwrap().to.0));
        }
        let nowhere = Decisions::new(1, &nodes("", ""));
        assert!((0..99).all(|round| nowhere.node_of_thread(round, 0).is_none() && nowhere.pages(round, 0).is_none()));
    }

    #[test]
    fn pages_are_taken_from_an_offset_over_several_extents() {
        let extent = |start: u64, end: u64, page_bytes| Extent { range: start..end, page_bytes };
        let extents = [extent(0x1000, 0x3000, 0x1000), extent(0x20_0000, 0x60_0000, 0x20_0000)];
        assert_eq!(pages_from(&extents, 0), [0x1000, 0x2000, 0x20_0000]);
        assert_eq!(pages_from(&extents, 0x1000), [0x2000, 0x20_0000]);
        // Within a huge page: that page, and no second one.
        assert_eq!(pages_from(&extents, 0x2000 + 0x5000), [0x20_0000]);
        assert_eq!(pages_from(&extents, 0x2000 + 0x20_0000), [0x40_0000]);
        assert_eq!(pages_from(&extents, 1 << 40), [0; 0]);
        assert_eq!(pages_from(&[extent(0, 1 << 30, 0x1000)], 0).len(), 256);
    }
}
