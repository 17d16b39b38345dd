//! Ends of links.

use machine::{Direction, Hop, Machine, NodeId};

/// From which node to which a hop leads.
pub fn hop_ends(machine: &Machine, hop: Hop) -> Option<(NodeId, NodeId)> {
    let [first, second] = machine.links.get(hop.link)?.nodes;
    Some(if hop.direction == Direction::Forward { (first, second) } else { (second, first) })
}
