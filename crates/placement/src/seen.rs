//! Pages as memory has them: what several processes map is one page, whoever of them was seen.

use crate::observation::{NodeAccesses, Observation, Page, Range};
use machine::Pid;
use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// A page, with the accesses of all processes that map it.
pub(crate) struct Seen<'a> {
    /// As its first process has it.
    pub page: Cow<'a, Page>,
    /// The others.
    pub others: Vec<&'a Page>,
}

impl Seen<'_> {
    /// Whether each process that maps it could have a copy of its own: several do, each uses it from one node, and it
    /// is a part of a file that nobody may write. Threads of one process share what they map.
    pub fn may_be_copied(&self, first: &Page, ranges: &ReplicableRanges) -> bool {
        let mut mappings = self.others.iter().copied().chain([first]);
        let from_one = |page: &Page| page.accesses.iter().filter(|by| by.accesses > 0).count() == 1;
        !self.others.is_empty() && mappings.all(|page| from_one(page) && ranges.contain(page.pid, page.address))
    }
}

/// All pages, each once, in the order in which they were first seen; for each the first observed one.
pub(crate) fn seen(observation: &Observation) -> impl Iterator<Item = (&Page, Seen<'_>)> {
    let mut sharers: Option<FxHashMap<u64, Vec<&Page>>> = None;
    observation.pages.iter().filter_map(move |page| {
        let Some(frame) = page.frame else {
            return Some((page, Seen { page: Cow::Borrowed(page), others: Vec::new() }));
        };
        // The first takes the others along. Mostly there are none, and no time is spent on looking for them.
        let sharers = sharers.get_or_insert_with(|| by_frame(&observation.pages)).remove(&frame)?;
        let mut merged = page.clone();
        for other in &sharers[1..] {
            merged.add(other);
        }
        Some((page, Seen { page: Cow::Owned(merged), others: sharers[1..].to_vec() }))
    })
}

fn by_frame(pages: &[Page]) -> FxHashMap<u64, Vec<&Page>> {
    let mut sharers: FxHashMap<u64, Vec<&Page>> = FxHashMap::default();
    for page in pages {
        if let Some(frame) = page.frame {
            sharers.entry(frame).or_default().push(page);
        }
    }
    sharers
}

impl Page {
    fn add(&mut self, other: &Self) {
        for by in &other.accesses {
            match self.accesses.iter_mut().find(|own| own.node == by.node) {
                Some(own) => own.accesses = own.accesses.saturating_add(by.accesses),
                None => self.accesses.push(NodeAccesses { ..*by }),
            }
        }
        self.writes = self.writes.saturating_add(other.writes);
        self.is_bound |= other.is_bound;
        self.parts.extend(&other.parts);
    }
}

/// Mappings that each process could have a copy of.
pub(crate) struct ReplicableRanges {
    /// By process and first address; they do not overlap.
    ranges: Vec<(Pid, u64, u64)>,
}

impl ReplicableRanges {
    pub fn of(ranges: &[Range]) -> Self {
        let replicable = ranges.iter().filter(|range| range.is_replicable);
        let mut ranges: Vec<_> = replicable.map(|range| (range.pid, range.start, range.end)).collect();
        ranges.sort_unstable();
        Self { ranges }
    }

    fn contain(&self, pid: Pid, address: u64) -> bool {
        let after = self.ranges.partition_point(|(of, start, _)| (*of, *start) <= (pid, address));
        self.ranges[..after].last().is_some_and(|(of, _, end)| *of == pid && address < *end)
    }
}
