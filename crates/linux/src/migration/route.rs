//! Source and target nodes of a migration.

use machine::{NodeId, NodeSet, NodeWeight};

/// Which nodes pages move from, and to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    from: Option<NodeSet>,
    to: Vec<NodeId>,
    targets: NodeSet,
    /// Without sources: whether pages that are on any target stay there.
    stay_on_targets: bool,
}

/// A route's decision for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// It moves to this node.
    To(NodeId),
    /// It is on the right node already.
    There,
    /// It is on a node that is not a source.
    Elsewhere,
}

impl Route {
    /// From these nodes, or from all, to these. `None` if there is no target, or an empty set of sources.
    ///
    /// Pages of the first source go to the first target, those of the second source to the second, and so on, wrapping
    /// around if there are fewer targets. Without sources, pages that are already on a target stay, and all others are
    /// distributed over the targets by address.
    pub fn new(from: Option<NodeSet>, to: &NodeSet) -> Option<Self> {
        let nothing = to.is_empty() || from.as_ref().is_some_and(NodeSet::is_empty);
        (!nothing).then(|| Self { from, to: to.iter().collect(), targets: to.clone(), stay_on_targets: true })
    }

    /// From all nodes to these, by address, in proportion to their weights. `None` if there is no target, or a weight
    /// is 0.
    pub fn dealt(weights: &[NodeWeight]) -> Option<Self> {
        let nothing = weights.is_empty() || weights.iter().any(|by| by.weight == 0);
        let slots = weights.iter().flat_map(|by| std::iter::repeat_n(by.node, by.weight as usize));
        let targets = weights.iter().map(|by| by.node).collect();
        (!nothing).then(|| Self { from: None, to: slots.collect(), targets, stay_on_targets: false })
    }

    /// The target nodes.
    pub fn targets(&self) -> &NodeSet {
        &self.targets
    }

    /// Whether pages of a source stay because it is a target as well. As the kernel's `migrate_pages`: between as many
    /// sources as targets they rotate, otherwise they stay.
    fn stays(&self, from: &NodeSet, node: NodeId) -> bool {
        from.len() != self.targets.len() && self.targets.contains(node)
    }

    /// The decision for a page on this node; `page` is its address divided by the bytes that move with it.
    pub fn of(&self, node: NodeId, page: u64) -> Destination {
        let dealt = |index: u64| self.to[(index % self.to.len() as u64) as usize];
        let target = match &self.from {
            None if self.stay_on_targets && self.targets.contains(node) => return Destination::There,
            None => dealt(page),
            Some(from) => match from.iter().position(|source| source == node) {
                Some(_) if self.stays(from, node) => return Destination::There,
                Some(index) => dealt(index as u64),
                None => return Destination::Elsewhere,
            },
        };
        if target == node { Destination::There } else { Destination::To(target) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nodes(text: &str) -> NodeSet {
        text.parse().unwrap()
    }

    fn route(from: Option<&str>, to: &str) -> Route {
        Route::new(from.map(nodes), &nodes(to)).unwrap()
    }

    /// Claim 9 of the specification: from A to B moves pages on A only, and pages on C stay.
    #[test]
    fn only_pages_of_the_nodes_to_come_from_move() {
        let route = route(Some("0"), "1");
        let destinations = [0, 1, 2].map(|node| route.of(NodeId(node), 7));
        assert_eq!(destinations, [Destination::To(NodeId(1)), Destination::Elsewhere, Destination::Elsewhere]);
    }

    #[test]
    fn nodes_are_paired_in_order() {
        let three = route(Some("0,2,4"), "1,4");
        let destinations = [0, 2, 4].map(|node| three.of(NodeId(node), 7));
        assert_eq!(destinations, [Destination::To(NodeId(1)), Destination::To(NodeId(4)), Destination::There]);
        let all = route(Some("0-3"), "1,3");
        let destinations = [0, 1, 2, 3].map(|node| all.of(NodeId(node), 7));
        let (one, there) = (Destination::To(NodeId(1)), Destination::There);
        assert_eq!(destinations, [one, there, one, there], "as migratepages does");
        assert_eq!(route(Some("0-1"), "1-2").of(NodeId(1), 0), Destination::To(NodeId(2)));
        assert_eq!(route(Some("0,4"), "1,4").of(NodeId(4), 0), Destination::There);
    }

    #[test]
    fn without_nodes_to_come_from_pages_are_dealt_evenly() {
        let route = route(None, "1,3");
        assert_eq!(route.of(NodeId(3), 0), Destination::There);
        assert_eq!(
            [0, 1, 2].map(|page| route.of(NodeId(0), page)),
            [1, 3, 1].map(|node| Destination::To(NodeId(node)))
        );
    }

    #[test]
    fn a_route_from_or_to_nowhere_is_none() {
        assert_eq!(Route::new(None, &NodeSet::new()), None);
        assert_eq!(Route::new(Some(NodeSet::new()), &nodes("0")), None);
    }

    proptest! {
        #[test]
        fn pages_only_go_where_they_are_sent(
            from in proptest::option::of(proptest::collection::btree_set(0..64_u32, 1..8)),
            to in proptest::collection::btree_set(0..64_u32, 1..8),
            node in 0..64_u32,
            page: u64,
        ) {
            let set = |ids: &std::collections::BTreeSet<u32>| ids.iter().copied().map(NodeId).collect::<NodeSet>();
            let route = Route::new(from.as_ref().map(set), &set(&to)).unwrap();
            match route.of(NodeId(node), page) {
                Destination::To(target) => prop_assert!(to.contains(&target.0) && target.0 != node),
                Destination::There => prop_assert!(to.contains(&node)),
                Destination::Elsewhere => prop_assert!(from.is_some_and(|from| !from.contains(&node))),
            }
        }
    }
}
