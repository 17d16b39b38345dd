//! How the memory that a round's accesses go to changes within the round. All threads may use one node's memory first,
//! and then another's, as in a sort or a transposition: each controller is full for some time, and the sum of the round
//! is even.

use super::significance::Difference;
use crate::costs::Costs;
use crate::observation::Observation;

/// Fewest samples of a slice, for each node whose memory is used.
const ENOUGH: f64 = 8.0;
/// A slice with a smaller part of the samples of the mean one is idle, and says nothing.
const IDLE: f64 = 0.25;

/// By slice of the round, by node: the part of the accesses that goes to its memory, over that part in the whole round.
/// One slice, all 1, where slices differ no more than by chance.
pub(super) fn slices(observation: &Observation, costs: &Costs) -> Vec<Vec<f64>> {
    let nodes = costs.nodes().len();
    let mut slices: Vec<Vec<f64>> = Vec::new();
    for slice in &observation.slices {
        let mut counts = vec![0.0; nodes];
        for by in slice {
            if let Some(to) = costs.index_of(by.node) {
                counts[to] += by.accesses as f64;
            }
        }
        slices.push(counts);
    }
    let sum = |slices: &[Vec<f64>]| -> f64 { slices.iter().flatten().sum() };
    let used = (0..nodes).filter(|&node| slices.iter().any(|counts| counts[node] > 0.0)).count();
    while slices.len() > 1 && sum(&slices) < ENOUGH * (used * slices.len()) as f64 {
        let pair = |pair: &[Vec<f64>]| (0..nodes).map(|node| pair.iter().map(|counts| counts[node]).sum()).collect();
        slices = slices.chunks(2).map(pair).collect();
    }
    let mean = sum(&slices) / slices.len().max(1) as f64;
    slices.retain(|counts| counts.iter().sum::<f64>() >= IDLE * mean);
    let mut whole = vec![0.0; nodes];
    for counts in &slices {
        whole.iter_mut().zip(counts).for_each(|(whole, count)| *whole += count);
    }
    let difference = Difference::new(&slices.iter().map(Vec::as_slice).collect::<Vec<_>>());
    if !difference.is_significant() {
        return vec![vec![1.0; nodes]];
    }
    // What chance adds to the differences is taken away again (James and Stein).
    let kept = 1.0 - difference.degrees / difference.statistic;
    let all = sum(&slices);
    let factors = |counts: &Vec<f64>| {
        let of_slice: f64 = counts.iter().sum();
        let factor = |(count, whole): (&f64, &f64)| {
            if *whole > 0.0 { 1.0 + kept * (count / of_slice * all / whole - 1.0) } else { 1.0 }
        };
        counts.iter().zip(&whole).map(factor).collect()
    };
    slices.iter().map(factors).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::NodeAccesses;
    use machine::{NodeId, presets};

    /// Factors of slices with these samples of four nodes' memory.
    fn factors(samples: &[[u64; 4]]) -> Vec<Vec<f64>> {
        let machine = presets::find("opteron-6164x2").unwrap();
        let accesses = |(node, accesses): (u32, &u64)| NodeAccesses { node: NodeId(node), accesses: *accesses };
        let slice = |of: &[u64; 4]| (0..).zip(of).map(accesses).collect();
        let observation = Observation { slices: samples.iter().map(slice).collect(), ..Observation::default() };
        slices(&observation, &Costs::new(&machine))
    }

    #[test]
    fn nodes_that_are_used_in_turns_are_found() {
        let turns = factors(&[[90, 10, 0, 0], [10, 80, 10, 0], [0, 10, 80, 10], [0, 0, 10, 90]]);
        assert_eq!(turns.len(), 4);
        assert!((turns[0][0] - 3.6).abs() < 0.1 && (0.0..0.1).contains(&turns[0][3]), "{turns:?}");
        // The mean slice is the round.
        for node in 0..4 {
            assert!((turns.iter().map(|slice| slice[node]).sum::<f64>() / 4.0 - 1.0).abs() < 1e-9, "{turns:?}");
        }
    }

    #[test]
    fn chance_and_idle_parts_are_no_turns() {
        let even = [vec![1.0; 4]];
        assert_eq!(factors(&[]), even);
        assert_eq!(factors(&[[30, 25, 20, 25], [22, 26, 27, 25]]), even);
        assert_eq!(factors(&[[9, 0, 0, 0], [0, 9, 0, 0]]), even, "too few samples");
        assert_eq!(factors(&[[90, 100, 110, 100], [100, 100, 100, 100], [4, 0, 0, 0]]), even, "an end without threads");
    }

    #[test]
    fn slices_with_few_samples_are_joined() {
        let turns =
            factors(&[[20, 0, 0, 0], [20, 0, 0, 0], [0, 20, 0, 0], [0, 20, 0, 0], [0, 0, 20, 0], [0, 0, 20, 0]]);
        assert_eq!(turns.len(), 3);
    }
}
