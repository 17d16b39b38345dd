//! The node of the calling thread's CPU, in about a nanosecond: from the thread's rseq area, where the kernel keeps it
//! up to date.

use machine::NodeId;
use std::arch::asm;
use std::ffi::{CStr, c_int, c_uint};

/// Offsets in `struct rseq` of `linux/rseq.h`.
const CPU_ID: isize = 4;
const NODE_ID: isize = 20;
/// Bytes of `struct rseq` up to the end of `node_id`.
const BYTES_WITH_NODE: u64 = 24;
/// The entry of the auxiliary vector that has the kernel's size of `struct rseq` (`linux/auxvec.h`; missing from libc).
/// Since Linux 6.3, which also added `node_id`.
const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;

/// How the calling thread's node is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentNode {
    /// The offset of each thread's rseq area from its thread pointer; `None` without an area that has the node.
    rseq_offset: Option<isize>,
}

impl CurrentNode {
    /// Determines whether the C library registers rseq areas (glibc 2.35) and the kernel keeps the node there (Linux
    /// 6.3). Otherwise each [`get`](Self::get) is a call of `getcpu`. Needs no privileges.
    pub fn new() -> Self {
        // SAFETY: getauxval takes a number.
        let kernels_bytes = unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE) };
        // The kernel registers no area of less than 32 bytes (`ORIG_RSEQ_SIZE` in its kernel/rseq.c), whatever size the
        // C library reports: that is of the fields that it knows itself. 0: it registers none.
        let is_registered = variable::<c_uint>(c"__rseq_size").is_some_and(|bytes| bytes > 0);
        let has_node = is_registered && kernels_bytes >= BYTES_WITH_NODE;
        Self { rseq_offset: has_node.then(|| variable::<isize>(c"__rseq_offset")).flatten() }
    }

    /// Whether it is read from the rseq area.
    pub fn is_read_from_memory(self) -> bool {
        self.rseq_offset.is_some()
    }

    /// The node of the CPU that the calling thread runs on, possibly outdated when it is returned. Node 0 if the kernel
    /// does not say.
    #[inline]
    pub fn get(self) -> NodeId {
        if let Some(offset) = self.rseq_offset {
            let (cpu, node): (i32, u32);
            // SAFETY: the C library keeps the area of every thread at this offset from the thread pointer, which is the
            // base of segment fs on x86-64. The instructions only read two of its fields.
            unsafe {
                asm!(
                    "mov {cpu:e}, fs:[{offset} + {CPU_ID}]",
                    "mov {node:e}, fs:[{offset} + {NODE_ID}]",
                    cpu = out(reg) cpu,
                    node = lateout(reg) node,
                    offset = in(reg) offset,
                    CPU_ID = const CPU_ID,
                    NODE_ID = const NODE_ID,
                    options(nostack, readonly, preserves_flags),
                );
            }
            // Negative: this thread's area is not registered.
            if cpu >= 0 {
                return NodeId(node);
            }
        }
        asked()
    }
}

impl Default for CurrentNode {
    fn default() -> Self {
        Self::new()
    }
}

unsafe extern "C" {
    /// Of glibc 2.29; missing from libc. In the vDSO, it takes no system call.
    fn getcpu(cpu: *mut c_uint, node: *mut c_uint) -> c_int;
}

#[cold]
fn asked() -> NodeId {
    let (mut cpu, mut node) = (0, 0);
    // SAFETY: it writes two numbers to two valid locations. If it fails, the node stays 0.
    unsafe { getcpu(&raw mut cpu, &raw mut node) };
    NodeId(node)
}

/// The value of a constant of the C library, if this one has it.
fn variable<T: Copy>(name: &CStr) -> Option<T> {
    // SAFETY: the name is a C string; the symbols asked for are constants of type T in every version that has them.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).cast::<T>().as_ref().copied() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeState, Tid, affinity, set_affinity};
    use std::path::Path;

    /// Each node of the machine, by running on each CPU; a thread that was not registered asks the kernel.
    #[test]
    fn the_node_is_that_of_the_cpu() {
        let node_of = NodeState::read(Path::new("/sys")).unwrap_or_default().of_cpus();
        let reader = CurrentNode::new();
        for cpu in affinity(Tid::CALLER).unwrap().iter() {
            let node = std::thread::spawn(move || {
                set_affinity(Tid::CALLER, &[cpu].into_iter().collect()).unwrap();
                (reader.get(), CurrentNode { rseq_offset: None }.get())
            });
            let (read, asked) = node.join().unwrap();
            assert_eq!(read, asked);
            assert_eq!(read, node_of.get(&cpu).copied().unwrap_or(NodeId(0)));
        }
    }
}
