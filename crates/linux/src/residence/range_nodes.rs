//! How many pages of a range of this process are on each node. Touches none.

use crate::migration::page_batch::PageBatch;
use crate::processes::process::{Pid, Process, ProcessError};
use crate::residence::present::PresentPages;
use machine::{NodeId, SMALL_PAGE};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

/// Addresses per query: their arrays stay in the CPU's cache.
const MOST_PAGES: usize = 8 << 10;

/// The base pages of a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeNodes {
    /// Present pages by node, in base pages of 4 KiB.
    pub by_node: BTreeMap<NodeId, u64>,
    /// Pages that are nowhere: never touched, only read so far (they are the shared zero page), swapped out, or in
    /// address space where nothing is mapped.
    pub absent: u64,
}

impl RangeNodes {
    /// Looks up the pages of a range of this process; a page that is only partly in the range counts as a whole. A huge
    /// page counts as the base pages of it that are in the range, and is looked up once. Since Linux 2.6.18. Needs no
    /// privileges. Without /proc it is an error.
    pub fn of(range: &Range<usize>) -> io::Result<Self> {
        let small = SMALL_PAGE;
        let start = range.start as u64 / small * small;
        let end = (range.end as u64).checked_next_multiple_of(small).unwrap_or(u64::MAX / small * small).max(start);
        let own = Process::open(Pid(std::process::id())).map_err(io_error)?;
        let mut present = PresentPages::new(&own).map_err(io_error)?;
        let mut found =
            Found { batch: PageBatch::with_capacity(MOST_PAGES), weights: Vec::new(), nodes: Self::default() };
        let (mut extents, mut from) = (Vec::new(), start);
        while from < end {
            from = match present.find(&(from..end), &mut extents) {
                // Behind the last address that a program can have.
                Err(error) if error.raw_os_error() == Some(libc::EFAULT) => end,
                searched => searched?,
            };
            for extent in extents.drain(..) {
                let (first, last) = (extent.range.start.max(start), extent.range.end.min(end));
                let mut address = first;
                while address < last {
                    let next = (address / extent.page_bytes + 1).saturating_mul(extent.page_bytes).min(last);
                    found.add(address, (next - address) / small)?;
                    address = next;
                }
            }
        }
        found.look_up()?;
        let seen: u64 = found.nodes.by_node.values().sum();
        found.nodes.absent = ((end - start) / small).saturating_sub(seen);
        Ok(found.nodes)
    }
}

struct Found {
    batch: PageBatch,
    /// Base pages that each address of the batch stands for.
    weights: Vec<u64>,
    nodes: RangeNodes,
}

impl Found {
    fn add(&mut self, address: u64, pages: u64) -> io::Result<()> {
        self.batch.push(address, None);
        self.weights.push(pages);
        if self.batch.len() == MOST_PAGES { self.look_up() } else { Ok(()) }
    }

    fn look_up(&mut self) -> io::Result<()> {
        if !self.batch.is_empty() {
            // 0 is the caller.
            self.batch.locate(Pid(0))?;
        }
        // Neighbours are mostly on one node: sum them before the lookup in the map.
        let mut run: Option<(NodeId, u64)> = None;
        for ((_, status), pages) in self.batch.statuses().zip(&self.weights) {
            let Ok(node) = status.node() else { continue };
            match &mut run {
                Some((last, sum)) if *last == node => *sum += pages,
                _ => {
                    if let Some((node, sum)) = run.replace((node, *pages)) {
                        *self.nodes.by_node.entry(node).or_default() += sum;
                    }
                }
            }
        }
        if let Some((node, sum)) = run {
            *self.nodes.by_node.entry(node).or_default() += sum;
        }
        self.batch.clear();
        self.weights.clear();
        Ok(())
    }
}

fn io_error(error: ProcessError) -> io::Error {
    match error {
        ProcessError::Read { source, .. } => source,
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeMemory, allowed_memory_nodes};

    #[test]
    fn present_pages_have_a_node_and_others_are_absent() {
        if allowed_memory_nodes().is_err() {
            return test_tools::skipped("memory policies may not be read here");
        }
        let mut memory = NodeMemory::reserve(64 << 10).unwrap();
        let range = memory.range();
        assert_eq!(RangeNodes::of(&range).unwrap(), RangeNodes { absent: 16, ..RangeNodes::default() });
        memory.contents_mut()[..5 * 4096].fill(1);
        let nodes = RangeNodes::of(&range).unwrap();
        assert_eq!((nodes.by_node.values().sum::<u64>(), nodes.absent), (5, 11));
        // Partly covered pages count as a whole; an empty or reversed range has none.
        let partly = RangeNodes::of(&(range.start + 1..range.start + 4097)).unwrap();
        assert_eq!((partly.by_node.values().sum::<u64>(), partly.absent), (2, 0));
        assert_eq!(RangeNodes::of(&(range.start..range.start)).unwrap(), RangeNodes::default());
        assert_eq!(RangeNodes::of(&(range.end..range.start)).unwrap(), RangeNodes::default());
    }

    #[test]
    fn the_whole_address_space_is_no_error() {
        let all = RangeNodes::of(&(1 << 46..usize::MAX)).unwrap();
        assert!(all.absent > 0);
    }
}
