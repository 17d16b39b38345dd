//! Where pages go that several nodes use: drawn with weights, so that the less a node is loaded the more it gets.
//!
//! Draws are hashes of page, round and seed: the same input has the same output, in whatever order pages come.

use crate::costs::Costs;
use crate::memory_policy::NodeWeight;
use crate::outcome::PageOf;
use machine::NodeId;

/// Loads of all controllers, as shares of their sum.
pub(crate) struct Shares {
    /// By place; 0 of nodes without memory.
    pub of: Vec<f64>,
}

impl Shares {
    pub fn of(loads: &[(NodeId, f64)], costs: &Costs) -> Self {
        let sum: f64 = loads.iter().map(|(_, load)| load).sum();
        let mut of = vec![0.0; costs.nodes().len()];
        for (node, load) in loads {
            if let Some(place) = costs.place(*node).filter(|_| sum > 0.0) {
                of[place] = load / sum;
            }
        }
        Self { of }
    }
}

/// Draws nodes among those that a process may use.
pub(crate) struct Dealer {
    /// Places with the sum of the weights up to and with their own.
    sums: Vec<(usize, f64)>,
}

impl Dealer {
    /// Weights are 1 less the node's share of the load, times its part of bandwidth.
    pub fn of(shares: &Shares, allowed: &[bool], costs: &Costs) -> Self {
        let mut sum = 0.0;
        let mut sums = Vec::new();
        for (place, node) in costs.nodes().iter().enumerate().filter(|(place, _)| allowed[*place]) {
            sum += (1.0 - shares.of[place]) * node.relative_bandwidth;
            sums.push((place, sum));
        }
        Self { sums }
    }

    /// Where a page goes that lies at `home`; none where it stays. It leaves as likely as its node's share of the load
    /// is large; a draw of its own node has it stay too.
    pub fn draw(&self, shares: &Shares, home: usize, page: PageOf, seed: u64) -> Option<usize> {
        let random = hash(hash(seed ^ u64::from(page.pid.0)) ^ page.address);
        let (leaves, place) = (unit(random), unit(hash(random)));
        let (_, sum) = self.sums.last()?;
        if leaves >= shares.of[home] {
            return None;
        }
        let drawn = self.sums.partition_point(|(_, upto)| *upto <= place * sum);
        self.sums.get(drawn).map(|(place, _)| *place).filter(|place| *place != home)
    }

    /// The weights, in percent.
    pub fn weights(&self, costs: &Costs) -> Vec<NodeWeight> {
        let mut before = 0.0;
        let weight = |&(place, sum): &(usize, f64)| {
            let weight = (100.0 * (sum - before)).round() as u32;
            before = sum;
            NodeWeight { node: costs.nodes()[place].id, weight }
        };
        self.sums.iter().map(weight).collect()
    }
}

/// `SplitMix64`: every bit of the input changes half of the output's.
fn hash(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// From 0 to before 1.
fn unit(random: u64) -> f64 {
    (random >> 11) as f64 / (1_u64 << 53) as f64
}
