//! Firmware tables and what lstopo writes.

use machine::Machine;
use machine::acpi::{Hmat, Slit, Srat};

/// A good table, for what comes beside one.
const SRAT: &[u8] = include_bytes!("../../machine/tests/fixtures/acpi/4-nodes-6-cpus-hmat/SRAT");

/// SRAT: unchanged, and with its header corrected.
pub(crate) fn srat(bytes: &[u8]) {
    let _ = Srat::parse(bytes);
    let table = sealed("SRAT", bytes);
    if let Ok(machine) = Machine::from_acpi(&table, None, None) {
        assert_eq!(machine.validate(), []);
    }
}

/// SLIT: unchanged, and with its header corrected, beside a good SRAT.
pub(crate) fn slit(bytes: &[u8]) {
    let _ = Slit::parse(bytes);
    let table = sealed("SLIT", bytes);
    if Slit::parse(&table).is_ok() {
        let machine = Machine::from_acpi(SRAT, Some(&table), None).expect("a good SLIT does not make a good SRAT bad");
        assert!(machine.distances.is_some_and(|distances| distances.matrix.len() == machine.nodes.len()));
    }
}

/// HMAT: unchanged, and with its header corrected, beside a good SRAT.
pub(crate) fn hmat(bytes: &[u8]) {
    let _ = Hmat::parse(bytes);
    let table = sealed("HMAT", bytes);
    if let Ok(machine) = Machine::from_acpi(SRAT, None, Some(&table)) {
        assert_eq!(machine.validate(), []);
    }
}

/// hwloc XML: writing a machine and reading it back gives the same machine.
pub(crate) fn hwloc_xml(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(machine) = Machine::from_hwloc_xml(text) {
        // Files may have overlapping sets, which hwloc itself never writes.
        if let Ok(xml) = machine.to_hwloc_xml() {
            let again = Machine::from_hwloc_xml(&xml).expect("what we write can be read");
            assert_eq!(again.cpus(), machine.cpus());
            assert_eq!(again.nodes.len(), machine.nodes.len());
        }
    }
}

/// The bytes as a table: with this signature, their length and a correct checksum, so that no checksum has to be
/// guessed to get past the header.
fn sealed(signature: &str, bytes: &[u8]) -> Vec<u8> {
    let mut table = bytes.to_vec();
    table.resize(bytes.len().max(36), 0);
    let length = table.len() as u32;
    table[..4].copy_from_slice(signature.as_bytes());
    table[4..8].copy_from_slice(&length.to_le_bytes());
    table[9] = 0;
    table[9] = table.iter().fold(0_u8, |sum, byte| sum.wrapping_sub(*byte));
    table
}
