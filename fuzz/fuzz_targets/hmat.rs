//! HMAT: unchanged, and with its header corrected beside a good SRAT.
#![no_main]

mod sealed;

use libfuzzer_sys::fuzz_target;
use machine::Machine;
use machine::acpi::Hmat;
use sealed::sealed;

const SRAT: &[u8] = include_bytes!("../../crates/machine/tests/fixtures/acpi/4-nodes-6-cpus-hmat/SRAT");

fuzz_target!(|bytes: &[u8]| {
    let _ = Hmat::parse(bytes);
    let table = sealed("HMAT", bytes);
    if let Ok(machine) = Machine::from_acpi(SRAT, None, Some(&table)) {
        assert_eq!(machine.validate(), []);
    }
});
