//! A memory report in the text form of `OpenMetrics` 1.0, which Prometheus and others read.

use crate::family::Family;
use crate::memory::{MemoryReport, Use};
use linux::CgroupMemory;
use std::fmt;
use strum::VariantArray;

/// A report as `OpenMetrics`.
#[derive(Clone, Copy, Debug)]
pub struct OpenMetrics<'a>(pub &'a MemoryReport);

impl fmt::Display for OpenMetrics<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        let mut family =
            Family::begin("nearside_node_memory_bytes", "gauge", "Memory of a node by the kernel's names in meminfo.");
        for node in &report.nodes {
            for (kind, bytes) in &node.memory_bytes {
                family.sample(&[("node", &node.node.to_string()), ("kind", kind)], *bytes);
            }
        }
        family.end(f)?;
        let mut family = Family::begin("nearside_node_hugetlb_pages", "gauge", "Hugetlb pages of a node.");
        for node in &report.nodes {
            for pool in &node.hugetlb {
                let (node, bytes) = (node.node.to_string(), pool.page_bytes.to_string());
                for (state, pages) in [("all", pool.pages), ("free", pool.free_pages)] {
                    family.sample(&[("node", &node), ("page_bytes", &bytes), ("state", state)], pages);
                }
            }
        }
        family.end(f)?;
        let help = "Pages taken from a node since boot, by the kernel's names in numastat.";
        let mut family = Family::begin("nearside_node_allocated_pages", "counter", help);
        for node in &report.nodes {
            for (kind, pages) in &node.allocated_pages {
                family.sample(&[("node", &node.node.to_string()), ("kind", kind)], *pages);
            }
        }
        family.end(f)?;
        let mut family = Family::begin(
            "nearside_node_events",
            "counter",
            "Events of a node since boot, by the kernel's names in vmstat.",
        );
        for node in &report.nodes {
            for (event, count) in &node.events {
                family.sample(&[("node", &node.node.to_string()), ("event", event)], *count);
            }
        }
        family.end(f)?;
        let help = "Balancing and migration of the whole system since boot, by the kernel's names in vmstat.";
        let mut family = Family::begin("nearside_system_events", "counter", help);
        for (event, count) in &report.events {
            family.sample(&[("event", event)], *count);
        }
        family.end(f)?;
        processes_and_cgroups(report, f)?;
        f.write_str("# EOF\n")
    }
}

fn processes_and_cgroups(report: &MemoryReport, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut family = Family::begin("nearside_process_memory_bytes", "gauge", "Memory of a process on a node.");
    for process in &report.processes {
        for node in &process.nodes {
            for used in Use::VARIANTS {
                let (pid, id) = (process.pid.to_string(), node.node.to_string());
                let labels = [("pid", pid.as_str()), ("name", &process.name), ("node", &id), ("use", used.word())];
                family.sample(&labels, node.bytes.get(used).copied().unwrap_or(0));
            }
        }
    }
    family.end(f)?;
    let help = "Memory of a control group on a node, by the kernel's names in memory.numa_stat.";
    let mut family = Family::begin("nearside_cgroup_memory_bytes", "gauge", help);
    for cgroup in &report.cgroups {
        for (node, kinds) in &cgroup.nodes {
            for (kind, bytes) in kinds.iter().filter(|(kind, _)| CgroupMemory::is_bytes(kind)) {
                family.sample(&[("cgroup", &cgroup.cgroup), ("node", &node.to_string()), ("kind", kind)], *bytes);
            }
        }
    }
    family.end(f)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{CgroupReport, NodeMemory, NodeUses, ProcessMemory};
    use crate::nodes::HugetlbReport;
    use crate::{History, MemoryText};
    use linux::Counters;
    use machine::NodeId;
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn counters(of: &[(&str, u64)]) -> Counters {
        of.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    fn uses(node: u32, of: &[(Use, u64)]) -> NodeUses {
        NodeUses { node: NodeId(node), bytes: of.iter().copied().collect::<BTreeMap<_, _>>(), grown_bytes_per_s: None }
    }

    fn report() -> MemoryReport {
        let node = |node: u32, free: u64| NodeMemory {
            node,
            memory_bytes: counters(&[("MemTotal", 1 << 30), ("MemFree", free), ("AnonPages", 5 << 20)]),
            hugetlb: vec![HugetlbReport { page_bytes: 2 << 20, pages: 10, free_pages: u64::from(node) }],
            allocated_pages: counters(&[("numa_hit", 1000), ("other_node", 7)]),
            events: counters(&[("pgpromote_success", 3)]),
            ..NodeMemory::default()
        };
        let nodes = vec![uses(1, &[(Use::Heap, 4096), (Use::Hugetlb, 2 << 20)])];
        let cgroup = linux::parse_memory_numa_stat("anon N0=8192 N1=0\nworkingset_activate_anon N0=1 N1=2\n").unwrap();
        MemoryReport {
            time_s: 1000.0,
            nodes: vec![node(0, 512 << 20), node(1, 1 << 30)],
            events: counters(&[("numa_hint_faults", 0), ("numa_pages_migrated", 42)]),
            processes: vec![ProcessMemory { pid: 7, name: "a \"b\\".into(), nodes }],
            cgroups: vec![CgroupReport::new("/a".into(), cgroup)],
            ..MemoryReport::default()
        }
    }

    #[test]
    fn metrics_have_types_units_and_an_end() {
        insta::assert_snapshot!(OpenMetrics(&report()));
    }

    #[test]
    fn the_text_tells_sums_and_then_rates_with_a_history() {
        let before = report();
        let mut history = History::default();
        history.add(&before);
        insta::assert_snapshot!(MemoryText { report: &before, history: &history, all: true });
        let mut now = report();
        now.time_s = 1002.0;
        now.nodes[0].memory_bytes.insert("MemFree".into(), 1 << 20);
        now.nodes[1].allocated_pages.insert("numa_hit".into(), 1500);
        now.events.insert("numa_pages_migrated".into(), 142);
        // Half of its memory has moved, and some has come.
        now.processes[0].nodes = vec![uses(0, &[(Use::Heap, 1 << 20)]), uses(1, &[(Use::Heap, 1 << 20)])];
        now.cgroups.clear();
        now.since(&before, Duration::from_secs(2));
        history.add(&now);
        insta::assert_snapshot!(MemoryText { report: &now, history: &history, all: false });
    }
}
