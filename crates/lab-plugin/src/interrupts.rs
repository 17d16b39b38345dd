//! Interrupts that one CPU sends to another, by which Linux wakes halted CPUs. A CPU that is woken goes on no earlier
//! than the one that woke it: without this it would go on at the time of the slowest, and every chain of wake-ups would
//! be too short.
//!
//! The guest writes the receivers and then the order to send to registers of its interrupt controller (xAPIC: Intel SDM
//! volume 3A, 12.6.1; QEMU's PC without interrupt remapping has no other mode).

use model::Configuration;

/// Physical address of the register that names the receivers.
const RECEIVERS: u64 = 0xfee0_0310;
/// Up to so many CPUs Linux names receivers by a bit each ("flat"), with more by one APIC id
/// (`arch/x86/kernel/apic/probe_64.c`).
const FLAT_MAX: usize = 8;

/// Who receives an interrupt.
pub(crate) struct Receivers {
    /// The APIC id of each CPU.
    apic_ids: Vec<u32>,
}

impl Receivers {
    pub(crate) fn new(configuration: &Configuration) -> Self {
        Self { apic_ids: configuration.apic_ids.clone() }
    }

    /// The CPUs that a store of this value to this physical address of a device names as receivers of the next
    /// interrupt.
    pub(crate) fn named_by(&self, address: u64, value: u32) -> impl Iterator<Item = usize> {
        let field = if address == RECEIVERS { value >> 24 } else { 0 };
        let flat = self.apic_ids.len() <= FLAT_MAX;
        let is_named = move |(cpu, &id): (usize, &u32)| if flat { field >> cpu & 1 == 1 } else { id == field };
        let cpus = self.apic_ids.iter().enumerate().filter(move |&cpu| is_named(cpu));
        cpus.map(|(cpu, _)| cpu).take(if address == RECEIVERS { usize::MAX } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(apic_ids: &[u32], address: u64, field: u32) -> Vec<usize> {
        Receivers { apic_ids: apic_ids.to_vec() }.named_by(address, field << 24).collect()
    }

    #[test]
    fn few_cpus_have_a_bit_each_and_many_an_id() {
        assert_eq!(named(&[0, 1, 2, 3], RECEIVERS, 0b1010), [1, 3]);
        let twelve = [0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13];
        assert_eq!(named(&twelve, RECEIVERS, 9), [7]);
        assert_eq!(named(&twelve, RECEIVERS, 0), [0]);
        assert!(named(&twelve, RECEIVERS, 7).is_empty());
        assert!(named(&twelve, RECEIVERS - 0x10, 9).is_empty());
    }
}
