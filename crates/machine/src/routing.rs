//! Paths from the hardware's own routing tables, which say on which link a node sends to each other one, but not which
//! node that link reaches.

use crate::ids::NodeId;
use crate::set::NodeSet;
use std::collections::{BTreeMap, BTreeSet};

/// The firmware's distance of an unreachable node (ACPI 6.5, 5.2.17).
const UNREACHABLE: u32 = 255;

/// Distances counted in hops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopDistances(BTreeMap<(NodeId, NodeId), u32>);

impl HopDistances {
    /// Derives hops from a table of firmware distances, whose values the vendor chose: the smallest distance to another
    /// node is one hop, the next larger value two, and so on. The nodes name rows and columns.
    pub fn from_distances(nodes: &[NodeId], matrix: &[Vec<u32>]) -> Self {
        let cells = || {
            let row = |(&from, row): (&NodeId, &Vec<u32>)| {
                let cells: Vec<_> = nodes.iter().zip(row).map(move |(&to, &distance)| (from, to, distance)).collect();
                cells
            };
            nodes.iter().zip(matrix).flat_map(row).filter(|&(_, _, distance)| distance < UNREACHABLE)
        };
        let remote: BTreeSet<u32> =
            cells().filter(|(from, to, _)| from != to).map(|(_, _, distance)| distance).collect();
        let ranks: BTreeMap<u32, u32> = remote.into_iter().zip(1..).collect();
        let hops = |from, to, distance| if from == to { Some(0) } else { ranks.get(&distance).copied() };
        Self(cells().filter_map(|(from, to, distance)| Some(((from, to), hops(from, to, distance)?))).collect())
    }

    /// The number of hops from one node to another; the way back may be longer or shorter.
    pub fn get(&self, from: NodeId, to: NodeId) -> Option<u32> {
        self.0.get(&(from, to)).copied()
    }
}

/// The links on which each node sends to each other node. A link's number is local to its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoutingTable(BTreeMap<NodeId, BTreeMap<NodeId, BTreeSet<u32>>>);

/// Why a routing table and distances do not give a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoutingError {
    /// The distance is unknown.
    #[error("the distance from node {from} to node {to} is unknown")]
    NoDistance {
        /// The source.
        from: NodeId,
        /// The destination.
        to: NodeId,
    },
    /// The table has no entry.
    #[error("the routing table does not say by which link node {at} sends to node {to}")]
    NoLink {
        /// The sending node.
        at: NodeId,
        /// The destination.
        to: NodeId,
    },
    /// The distances do not determine where the link leads.
    #[error("link {link} of node {at} leads to one node one hop away, but the tables name {}", if nodes.is_empty() { "none".to_owned() } else { nodes.to_string() })]
    NotOneNeighbour {
        /// The sending node.
        at: NodeId,
        /// Its link.
        link: u32,
        /// The nodes that the tables name.
        nodes: NodeSet,
    },
    /// The path ends at another node.
    #[error("after the {hops} hops from node {from} to node {to} the routing table leads to node {at}")]
    Elsewhere {
        /// The source.
        from: NodeId,
        /// The destination.
        to: NodeId,
        /// Their distance.
        hops: u32,
        /// The last node of the path.
        at: NodeId,
    },
}

impl FromIterator<(NodeId, NodeId, u32)> for RoutingTable {
    /// From entries (node, destination, link).
    fn from_iter<I: IntoIterator<Item = (NodeId, NodeId, u32)>>(entries: I) -> Self {
        let mut table = Self::default();
        for (at, to, link) in entries {
            table.0.entry(at).or_default().entry(to).or_default().insert(link);
        }
        table
    }
}

impl RoutingTable {
    /// The links from one node to another, each with the node that sends on it, in order; empty from a node to itself.
    ///
    /// Several destinations may share a link: it leads to the one that is one hop away. If a destination has parallel
    /// links, the first that leads to one neighbour is taken. The way back is a separate path. The path has as many
    /// hops as the distance says, so that the search also ends in a table with a cycle.
    pub fn interconnect_path(
        &self,
        distances: &HopDistances,
        from: NodeId,
        to: NodeId,
    ) -> Result<Vec<(NodeId, u32)>, RoutingError> {
        let hops = distances.get(from, to).ok_or(RoutingError::NoDistance { from, to })?;
        let mut path = Vec::new();
        let mut at = from;
        for _ in 0..hops {
            let (link, next) = self.next(distances, at, to)?;
            path.push((at, link));
            at = next;
        }
        if at == to { Ok(path) } else { Err(RoutingError::Elsewhere { from, to, hops, at }) }
    }

    fn next(&self, distances: &HopDistances, at: NodeId, to: NodeId) -> Result<(u32, NodeId), RoutingError> {
        let no_link = RoutingError::NoLink { at, to };
        let Some(entries) = self.0.get(&at) else { return Err(no_link) };
        let mut failure = no_link;
        for &link in entries.get(&to).into_iter().flatten() {
            let reached = entries.iter().filter(|(_, links)| links.contains(&link)).map(|(&node, _)| node);
            let nodes: NodeSet = reached.filter(|&node| distances.get(at, node) == Some(1)).collect();
            match nodes.first() {
                Some(next) if nodes.len() == 1 => return Ok((link, next)),
                _ => failure = RoutingError::NotOneNeighbour { at, link, nodes },
            }
        }
        Err(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Direction, Routes, presets};

    fn nodes<const N: usize>(ids: [u32; N]) -> Vec<NodeId> {
        ids.map(NodeId).to_vec()
    }

    fn table(entries: &[(u32, u32, u32)]) -> RoutingTable {
        entries.iter().map(|&(at, to, link)| (NodeId(at), NodeId(to), link)).collect()
    }

    /// Nodes 4, 5 and 7 in a row, 7 - 4 - 5, as in the worked example of the performance-isolation specification, 10.6.
    fn row() -> HopDistances {
        HopDistances::from_distances(&nodes([4, 5, 7]), &[vec![10, 16, 16], vec![16, 10, 22], vec![16, 22, 10]])
    }

    #[test]
    fn the_worked_example_forwards_over_node_4() {
        let table = table(&[(7, 4, 0xa), (7, 5, 0xa), (4, 5, 0xb)]);
        let path = table.interconnect_path(&row(), NodeId(7), NodeId(5));
        assert_eq!(path, Ok(vec![(NodeId(7), 0xa), (NodeId(4), 0xb)]));
        assert_eq!(table.interconnect_path(&row(), NodeId(7), NodeId(7)), Ok(vec![]));
    }

    #[test]
    fn firmware_distances_become_hops() {
        let hops = row();
        let found: Vec<_> = [7, 4, 5].iter().map(|&to| hops.get(NodeId(7), NodeId(to))).collect();
        assert_eq!(found, [Some(0), Some(1), Some(2)]);
        let cut = HopDistances::from_distances(&nodes([0, 1]), &[vec![10, 255], vec![20, 10]]);
        assert_eq!((cut.get(NodeId(0), NodeId(1)), cut.get(NodeId(1), NodeId(0))), (None, Some(1)));
    }

    #[test]
    fn of_parallel_links_one_that_leads_on_is_taken() {
        // Node 7 reaches 4 by links 1 and 2, and sends to 5 by 2 and 3; no entry determines where 3 leads.
        let table = table(&[(7, 4, 1), (7, 4, 2), (7, 5, 2), (7, 5, 3), (4, 5, 0)]);
        assert_eq!(table.interconnect_path(&row(), NodeId(7), NodeId(5)), Ok(vec![(NodeId(7), 2), (NodeId(4), 0)]));
        assert_eq!(table.interconnect_path(&row(), NodeId(7), NodeId(4)), Ok(vec![(NodeId(7), 1)]));
    }

    #[test]
    fn the_way_back_may_be_longer() {
        // As on machine C: 7 to 3 takes one hop, 3 to 7 goes through 5.
        let ids = nodes([3, 5, 7]);
        let hops = HopDistances::from_distances(&ids, &[vec![10, 16, 22], vec![16, 10, 16], vec![16, 16, 10]]);
        let table = table(&[(7, 3, 0), (3, 5, 1), (3, 7, 1), (5, 7, 2)]);
        assert_eq!(table.interconnect_path(&hops, NodeId(7), NodeId(3)), Ok(vec![(NodeId(7), 0)]));
        assert_eq!(table.interconnect_path(&hops, NodeId(3), NodeId(7)), Ok(vec![(NodeId(3), 1), (NodeId(5), 2)]));
    }

    #[test]
    fn bad_tables_end_in_an_error() {
        let (from, to) = (NodeId(7), NodeId(5));
        let path = |entries| table(entries).interconnect_path(&row(), from, to);
        assert_eq!(path(&[]), Err(RoutingError::NoLink { at: from, to }));
        let none = RoutingError::NotOneNeighbour { at: from, link: 1, nodes: NodeSet::new() };
        assert_eq!(path(&[(7, 5, 1)]), Err(none));
        // 4 sends back to 7: a cycle.
        let circle = path(&[(7, 4, 1), (7, 5, 1), (4, 7, 1), (4, 5, 1)]);
        let both: NodeSet = nodes([5, 7]).into_iter().collect();
        assert_eq!(circle, Err(RoutingError::NotOneNeighbour { at: NodeId(4), link: 1, nodes: both }));
        let four = HopDistances::from_distances(
            &nodes([0, 1, 2, 3]),
            &[vec![10, 16, 22, 22], vec![16, 10, 22, 22], vec![22, 22, 10, 16], vec![22, 22, 16, 10]],
        );
        let circle =
            table(&[(0, 1, 0), (0, 3, 0), (1, 0, 0), (1, 3, 0)]).interconnect_path(&four, NodeId(0), NodeId(3));
        assert_eq!(circle, Err(RoutingError::Elsewhere { from: NodeId(0), to: NodeId(3), hops: 2, at: NodeId(0) }));
        assert_eq!(
            table(&[]).interconnect_path(&four, NodeId(0), NodeId(9)),
            Err(RoutingError::NoDistance { from: NodeId(0), to: NodeId(9) })
        );
    }

    #[test]
    fn agrees_with_the_routes_of_every_preset() {
        for name in presets::names() {
            let machine = presets::find(name).unwrap();
            let routes = Routes::new(&machine).unwrap();
            let ids: Vec<NodeId> = machine.nodes.iter().map(|node| node.id).collect();
            let pairs = || ids.iter().flat_map(|&from| ids.iter().map(move |&to| (from, to)));
            let link = |hop: &crate::Hop| hop.link as u32;
            let table: RoutingTable =
                pairs().filter_map(|(from, to)| Some((from, to, link(routes.hops(from, to)?.first()?)))).collect();
            // Not the firmware's distances: those of Nehalem-EX are flat, and others have more classes than hops.
            let hops = |from, to| 10 + routes.hop_count(from, to).unwrap() as u32;
            let matrix: Vec<Vec<u32>> =
                ids.iter().map(|&from| ids.iter().map(|&to| hops(from, to)).collect()).collect();
            let distances = HopDistances::from_distances(&ids, &matrix);
            for (from, to) in pairs() {
                let path = table.interconnect_path(&distances, from, to).unwrap();
                let mut at = from;
                let mut expected = Vec::new();
                for hop in routes.hops(from, to).unwrap() {
                    expected.push((at, hop.link as u32));
                    let [first, second] = machine.links[hop.link].nodes;
                    at = if hop.direction == Direction::Forward { second } else { first };
                }
                assert_eq!(path, expected, "{name}: {from} to {to}");
            }
        }
    }
}
