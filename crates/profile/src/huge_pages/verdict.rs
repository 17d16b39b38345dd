//! How nodes share a block.

use super::layout::{Block, Use};
use super::segments::{Entropies, partition};
use super::significance::{chi_squared_tail, discoveries};
use super::{ENOUGH_OF_BLOCK, FEWEST_OF_BLOCK, PAGES};
use crate::pages::APART;
use crate::statistics::Confidence;
use machine::NodeId;
use serde::Serialize;

/// Cells of a block; twice as many if there are at least this many samples.
const CELLS: usize = 64;
const MANY: usize = 512;
/// The share of the blocks found to be cut that may be found by chance.
const FALSE_DISCOVERIES: f64 = 0.01;
/// Probability of a change over time by chance below which it counts.
const BY_CHANCE: f64 = 0.001;
/// The share of samples in parts whose leading node changes from which on a block drifts.
const MOVED: f64 = 0.1;
/// Counts whose logarithms are kept.
const TABLE: usize = 4096;

/// How nodes share a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// Too few samples.
    Unknown,
    /// One node uses nearly all of it: it belongs there as a whole.
    OneOwner,
    /// Different nodes use different parts: small pages could all be local.
    FalselyShared,
    /// Several nodes use the same parts.
    TrulyShared,
    /// Parts have different users, but several nodes use some of them.
    Mixed,
    /// Parts are used by one node first and by another later.
    Drifting,
    /// Nodes use different lines of the same small pages: only padding in the program could separate them.
    PaddingNeeded,
}

/// A part of a block and the node that uses it most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// Its first small page, 0 to 511.
    pub first_page: u64,
    /// Number of small pages.
    pub pages: u64,
    /// The node.
    pub node: NodeId,
    /// Samples of the part.
    pub samples: u64,
    /// Samples of that node.
    pub of_node: u64,
}

/// A part; nodes are positions in the machine's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub first_page: usize,
    pub pages: usize,
    pub node: u16,
    pub samples: u32,
    pub of_node: u32,
}

impl Part {
    pub fn owner(&self, nodes: &[machine::Node]) -> Option<Owner> {
        Some(Owner {
            first_page: self.first_page as u64,
            pages: self.pages as u64,
            node: nodes.get(usize::from(self.node))?.id,
            samples: self.samples.into(),
            of_node: self.of_node.into(),
        })
    }
}

/// A block's verdict.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Judged {
    pub sharing: Sharing,
    pub p_value: f64,
    /// The share of samples of the parts' leading nodes.
    pub held: f64,
    pub parts: Vec<Part>,
}

impl Judged {
    /// The node that a small page belongs on.
    pub fn owner_of(&self, page: usize) -> Option<u16> {
        let after = self.parts.partition_point(|part| part.first_page <= page);
        let part = after.checked_sub(1).and_then(|at| self.parts.get(at))?;
        (page < part.first_page + part.pages).then_some(part.node)
    }
}

/// The confidence in a verdict from this number of samples.
pub(crate) fn confidence(samples: u64) -> Confidence {
    match samples {
        0..FEWEST_OF_BLOCK => Confidence::Low,
        FEWEST_OF_BLOCK..ENOUGH_OF_BLOCK => Confidence::Medium,
        _ => Confidence::High,
    }
}

/// The first pages of segments, and the probability of such cuts by chance.
struct Cut {
    pages: Vec<usize>,
    p_value: f64,
}

/// The verdict on each block. All are tested together, as of many tests some find cuts by chance.
pub(crate) fn judge(blocks: &[Block]) -> Vec<Judged> {
    let entropies = Entropies::below(TABLE);
    let is_known = |uses: &[Use]| uses.len() as u64 >= FEWEST_OF_BLOCK;
    let cuts: Vec<Cut> = blocks.iter().map(|block| cut(&block.uses, &entropies)).collect();
    let tested = blocks.iter().zip(&cuts).filter(|(block, _)| is_known(&block.uses));
    let most = discoveries(tested.map(|(_, cut)| cut.p_value).collect(), FALSE_DISCOVERIES);
    let judge = |(block, cut): (&Block, Cut)| {
        let is_cut = !cut.pages.is_empty() && most.is_some_and(|most| cut.p_value <= most);
        let pages = if is_cut { cut.pages } else { Vec::new() };
        let parts = merged(parts(&block.uses, &pages));
        let held = f64::from(parts.iter().map(|part| part.of_node).sum::<u32>()) / block.uses.len().max(1) as f64;
        let sharing = match () {
            () if !is_known(&block.uses) => Sharing::Unknown,
            () if drifts(&block.uses, &pages, &entropies) => Sharing::Drifting,
            () if parts.len() > 1 && held >= APART => Sharing::FalselyShared,
            () if leading(&block.uses) >= APART => Sharing::OneOwner,
            () if is_cut => Sharing::Mixed,
            () => Sharing::TrulyShared,
        };
        Judged { sharing, p_value: cut.p_value, held, parts }
    };
    blocks.iter().zip(cuts).map(judge).collect()
}

/// The share of samples of the node with the most.
fn leading(uses: &[Use]) -> f64 {
    let counts = nodes(uses).into_iter().map(|node| uses.iter().filter(|used| used.from == node).count());
    counts.max().unwrap_or(0) as f64 / uses.len().max(1) as f64
}

/// The nodes that use a block, ascending.
fn nodes(uses: &[Use]) -> Vec<u16> {
    let mut nodes: Vec<u16> = Vec::new();
    for used in uses {
        if let Err(at) = nodes.binary_search(&used.from) {
            nodes.insert(at, used.from);
        }
    }
    nodes
}

/// The best cuts of a block.
fn cut(uses: &[Use], entropies: &Entropies) -> Cut {
    let nodes = nodes(uses);
    if nodes.len() < 2 {
        return Cut { pages: Vec::new(), p_value: 1.0 };
    }
    let cells = if uses.len() >= MANY { 2 * CELLS } else { CELLS };
    let pages_of_cell = PAGES as usize / cells;
    let mut all = vec![0; cells * nodes.len()];
    for used in uses {
        if let Ok(node) = nodes.binary_search(&used.from) {
            all[used.page() / pages_of_cell * nodes.len() + node] += 1;
        }
    }
    // Cells without samples say nothing.
    let seen = all.chunks(nodes.len()).zip(0..cells).filter(|(counts, _)| counts.iter().any(|&count| count > 0));
    let (counts, cells): (Vec<&[u32]>, Vec<usize>) = seen.unzip();
    let found = partition(&counts.concat(), nodes.len(), entropies);
    // Between the last sampled cell of one segment and the first of the next, the border is as likely here as there.
    let page = |&at: &usize| (cells[at - 1] + 1 + cells[at]) * pages_of_cell / 2;
    // Each cut adds a distribution, and a position that was chosen among all.
    let places = (cells.len().max(2) - 1) as f64;
    let chance = chi_squared_tail(found.statistic, found.cuts.len() * nodes.len());
    let p_value = (chance * places.powf(found.cuts.len() as f64)).min(1.0);
    Cut { pages: found.cuts.iter().map(page).collect(), p_value }
}

/// Counts by node of the parts between cuts.
fn counts(uses: &[Use], cuts: &[usize], nodes: &[u16]) -> Vec<u32> {
    let mut counts = vec![0; (cuts.len() + 1) * nodes.len()];
    for used in uses {
        if let Ok(node) = nodes.binary_search(&used.from) {
            counts[cuts.partition_point(|cut| *cut <= used.page()) * nodes.len() + node] += 1;
        }
    }
    counts
}

/// The position and the number of the largest count; of equals, the first.
fn largest(counts: &[u32]) -> (usize, u32) {
    counts.iter().enumerate().fold((0, 0), |most, (at, &count)| if count > most.1 { (at, count) } else { most })
}

/// The parts between cuts.
fn parts(uses: &[Use], cuts: &[usize]) -> Vec<Part> {
    let nodes = nodes(uses);
    if nodes.is_empty() {
        return Vec::new();
    }
    let bounds: Vec<usize> = [0].into_iter().chain(cuts.iter().copied()).chain([PAGES as usize]).collect();
    let part = |(bounds, counts): (&[usize], &[u32])| {
        let (at, of_node) = largest(counts);
        let (first_page, samples) = (bounds[0], counts.iter().sum());
        Part { first_page, pages: bounds[1] - first_page, node: nodes[at], samples, of_node }
    };
    bounds.windows(2).zip(counts(uses, cuts, &nodes).chunks(nodes.len())).map(part).collect()
}

/// Neighbours of one node are one part.
fn merged(parts: Vec<Part>) -> Vec<Part> {
    let mut all: Vec<Part> = Vec::new();
    for part in parts {
        match all.last_mut() {
            Some(last) if last.node == part.node => {
                last.pages += part.pages;
                last.samples += part.samples;
                last.of_node += part.of_node;
            }
            _ => all.push(part),
        }
    }
    all
}

/// Whether the leading nodes of its parts change over time. `uses` are in chronological order.
fn drifts(uses: &[Use], cuts: &[usize], entropies: &Entropies) -> bool {
    let nodes = nodes(uses);
    if nodes.len() < 2 || (uses.len() as u64) < ENOUGH_OF_BLOCK {
        return false;
    }
    let (early, late) = uses.split_at(uses.len() / 2);
    let mut all: Vec<usize> = cuts.to_vec();
    all.extend([early, late].iter().flat_map(|half| cut(half, entropies).pages));
    all.sort_unstable();
    all.dedup();
    let [early, late] = [early, late].map(|half| counts(half, &all, &nodes));
    let (mut statistic, mut degrees, mut moved) = (0.0, 0, 0);
    for (before, after) in early.chunks(nodes.len()).zip(late.chunks(nodes.len())) {
        let (was, is) = (largest(before), largest(after));
        if was.1 == 0 || is.1 == 0 {
            continue;
        }
        let together: Vec<u32> = before.iter().zip(after).map(|(before, after)| before + after).collect();
        let likelihood = |counts: &[u32]| entropies.likelihood(counts.iter().copied());
        statistic += 2.0 * (likelihood(before) + likelihood(after) - likelihood(&together));
        degrees += nodes.len() - 1;
        moved += if was.0 == is.0 { 0 } else { together.iter().sum() };
    }
    f64::from(moved) >= MOVED * uses.len() as f64 && chi_squared_tail(statistic, degrees) < BY_CHANCE
}
