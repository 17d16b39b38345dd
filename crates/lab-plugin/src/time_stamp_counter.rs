//! The guest's time stamp counter: `rdtsc` and `rdtscp` show the guest's clock, one tick per nanosecond.
//!
//! QEMU returns the host's counter. The registers that the instruction has set are overwritten before the next
//! instruction runs, which is in the same block or, if the instruction ends its block, the first of the next one.

use crate::qemu::{self, Block, Instruction, Register, Scoreboard, write_register};
use std::sync::OnceLock;

/// Duration of `rdtsc`, ps: about 25 cycles, as on the presets' processors (24 on Nehalem, 25 on Skylake, 36 on Zen, by
/// Agner Fog's instruction tables).
pub(crate) const TIME_STAMP_PS: u64 = 10_000;

/// Added to the CPU's entry by an instruction that ends its block, so that the next block starts with a check: no other
/// count is that large. The second is also added if the reader is held.
pub(crate) const OWED: u64 = 1 << 62;
const OWED_TO_HELD: u64 = 1 << 61;
/// The same for an instruction whose registers the simulated processor overwrites.
pub(crate) const OWED_REGISTERS: u64 = OWED | 1 << 60;

/// Argument of the callbacks: whether the reader is held.
const HELD: u64 = 1;

/// The registers of one CPU that the instructions write.
#[derive(Debug, Default)]
pub(crate) struct TimeStampCounter(OnceLock<Option<[Register; 2]>>);

/// The code that has read the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// It continues at once: the kernel, which tolerates that another CPU reads an earlier time afterwards, and
    /// recorders, which only order events of one thread.
    Free,
    /// It waits until no CPU can read an earlier time: a program.
    Held,
}

impl Reader {
    /// The reader behind an instruction, if that reads the counter.
    fn by(instruction: &Instruction) -> Option<Self> {
        let by_program = !machine::is_kernel_address(instruction.address());
        if instruction.reads_own_ticks() {
            Some(Self::Free)
        } else {
            instruction.reads_time_stamp_counter().then_some(if by_program { Self::Held } else { Self::Free })
        }
    }

    /// From a callback's argument.
    pub(crate) fn from_word(word: u64) -> Self {
        if word == HELD { Self::Held } else { Self::Free }
    }

    fn word(self) -> u64 {
        if self == Self::Held { HELD } else { 0 }
    }

    fn owed(self) -> u64 {
        if self == Self::Held { OWED | OWED_TO_HELD } else { OWED }
    }
}

/// What the instruction at the end of the previous block has to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owed {
    /// The time stamp counter.
    Ticks(Reader),
    /// What the simulated processor answers.
    Registers,
}

/// Removes the pending mark from a CPU's entry, if there is one.
pub(crate) fn take_owed(entry: &mut u64) -> Option<Owed> {
    let owed = *entry & (OWED_REGISTERS | OWED_TO_HELD);
    *entry -= owed;
    match owed {
        0 => None,
        OWED => Some(Owed::Ticks(Reader::Free)),
        OWED_REGISTERS => Some(Owed::Registers),
        _ => Some(Owed::Ticks(Reader::Held)),
    }
}

/// Registers a callback after each instruction of a block that reads the counter, with an argument for
/// [`Reader::from_word`], or marks the CPU's entry.
pub(crate) fn follow_reads(block: &Block, owed: Scoreboard, call: qemu::OnCode) {
    let mut instructions = block.instructions().peekable();
    while let Some(instruction) = instructions.next() {
        if let Some(reader) = Reader::by(&instruction) {
            match instructions.peek() {
                Some(next) => next.call_to_write_registers(call, reader.word()),
                None => instruction.add(owed, reader.owed()),
            }
        }
    }
}

impl TimeStampCounter {
    /// Looks up the registers. Only within that CPU's own callback.
    pub(crate) fn find_registers(&self) {
        self.0.get_or_init(|| {
            let [low, high] = qemu::registers([c"rax", c"rdx"]);
            Some([low?, high?])
        });
    }

    /// Shows this value to the CPU's code. Only within a callback of that CPU that may write registers.
    pub(crate) fn show(&self, ticks: u64) {
        if let Some(Some([low, high])) = self.0.get() {
            write_register(*low, ticks & u64::from(u32::MAX));
            write_register(*high, ticks >> 32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owed_is_taken_once_and_leaves_the_count() {
        for reader in [Reader::Free, Reader::Held] {
            assert_eq!(Reader::from_word(reader.word()), reader);
            let mut entry = 70 + reader.owed();
            assert_eq!((take_owed(&mut entry), entry), (Some(Owed::Ticks(reader)), 70));
            assert_eq!((take_owed(&mut entry), entry), (None, 70));
        }
        let mut entry = 70 + OWED_REGISTERS;
        assert_eq!((take_owed(&mut entry), entry), (Some(Owed::Registers), 70));
    }
}
