//! The address of the code that a CPU executes.

use crate::qemu::{self, Register, read_register};
use std::sync::OnceLock;

/// Maximum length of an instruction, and so the largest distance of the counter behind the executed one.
const INSTRUCTION_BYTES: u64 = 16;

/// A CPU's program counter.
#[derive(Debug, Default)]
pub(crate) struct ProgramCounter(OnceLock<Option<Register>>);

impl ProgramCounter {
    /// Looks up the register. Only within that CPU's own callback.
    pub(crate) fn find_register(&self) {
        self.0.get_or_init(|| {
            let [register] = qemu::registers([c"rip"]);
            register
        });
    }

    /// The address of an instruction in the address space that executes it. QEMU translates code once for all address
    /// spaces that map its page; `translated` is the address in the first of them. Only within a callback of that CPU.
    pub(crate) fn address(&self, translated: u64) -> u64 {
        let counter = self.0.get().copied().flatten().and_then(read_register);
        counter.map_or(translated, |counter| executed(translated, counter))
    }
}

/// The counter is at some instruction of the same block, which is shorter than a page, and not after the instruction in
/// question. Pages are mapped as a whole, so the offset in the page is the same in all address spaces.
fn executed(translated: u64, counter: u64) -> u64 {
    let first = counter.wrapping_sub(INSTRUCTION_BYTES);
    first.wrapping_add(translated.wrapping_sub(first) % machine::SMALL_PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_is_where_the_counter_is() {
        // In the same address space; after the start of its block, on the next page; and just executed.
        assert_eq!(executed(0x7000_1234, 0x7000_1200), 0x7000_1234);
        assert_eq!(executed(0x7000_1234, 0x5000_3200), 0x5000_3234);
        assert_eq!(executed(0x7000_2004, 0x5000_3ff0), 0x5000_4004);
        assert_eq!(executed(0x7000_1ffc, 0x5000_4001), 0x5000_3ffc);
        assert_eq!(executed(0xffff_ffff_8100_0010, 0xffff_ffff_8100_0000), 0xffff_ffff_8100_0010);
    }
}
