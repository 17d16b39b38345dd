//! The pages of a process: one by one, as runs of similar pages, and as strips.

use crate::picture::Place;
use crate::residence::{Address, Kind, PagesOnNode};
use linux::{Mapping, Page, PageRefusal};
use machine::{NodeId, SMALL_PAGE};
use serde::{Serialize, Serializer};
use std::ops::Range;

/// The pages of a process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PagesReport {
    /// Its PID.
    pub pid: u32,
    /// The name of its program.
    pub name: String,
    /// Mappings with pages in memory, by address.
    pub mappings: Vec<MappingPages>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// The pages of one mapping, or of a part of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MappingPages {
    /// Where the examined part begins.
    pub start: Address,
    /// The address after it.
    pub end: Address,
    /// `rw-p` and the like: read, write, execute; private or shared.
    pub rights: String,
    /// The file, or a name in brackets.
    pub name: String,
    /// The pages by node, kind and size.
    pub pages: Vec<PagesOnNode>,
    /// Bytes of address space that one cell of the strip stands for.
    pub cell_bytes: u64,
    /// The node of each cell; none for cells without memory.
    pub strip: Vec<Option<Place>>,
    /// Runs of similar pages, up to the requested number.
    pub runs: Vec<Run>,
    /// Number of further runs.
    pub runs_left_out: u64,
    /// The last run, whether included or not.
    #[serde(skip)]
    last: Option<Run>,
    /// Number of runs requested.
    #[serde(skip)]
    most_runs: usize,
    /// Whether the mapping is of hugetlb pages.
    #[serde(skip)]
    hugetlb: bool,
    /// Bytes on each node in each cell.
    #[serde(skip)]
    cells: Vec<Vec<(NodeId, u64)>>,
}

/// Limits of the output per mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detail {
    /// Cells of the strip.
    pub cells: u64,
    /// Runs of pages.
    pub runs: usize,
}

/// Consecutive pages of the same size, node and traits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Run {
    /// Where the first begins.
    pub start: Address,
    /// Number of pages.
    pub pages: u64,
    /// Size of each, bytes.
    pub page_bytes: u64,
    /// The node.
    pub node: Option<NodeId>,
    /// Their state in the page table.
    #[serde(rename = "flags")]
    pub traits: Traits,
}

/// A page's state in the page table, or why its node is not known. In JSON and text a list of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// Whether it is of a file or of shared memory.
    pub file: bool,
    /// Whether other processes map it too.
    pub shared: bool,
    /// Why its node is not known.
    pub refusal: Option<PageRefusal>,
}

impl Traits {
    pub(crate) fn from_page(page: &Page) -> Self {
        let entry = page.entry;
        Self { file: entry.is_file_or_shared(), shared: !entry.is_exclusive(), refusal: page.node.err() }
    }

    pub(crate) fn words(self) -> impl Iterator<Item = &'static str> {
        let backing = if self.file { "file" } else { "anonymous" };
        let refusal = self.refusal.map(|refusal| match refusal {
            PageRefusal::NotPresent => "gone",
            PageRefusal::ZeroOrUnmapped => "zero_page",
            PageRefusal::Busy => "busy",
            _ => "no_node",
        });
        [Some(backing), self.shared.then_some("shared"), refusal].into_iter().flatten()
    }
}

impl Serialize for Traits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.words())
    }
}

impl MappingPages {
    /// No pages yet, of a part of this mapping.
    pub fn new(mapping: &Mapping, part: &Range<u64>, hugetlb: bool, most: Detail) -> Self {
        let bytes = part.end.saturating_sub(part.start);
        let cell_bytes =
            bytes.div_ceil(most.cells.max(1)).max(SMALL_PAGE).checked_next_power_of_two().unwrap_or(1 << 63);
        Self {
            start: Address(part.start),
            end: Address(part.end),
            rights: crate::residence::rights(mapping),
            name: mapping.name.clone(),
            pages: Vec::new(),
            cell_bytes,
            strip: Vec::new(),
            runs: Vec::new(),
            runs_left_out: 0,
            last: None,
            most_runs: most.runs,
            hugetlb,
            cells: vec![Vec::new(); bytes.div_ceil(cell_bytes) as usize],
        }
    }

    /// Adds a page; must be called in order of address.
    pub fn add(&mut self, page: &Page) {
        let (node, traits) = (page.node.ok(), Traits::from_page(page));
        match &mut self.last {
            Some(run) if run.goes_on_with(page, node, traits) => run.pages += 1,
            _ => {
                let run = Run { start: Address(page.address), pages: 1, page_bytes: page.page_bytes, node, traits };
                let before = self.last.replace(run);
                self.end_run(before);
            }
        }
        let Some(node) = node else { return };
        let kind = match page.page_bytes {
            _ if self.hugetlb => Kind::Hugetlb,
            SMALL_PAGE => Kind::Base,
            _ => Kind::TransparentHuge,
        };
        let alike = |on: &&mut PagesOnNode| (on.node, on.kind, on.page_bytes) == (node, kind, page.page_bytes);
        if let Some(on) = self.pages.iter_mut().find(alike) {
            on.pages += 1;
            on.bytes += page.page_bytes;
        } else {
            self.pages.push(PagesOnNode { node, kind, page_bytes: page.page_bytes, pages: 1, bytes: page.page_bytes });
        }
        self.count(page, node);
    }

    fn count(&mut self, page: &Page, node: NodeId) {
        let Address(start) = self.start;
        // A huge page may begin before the examined part.
        let (from, to) =
            (page.address.max(start) - start, page.address.saturating_add(page.page_bytes).saturating_sub(start));
        let (first, last) = (from / self.cell_bytes, to.saturating_sub(1) / self.cell_bytes);
        for cell in self.cells.iter_mut().skip(first as usize).take((last - first + 1) as usize) {
            let bytes = page.page_bytes.min(self.cell_bytes);
            match cell.iter_mut().find(|(other, _)| *other == node) {
                Some((_, sum)) => *sum += bytes,
                None => cell.push((node, bytes)),
            }
        }
    }

    fn end_run(&mut self, run: Option<Run>) {
        let Some(run) = run else { return };
        if self.runs.len() < self.most_runs {
            self.runs.push(run);
        } else if self.most_runs > 0 {
            self.runs_left_out += 1;
        }
    }

    /// Whether there are no pages.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.runs.is_empty()
    }

    /// Called after the last page.
    pub fn finish(&mut self) {
        let last = self.last.take();
        self.end_run(last);
        self.pages.sort_unstable_by_key(|on| (on.node, on.kind, on.page_bytes));
        let place = |cell: &Vec<(NodeId, u64)>| {
            let total: u64 = cell.iter().map(|(_, bytes)| bytes).sum();
            let most = cell.iter().find(|(_, bytes)| bytes * 2 > total);
            (total > 0).then(|| most.map_or(Place::Mixed, |(node, _)| Place::Node(*node)))
        };
        self.strip = self.cells.iter().map(place).collect();
        self.cells = Vec::new();
    }
}

impl Run {
    fn goes_on_with(&self, page: &Page, node: Option<NodeId>, traits: Traits) -> bool {
        (self.page_bytes, self.node, self.traits) == (page.page_bytes, node, traits)
            && self.start.0.saturating_add(self.pages.saturating_mul(self.page_bytes)) == page.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_line::tests::{ANONYMOUS, page};

    #[test]
    fn a_cell_has_the_node_of_more_than_half_of_its_memory_if_there_is_one() {
        let mapping = "10000000-10008000 rw-p 0 0:0 0".parse().unwrap();
        let mut part = MappingPages::new(&mapping, &(0x1000_0000..0x1000_8000), false, Detail { cells: 2, runs: 9 });
        for (number, node) in [(0, 3), (1, 2), (2, 3), (5, 7), (6, 5)] {
            part.add(&page(0x1000_0000 + number * 4096, 4096, node, ANONYMOUS));
        }
        part.finish();
        assert_eq!(part.strip, [Some(Place::Node(NodeId(3))), Some(Place::Mixed)]);
        // A huge page that begins before the part.
        let mut part = MappingPages::new(&mapping, &(0x1000_1000..0x1000_3000), false, Detail { cells: 64, runs: 1 });
        part.add(&page(0x1000_0000, 2 << 20, 1, ANONYMOUS));
        part.finish();
        assert_eq!(part.strip, [Some(Place::Node(NodeId(1))); 2]);
    }

    /// Interleaved memory has one run per page.
    #[test]
    fn no_more_runs_are_kept_than_are_wanted() {
        let mapping = "10000000-10008000 rw-p 0 0:0 0".parse().unwrap();
        let told = |runs| {
            let mut all = MappingPages::new(&mapping, &(0x1000_0000..0x1000_8000), false, Detail { cells: 1, runs });
            assert!(all.is_empty());
            (0..8).for_each(|number| all.add(&page(0x1000_0000 + number * 4096, 4096, number as u32 % 2, ANONYMOUS)));
            all.finish();
            assert!(!all.is_empty());
            (all.runs.len(), all.runs_left_out, all.pages.iter().map(|on| on.pages).sum::<u64>())
        };
        assert_eq!([0, 3, 8, 9].map(told), [(0, 0, 8), (3, 5, 8), (8, 0, 8), (8, 0, 8)]);
    }
}
