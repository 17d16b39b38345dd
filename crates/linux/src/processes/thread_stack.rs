//! Locates the stack of a thread.

use crate::processes::process::{Mapping, Process, Tid};
use std::ops::Range;

/// The stack of a thread other than the first: see [`stack_pointer_of`] and [`stack_around`].
pub fn thread_stack(process: &Process, tid: Tid, mappings: &[Mapping]) -> Option<Range<u64>> {
    stack_around(stack_pointer_of(process, tid)?, mappings)
}

/// The stack pointer of a waiting thread. `None` if it is running, as the kernel then does not report it. Since Linux
/// 2.6.26. Needs a debugger's privileges: the process's user or `CAP_SYS_PTRACE`, and what Yama requires.
pub fn stack_pointer_of(process: &Process, tid: Tid) -> Option<u64> {
    stack_pointer(&process.text_below(&format!("task/{tid}/syscall")).ok()?)
}

/// The stack pointer in the text of /proc/PID/task/TID/syscall: the second to last number, of two, or after those of
/// the system call.
fn stack_pointer(text: &str) -> Option<u64> {
    let mut words = text.split_ascii_whitespace();
    words.next()?.parse::<i64>().ok()?;
    let (_instruction, pointer) = (words.next_back()?, words.next_back()?);
    u64::from_str_radix(pointer.strip_prefix("0x")?, 16).ok()
}

/// The mapping that contains a stack pointer, if a guard region lies right below it, as with the C library's stacks.
/// `None` if the mapping may also hold other memory.
pub fn stack_around(pointer: u64, mappings: &[Mapping]) -> Option<Range<u64>> {
    let index = mappings.partition_point(|mapping| mapping.range.end <= pointer);
    let mapping = mappings.get(index).filter(|mapping| mapping.range.contains(&pointer))?;
    let guard = mappings.get(index.checked_sub(1)?)?;
    let is_guard = guard.range.end == mapping.range.start && !(guard.read || guard.write || guard.execute);
    let is_plain = mapping.write && !mapping.shared && mapping.inode == 0 && !mapping.name.starts_with("[heap");
    (is_guard && is_plain).then(|| mapping.range.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::process::{Pid, parse_maps};
    use proptest::prelude::*;
    use std::sync::mpsc::channel;

    #[test]
    fn the_stack_pointer_is_the_last_but_one() {
        let waits = "202 0x7f01 0x189 0x0 0x0 0x0 0xffffffff 0x7f0000001230 0x7f0000045678\n";
        assert_eq!(stack_pointer(waits), Some(0x7f00_0000_1230));
        assert_eq!(stack_pointer("-1 0x7ffe10 0x40\n"), Some(0x7f_fe10));
        assert_eq!((stack_pointer("running\n"), stack_pointer(""), stack_pointer("1 2")), (None, None, None));
    }

    #[test]
    fn a_stack_has_a_guard_below() {
        let maps =
            "1000-2000 ---p 0 0:0 0\n2000-9000 rw-p 0 0:0 0\n9000-b000 rw-p 0 0:0 0\nc000-d000 rw-p 0 0:0 7 /f\n";
        let mappings = parse_maps(maps).unwrap();
        let around = |pointer| stack_around(pointer, &mappings);
        assert_eq!(around(0x8ff0), Some(0x2000..0x9000));
        assert_eq!([0x1800, 0x9800, 0xb000, 0xc800, 0].map(around), [None, None, None, None, None]);
    }

    /// The stack of a waiting thread, which itself reports the address of a local variable.
    #[test]
    fn the_stack_of_a_thread_that_waits_is_found() {
        let (told, tell) = channel();
        let (release, wait) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let local = 0_u8;
            let _ = told.send((rustix::thread::gettid(), std::ptr::from_ref(&local) as u64));
            wait.recv()
        });
        let (tid, address) = tell.recv().unwrap();
        let tid = Tid(tid.as_raw_nonzero().get().cast_unsigned());
        let process = Process::open(Pid(std::process::id())).unwrap();
        let mappings = process.mappings().unwrap();
        let find = || thread_stack(&process, tid, &mappings);
        let found = std::iter::repeat_with(find).take(1_000_000).find_map(|found| found);
        drop(release);
        let _ = thread.join();
        assert!(found.unwrap().contains(&address));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_not(text in ".*") {
            let _ = stack_pointer(&text);
        }
    }
}
