//! Physical pages: one that several processes map is one page, in whichever of them it was sampled.

use crate::observation::{NodeAccesses, Observation, Page};
use machine::NodeId;
use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// A page, with the accesses of all processes that map it.
pub(crate) struct PhysicalPage<'a> {
    /// The page as its first process maps it.
    pub page: Cow<'a, Page>,
    /// The page as other processes map it.
    pub others: Vec<&'a Page>,
}

impl PhysicalPage<'_> {
    /// The copies that the page's processes would have, and their nodes. Empty unless each process could have a copy
    /// and uses the page from one node, because the threads of a process share its mappings. A process that uses the
    /// page from its current node needs no copy.
    pub fn copies<'b>(&'b self, first: &'b Page) -> Vec<(&'b Page, NodeId)> {
        let only_user = |page: &'b Page| {
            let mut users = page.accesses.iter().filter(|by| by.accesses > 0);
            let user = users.next().filter(|_| page.is_replicable && users.next().is_none())?;
            Some((page, user.node))
        };
        let mappings = std::iter::once(first).chain(self.others.iter().copied());
        let copies: Option<Vec<_>> = mappings.map(only_user).collect();
        copies.unwrap_or_default().into_iter().filter(|(page, node)| *node != page.node).collect()
    }
}

/// All physical pages, in order of their first observation.
pub(crate) fn physical_pages(observation: &Observation) -> impl Iterator<Item = (&Page, PhysicalPage<'_>)> {
    let mut sharers: Option<FxHashMap<u64, Vec<&Page>>> = None;
    observation.pages.iter().filter_map(move |page| {
        let Some(frame) = page.frame else {
            return Some((page, PhysicalPage { page: Cow::Borrowed(page), others: Vec::new() }));
        };
        // The first mapping collects the others. Mostly there are none, and no time is spent on looking for them.
        let sharers = sharers.get_or_insert_with(|| by_frame(&observation.pages)).remove(&frame)?;
        let mut merged = page.clone();
        for other in &sharers[1..] {
            merged.add(other);
        }
        Some((page, PhysicalPage { page: Cow::Owned(merged), others: sharers[1..].to_vec() }))
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
        self.is_falsely_shared |= other.is_falsely_shared;
    }
}
