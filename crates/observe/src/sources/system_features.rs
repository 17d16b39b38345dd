//! What perf.data describes of a machine, of this system.

use linux::{NodeState, memory_blocks};
use machine::{CpuId, Node, bounded};
use perf_data::{Core, Features, main_id};
use std::path::Path;

/// Reads the nodes of this system from sysfs: their CPUs, and their memory blocks. Missing files leave the fields
/// unknown.
pub(super) fn features(sys: &Path) -> Features {
    let state = NodeState::read(sys).unwrap_or_default();
    let memory = memory_blocks(sys);
    let node = |id| {
        let blocks = memory.iter().filter(|(_, node)| *node == id);
        Node {
            id,
            cpus: state.cpus.get(&id).cloned().unwrap_or_default(),
            memory_bytes: blocks.map(|(range, _)| range.end - range.start).sum(),
            bandwidth_bytes_per_s: None,
            write_cost: None,
            source: None,
        }
    };
    let nodes = state.with_memory.iter().map(node).collect();
    Features::of_nodes(nodes, state.of_cpus().into_iter().collect(), memory)
}

/// Reads an Arm CPU's main ID register and maximum frequency from sysfs.
pub(super) fn core(sys: &Path, cpu: CpuId) -> Core {
    let folder = sys.join(format!("devices/system/cpu/cpu{cpu}"));
    let text = |path: &str| bounded::text(folder.join(path)).unwrap_or_default();
    let khz = text("cpufreq/cpuinfo_max_freq").trim().parse::<u32>().ok().filter(|khz| *khz > 0);
    Core {
        processor: main_id(text("regs/identification/midr_el1").trim()),
        cycles_per_ns: khz.map(|khz| f64::from(khz) / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::NodeId;
    use saved_files::SavedFiles;

    #[test]
    fn nodes_of_memory_are_those_of_their_blocks() {
        let root = SavedFiles::new();
        let put = |path: &str, text: &str| root.put(&format!("devices/system/{path}"), text);
        put("node/online", "0,2");
        put("node/has_memory", "0,2");
        for (path, text) in [("node0/cpulist", "0-1"), ("node2/cpulist", "2"), ("node0/meminfo", "")] {
            put(&format!("node/{path}"), text);
        }
        put("memory/block_size_bytes", "8000000\n");
        for path in ["node0/memory0", "node0/memory1", "node2/memory2", "node0/memory9"] {
            put(&format!("node/{path}"), "");
        }
        let found = features(root.path());
        let node = |block: u64| found.node_of_memory(block << 27 | 5);
        assert_eq!(
            [0, 1, 2, 3, 9].map(node),
            [Some(NodeId(0)), Some(NodeId(0)), Some(NodeId(2)), None, Some(NodeId(0))]
        );
        assert_eq!(found.memory().len(), 3);
        assert_eq!(found.node_of_cpu(CpuId(2)), Some(NodeId(2)));
        assert_eq!(found.other_node(NodeId(0)), Some(NodeId(2)));
        // Nothing is known of a system without these files.
        assert_eq!(features(Path::new("/nowhere")).node_of_memory(5), None);
    }

    #[test]
    fn each_cpu_has_its_core() {
        let root = SavedFiles::new();
        let put = |path: &str, text: &str| root.put(&format!("devices/system/cpu/{path}"), text);
        put("cpu3/regs/identification/midr_el1", "0x00000000410fd0c0\n");
        put("cpu3/cpufreq/cpuinfo_max_freq", "2500000\n");
        put("cpu4/cpufreq/cpuinfo_max_freq", "0\n");
        let core = |cpu| core(root.path(), CpuId(cpu));
        assert_eq!(core(3), Core { processor: 0x410f_d0c0, cycles_per_ns: Some(2.5) });
        assert_eq!([core(4), core(5)], [Core::default(); 2]);
    }
}
