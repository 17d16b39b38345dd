//! hwloc XML: what is read can be written and is read back as the same machine.
#![no_main]

use libfuzzer_sys::fuzz_target;
use machine::Machine;

fuzz_target!(|text: &str| {
    if let Ok(machine) = Machine::from_hwloc_xml(text) {
        // Files may hold what overlaps, which hwloc itself never writes.
        if let Ok(xml) = machine.to_hwloc_xml() {
            let again = Machine::from_hwloc_xml(&xml).expect("what we write can be read");
            assert_eq!(again.cpus(), machine.cpus());
            assert_eq!(again.nodes.len(), machine.nodes.len());
        }
    }
});
