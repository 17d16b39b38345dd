//! The C library's functions that execute another program, but those with any number of arguments (`execl` and its like).
//! Without this library, that program could not tell whose policy it has.

use crate::{next, put_back, set_aside};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;

macro_rules! executes {
    ($($index:literal $name:ident($($argument:ident: $type:ty),+) fails with $failed:expr;)+) => {
        const NAMES: [&CStr; [$($index),+].len()] =
            [$(match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            }),+];
        static NEXT: [AtomicPtr<c_void>; NAMES.len()] = [const { AtomicPtr::new(null_mut()) }; NAMES.len()];

        $(
            /// The C library's function of this name, without this library's policy.
            ///
            /// # Safety
            ///
            /// As for the C library's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),+) -> c_int {
                let next = next(NAMES[$index], &NEXT[$index]);
                if next.is_null() {
                    // SAFETY: the C library's address of this thread's errno.
                    unsafe { *libc::__errno_location() = libc::ENOSYS };
                    return $failed;
                }
                let had_policy = set_aside();
                // SAFETY: it is the definition that the program would call without this library, with the caller's
                // arguments.
                let result = unsafe {
                    transmute::<*mut c_void, unsafe extern "C" fn($($type),+) -> c_int>(next)($($argument),+)
                };
                // Where the caller is another program now, this is never reached.
                if had_policy {
                    put_back();
                }
                result
            }
        )+
    };
}

type Words = *const *mut c_char;

executes! {
    0 execve(path: *const c_char, arguments: Words, variables: Words) fails with -1;
    1 execv(path: *const c_char, arguments: Words) fails with -1;
    2 execvp(file: *const c_char, arguments: Words) fails with -1;
    3 execvpe(file: *const c_char, arguments: Words, variables: Words) fails with -1;
    4 fexecve(file: c_int, arguments: Words, variables: Words) fails with -1;
    5 execveat(folder: c_int, path: *const c_char, arguments: Words, variables: Words, flags: c_int) fails with -1;
    6 posix_spawn(pid: *mut c_int, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Words,
        variables: Words) fails with libc::ENOSYS;
    7 posix_spawnp(pid: *mut c_int, file: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Words,
        variables: Words) fails with libc::ENOSYS;
}

/// Finds the C library's definitions, as a child between `fork` and `exec` should not have to.
pub fn find_next() {
    for (name, known) in NAMES.iter().zip(&NEXT) {
        next(name, known);
    }
}
