//! Threads, forks, and unloaded code.

use crate::libc_symbols::Start;
use crate::loss::NOTHING;
use crate::module;
use crate::process::{is_recording, symbols};
use crate::thread::enter;
use core::ffi::{c_int, c_void};

/// The start routine of a thread.
#[repr(C)]
struct Beginning {
    start: Start,
    argument: *mut c_void,
}

/// Wraps the start routine, so that the thread records its start.
///
/// # Safety
///
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut c_void,
    attributes: *const c_void,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    let Some(symbols) = symbols() else { return libc::EAGAIN };
    if !is_recording() {
        // SAFETY: the caller's own call.
        return unsafe { (symbols.pthread_create)(thread, attributes, start, argument) };
    }
    // SAFETY: the C library's malloc, whose memory may hold any type.
    let beginning = unsafe { (symbols.malloc)(size_of::<Beginning>()) }.cast::<Beginning>();
    if beginning.is_null() {
        return libc::EAGAIN;
    }
    // SAFETY: it was just allocated with sufficient size. The rest is the caller's own call.
    unsafe {
        beginning.write(Beginning { start, argument });
        let result = (symbols.pthread_create)(thread, attributes, begin, beginning.cast());
        if result != 0 {
            (symbols.free)(beginning.cast());
        }
        result
    }
}

/// The thread may exit through here, by `pthread_exit` or cancellation: there is nothing to clean up.
extern "C-unwind" fn begin(beginning: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` created it for this thread only.
    let Beginning { start, argument } = unsafe { beginning.cast::<Beginning>().read() };
    if let Some(symbols) = symbols() {
        // SAFETY: it is not used any more.
        unsafe { (symbols.free)(beginning) };
    }
    drop(enter(NOTHING));
    start(argument)
}

/// Makes the child register itself at once. A child forked in other ways does so at its first event.
///
/// # Safety
///
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> c_int {
    let Some(symbols) = symbols() else { return -1 };
    // SAFETY: the caller's own call.
    let pid = unsafe { (symbols.fork)() };
    if pid == 0 {
        drop(enter(NOTHING));
    }
    pid
}

/// Invalidates what is known about code.
///
/// # Safety
///
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(library: *mut c_void) -> c_int {
    let Some(symbols) = symbols() else { return -1 };
    // SAFETY: the caller's own call.
    let result = unsafe { (symbols.dlclose)(library) };
    module::forget();
    result
}
