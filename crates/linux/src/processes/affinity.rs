//! CPU affinity of threads, for any number of CPUs: rustix's sets end at 1,024.

use crate::memory::mask::{BITS, mask, set};
use crate::processes::process::Tid;
use machine::{CpuId, CpuSet, NodeId};
use std::io;

/// Largest mask tried, in bits. Far above the number of CPUs of any kernel.
const MOST_CPUS: usize = 1 << 20;

/// The CPUs that a thread may run on. Since Linux 2.6, as are the calls below. Needs no privileges. ESRCH: the thread
/// has exited.
pub fn affinity(thread: Tid) -> io::Result<CpuSet> {
    let mut words = vec![0; 1024 / BITS];
    loop {
        let bytes = size_of_val(words.as_slice());
        // SAFETY: the kernel writes at most `bytes` bytes, which is the length of `words`.
        let result = unsafe { libc::syscall(libc::SYS_sched_getaffinity, thread.0, bytes, words.as_mut_ptr()) };
        if result >= 0 {
            return Ok(set(&words));
        }
        let error = io::Error::last_os_error();
        // EINVAL: the kernel has more CPUs than the mask has bits.
        if error.raw_os_error() != Some(libc::EINVAL) || words.len() * BITS >= MOST_CPUS {
            return Err(error);
        }
        words = vec![0; words.len() * 2];
    }
}

/// Restricts a thread, and the threads and processes that it starts later, to these CPUs. A thread on a forbidden CPU
/// leaves it before it runs again. The kernel ignores CPUs that do not exist or that the cpuset excludes; if none is
/// left, it returns EINVAL. Needs the thread's user, or `CAP_SYS_NICE` (EPERM). ESRCH: the thread has exited.
pub fn set_affinity(thread: Tid, cpus: &CpuSet) -> io::Result<()> {
    set_affinity_words(thread, &mask(cpus))
}

/// Like [`set_affinity`], without allocating.
pub(crate) fn set_affinity_words(thread: Tid, words: &[libc::c_ulong]) -> io::Result<()> {
    let bytes = size_of_val(words);
    // SAFETY: the kernel reads `bytes` bytes, which is the length of `words`.
    let result = unsafe { libc::syscall(libc::SYS_sched_setaffinity, thread.0, bytes, words.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The CPU that the calling thread runs on, and its node. Both may be outdated by the time they are returned. Needs no
/// privileges.
pub fn current_cpu() -> io::Result<(CpuId, NodeId)> {
    let (mut cpu, mut node) = (0_u32, 0_u32);
    let unused = std::ptr::null::<libc::c_void>();
    // SAFETY: the kernel writes two numbers to two valid locations; the third argument is unused since 2.6.24.
    let result = unsafe { libc::syscall(libc::SYS_getcpu, &raw mut cpu, &raw mut node, unused) };
    if result == 0 { Ok((CpuId(cpu), NodeId(node))) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claims 1, 2, 15 and 17 of the specification: a new thread inherits its creator's current mask; existing threads
    /// do not see a later change of it; no thread ever runs on a CPU that its mask forbids; and the mask has the
    /// kernel's size.
    #[test]
    fn a_thread_stays_where_it_is_put() {
        let allowed = affinity(Tid::CALLER).unwrap();
        let last: CpuSet = allowed.iter().last().into_iter().collect();
        let (wanted, allowed_before) = (last.clone(), allowed.clone());
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let there = std::thread::spawn(move || {
            let older = std::thread::spawn(move || (receiver.recv().is_err(), affinity(Tid::CALLER)));
            set_affinity(Tid::CALLER, &wanted)?;
            drop(sender);
            assert_eq!(older.join().unwrap().1?, allowed_before);
            let child = std::thread::spawn(|| affinity(Tid::CALLER)).join().unwrap()?;
            Ok::<_, io::Error>((affinity(Tid::CALLER)?, child, current_cpu()?.0))
        });
        let (own, child, cpu) = there.join().unwrap().unwrap();
        assert_eq!((&own, &child, Some(cpu)), (&last, &last, last.first()));
        assert_eq!(affinity(Tid::CALLER).unwrap(), allowed);
        assert!(set_affinity(Tid::CALLER, &[CpuId(100_000)].into_iter().collect()).is_err());
        let gone = affinity(Tid(u32::MAX >> 1)).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ESRCH));
    }
}
