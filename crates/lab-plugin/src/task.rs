//! Which thread a CPU runs, read from the guest kernel's own memory.

use crate::qemu::{self, Register, read_memory, read_register};
use model::pmu::TaskOffsets;

/// The running thread. All zero where it cannot be found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) name: [u8; 16],
}

/// The registers of one CPU that lead to its per-CPU data: the kernel's base is in one while it runs and in the other
/// while user code does.
#[derive(Clone, Copy)]
pub(crate) struct TaskRegisters {
    gs_base: Register,
    kernel_gs_base: Register,
}

impl TaskRegisters {
    /// Only within a CPU's own callback.
    pub(crate) fn find() -> Option<Self> {
        let [gs_base, kernel_gs_base] = qemu::registers([c"gs_base", c"k_gs_base"]);
        Some(Self { gs_base: gs_base?, kernel_gs_base: kernel_gs_base? })
    }

    /// Only within a callback of that CPU that may read registers.
    pub(crate) fn running(self, offsets: TaskOffsets, with_name: bool) -> Option<Task> {
        if offsets.current_task == 0 {
            return None;
        }
        let is_kernel = |address: &u64| address >> 47 != 0;
        let base = read_register(self.gs_base).filter(is_kernel).or_else(|| read_register(self.kernel_gs_base))?;
        let at = |address: u64, offset| address.wrapping_add(offset);
        let task = u64::from_le_bytes(read_memory(at(base, offsets.current_task))?);
        let number = |offset| read_memory(at(task, offset)).map(u32::from_le_bytes);
        let name = if with_name { read_memory(at(task, offsets.name))? } else { [0; 16] };
        Some(Task { pid: number(offsets.pid)?, tid: number(offsets.tid)?, name })
    }
}
