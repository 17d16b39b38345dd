//! Files of /proc, /sys, control groups and resctrl.

use linux::{NodePages, NumaMapping, parse_maps, parse_numa_maps, parse_smaps, parse_status, residences, total_pages};

/// `/proc/PID/numa_maps`: sums never overflow, and counts of pages have a size.
pub(crate) fn numa_maps(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for mapping in parse_numa_maps(text).into_iter().flatten() {
        let _ = mapping.resident_bytes();
        assert!(mapping.pages.is_empty() || mapping.page_bytes > 0);
        assert!(mapping.pages.is_sorted());
    }
}

const NUMA_MAPS: &str = include_str!("../../../fuzz/corpus/numa_maps/mixed-page-sizes");

/// `/proc/PID/smaps`, combined with a good `numa_maps`: telling huge pages apart changes no sum.
pub(crate) fn smaps(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(uses) = parse_smaps(text) else { return };
    let numa = parse_numa_maps(NUMA_MAPS).expect("a good numa_maps is read");
    let bytes: u64 = numa.iter().map(NumaMapping::resident_bytes).sum();
    let all = residences(uses, numa, 2 << 20);
    let told: u64 = total_pages(&all.mappings).iter().map(NodePages::bytes).sum();
    assert!(told <= bytes);
}

/// numastat, vmstat and meminfo of a node.
pub(crate) fn node_files(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = (linux::parse_counters(text), linux::parse_node_meminfo(text));
}

/// Control groups: mountinfo, `/proc/PID/cgroup` and `memory.numa_stat`.
pub(crate) fn cgroup(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = (linux::cgroup2_mount(text), linux::parse_cgroup(text), linux::parse_memory_numa_stat(text));
}

/// The /proc files of a process: its mappings and its status. A mapping never ends before it begins.
pub(crate) fn process(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = parse_status(text);
    if let Ok(mappings) = parse_maps(text) {
        assert!(mappings.iter().all(|mapping| mapping.range.start <= mapping.range.end));
    }
}

/// `schemata` of resctrl: a value is read for each domain that is found.
pub(crate) fn schemata(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let read = linux::parse_schemata(text);
    for resource in ["L3", "L3CODE", "L3DATA", "MB"] {
        assert!(read.domains(resource).all(|(domain, value)| read.value(resource, domain) == Some(value)));
    }
}
