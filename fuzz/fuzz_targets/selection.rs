//! Nodes in numactl's syntax: the resolved set is never empty, and an inverted selection stays within the allowed
//! nodes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use machine::{NodeId, NodeSet, Selection};

fuzz_target!(|text: &str| {
    let allowed: NodeSet = [0, 2, 3, 9].map(NodeId).into_iter().collect();
    let Ok(selection) = text.parse::<Selection<NodeId>>() else { return };
    if let Ok(set) = selection.resolve(&allowed, Some(&allowed), |_| Err(String::new())) {
        assert!(!set.is_empty());
        assert!(!text.trim().starts_with('!') || set.is_subset(&allowed));
    }
});
