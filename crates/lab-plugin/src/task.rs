//! The thread that a CPU runs, read from the guest kernel's own memory.

use crate::qemu::{self, Register, read_memory, read_register};
use model::pmu::TaskOffsets;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The running thread. All zero if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) name: [u8; 16],
}

/// Base of one CPU's per-CPU data in the guest's kernel. It never changes once the kernel has set it, so it is read
/// once, as soon as registers can be read: they hold it whenever the kernel runs, and one of them does while user code
/// runs.
#[derive(Debug, Default)]
pub(crate) struct PerCpuBase {
    registers: OnceLock<Option<[Register; 2]>>,
    base: AtomicU64,
}

impl PerCpuBase {
    /// Looks up the registers. Only within that CPU's own callback.
    pub(crate) fn find_registers(&self) {
        self.registers.get_or_init(|| {
            let [gs_base, kernel_gs_base] = qemu::registers([c"gs_base", c"k_gs_base"]);
            Some([gs_base?, kernel_gs_base?])
        });
    }

    /// Reads the registers unless that is done. Only within a callback of that CPU that may read registers.
    pub(crate) fn find(&self) {
        if self.base.load(Relaxed) == 0
            && let Some(Some(registers)) = self.registers.get()
            // The kernel has the upper half of the address space.
            && let Some(base) = registers.iter().filter_map(|&register| read_register(register)).find(|base| base >> 47 != 0)
        {
            self.base.store(base, Relaxed);
        }
    }

    /// Kernel virtual address of the page table in use. Only within a callback of that CPU.
    pub(crate) fn page_table(&self, offsets: TaskOffsets) -> Option<u64> {
        let task = self.record(offsets)?;
        let space = number(task, offsets.address_space)?;
        number(space, offsets.page_table)
    }

    /// The address of the running thread's `task_struct`. Only within a callback of that CPU.
    pub(crate) fn record(&self, offsets: TaskOffsets) -> Option<u64> {
        let base = self.base.load(Relaxed);
        if offsets.current_task == 0 || base == 0 { None } else { number(base, offsets.current_task) }
    }

    /// The running thread. Only within a callback of that CPU.
    pub(crate) fn running(&self, offsets: TaskOffsets, with_name: bool) -> Option<Task> {
        let task = self.record(offsets)?;
        let id = |offset| read_memory(task.wrapping_add(offset)).map(u32::from_le_bytes);
        let name = if with_name { read_memory(task.wrapping_add(offsets.name))? } else { [0; 16] };
        Some(Task { pid: id(offsets.pid)?, tid: id(offsets.tid)?, name })
    }
}

/// A 64-bit number in the kernel's memory. Only within a CPU's callback.
fn number(address: u64, offset: u64) -> Option<u64> {
    read_memory(address.wrapping_add(offset)).map(u64::from_le_bytes)
}
