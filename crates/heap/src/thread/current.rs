//! The heap from which the calling thread allocates.

use crate::heap::Heap;

// A word of each thread, in the static part of its storage: the compiler's would call `__tls_get_addr`, which takes longer
// than an allocation, and may allocate.
core::arch::global_asm!(
    ".pushsection .tbss.nearside_heap_current,\"awT\",@nobits",
    ".hidden nearside_heap_current",
    ".globl nearside_heap_current",
    ".type nearside_heap_current,@object",
    ".size nearside_heap_current,8",
    ".balign 8",
    "nearside_heap_current:",
    ".zero 8",
    ".popsection",
);

/// The heap from which the calling thread allocates; null at first.
#[inline]
pub fn current() -> *mut Heap {
    let heap;
    // SAFETY: reads this thread's word, whose offset the loader has entered.
    unsafe {
        core::arch::asm!(
            "mov {heap}, qword ptr [rip + nearside_heap_current@GOTTPOFF]",
            "mov {heap}, qword ptr fs:[{heap}]",
            heap = out(reg) heap,
            options(nostack, readonly, preserves_flags),
        );
    }
    heap
}

/// Changes it.
pub fn set_current(heap: *mut Heap) {
    // SAFETY: writes this thread's word.
    unsafe {
        core::arch::asm!(
            "mov {offset}, qword ptr [rip + nearside_heap_current@GOTTPOFF]",
            "mov qword ptr fs:[{offset}], {heap}",
            offset = out(reg) _,
            heap = in(reg) heap,
            options(nostack, preserves_flags),
        );
    }
}
