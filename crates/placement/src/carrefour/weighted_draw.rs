//! Chooses nodes for pages that several nodes use: a weighted draw that favours less loaded nodes.
//!
//! Draws are hashes of page, round and seed, so the output does not depend on the order of pages.

use crate::costs::Costs;
use crate::outcome::PageOf;
use machine::{NodeId, NodeWeight, Random};

/// Loads of all controllers, as shares of their sum.
pub(crate) struct Shares {
    /// By node index; 0 for nodes without memory.
    pub of: Vec<f64>,
}

impl Shares {
    pub fn new(loads: &[(NodeId, f64)], costs: &Costs) -> Self {
        let sum: f64 = loads.iter().map(|(_, load)| load).sum();
        let mut of = vec![0.0; costs.nodes().len()];
        for (node, load) in loads {
            if let Some(index) = costs.index_of(*node).filter(|_| sum > 0.0) {
                of[index] = load / sum;
            }
        }
        Self { of }
    }
}

/// Draws nodes among those that a process may use.
pub(crate) struct WeightedDraw {
    /// Node indices with cumulative weights.
    sums: Vec<(usize, f64)>,
}

impl WeightedDraw {
    /// A node's weight is 1 minus its share of the load, times its part of the bandwidth.
    pub fn new(shares: &Shares, allowed: &[bool], costs: &Costs) -> Self {
        let mut sum = 0.0;
        let mut sums = Vec::new();
        for (index, node) in costs.nodes().iter().enumerate().filter(|(index, _)| allowed[*index]) {
            sum += (1.0 - shares.of[index]) * node.relative_bandwidth;
            sums.push((index, sum));
        }
        Self { sums }
    }

    /// The target of a page that is on node `home`; none if it stays. The probability of leaving is its node's share of
    /// the load; if the draw gives its own node, it stays too.
    pub fn draw(&self, shares: &Shares, home: usize, page: PageOf, seed: u64) -> Option<usize> {
        let random = hash(hash(seed ^ u64::from(page.pid.0)) ^ page.address);
        let (leaves, point) = (unit(random), unit(hash(random)));
        let (_, sum) = self.sums.last()?;
        if leaves >= shares.of[home] {
            return None;
        }
        let drawn = self.sums.partition_point(|(_, upto)| *upto <= point * sum);
        self.sums.get(drawn).map(|(index, _)| *index).filter(|index| *index != home)
    }

    /// The weights, in percent.
    pub fn weights(&self, costs: &Costs) -> Vec<NodeWeight> {
        let mut before = 0.0;
        let weight = |&(index, sum): &(usize, f64)| {
            let weight = (100.0 * (sum - before)).round() as u32;
            before = sum;
            NodeWeight { node: costs.nodes()[index].id, weight }
        };
        self.sums.iter().map(weight).collect()
    }
}

/// Each input bit changes half of the output bits.
fn hash(value: u64) -> u64 {
    Random(value).bits()
}

/// Maps to the half-open range [0, 1).
fn unit(random: u64) -> f64 {
    (random >> 11) as f64 / (1_u64 << 53) as f64
}
