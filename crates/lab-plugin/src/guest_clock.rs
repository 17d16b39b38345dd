//! The clocks that the guest reads.

use crate::clock::CLOCK;
use crate::thread_role::{self, Role};
use crate::time_stamp_counter::{Owed, Reader, TIME_STAMP_PS, take_owed};
use crate::times::Lead;
use crate::{LAB, Lab};

/// The guest's time for the calling thread, as QEMU sees it, ns.
pub(crate) fn guest_clock_ns() -> u64 {
    LAB.get().and_then(Lab::own_ps).map_or_else(|| CLOCK.now_ns(), |own_ps| CLOCK.at_ps(own_ps))
}

impl Lab {
    /// Shows the time stamp counter to a CPU's code, which has just read it. A program continues once no other can read
    /// less.
    pub(crate) fn show_ticks(&self, cpu: usize, reader: Reader) {
        if let (Some(counter), Some(vcpu)) = (self.time_stamp_counters.get(cpu), self.vcpus.get(cpu)) {
            let measuring = CLOCK.stands();
            if measuring {
                vcpu.run_ps(TIME_STAMP_PS);
            }
            counter.show(guest_clock_ns());
            if reader == Reader::Held && measuring {
                self.report(cpu, vcpu, Lead::READING_CLOCK);
            }
        }
    }

    /// Overwrites the registers of an instruction at the end of the previous block, if one is pending.
    pub(crate) fn show_owed(&self, cpu: usize) {
        // SAFETY: the entry of a CPU that QEMU has announced, which only its own thread and the code it runs write.
        let owed = unsafe { take_owed(&mut *self.executed.entry(cpu)) };
        match owed {
            Some(Owed::Ticks(reader)) => self.show_ticks(cpu, reader),
            Some(Owed::Registers) => self.processor.answer(cpu, &self.model),
            None => {}
        }
    }

    /// The time of the calling thread's CPU, ps, while time is simulated.
    pub(crate) fn own_ps(&self) -> Option<u64> {
        match thread_role::own() {
            Role::Cpu(cpu) if CLOCK.stands() => self.vcpus.get(cpu).map(|vcpu| vcpu.settle(self.instruction)),
            _ => None,
        }
    }
}
