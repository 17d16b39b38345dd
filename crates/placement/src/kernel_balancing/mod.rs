//! Linux's automatic NUMA balancing of one process's memory, page by page: what the kernel does with a given sequence
//! of accesses. Also with Gachod's study's patch (2024), which splits a huge page in the hint fault of another node.
//!
//! The scanner takes away access to pages, window by window; the first access to such a page is a hint fault, and the
//! kernel decides in it whether the page moves to the node of the CPU. The rules are those of `kernel/sched/fair.c` and
//! `mm/huge_memory.c` of Linux 6.12, without time: the caller says when the scanner runs, faults of a group's threads
//! count alike (the kernel weighs them by run time), and a thread's preferred node is found at its first fault of a pass.
//! Threads stay where the caller lets them run; [`KernelBalancing::preferred_node`] says where the kernel would move them.
//!
//! For experiments: no policy decides by it.

mod faults;

use faults::{Faults, ThreadFaults};
use machine::{NodeId, Tid};
use std::collections::BTreeMap;

/// Pages of 4 KiB in a huge page.
pub const HUGE_PAGE_PAGES: usize = 512;
/// Passes of the scanner in which a page moves on its first fault (`should_numa_migrate_memory`).
const EARLY_PASSES: u32 = 4;

/// When the study's patch splits a huge page, in a hint fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitTrigger {
    /// The fault before it was of another node (the study's first version).
    LastFault,
    /// The page is on another node (the version that the study measured).
    Page,
}

/// The options of the study's patch. Without them, as by default, the kernel is as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitOptions {
    /// Whether huge pages are split, and when.
    pub split: Option<SplitTrigger>,
    /// The parts can be accessed only with a hint fault again, but for the one that faulted.
    pub reapply: bool,
    /// The parts move in their next hint fault, whatever was known of them.
    pub reset: bool,
    /// The part that faulted moves at once.
    pub migrate: bool,
}

/// How often something happened; pages are of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BalancingCounts {
    /// Hint faults.
    pub faults: u64,
    /// Pages moved.
    pub moved: u64,
    /// Huge pages split.
    pub splits: u64,
    /// Huge pages that could not be split.
    pub failed_splits: u64,
    /// Parts of split pages that were made to fault again.
    pub reapplied: u64,
    /// Parts of split pages that moved because they were marked.
    pub marked_moves: u64,
}

/// The last hint fault of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastFault {
    None,
    Of(Tid, NodeId),
    /// A part of a split page whose next fault moves it (`reset`).
    Marked,
}

/// A page of 4 KiB or a huge page.
#[derive(Clone, Copy, Debug)]
struct Page {
    node: NodeId,
    last: LastFault,
    /// The next access faults.
    protected: bool,
}

/// 2 MiB of address space.
#[derive(Clone, Debug)]
enum Block {
    Huge { page: Page, splits: bool },
    Small(Vec<Page>),
}

/// A process's memory and threads, as the kernel's balancing sees them.
#[derive(Clone, Debug)]
pub struct KernelBalancing {
    options: SplitOptions,
    blocks: Vec<Block>,
    /// The block at which the scanner goes on.
    next: usize,
    passes: u32,
    threads: BTreeMap<Tid, ThreadFaults>,
    counts: BalancingCounts,
}

impl KernelBalancing {
    /// Memory of which each entry is 2 MiB on that node: a huge page.
    #[must_use]
    pub fn new(huge_pages: &[NodeId], options: SplitOptions) -> KernelBalancing {
        let huge = |node: &NodeId| Block::Huge { page: Page::new(*node), splits: true };
        KernelBalancing {
            options,
            blocks: huge_pages.iter().map(huge).collect(),
            next: 0,
            passes: 0,
            threads: BTreeMap::new(),
            counts: BalancingCounts::default(),
        }
    }

    /// Splits a huge page, as for a program that had small pages from the start. Index in 2 MiB.
    pub fn make_small(&mut self, block: usize) {
        if let Block::Huge { page, .. } = self.blocks[block] {
            self.blocks[block] = Block::Small(vec![page; HUGE_PAGE_PAGES]);
        }
    }

    /// Makes all attempts to split a huge page fail, as while a device uses it. Index in 2 MiB.
    pub fn pin(&mut self, block: usize) {
        if let Block::Huge { splits, .. } = &mut self.blocks[block] {
            *splits = false;
        }
    }

    /// One window of the scanner, of that many times 2 MiB: their pages fault at the next access. At the end of the
    /// memory the pass ends, and the window with it.
    pub fn scan(&mut self, blocks: usize) {
        let end = self.blocks.len().min(self.next.saturating_add(blocks));
        for block in &mut self.blocks[self.next..end] {
            for page in block.pages() {
                page.protected = true;
            }
        }
        self.next = end;
        if end == self.blocks.len() {
            self.next = 0;
            self.passes += 1;
        }
    }

    /// A whole pass of the scanner, from where it is.
    pub fn scan_all(&mut self) {
        self.scan(usize::MAX);
    }

    /// A thread on a CPU of that node accesses a page; index in 4 KiB. Returns whether that was a hint fault.
    pub fn access(&mut self, page: usize, thread: Tid, node: NodeId) -> bool {
        let (block, part) = (page / HUGE_PAGE_PAGES, page % HUGE_PAGE_PAGES);
        let before = self.at(page);
        if !before.protected {
            return false;
        }
        self.counts.faults += 1;
        match self.blocks[block] {
            Block::Huge { splits: true, .. } if self.is_split(before, node) => self.split(block, part, before, node),
            Block::Huge { splits: false, .. } if self.is_split(before, node) => {
                // Access is given back, and nothing is learnt from the fault.
                self.counts.failed_splits += 1;
                self.blocks[block].page(part).protected = false;
            }
            Block::Huge { .. } => self.fault(block, part, HUGE_PAGE_PAGES as u64, thread, node),
            Block::Small(_) => self.fault(block, part, 1, thread, node),
        }
        true
    }

    /// The node that a page is on; index in 4 KiB.
    #[must_use]
    pub fn node(&self, page: usize) -> NodeId {
        self.at(page).node
    }

    /// Whether the next access to a page is a hint fault; index in 4 KiB.
    #[must_use]
    pub fn is_protected(&self, page: usize) -> bool {
        self.at(page).protected
    }

    /// Whether a page is a huge page, or a part of one; index in 4 KiB.
    #[must_use]
    pub fn is_huge(&self, page: usize) -> bool {
        matches!(self.blocks[page / HUGE_PAGE_PAGES], Block::Huge { .. })
    }

    /// Whole passes of the scanner so far.
    #[must_use]
    pub fn passes(&self) -> u32 {
        self.passes
    }

    /// The node that the kernel would move a thread to: that of most of its faults at its last pass of the scanner.
    #[must_use]
    pub fn preferred_node(&self, thread: Tid) -> Option<NodeId> {
        self.threads.get(&thread)?.preferred
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> BalancingCounts {
        self.counts
    }

    fn at(&self, page: usize) -> Page {
        match &self.blocks[page / HUGE_PAGE_PAGES] {
            Block::Huge { page, .. } => *page,
            Block::Small(pages) => pages[page % HUGE_PAGE_PAGES],
        }
    }

    fn is_split(&self, page: Page, node: NodeId) -> bool {
        match self.options.split {
            None => false,
            Some(SplitTrigger::LastFault) => matches!(page.last, LastFault::Of(_, last) if last != node),
            Some(SplitTrigger::Page) => page.node != node,
        }
    }

    /// Splits a huge page in a hint fault on one of its parts. The split itself gives access to all parts.
    fn split(&mut self, block: usize, part: usize, huge: Page, node: NodeId) {
        self.counts.splits += 1;
        let last = if self.options.reset { LastFault::Marked } else { huge.last };
        let mut parts = vec![Page { last, protected: self.options.reapply, ..huge }; HUGE_PAGE_PAGES];
        if self.options.reapply {
            self.counts.reapplied += HUGE_PAGE_PAGES as u64 - 1;
        }
        // A fault has to end with access.
        parts[part].protected = false;
        if self.options.migrate && huge.node != node {
            parts[part].node = node;
            self.counts.moved += 1;
        }
        self.blocks[block] = Block::Small(parts);
    }

    /// A hint fault that splits nothing. It gives access to `pages`: one, or all of a huge page.
    fn fault(&mut self, block: usize, part: usize, pages: u64, thread: Tid, node: NodeId) {
        let page = *self.blocks[block].page(part);
        let moves = self.may_move(page, thread, node) && page.node != node;
        if moves {
            self.counts.moved += pages;
            self.counts.marked_moves += u64::from(page.last == LastFault::Marked);
        }
        let at = if moves { node } else { page.node };
        *self.blocks[block].page(part) = Page { node: at, last: LastFault::Of(thread, node), protected: false };
        self.count(page.last, thread, node, at, pages);
    }

    /// The rules of `should_numa_migrate_memory`, in its order.
    fn may_move(&self, page: Page, thread: Tid, node: NodeId) -> bool {
        let known = self.threads.get(&thread);
        let is_early = known.is_none_or(|known| known.preferred.is_none() || known.passes <= EARLY_PASSES);
        match page.last {
            LastFault::Marked => true,
            LastFault::None if is_early => true,
            LastFault::Of(last, _) if last == thread && is_early => true,
            // The second of two faults has to be of the same node: pages that a node seldom uses stay.
            LastFault::Of(_, last) if last != node => false,
            LastFault::Of(last, _) if last == thread => true,
            _ if known.is_some_and(|known| known.is_grouped) => self.group().favour(page.node, node),
            _ => true,
        }
    }

    /// The faults of all threads that share pages.
    fn group(&self) -> Faults {
        Faults::sum(self.threads.values().filter(|known| known.is_grouped).map(|known| &known.faults))
    }

    /// Counts a hint fault for the thread, and lets threads that share a page be a group.
    fn count(&mut self, last: LastFault, thread: Tid, node: NodeId, memory: NodeId, pages: u64) {
        if let LastFault::Of(other, _) = last
            && other != thread
        {
            for sharing in [other, thread] {
                self.threads.entry(sharing).or_default().is_grouped = true;
            }
        }
        let known = self.threads.entry(thread).or_default();
        if known.count(memory, node, pages, self.passes) {
            let faults = if known.is_grouped { self.group() } else { known.faults.clone() };
            self.threads.entry(thread).or_default().preferred = faults.most_used();
        }
    }
}

impl Page {
    fn new(node: NodeId) -> Page {
        Page { node, last: LastFault::None, protected: false }
    }
}

impl Block {
    fn pages(&mut self) -> &mut [Page] {
        match self {
            Block::Huge { page, .. } => std::slice::from_mut(page),
            Block::Small(pages) => pages,
        }
    }

    /// The huge page, or this part of it.
    fn page(&mut self, part: usize) -> &mut Page {
        match self {
            Block::Huge { page, .. } => page,
            Block::Small(pages) => &mut pages[part],
        }
    }
}
