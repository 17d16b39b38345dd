//! Mappings of files that others may shorten. Whoever touches a page behind a file's end gets SIGBUS, which would end this
//! process; with this, the page is zeroes of its own from then on.

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, zeroed};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{AcqRel, Acquire, Release},
};

const PAGE: usize = 4096;
/// All there ever were; those that are not in use have no range.
static FIRST: AtomicPtr<Guarded> = AtomicPtr::new(null_mut());
/// What was done at SIGBUS before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A range of addresses of such a mapping.
#[derive(Debug)]
struct Guarded {
    /// 0 while it is not in use.
    start: AtomicUsize,
    end: AtomicUsize,
    /// Fixed.
    next: *const Guarded,
}

/// Guards a range until it is dropped.
#[derive(Debug)]
pub struct Guard(&'static Guarded);

// SAFETY: what it refers to is atomic but for the link, which never changes.
unsafe impl Send for Guard {}
// SAFETY: as above.
unsafe impl Sync for Guard {}

impl Guard {
    /// From now on.
    pub fn new(start: usize, bytes: usize) -> Self {
        BEFORE.get_or_init(listen);
        let free = all().find(|guarded| {
            // Taken by a range without an end.
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
        // SAFETY: what is in the list stays for ever.
        let guarded = unsafe { next.as_ref() }?;
        next = guarded.next;
        Some(guarded)
    })
}

fn listen() -> libc::sigaction {
    // SAFETY: zeroes are a value of it, and the call writes what there was. The handler has the type of one with SA_SIGINFO.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handle as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        libc::sigaction(libc::SIGBUS, &raw const action, before.as_mut_ptr());
        before.assume_init()
    }
}

/// Calls nothing that a signal handler may not.
extern "C" fn handle(_signal: c_int, information: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel's own, which has an address for this signal.
    let address = unsafe { (*information).si_addr() } as usize;
    let page = (address & !(PAGE - 1)) as *mut c_void;
    let is_guarded = all().any(|guarded| (guarded.start.load(Acquire)..guarded.end.load(Acquire)).contains(&address));
    // SAFETY: the page is one of a mapping that this process has for words that anybody may change at any time.
    let mapped = is_guarded
        && unsafe {
            let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(page, PAGE, access, flags | libc::MAP_FIXED, -1, 0) == page
        };
    if !mapped {
        // It comes again, to whoever had it before.
        // SAFETY: the action is what the kernel wrote, or all zeroes, which is the default.
        unsafe {
            let default: libc::sigaction = zeroed();
            libc::sigaction(libc::SIGBUS, BEFORE.get().unwrap_or(&default), null_mut());
        }
    }
}
