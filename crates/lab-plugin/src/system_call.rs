//! What a program asks the guest's kernel for.

use crate::qemu::{self, Register, read_register};
use std::sync::OnceLock;

/// The calls by which a program reads a clock (Linux, `arch/x86/entry/syscalls/syscall_64.tbl`): `gettimeofday`, `time`
/// and `clock_gettime`.
const READ_CLOCK: [u64; 3] = [96, 201, 228];

/// Where a CPU has the number of the call that it is about to make.
#[derive(Debug, Default)]
pub(crate) struct SystemCall(OnceLock<Option<Register>>);

impl SystemCall {
    /// Looks the register up. Only within that CPU's own callback.
    pub(crate) fn find_register(&self) {
        self.0.get_or_init(|| {
            let [register] = qemu::registers([c"rax"]);
            register
        });
    }

    /// Whether the call reads a clock. Only within a callback of that CPU at `syscall`.
    pub(crate) fn reads_clock(&self) -> bool {
        self.0.get().copied().flatten().and_then(read_register).is_some_and(|number| READ_CLOCK.contains(&number))
    }
}
