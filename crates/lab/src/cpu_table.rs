//! The firmware's table of CPUs (ACPI's MADT) in another order than QEMU's: Linux numbers CPUs in the order of this table,
//! and takes one from its first file system in place of the firmware's (`CONFIG_ACPI_TABLE_UPGRADE`).

use crate::shape::Shape;

/// The file with the table, which Linux looks for at the start of its first file system.
pub(crate) const FILE: &str = "kernel/firmware/acpi/cpus.aml";

/// As in the table that it replaces (QEMU, `hw/acpi/aml-build.c`): Linux compares the table's name.
const OEM: &[u8; 6] = b"BOCHS ";
const OEM_TABLE: &[u8; 8] = b"BXPC    ";
const CREATOR: &[u8; 4] = b"BXPC";
const REVISION: u8 = 3;
/// Where the interrupt controllers of QEMU's PC are, and that it also has those of old PCs.
const LOCAL_APIC: u32 = 0xfee0_0000;
const IO_APIC: u32 = 0xfec0_0000;
const HAS_OLD_CONTROLLERS: u32 = 1;
/// Types of entries (ACPI 6.5, table 5.21), and the flag of a CPU that is there.
const TYPE_LOCAL_APIC: u8 = 0;
const TYPE_IO_APIC: u8 = 1;
const TYPE_OVERRIDE: u8 = 2;
const TYPE_LOCAL_NMI: u8 = 4;
const ENABLED: u32 = 1;
/// Interrupts of PCI devices: active high, by level.
const PCI_INTERRUPTS: [u8; 4] = [5, 9, 10, 11];
const HIGH_LEVEL: u16 = 0xd;

/// The table for the machine's CPU numbers; `None` if QEMU's own has this order.
pub(crate) fn cpu_table(shape: &Shape) -> Option<Vec<u8>> {
    let mut cpus: Vec<(u32, usize)> = shape.numbers.iter().map(|cpu| cpu.0).zip(0..).collect();
    if cpus.is_sorted() {
        return None;
    }
    cpus.sort_unstable();
    let order = cpus.into_iter().map(|(_, index)| index);
    Some(table(order.map(|index| (index as u8, shape.topology.apic_id(index) as u8))))
}

/// A table of CPUs with these numbers in QEMU and these interrupt controllers.
fn table(cpus: impl Iterator<Item = (u8, u8)>) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(LOCAL_APIC.to_le_bytes());
    body.extend(HAS_OLD_CONTROLLERS.to_le_bytes());
    for (index, apic) in cpus {
        body.extend([TYPE_LOCAL_APIC, 8, index, apic]);
        body.extend(ENABLED.to_le_bytes());
    }
    body.extend([TYPE_IO_APIC, 12, 0, 0]);
    body.extend(IO_APIC.to_le_bytes());
    body.extend(0_u32.to_le_bytes());
    let timer = (0_u8, 2_u32, 0_u16);
    let others = PCI_INTERRUPTS.map(|interrupt| (interrupt, interrupt.into(), HIGH_LEVEL));
    for (interrupt, input, flags) in [timer].into_iter().chain(others) {
        body.extend([TYPE_OVERRIDE, 10, 0, interrupt]);
        body.extend(input.to_le_bytes());
        body.extend(flags.to_le_bytes());
    }
    // The second input of all CPUs.
    body.extend([TYPE_LOCAL_NMI, 6, 0xff, 0, 0, 1]);

    let mut table = b"APIC".to_vec();
    table.extend((36 + body.len() as u32).to_le_bytes());
    table.extend([REVISION, 0]);
    table.extend(OEM);
    table.extend(OEM_TABLE);
    // Linux takes the table only where its revision is higher than the firmware's.
    table.extend(u32::MAX.to_le_bytes());
    table.extend(CREATOR);
    table.extend(1_u32.to_le_bytes());
    table.extend(body);
    table[9] = table.iter().fold(0_u8, |sum, byte| sum.wrapping_sub(*byte));
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{Changes, CpuNumbers, shape};
    use machine::presets;

    fn table_of(preset: &str, cpu_numbers: CpuNumbers) -> Option<Vec<u8>> {
        let changes = Changes { cpu_numbers, ..Changes::default() };
        cpu_table(&shape(&presets::find(preset).unwrap(), changes).unwrap())
    }

    #[test]
    fn only_another_order_needs_a_table() {
        assert_eq!(table_of("xeon-6130x4", CpuNumbers::Nested), None);
        assert_eq!(table_of("magny-cours-4p", CpuNumbers::Preset), None);
        let table = table_of("xeon-6130x4", CpuNumbers::Preset).unwrap();
        assert_eq!(table.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)), 0);
        assert_eq!(u32::from_le_bytes(table[4..8].try_into().unwrap()) as usize, table.len());
        // Each package has 16 cores of 2 threads. Linux's CPU 1 is the first one of the second package.
        let cpus: Vec<(u8, u8)> = table[44..].chunks(8).take(128).map(|entry| (entry[2], entry[3])).collect();
        assert_eq!(cpus[..5], [(0, 0), (32, 32), (64, 64), (96, 96), (2, 2)]);
        assert_eq!(cpus[64..66], [(1, 1), (33, 33)]);
    }
}
