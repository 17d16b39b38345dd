//! Pages as memory has them: what several processes map is one page, whoever of them was seen.

use crate::observation::{NodeAccesses, Observation, Page};
use machine::NodeId;
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
    /// What each process that maps it would have a copy of, and where: nothing unless each could have one and uses it
    /// from one node, as threads of one process share what they map. Who uses it from the node that it lies on needs
    /// none.
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
