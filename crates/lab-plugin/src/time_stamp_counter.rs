//! The guest's time stamp counter: `rdtsc` and `rdtscp` show the guest's clock, one tick a nanosecond.
//!
//! QEMU has the host's counter there. What the instruction left in registers is written over before the next one, which
//! is in the same block or, where the instruction ends its block, the first of the next one.

use crate::qemu::{self, Block, Register, Scoreboard, write_register};
use std::sync::OnceLock;

/// What an instruction that ends its block adds to the CPU's entry, so that the next block begins with a look: nothing
/// else counts so far. The second is added as well where a program did it, not the kernel.
pub(crate) const OWED: u64 = 1 << 62;
const OWED_TO_PROGRAM: u64 = 1 << 61;

/// A word for the functions that are called: whether a program reads the counter, not the kernel.
const BY_PROGRAM: u64 = 1;

/// The registers of one CPU that the instructions write.
#[derive(Debug, Default)]
pub(crate) struct TimeStampCounter(OnceLock<Option<[Register; 2]>>);

/// Who has read the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    Kernel,
    Program,
}

impl Reader {
    /// Of the code at an address: the kernel has the upper half of the address space.
    fn at(address: u64) -> Self {
        if address >> 63 == 0 { Self::Program } else { Self::Kernel }
    }

    /// From the word that a function was called with.
    pub(crate) fn from_word(word: u64) -> Self {
        if word == BY_PROGRAM { Self::Program } else { Self::Kernel }
    }

    fn word(self) -> u64 {
        if self == Self::Program { BY_PROGRAM } else { 0 }
    }

    fn owed(self) -> u64 {
        if self == Self::Program { OWED | OWED_TO_PROGRAM } else { OWED }
    }
}

/// Takes note of what is owed off a CPU's entry: who read the counter at the end of the block before, if any did.
pub(crate) fn take_owed(entry: &mut u64) -> Option<Reader> {
    let owed = *entry & (OWED | OWED_TO_PROGRAM);
    *entry -= owed;
    match owed {
        0 => None,
        OWED => Some(Reader::Kernel),
        _ => Some(Reader::Program),
    }
}

/// Has a function called after each instruction of a block that reads the counter, with a word for
/// [`Reader::from_word`], or makes the CPU's entry tell.
pub(crate) fn follow_reads(block: &Block, owed: Scoreboard, call: qemu::OnCode) {
    let mut instructions = block.instructions().peekable();
    while let Some(instruction) = instructions.next() {
        if instruction.reads_time_stamp_counter() {
            let reader = Reader::at(instruction.address());
            match instructions.peek() {
                Some(next) => next.call_to_write_registers(call, reader.word()),
                None => instruction.add(owed, reader.owed()),
            }
        }
    }
}

impl TimeStampCounter {
    /// Looks the registers up. Only within that CPU's own callback.
    pub(crate) fn find_registers(&self) {
        self.0.get_or_init(|| {
            let [low, high] = qemu::registers([c"rax", c"rdx"]);
            Some([low?, high?])
        });
    }

    /// The CPU's code sees this value. Only within a callback of that CPU that may write registers.
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
        for (reader, address) in [(Reader::Kernel, 0xffff_ffff_8100_0000), (Reader::Program, 0x7fff_0000_1000)] {
            assert_eq!((Reader::at(address), Reader::from_word(reader.word())), (reader, reader));
            let mut entry = 70 + reader.owed();
            assert_eq!((take_owed(&mut entry), entry), (Some(reader), 70));
            assert_eq!((take_owed(&mut entry), entry), (None, 70));
        }
    }
}
