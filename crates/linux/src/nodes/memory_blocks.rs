//! The node of each range of physical memory.

use crate::file::parsed;
use crate::nodes::node_files::{NODES, online_nodes};
use machine::NodeId;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// Ranges of physical addresses with the node of their memory, ascending. Addresses with no reported node, or with
/// conflicting ones, are left out; without memory blocks in the kernel (`CONFIG_MEMORY_HOTPLUG`) the result is empty.
/// Needs no privileges.
pub fn memory_blocks(sys: &Path) -> Vec<(Range<u64>, NodeId)> {
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16);
    let block = parsed(&sys.join("devices/system/memory/block_size_bytes"), hexadecimal).ok().flatten().unwrap_or(0);
    let mut blocks = Vec::new();
    for node in online_nodes(sys).unwrap_or_default().iter() {
        let entries = fs::read_dir(sys.join(NODES).join(format!("node{node}"))).into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("memory")?.parse().ok());
        blocks.extend(numbers.map(|number: u64| (number, node)));
    }
    rows(blocks, block)
}

fn rows(mut blocks: Vec<(u64, NodeId)>, bytes: u64) -> Vec<(Range<u64>, NodeId)> {
    blocks.sort_unstable();
    blocks.dedup();
    let is_of_one = |index: usize| {
        let number = |index: usize| blocks.get(index).map(|(number, _)| *number);
        let own = number(index);
        own != number(index + 1) && index.checked_sub(1).is_none_or(|before| own != number(before))
    };
    let mut rows: Vec<(Range<u64>, NodeId)> = Vec::new();
    for (_, (number, node)) in blocks.iter().enumerate().filter(|(index, _)| is_of_one(*index)) {
        let Some(start) = number.checked_mul(bytes) else { continue };
        let Some(end) = start.checked_add(bytes) else { continue };
        match rows.last_mut() {
            Some((row, of)) if row.end == start && of == node => row.end = end,
            _ => rows.push((start..end, *node)),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use saved_files::SavedFiles;

    #[test]
    fn neighbours_are_one_row_and_blocks_of_two_nodes_none() {
        let blocks = [(3, 1), (0, 0), (1, 0), (5, 1), (6, 0), (6, 1), (7, 1)];
        let blocks = blocks.map(|(number, node)| (number, NodeId(node)));
        let expected = [(0..20, 0), (30..40, 1), (50..60, 1), (70..80, 1)].map(|(row, node)| (row, NodeId(node)));
        assert_eq!(rows(blocks.to_vec(), 10), expected);
        assert_eq!(rows(vec![(u64::MAX, NodeId(0))], 10), []);
    }

    #[test]
    fn a_saved_system_tells() {
        let root = SavedFiles::new();
        assert_eq!(memory_blocks(root.path()), []);
        root.put("devices/system/node/online", "0-1\n");
        root.put("devices/system/memory/block_size_bytes", "8000000\n");
        root.put("devices/system/node/node0/memory0/state", "online\n");
        root.put("devices/system/node/node1/memory2/state", "online\n");
        root.put("devices/system/node/node1/memoryx/state", "online\n");
        let block = 128 << 20;
        assert_eq!(memory_blocks(root.path()), [(0..block, NodeId(0)), (2 * block..3 * block, NodeId(1))]);
    }
}
