//! Parts of mappings whose pages are used alike, so that they can be placed as one.

use super::Matrix;
use crate::action::AddressRange;
use crate::costs::{Costs, NodeCosts};
use crate::observation::{Observation, Page, Process, Range};
use crate::settings::Settings;
use machine::{HUGE_PAGE, Pid};
use rustc_hash::FxHashMap;

/// Least share of all samples for a mapping to be placed: others cost a walk of their pages and gain nothing.
const LEAST_SHARE: f64 = 0.005;
/// Fewest samples of each half for a test whether its users differ from the other's.
const ENOUGH: f64 = 64.0;
/// Standard deviations that chance exceeds once in a thousand times.
const Z_999: f64 = 3.09;

/// Part of a mapping.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub pid: Pid,
    pub range: AddressRange,
    /// Resident bytes by node index, as if they were spread evenly over the mapping.
    pub bytes: Vec<f64>,
    /// Samples, by the index of the CPU's node and of the memory's.
    pub uses: Matrix,
    /// The part of dealt memory that each node gets, by index: 0 where the process may have none.
    pub dealt: Vec<f64>,
}

impl Segment {
    pub fn all_bytes(&self) -> f64 {
        self.bytes.iter().sum()
    }
}

/// What was sampled: segments, and samples of pages that must stay.
pub(crate) struct Sampled {
    pub segments: Vec<Segment>,
    pub fixed: Matrix,
}

impl Sampled {
    /// Of processes whose memory may be placed. Shared pages, those of other processes, and what owners placed stay.
    pub fn new(observation: &Observation, costs: &Costs, settings: &Settings) -> Self {
        let is_free = |process: &&Process| process.memory_policy.is_none() || !settings.respect_owner;
        let free = observation.processes.iter().filter(is_free);
        let dealt: FxHashMap<Pid, Vec<f64>> = free.map(|process| (process.pid, dealt(process, costs))).collect();
        let mut ranges: Vec<(&Range, Vec<&Page>)> = observation
            .ranges
            .iter()
            .filter(|range| {
                dealt.contains_key(&range.pid) && (range.memory_policy.is_none() || !settings.respect_owner)
            })
            .map(|range| (range, Vec::new()))
            .collect();
        ranges.sort_by_key(|(range, _)| (range.pid, range.start));
        let mut fixed = Matrix::new(costs.nodes().len());
        for page in &observation.pages {
            let after = ranges.partition_point(|(range, _)| (range.pid, range.start) <= (page.pid, page.address));
            let range = after.checked_sub(1).and_then(|at| ranges.get_mut(at));
            let range = range.filter(|(range, _)| range.pid == page.pid && page.address < range.end);
            match range {
                Some((_, pages)) if page.frame.is_none() && !(page.is_bound && settings.respect_owner) => {
                    pages.push(page);
                }
                _ => add(&mut fixed, page, costs),
            }
        }
        let samples = |pages: &[&Page]| pages.iter().map(|page| page.samples()).sum::<u64>() as f64;
        let all: f64 = ranges.iter().map(|(_, pages)| samples(pages)).sum();
        let mut segments = Vec::new();
        for (range, mut pages) in ranges {
            if samples(&pages) <= LEAST_SHARE * all {
                pages.into_iter().for_each(|page| add(&mut fixed, page, costs));
                continue;
            }
            pages.sort_by_key(|page| page.address);
            let Some(dealt) = dealt.get(&range.pid) else { continue };
            let whole = AddressRange { start: range.start, end: range.end };
            halve((range, dealt), whole, &pages, costs, &mut segments);
        }
        Self { segments, fixed }
    }
}

/// The parts of dealt memory, by bandwidth.
fn dealt(process: &Process, costs: &Costs) -> Vec<f64> {
    let weight = |node: &NodeCosts| {
        let is_allowed = node.memory_bytes > 0 && process.nodes.contains(node.id);
        if is_allowed { node.relative_bandwidth } else { 0.0 }
    };
    let all: f64 = costs.nodes().iter().map(weight).sum();
    costs.nodes().iter().map(|node| if all > 0.0 { weight(node) / all } else { 0.0 }).collect()
}

/// Processes with sampled pages whose mappings were not read in this round.
pub(crate) fn lacks_mappings(observation: &Observation) -> bool {
    let mut read: FxHashMap<Pid, bool> = observation.pages.iter().map(|page| (page.pid, false)).collect();
    for range in &observation.ranges {
        read.insert(range.pid, true);
    }
    read.values().any(|read| !read)
}

fn add(uses: &mut Matrix, page: &Page, costs: &Costs) {
    let Some(to) = costs.index_of(page.node) else { return };
    for by in &page.accesses {
        if let Some(from) = costs.index_of(by.node) {
            uses.add(from, to, by.accesses as f64);
        }
    }
}

fn uses(pages: &[&Page], costs: &Costs) -> Matrix {
    let mut uses = Matrix::new(costs.nodes().len());
    pages.iter().for_each(|page| add(&mut uses, page, costs));
    uses
}

/// Halves a part while different nodes use its halves.
fn halve(
    (range, dealt): (&Range, &[f64]),
    part: AddressRange,
    pages: &[&Page],
    costs: &Costs,
    segments: &mut Vec<Segment>,
) {
    let middle = part.start.midpoint(part.end) / HUGE_PAGE * HUGE_PAGE;
    let (low, high) = pages.split_at(pages.partition_point(|page| page.address < middle));
    let is_wide = middle > part.start && part.end - part.start >= 2 * HUGE_PAGE;
    if is_wide && differ(&uses(low, costs).by_row(), &uses(high, costs).by_row()) {
        halve((range, dealt), AddressRange { end: middle, ..part }, low, costs, segments);
        halve((range, dealt), AddressRange { start: middle, ..part }, high, costs, segments);
        return;
    }
    let share = (part.end - part.start) as f64 / (range.end - range.start).max(1) as f64;
    let mut bytes = vec![0.0; costs.nodes().len()];
    for on in &range.bytes {
        if let Some(index) = costs.index_of(on.node) {
            bytes[index] += on.bytes as f64 * share;
        }
    }
    let uses = uses(pages, costs);
    segments.push(Segment { pid: range.pid, range: part, bytes, uses, dealt: dealt.to_vec() });
}

/// Whether two distributions over nodes differ more than by chance: a likelihood-ratio test at 0.1 %.
fn differ(a: &[f64], b: &[f64]) -> bool {
    let sums = [a, b].map(|counts| counts.iter().sum::<f64>());
    if sums.iter().any(|sum| *sum < ENOUGH) {
        return false;
    }
    let all = sums[0] + sums[1];
    let mut statistic = 0.0;
    let mut seen = 0_u32;
    for (a, b) in a.iter().zip(b) {
        seen += u32::from(a + b > 0.0);
        for (count, sum) in [(a, sums[0]), (b, sums[1])] {
            if *count > 0.0 {
                statistic += 2.0 * count * (count * all / (sum * (a + b))).ln();
            }
        }
    }
    statistic > chi_squared_999(f64::from(seen.saturating_sub(1)))
}

/// The value that chi-squared exceeds once in a thousand times, by Wilson and Hilferty's approximation.
fn chi_squared_999(degrees: f64) -> f64 {
    if degrees < 1.0 {
        return f64::INFINITY;
    }
    let ninth = 2.0 / (9.0 * degrees);
    degrees * (1.0 - ninth + Z_999 * ninth.sqrt()).powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_is_chi_squared_at_a_thousandth() {
        // Tables: 10.83, 16.27 and 24.32 for 1, 3 and 7 degrees.
        for (degrees, value) in [(1.0, 10.83), (3.0, 16.27), (7.0, 24.32)] {
            assert!((chi_squared_999(degrees) / value - 1.0).abs() < 0.02, "{degrees}");
        }
        assert!(differ(&[100.0, 20.0], &[20.0, 100.0]));
        assert!(!differ(&[100.0, 90.0], &[90.0, 100.0]), "by chance");
        assert!(!differ(&[60.0, 0.0], &[0.0, 60.0]), "too few samples");
        assert!(!differ(&[100.0], &[300.0]), "one node");
    }
}
