//! The node x node heat map of accesses.

use crate::picture::{HeatMap, MEMORY, heat_maps_in_page};
use machine::number::count;
use machine::{Machine, NodeId};
use profile::NodePair;
use std::collections::BTreeMap;

/// The map as SVG, if any access reached memory, and a note on what it leaves out.
pub(super) fn map(machine: &Machine, pairs: &[NodePair]) -> (Option<String>, String) {
    let nodes: Vec<NodeId> = machine.nodes.iter().map(|node| node.id).collect();
    let cells: BTreeMap<(NodeId, NodeId), f64> =
        pairs.iter().map(|pair| ((pair.from, pair.to), pair.counts.accesses)).collect();
    let row = |from: &NodeId| nodes.iter().map(|to| Some(cells.get(&(*from, *to)).copied().unwrap_or(0.0))).collect();
    let is_drawn = |pair: &&NodePair| nodes.contains(&pair.from) && nodes.contains(&pair.to);
    let drawn: f64 = pairs.iter().filter(is_drawn).map(|pair| pair.counts.accesses).sum();
    let all: f64 = pairs.iter().map(|pair| pair.counts.accesses).sum();
    let note = if all > drawn {
        format!("{} accesses are of nodes that the machine's description does not have.", count((all - drawn) as u64))
    } else {
        String::new()
    };
    if drawn <= 0.0 {
        return (None, note);
    }
    let accesses = HeatMap {
        title: "Accesses that reached memory",
        columns: MEMORY,
        nodes: &nodes,
        values: nodes.iter().map(row).collect(),
        more_is_better: false,
        scale: None,
        show: |value| count(value.round() as u64),
    };
    (Some(heat_maps_in_page(vec![accesses])), note)
}
