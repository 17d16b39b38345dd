//! SRAT: unchanged, and with its header corrected.
#![no_main]

mod sealed;

use libfuzzer_sys::fuzz_target;
use machine::Machine;
use machine::acpi::Srat;
use sealed::sealed;

fuzz_target!(|bytes: &[u8]| {
    let _ = Srat::parse(bytes);
    let table = sealed("SRAT", bytes);
    if let Ok(machine) = Machine::from_acpi(&table, None, None) {
        assert_eq!(machine.validate(), []);
    }
});
