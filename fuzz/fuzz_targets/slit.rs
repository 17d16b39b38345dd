//! SLIT: unchanged, and with its header corrected beside a good SRAT.
#![no_main]

mod sealed;

use libfuzzer_sys::fuzz_target;
use machine::Machine;
use machine::acpi::Slit;
use sealed::sealed;

const SRAT: &[u8] = include_bytes!("../../crates/machine/tests/fixtures/acpi/4-nodes-6-cpus-hmat/SRAT");

fuzz_target!(|bytes: &[u8]| {
    let _ = Slit::parse(bytes);
    let table = sealed("SLIT", bytes);
    if Slit::parse(&table).is_ok() {
        let machine = Machine::from_acpi(SRAT, Some(&table), None).expect("a good SLIT does not make a good SRAT bad");
        assert!(machine.distances.is_some_and(|distances| distances.matrix.len() == machine.nodes.len()));
    }
});
