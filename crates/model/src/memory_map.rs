//! The node of a physical address.

use crate::ModelError;
use serde::{Deserialize, Serialize};

/// Smallest granule of the table: no machine has finer node boundaries.
const MIN_GRANULE_BYTES: u64 = 1 << 20;
/// Maximum number of entries: 16 TiB at the smallest granule, far more at a usual one.
const MAX_GRANULES: u64 = 1 << 24;

/// Physical memory of one node. A node may have several ranges; they must not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryRange {
    /// First address, bytes.
    pub start: u64,
    /// End address (exclusive), bytes.
    pub end: u64,
    /// The node's index in [`machine::Machine::nodes`].
    pub node: usize,
}

/// A table from address to node index.
///
/// Addresses in no range (firmware, devices, holes) belong to the node of the range below them, or to the first range's
/// node if there is none. Boundaries finer than 1 MiB are rounded down to it.
#[derive(Debug)]
pub(crate) struct MemoryMap {
    granule_shift: u32,
    nodes: Box<[u16]>,
    /// End of the last range (exclusive), bytes.
    pub(crate) end: u64,
}

impl MemoryMap {
    pub(crate) fn new(ranges: &[MemoryRange], nodes: usize) -> Result<Self, ModelError> {
        let bad =
            |range: &MemoryRange, rule: String| ModelError::MemoryRange { start: range.start, end: range.end, rule };
        let mut sorted = ranges.to_vec();
        sorted.sort_by_key(|range| range.start);
        let mut boundaries = 0;
        for range in &sorted {
            if range.end <= range.start {
                return Err(bad(range, "it must end after it starts".to_owned()));
            }
            if range.node >= nodes {
                return Err(bad(range, format!("its node index {} must be below the {nodes} nodes", range.node)));
            }
            boundaries |= range.start | range.end;
        }
        for pair in sorted.windows(2) {
            if pair[1].start < pair[0].end {
                return Err(bad(&pair[1], format!("it must not overlap {:#x}-{:#x}", pair[0].start, pair[0].end)));
            }
        }
        let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return Err(ModelError::NoMemory) };
        let granule_shift = boundaries.trailing_zeros().max(MIN_GRANULE_BYTES.trailing_zeros());
        let granules = (last.end >> granule_shift).max(1);
        if granules > MAX_GRANULES {
            let granule = machine::size::format(1 << granule_shift);
            return Err(bad(
                last,
                format!("it must end below {MAX_GRANULES} times {granule}, which divides all boundaries"),
            ));
        }
        let mut nodes = vec![first.node as u16; granules as usize];
        for range in &sorted {
            let start = (range.start >> granule_shift) as usize;
            // To the end of the table: higher ranges overwrite their part afterwards.
            nodes.get_mut(start..).into_iter().flatten().for_each(|node| *node = range.node as u16);
        }
        Ok(Self { granule_shift, nodes: nodes.into(), end: last.end })
    }

    #[inline]
    pub(crate) fn node_of(&self, address: u64) -> usize {
        let granule = (address >> self.granule_shift) as usize;
        usize::from(self.nodes[granule.min(self.nodes.len() - 1)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_hole_below_4_gib_belongs_to_the_range_below_it() -> Result<(), ModelError> {
        let range = |start, end, node| MemoryRange { start, end, node };
        let map = MemoryMap::new(&[range(4 * GIB, 6 * GIB, 1), range(0, 2 * GIB, 0), range(2 * GIB, 3 * GIB, 1)], 2)?;
        for (address, node) in [(0, 0), (2 * GIB - 1, 0), (2 * GIB, 1), (4 * GIB - 1, 1), (5 * GIB, 1), (u64::MAX, 1)] {
            assert_eq!(map.node_of(address), node, "{address:#x}");
        }
        assert_eq!(map.nodes.len(), 6, "the granule is the largest that fits");
        Ok(())
    }

    #[test]
    fn refuses_what_is_no_memory() {
        let range = |start, end, node| MemoryRange { start, end, node };
        for ranges in [
            vec![],
            vec![range(0, 0, 0)],
            vec![range(GIB, 0, 0)],
            vec![range(0, GIB, 2)],
            vec![range(0, GIB, 0), range(GIB / 2, 2 * GIB, 1)],
            vec![range(0, GIB, 0), range(1 << 60, (1 << 60) + GIB, 1)],
        ] {
            assert!(MemoryMap::new(&ranges, 2).is_err(), "{ranges:?}");
        }
    }

    proptest! {
        #[test]
        fn every_address_of_a_range_is_of_its_node(
            parts in prop::collection::vec((0_u64..64, 1_u64..64, 0_usize..8), 1..20), place in 0.0..1.0,
        ) {
            let mut end = 0;
            let ranges: Vec<_> = parts.iter().map(|&(gap, size, node)| {
                let start = end + gap * MIN_GRANULE_BYTES;
                end = start + size * MIN_GRANULE_BYTES;
                MemoryRange { start, end, node }
            }).collect();
            let map = MemoryMap::new(&ranges, 8)?;
            for range in ranges {
                let inside = range.start + ((range.end - range.start) as f64 * place) as u64;
                prop_assert_eq!(map.node_of(range.start), range.node);
                prop_assert_eq!(map.node_of(inside), range.node);
                prop_assert_eq!(map.node_of(range.end - 1), range.node);
            }
        }

        #[test]
        fn any_ranges_are_taken_or_refused(ranges in prop::collection::vec((any::<u64>(), any::<u64>(), 0_usize..3), 0..5)) {
            let ranges: Vec<_> = ranges.into_iter().map(|(start, end, node)| MemoryRange { start, end, node }).collect();
            if let Ok(map) = MemoryMap::new(&ranges, 2) {
                prop_assert!(map.node_of(0) < 2);
            }
        }
    }
}
