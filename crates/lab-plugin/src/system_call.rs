//! System calls of programs in the guest.

use crate::qemu::{self, Register, read_register};
use std::sync::OnceLock;

/// System calls that read a clock (Linux, `arch/x86/entry/syscalls/syscall_64.tbl`): `gettimeofday`, `time` and
/// `clock_gettime`.
const READ_CLOCK: [u64; 3] = [96, 201, 228];

/// The register of a CPU with the number of the system call.
#[derive(Debug, Default)]
pub(crate) struct SystemCall(OnceLock<Option<Register>>);

impl SystemCall {
    /// Looks up the register. Only within that CPU's own callback.
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
