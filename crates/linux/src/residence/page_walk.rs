//! The present pages of a process one by one: size, node, frame and flags. Touches none.

use crate::migration::page_batch::{PageBatch, PageRefusal};
use crate::processes::process::{Pid, Process, ProcessError};
use crate::residence::page_flags::{FrameFlags, PageFlags};
use crate::residence::pagemap::{PageEntry, Pagemap};
use crate::residence::present::{Extent, PresentPages};
use machine::{NodeId, SMALL_PAGE};
use std::io;
use std::ops::{ControlFlow, Range};

/// Pages per query.
const MOST_PAGES: usize = 32 << 10;

const MOVE_PAGES: &str = "move_pages";

/// Why pages cannot be inspected.
#[derive(Debug, thiserror::Error)]
pub enum WalkError {
    /// The process cannot be inspected.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The kernel refused a call.
    #[error("cannot look at pages of process {pid} ({call})")]
    Call {
        /// The process.
        pid: Pid,
        /// The call.
        call: &'static str,
        /// The error.
        source: io::Error,
    },
}

/// A present page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Start address.
    pub address: u64,
    /// Size in bytes.
    pub page_bytes: u64,
    /// Its node, or why it has none.
    pub node: Result<NodeId, PageRefusal>,
    /// Its page table entry.
    pub entry: PageEntry,
    /// The flags of its frame; `None` if they were not requested or are hidden.
    pub flags: Option<PageFlags>,
}

/// A walk over the pages of one process.
#[derive(Debug)]
pub struct PageWalk {
    pid: Pid,
    present: PresentPages,
    pagemap: Pagemap,
    flags: Option<FrameFlags>,
    batch: PageBatch,
    pages: Vec<Page>,
    frames: Vec<(u64, usize)>,
}

impl PageWalk {
    /// A walk of this process, optionally with frame flags. Needs the process's user, or `CAP_SYS_PTRACE`; frames need
    /// `CAP_SYS_ADMIN`.
    pub fn new(process: &Process, flags: Option<FrameFlags>) -> Result<Self, ProcessError> {
        Ok(Self {
            pid: process.pid(),
            present: PresentPages::new(process)?,
            pagemap: Pagemap::new(process)?,
            flags,
            batch: PageBatch::with_capacity(MOST_PAGES),
            pages: Vec::with_capacity(MOST_PAGES),
            frames: Vec::new(),
        })
    }

    /// Whether transparent huge pages are reported as such, rather than as base pages.
    pub fn shows_huge_pages(&self) -> bool {
        self.present.shows_huge_pages()
    }

    /// Visits the pages of a range of one mapping by address, until a visit breaks. A huge page that is partly in the
    /// range is visited as a whole. `hugetlb` is the page size in bytes if the mapping is of a hugetlb pool.
    /// [`ProcessError::Gone`] means that the process has exited or executed another program meanwhile, and its previous
    /// memory no longer exists.
    pub fn visit(
        &mut self,
        range: &Range<u64>,
        hugetlb: Option<u64>,
        mut visit: impl FnMut(&Page) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, WalkError> {
        let (mut extents, mut from) = (Vec::new(), range.start);
        // The address after the last page.
        let mut seen = 0;
        while from < range.end {
            let rest = from..range.end;
            from = self.present.find(&rest, &mut extents).map_err(|source| self.failed("PAGEMAP_SCAN", source))?;
            for Extent { range, page_bytes } in extents.drain(..) {
                let page_bytes = hugetlb.unwrap_or(page_bytes).max(SMALL_PAGE);
                let mut address = (range.start - range.start % page_bytes).max(seen);
                while address < range.end {
                    let end = range.end.min(address.saturating_add(page_bytes.saturating_mul(MOST_PAGES as u64)));
                    self.look_at(address, end, page_bytes)?;
                    if self.pages.iter().try_for_each(&mut visit).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    seen = self.pages.last().map_or(end, |page| page.address.saturating_add(page_bytes));
                    address = seen;
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn failed(&self, call: &'static str, source: io::Error) -> WalkError {
        match source.raw_os_error() {
            Some(libc::ESRCH) => ProcessError::Gone(self.pid).into(),
            _ => WalkError::Call { pid: self.pid, call, source },
        }
    }

    /// Fills `pages` with pages of one size, starting at an address.
    fn look_at(&mut self, start: u64, end: u64, page_bytes: u64) -> Result<(), WalkError> {
        self.pages.clear();
        self.batch.clear();
        let addresses = (start..end).step_by(usize::try_from(page_bytes).unwrap_or(usize::MAX));
        for address in addresses {
            self.batch.push(address, None);
            let node = Err(PageRefusal::NotPresent);
            self.pages.push(Page { address, page_bytes, node, entry: PageEntry::default(), flags: None });
        }
        self.batch.locate(self.pid).map_err(|source| self.failed(MOVE_PAGES, source))?;
        for (page, (_, status)) in self.pages.iter_mut().zip(self.batch.statuses()) {
            page.node = status.node();
        }
        self.read_entries(start, page_bytes).map_err(|source| self.failed("read pagemap", source))?;
        // The page table belongs to the memory that was opened, even if the PID has been reused.
        for page in self.pages.iter_mut().filter(|page| !page.entry.is_present() && !page.entry.is_swapped()) {
            page.node = Err(PageRefusal::NotPresent);
        }
        self.read_flags().map_err(|source| self.failed("read /proc/kpageflags", source))
    }

    fn read_entries(&mut self, start: u64, page_bytes: u64) -> io::Result<()> {
        if page_bytes == SMALL_PAGE {
            let end = start + self.pages.len() as u64 * SMALL_PAGE;
            for (page, entry) in self.pages.iter_mut().zip(self.pagemap.read(&(start..end))?) {
                page.entry = entry;
            }
            return Ok(());
        }
        for page in &mut self.pages {
            let first = page.address..page.address + SMALL_PAGE;
            page.entry = self.pagemap.read(&first)?.next().unwrap_or_default();
        }
        Ok(())
    }

    fn read_flags(&mut self) -> io::Result<()> {
        let Some(flags) = &mut self.flags else { return Ok(()) };
        self.frames.clear();
        let frames = self.pages.iter().enumerate().filter_map(|(index, page)| Some((page.entry.frame()?, index)));
        self.frames.extend(frames);
        self.frames.sort_unstable();
        let numbers: Vec<u64> = self.frames.iter().map(|(frame, _)| *frame).collect();
        let (frames, pages) = (&self.frames, &mut self.pages);
        flags.read(&numbers, |index, flags| {
            if let Some(page) = frames.get(index).and_then(|(_, page)| pages.get_mut(*page)) {
                page.flags = Some(flags);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pages;

    #[test]
    fn own_pages_are_visited_by_address_and_once() {
        let mut memory = Pages::reserve(6 << 20).unwrap();
        memory.advise_huge(false).unwrap_or_default();
        let range = memory.range();
        let touched: Vec<u64> = (0..1200).filter(|page| page % 7 != 3).collect();
        for page in &touched {
            memory.touch(usize::try_from(page * 4096).unwrap());
        }
        let process = Process::open(Pid(std::process::id())).unwrap();
        let mut walk = PageWalk::new(&process, None).unwrap();
        let mut seen = Vec::new();
        let all = |page: &Page| {
            seen.push(*page);
            ControlFlow::Continue(())
        };
        match walk.visit(&range, None, all) {
            // Containers may forbid the call.
            Err(WalkError::Call { call: MOVE_PAGES, .. }) => return,
            visited => assert!(visited.unwrap().is_continue()),
        }
        assert!(seen.iter().map(|page| (page.address - range.start) / 4096).eq(touched));
        let good = |page: &Page| page.page_bytes == 4096 && page.node.is_ok() && page.entry.is_exclusive();
        assert!(seen.iter().all(good), "{:?}", seen.first());
        let mut part = 0;
        let mut count = |_: &Page| {
            part += 1;
            if part < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let few = range.start + 8192..range.start + 5 * 4096;
        assert!(walk.visit(&few, None, &mut count).unwrap().is_continue());
        assert!(walk.visit(&range, None, count).unwrap().is_break());
        assert_eq!(part, 3);
    }
}
