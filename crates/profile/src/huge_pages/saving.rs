//! What small pages on their owners' nodes would save, and what they cost.

use super::PAGES;
use super::layout::Block;
use super::verdict::{Judged, Part, Sharing};
use crate::statistics::wilson;
use machine::{HUGE_PAGE, LINE_BYTES};
use queueing::Distances;
use serde::Serialize;
use std::collections::BTreeMap;

/// Standard deviations that exclude 5 %.
const Z_95: f64 = 1.960;
/// An additional page walk, ns: its entries are in the caches if memory is swept.
const WALK_NS: f64 = 20.0;

/// What small pages on their owners' nodes would save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Saving {
    /// Judged samples of remote accesses that would be local.
    pub avoidable_samples: u64,
    /// The accesses that they stand for.
    pub avoidable_accesses: f64,
    /// Local accesses of others that would be remote.
    pub lost_accesses: f64,
    /// Waiting time saved, ns, with the latencies of an idle machine.
    pub ns: f64,
    /// The lower end of its 95 % interval.
    pub low_ns: f64,
    /// The upper end.
    pub high_ns: f64,
    /// Time of additional page walks, ns, which is subtracted.
    pub walks_ns: f64,
}

impl Saving {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            avoidable_samples: self.avoidable_samples + other.avoidable_samples,
            avoidable_accesses: self.avoidable_accesses + other.avoidable_accesses,
            lost_accesses: self.lost_accesses + other.lost_accesses,
            ns: self.ns + other.ns,
            low_ns: self.low_ns + other.low_ns,
            high_ns: self.high_ns + other.high_ns,
            walks_ns: self.walks_ns + other.walks_ns,
        }
    }
}

/// Accesses that would become faster or slower.
#[derive(Clone, Copy, Default)]
struct Changed {
    samples: u64,
    accesses: f64,
    ns: f64,
}

impl Changed {
    fn add(&mut self, accesses: f64, ns: f64) {
        self.samples += 1;
        self.accesses += accesses;
        self.ns += accesses * ns;
    }

    /// The interval of its time among this number of samples; without any, nothing changes.
    fn interval_ns(&self, all: u64) -> (f64, f64) {
        let mean_ns = self.ns / self.samples.max(1) as f64;
        let (low, high) = wilson(self.samples, all, Z_95);
        (low * all as f64 * mean_ns, high * all as f64 * mean_ns)
    }
}

/// What it would save if each part of a block lay with its owner.
pub(crate) fn saving(block: &Block, judged: &Judged, distances: &Distances) -> Option<Saving> {
    let nodes = &distances.machine.nodes;
    let idle_ns = |from: u16, to: usize| distances.idle_ns(nodes.get(usize::from(from))?.id, nodes.get(to)?.id);
    let (mut won, mut lost) = (Changed::default(), Changed::default());
    let mut accesses = 0.0;
    for used in &block.uses {
        let weight = f64::from(used.weight);
        accesses += weight;
        let (Some(lies), Some(owner)) = (used.lies(), judged.owner_of(used.page())) else { continue };
        let faster_ns = idle_ns(used.from, lies)? - idle_ns(used.from, usize::from(owner))?;
        match faster_ns {
            ns if ns > 0.0 => won.add(weight, ns),
            ns if ns < 0.0 => lost.add(weight, -ns),
            _ => {}
        }
    }
    // One owner's page stays huge. A sweep of small pages has a walk for each.
    let is_split = judged.sharing != Sharing::OneOwner;
    let sweeps = accesses / (HUGE_PAGE / LINE_BYTES) as f64;
    let walks_ns = if is_split { sweeps * PAGES as f64 * WALK_NS } else { 0.0 };
    let all = block.uses.len() as u64;
    let (won_ns, lost_ns) = (won.interval_ns(all), lost.interval_ns(all));
    Some(Saving {
        avoidable_samples: won.samples,
        avoidable_accesses: won.accesses,
        lost_accesses: lost.accesses,
        ns: won.ns - lost.ns - walks_ns,
        low_ns: won_ns.0 - lost_ns.1 - walks_ns,
        high_ns: won_ns.1 - lost_ns.0 - walks_ns,
        walks_ns,
    })
}

/// Small pages that lie elsewhere than with their owner: of each part as many as of its sampled pages.
pub(crate) fn misplaced(block: &Block, judged: &Judged) -> u64 {
    let mut lie: BTreeMap<usize, usize> = BTreeMap::new();
    lie.extend(block.uses.iter().filter_map(|used| Some((used.page(), used.lies()?))));
    let of_part = |part: &Part| {
        let seen = || lie.range(part.first_page..part.first_page + part.pages);
        let elsewhere = seen().filter(|(_, lies)| **lies != usize::from(part.node)).count();
        (elsewhere * part.pages).checked_div(seen().count()).unwrap_or(0) as u64
    };
    judged.parts.iter().map(of_part).sum()
}
