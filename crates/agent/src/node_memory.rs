//! How full the memory of each node is.

use linux::{online_nodes, parse_node_meminfo};
use machine::{NodeId, bounded};
use placement::NodeMemory;
use std::path::Path;

/// Rounds after which it is read again: reading takes some microseconds per node.
const ROUNDS: u64 = 16;
/// The same while pages are being moved.
const BUSY_ROUNDS: u64 = 4;

/// How full the memory of each node is, as last read.
#[derive(Debug, Default)]
pub(crate) struct KnownMemory {
    known: Vec<NodeMemory>,
    next: u64,
}

impl KnownMemory {
    /// The memory of each node in this round; empty where the kernel does not report it.
    pub fn at(&mut self, round: u64) -> Vec<NodeMemory> {
        if round >= self.next {
            self.known = read(Path::new("/sys"));
            self.next = round + ROUNDS;
        }
        self.known.clone()
    }

    /// Pages were moved, which filled these bytes per node at most: memory is read again soon.
    pub fn changed(&mut self, round: u64, filled: &[(NodeId, u64)]) {
        self.next = self.next.min(round + BUSY_ROUNDS);
        for memory in &mut self.known {
            let bytes: u64 = filled.iter().filter(|(node, _)| *node == memory.node).map(|(_, bytes)| bytes).sum();
            memory.free_bytes = memory.free_bytes.saturating_sub(bytes);
        }
    }
}

fn read(sys: &Path) -> Vec<NodeMemory> {
    let of = |node: NodeId| {
        // A node that just went offline has no file.
        let text = bounded::text(sys.join(format!("devices/system/node/node{node}/meminfo"))).ok()?;
        let memory = parse_node_meminfo(&text).ok()?;
        let value = |name: &str| memory.get(name).copied().unwrap_or(0);
        // Page cache that was not used lately and need not be written back first.
        let cache = value("Inactive(file)").saturating_sub(value("Dirty"));
        Some(NodeMemory { node, total_bytes: value("MemTotal"), free_bytes: value("MemFree") + cache })
    };
    online_nodes(sys).unwrap_or_default().iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn free_and_reclaimable_memory_is_read_and_cached_for_some_rounds() {
        let root = tempfile::tempdir().unwrap();
        let node = root.path().join("devices/system/node/node1");
        fs::create_dir_all(&node).unwrap();
        fs::write(node.with_file_name("online"), "1\n").unwrap();
        let text = "Node 1 MemTotal: 100 kB\nNode 1 MemFree: 10 kB\nNode 1 Inactive(file): 5 kB\nNode 1 Dirty: 2 kB\n";
        fs::write(node.join("meminfo"), text).unwrap();
        let expected = NodeMemory { node: NodeId(1), total_bytes: 102_400, free_bytes: 13 << 10 };
        assert_eq!(read(root.path()), [expected]);
        let mut known = KnownMemory { known: vec![expected], next: 5 };
        assert_eq!(known.at(4), [expected]);
        known.next = 16;
        known.changed(3, &[(NodeId(1), 5 << 10), (NodeId(2), 5 << 10)]);
        assert_eq!(known.next, 3 + BUSY_ROUNDS);
        assert_eq!(known.at(4), [NodeMemory { free_bytes: 8 << 10, ..expected }]);
    }
}
