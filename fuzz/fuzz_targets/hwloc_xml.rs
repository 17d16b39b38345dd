//! hwloc XML: writing a machine and reading it back gives the same machine.
#![no_main]

use libfuzzer_sys::fuzz_target;
use machine::Machine;

fuzz_target!(|text: &str| {
    if let Ok(machine) = Machine::from_hwloc_xml(text) {
        // Files may have overlapping sets, which hwloc itself never writes.
        if let Ok(xml) = machine.to_hwloc_xml() {
            let again = Machine::from_hwloc_xml(&xml).expect("what we write can be read");
            assert_eq!(again.cpus(), machine.cpus());
            assert_eq!(again.nodes.len(), machine.nodes.len());
        }
    }
});
