//! The system calls themselves.

use super::{NODE_WORDS, Nodes};
use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap, mremap_fixed, munmap};

const PAGE: usize = 4096;
const F_MEMS_ALLOWED: usize = 4;

/// Where the last mapping with a larger alignment than a page's begins.
static LAST: AtomicUsize = AtomicUsize::new(0);

/// Maps zeroed memory that is aligned to `alignment`, a power of two of at least a page.
pub fn map_aligned(bytes: usize, alignment: usize) -> Option<*mut u8> {
    let map = |hint: usize, bytes: usize| {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let hint = core::ptr::without_provenance_mut(hint);
        // SAFETY: a new mapping where the kernel chooses.
        unsafe { mmap_anonymous(hint, bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }
            .ok()
            .map(<*mut c_void>::cast::<u8>)
    };
    if alignment <= PAGE {
        return map(0, bytes);
    }
    // Directly below the last one, with which the kernel joins it to one mapping, of which a process may have 65,530. What
    // cannot be there is somewhere else.
    let below = LAST.load(Relaxed).saturating_sub(bytes) & !(alignment - 1);
    if below > 0
        && let Some(start) = map(below, bytes)
    {
        if start.addr().is_multiple_of(alignment) {
            LAST.store(start.addr(), Relaxed);
            return Some(start);
        }
        // SAFETY: it is new, and nothing uses it yet.
        unsafe { unmap(start, bytes) };
    }
    let all = bytes.checked_add(alignment)?;
    let start = map(0, all)?;
    let before = start.align_offset(alignment);
    // SAFETY: both ends are of this mapping, which nothing uses yet.
    unsafe {
        unmap(start, before);
        unmap(start.add(before + bytes), all - before - bytes);
        let start = start.add(before);
        LAST.store(start.addr(), Relaxed);
        Some(start)
    }
}

/// # Safety
///
/// Nothing uses this range any more.
pub unsafe fn unmap(start: *mut u8, bytes: usize) {
    if bytes != 0 {
        // SAFETY: the caller's promise. If the kernel has no room to split a mapping, the range stays mapped and unused.
        let _ = unsafe { munmap(start.cast(), bytes) };
        // The next one may be here again.
        let _ = LAST.compare_exchange(start.addr(), start.addr() + bytes, Relaxed, Relaxed);
    }
}

/// Resizes a mapping in place. Fails with `NOMEM` if what follows it is in use.
///
/// # Safety
///
/// Nothing uses the end that is cut off.
pub unsafe fn resize(start: *mut u8, old: usize, new: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise; without MAYMOVE, the start stays.
    unsafe { mremap(start.cast(), old, new, MremapFlags::empty()) }.map(drop)
}

/// Moves pages of a mapping, with their policy, over another one, without copying. Returns whether the kernel could; if
/// not, the other one may be unmapped already, and its addresses be another thread's.
///
/// # Safety
///
/// The caller owns both mappings and has no reference into either.
pub unsafe fn move_pages(from: *mut u8, old: usize, new: usize, to: *mut u8) -> bool {
    // SAFETY: the caller's promise.
    unsafe { mremap_fixed(from.cast::<c_void>(), old, new, MremapFlags::MAYMOVE, to.cast()) }.is_ok()
}

/// Gives pages back to the kernel. Returns whether they are zeroed now.
///
/// # Safety
///
/// Nothing uses the contents of this range any more.
pub unsafe fn discard(start: *mut u8, bytes: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { madvise(start.cast(), bytes, Advice::LinuxDontNeed) }.is_ok()
}

/// Leaves the kernel's huge pages out of a range.
pub fn keep_small(start: *mut u8, bytes: usize) {
    // SAFETY: the advice changes no contents. A kernel without huge pages refuses it.
    let _ = unsafe { madvise(start.cast(), bytes, Advice::LinuxNoHugepage) };
}

/// Sets the policy of a range. Returns false if that is refused (seccomp, a cpuset, a node without memory), which leaves it
/// on first touch.
pub fn set_policy(start: *mut u8, bytes: usize, mode: usize, nodes: &Nodes) -> bool {
    let arguments = [start.addr(), bytes, mode, nodes.as_ptr().addr(), crate::MAX_NODES + 1, 0];
    // SAFETY: mbind changes no contents; the kernel reads `MAX_NODES` bits of the set.
    unsafe { call(libc::SYS_mbind, arguments) == 0 }
}

/// The node of this address's page; none if it is absent. `get_mempolicy` would have the kernel make an absent one.
pub fn node_of_page(address: *mut u8) -> Option<usize> {
    let (pages, mut status) = ([address.addr()], -1_i32);
    let arguments = [0, pages.len(), pages.as_ptr().expose_provenance(), 0, (&raw mut status).expose_provenance(), 0];
    // SAFETY: without nodes to move to, the kernel reads one address and writes one int: a node, or a negative error number.
    let result = unsafe { call(libc::SYS_move_pages, arguments) };
    usize::try_from(status).ok().filter(|_| result == 0)
}

/// The policy of the calling thread.
pub fn thread_policy() -> Option<usize> {
    let mut mode: i32 = -1;
    // SAFETY: the kernel writes one int.
    let result = unsafe { call(libc::SYS_get_mempolicy, [(&raw mut mode).expose_provenance(), 0, 0, 0, 0, 0]) };
    usize::try_from(mode).ok().filter(|_| result == 0)
}

/// The nodes whose memory the calling thread may use.
pub fn allowed_nodes() -> Option<Nodes> {
    let mut nodes = [0; NODE_WORDS];
    let arguments = [0, nodes.as_mut_ptr().expose_provenance(), crate::MAX_NODES, 0, F_MEMS_ALLOWED, 0];
    // SAFETY: the kernel writes `MAX_NODES` bits.
    let result = unsafe { call(libc::SYS_get_mempolicy, arguments) };
    (result == 0).then_some(nodes)
}

/// The CPU and node on which the calling thread runs.
pub fn cpu_and_node() -> Option<(usize, usize)> {
    let (mut cpu, mut node) = (0_u32, 0_u32);
    let arguments = [(&raw mut cpu).expose_provenance(), (&raw mut node).expose_provenance(), 0, 0, 0, 0];
    // SAFETY: the kernel writes two unsigned ints.
    let result = unsafe { call(libc::SYS_getcpu, arguments) };
    (result == 0).then_some((cpu as usize, node as usize))
}

/// Random bits of this process; 0 if the kernel gave it none.
pub fn random_word() -> usize {
    // SAFETY: the kernel's 16 random bytes, there for as long as the process lives.
    let bytes = unsafe { libc::getauxval(libc::AT_RANDOM) } as *const usize;
    // SAFETY: as above.
    if bytes.is_null() { 0 } else { unsafe { bytes.read_unaligned() } }
}

/// A system call that rustix does not have. `libc::syscall` would change `errno`.
///
/// # Safety
///
/// As for the system call.
unsafe fn call(number: i64, arguments: [usize; 6]) -> isize {
    let result;
    // SAFETY: the kernel's calling convention: arguments in these registers; it changes rax, rcx and r11.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0], in("rsi") arguments[1], in("rdx") arguments[2], in("r10") arguments[3], in("r8") arguments[4], in("r9") arguments[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_for_the_node_of_an_absent_page_leaves_it_absent() {
        let page = map_aligned(PAGE, PAGE).unwrap();
        assert_eq!((node_of_page(page), node_of_page(page)), (None, None));
        // SAFETY: the page was just mapped, and is this test's.
        unsafe { page.write(1) };
        // A kernel without NUMA has neither call.
        assert_eq!(node_of_page(page).is_some(), allowed_nodes().is_some());
        // SAFETY: nothing else uses the page.
        unsafe { unmap(page, PAGE) };
    }
}
