//! Advises the program's own memory on request: only from inside does that need no right. A thread of its own reads
//! requests from a socket, and ends with it, or before the main thread if that ends by `pthread_exit`: the process then
//! ends with its last thread, which flushes its files, and which this one must not be. Without the environment variable
//! there is neither.

use crate::process::symbols;
use core::ffi::{c_long, c_void};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{Acquire, Release};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize};
use rings::{ADVICE_BYTES, ADVICE_VARIABLE, AdviceRequest, AdvisedTo};

/// Longest path of a socket, with its end.
const PATH_BYTES: usize = 108;
/// The thread needs no more: it calls nothing of the program's.
const STACK_BYTES: usize = 64 << 10;
/// Between two looks whether the main thread is ending, µs.
const LOOK_US: libc::suseconds_t = 200_000;
/// linux/mman.h (6.1); missing from libc.
const MADV_COLLAPSE: i32 = 25;

/// Starts the thread, if the variable names a socket. Called once, by the constructor.
pub fn serve_if_asked() {
    const { assert!(ADVICE_VARIABLE.len() < 32) };
    let mut name = [0; 32];
    name.iter_mut().zip(ADVICE_VARIABLE.bytes()).for_each(|(place, byte)| *place = byte.cast_signed());
    // SAFETY: the name is NUL-terminated, and the C library is ready when it calls constructors.
    let path = unsafe { libc::getenv(name.as_ptr()) };
    if path.is_null() {
        return;
    }
    if let Some(socket) = connected(path) {
        // SAFETY: the descriptor was just opened here; the thread has a copy of its own once `start` returns.
        unsafe {
            start(socket);
            close(socket);
        }
    }
}

/// Closes a descriptor. Calls of the C library would be seen by tools that watch descriptors (`ThreadSanitizer`), which do
/// not know that the thread that serves has a table of its own; so are all others here calls of the kernel.
///
/// # Safety
///
/// As of the C library's.
unsafe fn close(socket: i32) -> c_long {
    // SAFETY: the caller's.
    unsafe { libc::syscall(libc::SYS_close, socket) }
}

/// Set once the thread has a table of descriptors of its own, or has ended.
static DETACHED: AtomicU32 = AtomicU32::new(0);

/// Gives this thread a table of descriptors with nothing but the socket: the program may close all of its own, and use
/// their numbers again. And a current folder of its own, as a program whose threads share one may not enter a mount
/// namespace (`setns`).
unsafe fn detach(socket: i32) -> bool {
    let socket = socket.cast_unsigned();
    // SAFETY: the calls have no pointers. The first makes the table this thread's own before it closes anything.
    unsafe {
        // A container may forbid it, and then forbids `setns`, too.
        libc::syscall(libc::SYS_unshare, libc::CLONE_FS);
        libc::syscall(libc::SYS_close_range, socket + 1, u32::MAX, libc::CLOSE_RANGE_UNSHARE) == 0
            && (socket == 0 || libc::syscall(libc::SYS_close_range, 0, socket - 1, 0) == 0)
    }
}

/// Waits until the thread has detached itself.
fn wait_until_detached() {
    while DETACHED.load(Acquire) == 0 {
        // SAFETY: the kernel reads the word, which lives as long as the process; without a timeout, as the thread always
        // sets it.
        unsafe { libc::syscall(libc::SYS_futex, DETACHED.as_ptr(), libc::FUTEX_WAIT, 0, null_mut::<libc::timespec>()) };
    }
}

/// Set when the main thread is ending, and the process is not.
static MAIN_ENDS: AtomicBool = AtomicBool::new(false);
/// The thread that serves, and the process that has it: a forked child has not.
static SERVER: AtomicUsize = AtomicUsize::new(0);
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Has the end of the calling thread, the main one, wait for the thread that serves.
fn end_before_main(server: libc::pthread_t) {
    extern "C" fn ends(_: *mut c_void) {
        // SAFETY: the thread is this process's, and nothing else joins it.
        unsafe {
            if libc::getpid() == PROCESS.load(Acquire) {
                MAIN_ENDS.store(true, Release);
                libc::pthread_join(SERVER.load(Acquire) as libc::pthread_t, null_mut());
            }
        }
    }
    SERVER.store(server as usize, Release);
    let mut key = 0;
    // SAFETY: the library is loaded before the program, and never unloaded.
    unsafe {
        PROCESS.store(libc::getpid(), Release);
        if libc::pthread_key_create(&raw mut key, Some(ends)) == 0 {
            libc::pthread_setspecific(key, (&raw const MAIN_ENDS).cast());
        }
    }
}

fn tell_detached() {
    DETACHED.store(1, Release);
    // SAFETY: the kernel looks for waiters of the word, which lives as long as the process.
    unsafe { libc::syscall(libc::SYS_futex, DETACHED.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// A connection to the socket of this NUL-terminated path. Never waits: nearside takes connections only when it has a
/// request, and thousands of programs may have connected before.
fn connected(path: *const libc::c_char) -> Option<i32> {
    // SAFETY: zeroes are a valid address; the path is copied with its end, which is within the address. The kernel
    // reads the address only.
    unsafe {
        let length = libc::strlen(path);
        if length >= PATH_BYTES {
            return None;
        }
        let mut address: libc::sockaddr_un = core::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        core::ptr::copy_nonoverlapping(path, address.sun_path.as_mut_ptr(), length);
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let socket = i32::try_from(libc::syscall(libc::SYS_socket, libc::AF_UNIX, kind, 0)).ok();
        let socket = socket.filter(|&socket| socket >= 0)?;
        let connected =
            libc::syscall(libc::SYS_connect, socket, &raw const address, size_of::<libc::sockaddr_un>()) == 0;
        // The thread waits for requests.
        if connected && libc::syscall(libc::SYS_fcntl, socket, libc::F_SETFL, 0) == 0 {
            return Some(socket);
        }
        close(socket);
        None
    }
}

/// Starts the thread with all signals blocked: they are the program's. Returns once it has a copy of the socket, or if
/// it cannot be started.
///
/// # Safety
///
/// The socket is open, and nothing else uses it.
unsafe fn start(socket: i32) {
    let Some(symbols) = symbols() else { return };
    let argument = socket.cast_unsigned() as usize as *mut c_void;
    // SAFETY: attributes and sets are initialised before their use; the C library's own function starts a thread that
    // is not reported.
    unsafe {
        let (mut all, mut before) = (core::mem::zeroed(), core::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        libc::pthread_attr_init(&raw mut attributes);
        let mut usual_bytes = 0;
        libc::pthread_attr_getstacksize(&raw const attributes, &raw mut usual_bytes);
        // The program's thread-local variables are on the stack too, and may need the usual size.
        for bytes in [STACK_BYTES, usual_bytes] {
            let mut thread: libc::pthread_t = 0;
            libc::pthread_attr_setstacksize(&raw mut attributes, bytes);
            if (symbols.pthread_create)((&raw mut thread).cast(), (&raw const attributes).cast(), serve, argument) == 0
            {
                wait_until_detached();
                end_before_main(thread);
                break;
            }
        }
        libc::pthread_attr_destroy(&raw mut attributes);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut());
    }
}

/// Follows requests until the socket is closed.
extern "C-unwind" fn serve(socket: *mut c_void) -> *mut c_void {
    let socket = socket as usize as i32;
    let mut request = [0_u8; ADVICE_BYTES];
    // SAFETY: the thread has just begun, and uses no other descriptor.
    let has_own = unsafe { detach(socket) };
    tell_detached();
    if !has_own {
        return null_mut();
    }
    // SAFETY: the buffers have these lengths, and the socket is this thread's. No advice changes what memory
    // holds; the kernel checks the range.
    unsafe {
        let look = libc::timeval { tv_sec: 0, tv_usec: LOOK_US };
        let (level, option, bytes) = (libc::SOL_SOCKET, libc::SO_RCVTIMEO, size_of::<libc::timeval>());
        libc::syscall(libc::SYS_setsockopt, socket, level, option, &raw const look, bytes);
        let nowhere = null_mut::<c_void>();
        loop {
            let buffer = request.as_mut_ptr();
            let got =
                libc::syscall(libc::SYS_recvfrom, socket, buffer, ADVICE_BYTES, libc::MSG_WAITALL, nowhere, nowhere);
            let is_quiet = got < 0 && matches!(*libc::__errno_location(), libc::EAGAIN | libc::EINTR);
            if is_quiet && !MAIN_ENDS.load(Acquire) {
                continue;
            }
            if got != ADVICE_BYTES as c_long {
                break;
            }
            let mut answer = [0_u8; ADVICE_BYTES];
            answer[..4].copy_from_slice(&follow(&request).to_ne_bytes());
            let (buffer, flags) = (answer.as_ptr(), libc::MSG_NOSIGNAL);
            if libc::syscall(libc::SYS_sendto, socket, buffer, ADVICE_BYTES, flags, nowhere, 0) < 0 {
                break;
            }
        }
        close(socket);
    }
    null_mut()
}

/// Gives the advice, and returns the error number or 0.
unsafe fn follow(request: &[u8; ADVICE_BYTES]) -> i32 {
    let Some(AdviceRequest { start, bytes, to }) = AdviceRequest::from_bytes(request) else { return libc::EINVAL };
    let all: &[i32] = match to {
        AdvisedTo::Split => &[libc::MADV_COLD],
        AdvisedTo::StaySmall => &[libc::MADV_NOHUGEPAGE],
        // The first clears the mark of the one above; there is no advice that only does that.
        AdvisedTo::Join => &[libc::MADV_HUGEPAGE, MADV_COLLAPSE],
    };
    if to != AdvisedTo::Split {
        crate::small_parts::note_marks();
    }
    // SAFETY: no advice here changes what memory holds; the kernel checks the range.
    let fails = |&advice: &i32| unsafe { libc::madvise(start as *mut c_void, bytes as usize, advice) } != 0;
    if !all.iter().any(fails) {
        return 0;
    }
    // SAFETY: this thread's error number.
    unsafe { *libc::__errno_location() }
}
