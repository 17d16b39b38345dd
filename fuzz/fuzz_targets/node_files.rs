//! numastat, vmstat and meminfo of a node.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = (linux::parse_counters(text), linux::parse_node_meminfo(text));
});
