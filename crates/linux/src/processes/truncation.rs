//! Mappings of files that other processes may truncate. Accessing a page past the end of a file raises SIGBUS, which
//! would end this process; with a guard, the page becomes private zeroes instead.

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, zeroed};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{AcqRel, Acquire, Release},
};

const PAGE: usize = machine::SMALL_PAGE as usize;
/// All ranges ever guarded; unused entries are empty.
static FIRST: AtomicPtr<Guarded> = AtomicPtr::new(null_mut());
/// The previous SIGBUS action.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A guarded address range.
#[derive(Debug)]
struct Guarded {
    /// 0 while unused.
    start: AtomicUsize,
    end: AtomicUsize,
    /// Never changes.
    next: *const Guarded,
}

/// Guards a range until it is dropped.
#[derive(Debug)]
pub struct Guard(&'static Guarded);

// SAFETY: it refers to atomics, and to a link that never changes.
unsafe impl Send for Guard {}
// SAFETY: as above.
unsafe impl Sync for Guard {}

impl Guard {
    /// Guards this range from now on.
    pub fn new(start: usize, bytes: usize) -> Self {
        BEFORE.get_or_init(listen);
        let free = all().find(|guarded| {
            // Reserves the entry with a range that is never matched.
            guarded.start.compare_exchange(0, usize::MAX, AcqRel, Acquire).is_ok()
        });
        let guarded = free.unwrap_or_else(|| {
            let guarded: &'static mut Guarded = Box::leak(Box::new(Guarded {
                start: AtomicUsize::new(usize::MAX),
                end: AtomicUsize::new(0),
                next: null_mut(),
            }));
            let mut first = FIRST.load(Acquire);
            loop {
                guarded.next = first;
                match FIRST.compare_exchange(first, &raw mut *guarded, AcqRel, Acquire) {
                    Ok(_) => return &*guarded,
                    Err(other) => first = other,
                }
            }
        });
        guarded.end.store(start + bytes, Release);
        guarded.start.store(start, Release);
        Self(guarded)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.end.store(0, Release);
        self.0.start.store(0, Release);
    }
}

fn all() -> impl Iterator<Item = &'static Guarded> {
    let mut next = FIRST.load(Acquire).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: entries of the list are never freed.
        let guarded = unsafe { next.as_ref() }?;
        next = guarded.next;
        Some(guarded)
    })
}

fn listen() -> libc::sigaction {
    // SAFETY: zeroes are a valid sigaction, and the call writes the previous one. The handler has the type that
    // SA_SIGINFO requires.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handle as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        libc::sigaction(libc::SIGBUS, &raw const action, before.as_mut_ptr());
        before.assume_init()
    }
}

/// Calls only async-signal-safe functions.
extern "C" fn handle(_signal: c_int, information: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo, which has an address for this signal.
    let address = unsafe { (*information).si_addr() } as usize;
    let page = (address & !(PAGE - 1)) as *mut c_void;
    let is_guarded = all().any(|guarded| (guarded.start.load(Acquire)..guarded.end.load(Acquire)).contains(&address));
    // SAFETY: the page belongs to a mapping of words that other processes may change at any time anyway.
    let mapped = is_guarded
        && unsafe {
            let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(page, PAGE, access, flags | libc::MAP_FIXED, -1, 0) == page
        };
    if !mapped {
        // Restores the previous action and returns, so that the signal is raised again. SAFETY: the action is what the
        // kernel wrote, or all zeroes, which is the default.
        unsafe {
            let default: libc::sigaction = zeroed();
            libc::sigaction(libc::SIGBUS, BEFORE.get().unwrap_or(&default), null_mut());
        }
    }
}
