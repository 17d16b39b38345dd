//! Counts samples by page: the pages of an observation, from the samples of a round.

use crate::observation::{Few, NodeAccesses, Page, ThreadAccesses};
use machine::{NodeId, Pid, Tid};
use rustc_hash::FxHashMap;

/// Maximum number of threads distinguished per page; more do not improve clusters.
const MOST_THREADS: usize = 64;

/// A sampled memory access, as far as pages are concerned. Accesses that caches served count too: there are more of
/// them, and pages that are hot in caches are hot in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSample {
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// The address of the data.
    pub address: u64,
    /// The size of its page, bytes; a power of two.
    pub page_bytes: u64,
    /// The node that the page is on.
    pub node: NodeId,
    /// The node of the CPU.
    pub from: NodeId,
    /// Whether it is a write.
    pub is_write: bool,
    /// For a page that other processes map too: see [`Page::frame`].
    pub frame: Option<u64>,
}

/// Counts samples by page, for a limited number of pages.
#[derive(Clone, Debug)]
pub struct PageTally {
    cap: usize,
    pages: Vec<Page>,
    indices: FxHashMap<(Pid, u64), usize>,
    missed: u64,
}

impl PageTally {
    /// Keeps at most `page_cap` pages ([`crate::Sampling::page_cap`]): the first ones seen, which are likely the
    /// hottest.
    pub fn new(page_cap: u64) -> Self {
        let cap = usize::try_from(page_cap).unwrap_or(usize::MAX);
        Self { cap, pages: Vec::new(), indices: FxHashMap::default(), missed: 0 }
    }

    /// Counts a sample.
    pub fn add(&mut self, sample: &PageSample) {
        let page_bytes = sample.page_bytes.max(1);
        let address = sample.address - sample.address % page_bytes;
        let index = match self.indices.get(&(sample.pid, address)) {
            Some(&index) => index,
            None if self.pages.len() >= self.cap => {
                self.missed += 1;
                return;
            }
            None => {
                self.indices.insert((sample.pid, address), self.pages.len());
                self.pages.push(new_page(sample, address));
                self.pages.len() - 1
            }
        };
        let page = &mut self.pages[index];
        page.node = sample.node;
        page.writes += u64::from(sample.is_write);
        let from = sample.from;
        match page.accesses.iter_mut().find(|by| by.node == from) {
            Some(by) => by.accesses += 1,
            None => page.accesses.push(NodeAccesses { node: from, accesses: 1 }),
        }
        let has_room = page.threads.len() < MOST_THREADS;
        match page.threads.iter_mut().find(|by| by.tid == sample.tid) {
            Some(by) => by.accesses += 1,
            None if has_room => {
                page.threads.push(ThreadAccesses { tid: sample.tid, accesses: 1 });
            }
            None => {}
        }
    }

    /// Ends a round. Returns its pages, ordered by process and address, and the number of samples whose pages exceeded
    /// the limit. The next round starts empty, with the new limit.
    pub fn take(&mut self, page_cap: u64) -> (Vec<Page>, u64) {
        // The next round most likely needs about the same capacity.
        let next = Vec::with_capacity(self.pages.len());
        let mut pages = std::mem::replace(&mut self.pages, next);
        self.indices.clear();
        self.cap = usize::try_from(page_cap).unwrap_or(usize::MAX);
        let missed = std::mem::take(&mut self.missed);
        pages.sort_unstable_by_key(|page| (page.pid, page.address));
        for page in &mut pages {
            page.accesses.sort_unstable_by_key(|by| by.node);
            page.threads.sort_unstable_by_key(|by| by.tid);
        }
        (pages, missed)
    }
}

fn new_page(sample: &PageSample, address: u64) -> Page {
    Page {
        pid: sample.pid,
        address,
        page_bytes: sample.page_bytes.max(1),
        node: sample.node,
        accesses: Few::new(),
        writes: 0,
        threads: Few::new(),
        is_falsely_shared: false,
        frame: sample.frame,
        is_bound: false,
        is_replicable: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::SMALL_PAGE;

    fn sample(address: u64, from: u32, is_write: bool) -> PageSample {
        PageSample {
            pid: Pid(7),
            tid: Tid(8),
            address,
            page_bytes: SMALL_PAGE,
            node: NodeId(0),
            from: NodeId(from),
            is_write,
            frame: None,
        }
    }

    #[test]
    fn c33_the_30_001st_page_is_missed() {
        let mut tally = PageTally::new(30_000);
        for number in 0..30_001 {
            tally.add(&sample(number * SMALL_PAGE, 0, false));
        }
        tally.add(&sample(1, 0, false));
        let (pages, missed) = tally.take(10_000);
        assert_eq!((pages.len(), missed), (30_000, 1));
        assert_eq!(pages[0].samples(), 2);
    }

    #[test]
    fn c37_a_round_leaves_nothing_for_the_next() {
        let mut tally = PageTally::new(1);
        tally.add(&sample(0, 0, false));
        tally.add(&sample(SMALL_PAGE, 0, false));
        tally.take(1);
        assert_eq!(tally.take(1), (vec![], 0));
    }

    #[test]
    fn samples_of_a_huge_page_are_counted_by_node_and_thread() {
        let mut tally = PageTally::new(10);
        let huge = |part: u64, from, write| PageSample {
            page_bytes: 512 * SMALL_PAGE,
            ..sample(512 * SMALL_PAGE + part * SMALL_PAGE + 5, from, write)
        };
        for sample in [huge(3, 1, false), huge(0, 2, true), huge(3, 1, false)] {
            tally.add(&sample);
        }
        let (pages, _) = tally.take(10);
        let page = &pages[0];
        let by = |node, accesses| NodeAccesses { node: NodeId(node), accesses };
        assert_eq!((pages.len(), page.address, page.writes), (1, 512 * SMALL_PAGE, 1));
        assert_eq!(page.accesses[..], [by(1, 2), by(2, 1)]);
        assert_eq!(page.threads[..], [ThreadAccesses { tid: Tid(8), accesses: 3 }]);
    }
}
