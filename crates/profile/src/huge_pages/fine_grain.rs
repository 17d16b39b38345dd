//! Owners that alternate below the resolution of segments: pairs of samples in the same small page, or the same line,
//! agree in their node more than the block's shares predict. A block has few such pairs, so those of an object's blocks
//! are pooled first; then each block needs some evidence of its own, as others of the object may be shared truly.

use super::ENOUGH_OF_BLOCK;
use super::layout::{Block, Use};
use super::significance::Agreement;
use super::verdict::{Judged, Part, Sharing};
use crate::ids::{ObjectId, ProcessId};
use crate::pages::APART;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Standard deviations that exclude 0.1 %.
const CLEAR: f64 = 3.09;
/// Standard deviations that exclude 1 %: of each block of an object whose blocks together are clear.
const OWN: f64 = 2.33;
/// Fewest pairs that show something.
const FEWEST_PAIRS: f64 = 20.0;
/// Accesses of one thread to one page within this time are one use, such as a sweep.
const BURST_NS: u64 = 100_000;

/// Agreement of pairs in the same small pages, and in the same lines.
#[derive(Default)]
struct Pairs {
    pages: Agreement,
    lines: Agreement,
}

/// Judges truly shared blocks again whose parts may alternate in a finer grain.
pub(crate) fn refine(blocks: &[Block], judged: &mut [Judged]) {
    let mut pairs: BTreeMap<(ProcessId, ObjectId), Pairs> = BTreeMap::new();
    let key = |block: &Block| Some((block.process, *block.objects.first()?));
    // Of fewer samples, larger parts may have been missed, too.
    let is_open = |block: &Block, judged: &Judged| {
        judged.sharing == Sharing::TrulyShared && block.uses.len() as u64 >= ENOUGH_OF_BLOCK
    };
    for (block, _) in blocks.iter().zip(judged.iter()).filter(|(block, judged)| is_open(block, judged)) {
        if let Some(key) = key(block) {
            pairs.entry(key).or_default().add(&block.uses);
        }
    }
    for (block, judged) in blocks.iter().zip(judged).filter(|(block, judged)| is_open(block, judged)) {
        let Some(pooled) = key(block).and_then(|key| pairs.get(&key)) else { continue };
        let mut own = Pairs::default();
        own.add(&block.uses);
        if is_clear(&pooled.pages) && own.pages.excess() >= OWN {
            judged.parts = owners_of_pages(&block.uses);
            let sum = |of: fn(&Part) -> u32| f64::from(judged.parts.iter().map(of).sum::<u32>());
            judged.held = sum(|part| part.of_node) / sum(|part| part.samples).max(1.0);
            judged.sharing = Sharing::FalselyShared;
        } else if is_clear(&pooled.lines) && own.lines.excess() >= OWN {
            judged.sharing = Sharing::PaddingNeeded;
        }
    }
}

fn is_clear(pairs: &Agreement) -> bool {
    pairs.pairs >= FEWEST_PAIRS && pairs.share() >= APART && pairs.excess() >= CLEAR
}

impl Pairs {
    fn add(&mut self, uses: &[Use]) {
        let mut counts: BTreeMap<u16, u32> = BTreeMap::new();
        for used in uses {
            *counts.entry(used.from).or_default() += 1;
        }
        let power = |exponent: i32| {
            counts.values().map(|&count| (f64::from(count) / uses.len() as f64).powi(exponent)).sum::<f64>()
        };
        let (squares, cubes) = (power(2), power(3));
        for group in groups(uses, Use::page) {
            self.pages.add(&group, squares, cubes);
        }
        for group in groups(uses, |used| usize::from(used.line)) {
            self.lines.add(&group, squares, cubes);
        }
    }
}

/// Counts by node of each group with at least two uses, bursts counted once.
fn groups(uses: &[Use], group: impl Fn(&Use) -> usize) -> Vec<Vec<u32>> {
    let mut sorted: Vec<(usize, &Use)> = uses.iter().map(|used| (group(used), used)).collect();
    sorted.sort_by_key(|(group, used)| (*group, used.time_ns));
    let counts = |of_group: &[(usize, &Use)]| {
        let mut counts: BTreeMap<u16, u32> = BTreeMap::new();
        let mut last: Option<(u32, u64)> = None;
        for (_, used) in of_group {
            let continues = |(thread, at)| thread == used.thread && used.time_ns.saturating_sub(at) < BURST_NS;
            if !last.is_some_and(continues) {
                *counts.entry(used.from).or_default() += 1;
            }
            last = Some((used.thread, used.time_ns));
        }
        counts.into_values().collect::<Vec<_>>()
    };
    let all = sorted.chunk_by(|a, b| a.0 == b.0).map(counts);
    all.filter(|counts| counts.iter().sum::<u32>() > 1).collect()
}

/// The owner of each sampled small page; pages without samples have none.
fn owners_of_pages(uses: &[Use]) -> Vec<Part> {
    let mut counts: BTreeMap<usize, BTreeMap<u16, u32>> = BTreeMap::new();
    for used in uses {
        *counts.entry(used.page()).or_default().entry(used.from).or_default() += 1;
    }
    let part = |(first_page, counts): (usize, BTreeMap<u16, u32>)| {
        let (&node, &of_node) = counts.iter().max_by_key(|(node, count)| (**count, Reverse(**node)))?;
        Some(Part { first_page, pages: 1, node, samples: counts.values().sum(), of_node })
    };
    counts.into_iter().filter_map(part).collect()
}
