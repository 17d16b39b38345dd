//! Where the firmware's distances disagree with measured latency.

use crate::statistics::Matrix;
use machine::{Distances, NodeId};
use serde::{Deserialize, Serialize};

/// Relative difference up to which two latencies, or a distance and the truth, count as equal.
const TOLERANCE: f64 = 0.05;
/// The distance of an unreachable node.
const UNREACHABLE: u32 = 255;

/// The firmware's distances against the measurement. A distance is compared as a ratio to the row's own: 16 beside a
/// local 10 claims 1.6 times the local latency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Firmware {
    /// Number of pairs whose claimed and measured ratios could be compared.
    pub compared_pairs: usize,
    /// Pairs that are off by more than 5 %, the worst first.
    pub disagreements: Vec<Disagreement>,
    /// Where the order of nodes, as seen from one node, differs from the firmware's.
    pub order_changes: Vec<OrderChange>,
}

/// A pair of nodes whose distance disagrees with the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Disagreement {
    /// The accessing node.
    pub from: NodeId,
    /// The memory's node.
    pub to: NodeId,
    /// The firmware's distance.
    pub distance: u32,
    /// Distance over local distance.
    pub claimed_ratio: f64,
    /// Latency over local latency.
    pub measured_ratio: f64,
    /// Claimed over measured, less 1: positive if the firmware overstates.
    pub error: f64,
}

/// Two nodes that the firmware orders differently than latency does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderChange {
    /// The accessing node.
    pub from: NodeId,
    /// The node with the lower measured latency.
    pub nearer: NodeId,
    /// The node with the higher measured latency.
    pub farther: NodeId,
    /// Latency of the nearer node, ns.
    pub nearer_ns: f64,
    /// Latency of the farther node, ns.
    pub farther_ns: f64,
    /// Whether the firmware has them at equal distance; otherwise it has them in the opposite order.
    pub claimed_equal: bool,
}

/// Compares distances with latencies. Rows without a measured local latency (nodes without CPUs or memory) are compared
/// by order only. `None` if there was nothing to compare.
pub(crate) fn compare(nodes: &[NodeId], distances: &Distances, latency_ns: &Matrix) -> Option<Firmware> {
    let mut found = Firmware { compared_pairs: 0, disagreements: Vec::new(), order_changes: Vec::new() };
    for (row, (from, claimed)) in nodes.iter().zip(&distances.matrix).enumerate() {
        // Each node as seen from here: its ID, its distance and its latency.
        let measured = latency_ns.get(row).map_or(&[][..], Vec::as_slice);
        let known: Vec<(NodeId, u32, f64)> = nodes
            .iter()
            .zip(claimed)
            .zip(measured)
            .filter_map(|((to, distance), number)| Some((*to, *distance, (*number)?.value?)))
            .filter(|(_, distance, _)| (1..UNREACHABLE).contains(distance))
            .collect();
        if let Some((_, local_distance, local_ns)) = known.iter().find(|(to, ..)| to == from) {
            for (to, distance, ns) in known.iter().filter(|(to, ..)| to != from) {
                let (claimed_ratio, measured_ratio) =
                    (f64::from(*distance) / f64::from(*local_distance), ns / local_ns);
                let error = claimed_ratio / measured_ratio - 1.0;
                found.compared_pairs += 1;
                if error.abs() > TOLERANCE {
                    let (from, to, distance) = (*from, *to, *distance);
                    found.disagreements.push(Disagreement { from, to, distance, claimed_ratio, measured_ratio, error });
                }
            }
        }
        found.order_changes.extend(order_changes(*from, known));
    }
    found.disagreements.sort_by(|a, b| b.error.abs().total_cmp(&a.error.abs()));
    (found.compared_pairs > 0 || !found.order_changes.is_empty()).then_some(found)
}

/// For each node, in order of measured latency, the one of those with lower latency that has the largest distance, if
/// that is not the smaller one. One line per node, as a thousand nodes must not produce half a million.
fn order_changes(from: NodeId, mut known: Vec<(NodeId, u32, f64)>) -> Vec<OrderChange> {
    known.sort_by(|a, b| a.2.total_cmp(&b.2));
    let mut changes = Vec::new();
    let mut nearer_ones = known.iter().peekable();
    let mut claimed_farthest: Option<&(NodeId, u32, f64)> = None;
    for (farther, far, farther_ns) in &known {
        while let Some(node) = nearer_ones.next_if(|(_, _, ns)| ns * (1.0 + TOLERANCE) < *farther_ns) {
            if claimed_farthest.is_none_or(|farthest| node.1 >= farthest.1) {
                claimed_farthest = Some(node);
            }
        }
        if let Some((nearer, near, nearer_ns)) = claimed_farthest
            && near >= far
        {
            let (nearer, nearer_ns, farther, farther_ns) = (*nearer, *nearer_ns, *farther, *farther_ns);
            changes.push(OrderChange { from, nearer, farther, nearer_ns, farther_ns, claimed_equal: near == far });
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Number;
    use proptest::prelude::*;

    fn compared(distances: &[Vec<u32>], latency_ns: &[Vec<f64>]) -> Option<Firmware> {
        let nodes: Vec<NodeId> = (0..distances[0].len() as u32).map(NodeId).collect();
        let number = |ns: &f64| (*ns > 0.0).then_some(Number { value: Some(*ns), spread: 0.0, repeats: 1 });
        let matrix: Matrix = latency_ns.iter().map(|row| row.iter().map(number).collect()).collect();
        compare(&nodes, &Distances { matrix: distances.to_vec(), source: None }, &matrix)
    }

    #[test]
    fn an_overstated_distance_is_reported_with_its_error() {
        // The machine of the SLIT blog, field.md 5.1, row K: the firmware claims 2.1, the latency ratio is 1.5.
        let found = compared(&[vec![10, 21], vec![21, 10]], &[vec![80.0, 120.0], vec![120.0, 80.0]]).unwrap();
        assert_eq!((found.compared_pairs, found.disagreements.len(), found.order_changes.len()), (2, 2, 0));
        let worst = found.disagreements[0];
        assert!((worst.claimed_ratio - 2.1).abs() < 1e-9 && (worst.measured_ratio - 1.5).abs() < 1e-9);
        assert!((worst.error - 0.4).abs() < 1e-9);
    }

    #[test]
    fn a_wrong_order_and_a_difference_that_the_firmware_hides_are_reported() {
        let latency = vec![vec![100.0, 200.0, 150.0, 300.0]; 1];
        let found = compared(&[vec![10, 12, 14, 14]], &latency).unwrap();
        let order: Vec<_> = found.order_changes.iter().map(|c| (c.nearer.0, c.farther.0, c.claimed_equal)).collect();
        assert_eq!(order, [(2, 1, false), (2, 3, true)]);
        let found = compared(&[vec![10, 12, 12, 12]], &latency).unwrap();
        let order: Vec<_> = found.order_changes.iter().map(|c| (c.nearer.0, c.farther.0, c.claimed_equal)).collect();
        assert_eq!(order, [(2, 1, true), (1, 3, true)]);
    }

    #[test]
    fn what_was_not_measured_is_not_compared() {
        let found = compared(
            &[vec![10, 255, 20], vec![255, 10, 20], vec![20, 20, 10]],
            &[vec![100.0, 150.0, 0.0], vec![0.0; 3], vec![0.0; 3]],
        );
        assert_eq!(found, None);
    }

    proptest! {
        #[test]
        fn distances_that_are_latencies_agree(latencies in prop::collection::vec(11_u32..250, 2..10)) {
            let n = latencies.len();
            let row = |i: usize| (0..n).map(|j| if i == j { 10 } else { latencies[i.max(j)] }).collect::<Vec<u32>>();
            let distances: Vec<_> = (0..n).map(row).collect();
            let times = |row: &Vec<u32>| row.iter().map(|distance| f64::from(*distance) * 7.5).collect();
            let measured: Vec<Vec<f64>> = distances.iter().map(times).collect();
            let found = compared(&distances, &measured).unwrap();
            prop_assert_eq!(found.compared_pairs, n * (n - 1));
            prop_assert_eq!((found.disagreements, found.order_changes), (Vec::new(), Vec::new()));
        }
    }
}
