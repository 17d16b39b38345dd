//! Per-thread state, and the entry point: a thread records at most one event at a time.

use crate::loss::NOTHING;
use crate::module::{self, Mapped};
use crate::path_buffer;
use crate::process::{self, Writer};
use crate::ring::Ring;
use crate::{clock, libc_symbols};
use core::arch::{asm, global_asm};
use core::cell::Cell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst, compiler_fence};
use rings::{Head, Kind};

/// No event is being recorded.
const IDLE: u32 = 0;
/// An event is being recorded: another one, from a signal handler, is lost.
const TELLING: u32 = 1;
/// C library functions run on behalf of this library: their allocations are not recorded.
const OWN: u32 = 2;
/// Thread destructors run in up to `PTHREAD_DESTRUCTOR_ITERATIONS` rounds. The last but one is late enough to record
/// the end of the thread.
const ROUNDS: u32 = 2;

// Rust's thread-local variables in a library are found by a call that may allocate. These have a fixed location.
global_asm!(
    ".pushsection .tbss.nearside_thread_state, \"awT\", @nobits",
    ".hidden nearside_thread_state",
    ".globl nearside_thread_state",
    ".type nearside_thread_state, @object",
    ".size nearside_thread_state, 40",
    ".balign 8",
    "nearside_thread_state: .zero 40",
    ".popsection",
);

/// Per-thread state. It is zeroed when a thread starts; a forked thread inherits its parent's.
#[repr(C)]
pub struct ThreadState {
    writer: Cell<*mut Writer>,
    busy: AtomicU32,
    /// Completed rounds of destructors; above `ROUNDS` the thread has ended, and further events are published at once.
    rounds: Cell<u32>,
    /// Lower bound of its stack; 0 if unknown.
    pub low: Cell<usize>,
    pub high: Cell<usize>,
    /// The last object whose beginning or end it recorded.
    last: Cell<usize>,
}

const _: () = assert!(size_of::<ThreadState>() == 40);

#[inline]
fn thread_state() -> &'static ThreadState {
    let state: *const ThreadState;
    // SAFETY: the two instructions are the x86-64 ABI's for the address of a thread-local variable.
    unsafe {
        asm!("mov {state}, qword ptr fs:[0]", "add {state}, qword ptr [rip + nearside_thread_state@GOTTPOFF]",
            state = out(reg) state, options(nostack, pure, readonly));
    }
    // SAFETY: it lives as long as the thread, is initially zeroed, which is a valid value, and only its thread uses it.
    unsafe { &*state }
}

/// Permission to record an event.
pub struct Entered {
    state: &'static ThreadState,
    pub writer: &'static mut Writer,
}

/// Enters with an event that concerns `about`: an address and a number of bytes. `None` if the process is not recorded,
/// or if the event cannot be recorded now, which is counted.
#[inline]
pub fn enter(about: (usize, usize)) -> Option<Entered> {
    if !process::is_recording() {
        return None;
    }
    let state = thread_state();
    if state.busy.load(Relaxed) != IDLE {
        refuse(state, about);
        return None;
    }
    state.busy.store(TELLING, Relaxed);
    compiler_fence(SeqCst);
    let writer = state.writer.get();
    // SAFETY: a thread's writer is never freed, and has no other owner while it belongs to the thread.
    if writer.is_null() || unsafe { (*writer).epoch } != process::epoch() {
        return begin(state, about);
    }
    // SAFETY: as above; there is no other reference, as `busy` was idle.
    Some(Entered { state, writer: unsafe { &mut *writer } })
}

impl Entered {
    /// Bounds of the thread's stack.
    #[inline]
    pub fn stack(&self) -> (usize, usize) {
        (self.state.low.get(), self.state.high.get())
    }

    /// Notes that this object was recorded, for the operator that may have allocated or freed it.
    #[inline]
    pub fn note(&self, object: usize) {
        self.state.last.set(object);
    }
}

/// The last object that this thread recorded since [`forget_last`].
#[inline]
pub fn last() -> usize {
    thread_state().last.get()
}

/// Clears the last recorded object.
#[inline]
pub fn forget_last() {
    thread_state().last.set(0);
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        if self.state.rounds.get() > ROUNDS {
            leave(self.state);
        }
        compiler_fence(SeqCst);
        self.state.busy.store(IDLE, Relaxed);
    }
}

#[cold]
fn refuse(state: &ThreadState, about: (usize, usize)) {
    if state.busy.load(Relaxed) == TELLING {
        process::lose(about);
    }
}

/// Sets up the thread at its first event, and at the first after a fork.
#[cold]
#[inline(never)]
fn begin(state: &'static ThreadState, about: (usize, usize)) -> Option<Entered> {
    let errno = Errno::keep();
    // Anything not counted from here on belongs to this library.
    let blocked = Blocked::new();
    state.busy.store(OWN, Relaxed);
    let writer = process::revive().then(|| prepare(state)).flatten();
    state.busy.store(TELLING, Relaxed);
    drop(blocked);
    drop(errno);
    let Some(writer) = writer else {
        process::lose(about);
        state.busy.store(IDLE, Relaxed);
        return None;
    };
    Some(Entered { state, writer })
}

fn prepare(state: &ThreadState) -> Option<&'static mut Writer> {
    if state.high.get() == 0 {
        let (low, high) = bounds();
        state.low.set(low);
        state.high.set(high);
    }
    let taken = process::take_writer()?;
    // SAFETY: it was just taken, so it belongs to this thread only.
    let writer = unsafe { &mut *taken };
    let has_ended = state.rounds.get() > ROUNDS;
    if !writer.ring.tell(Head { address: has_ended.into(), ..thread_event(Kind::Thread) }) {
        // What follows would be taken for events of the ring's former thread.
        process::give_back(taken);
        return None;
    }
    state.writer.set(taken);
    tell_stack(state, &mut writer.ring);
    if state.rounds.get() == 0 {
        // The key's destructor is `end`, called for any value but null. SAFETY: the key was created before recording
        // began.
        unsafe { libc::pthread_setspecific(process::key(), core::ptr::from_ref(state).cast()) };
    }
    Some(writer)
}

/// Records the thread's stack, as the kernel does not report which threads have their stacks where.
fn tell_stack(state: &ThreadState, ring: &mut Ring) {
    let (start, bytes) = (state.low.get(), state.high.get().saturating_sub(state.low.get()));
    if bytes == 0 {
        return;
    }
    path_buffer::stack_name(id(), |name| {
        let mut words = [0; 4];
        let used = module::copy(name, &mut words);
        let mapped = Mapped { time: clock::now(), start, bytes, offset: 0, flags: 0, slot: 0 };
        mapped.tell(ring, words.get(..used).unwrap_or_default());
    });
}

/// The TID of this thread.
pub fn id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

fn thread_event(kind: Kind) -> Head {
    crate::ring::event(kind, clock::now(), 0, id() as usize)
}

/// Called when the thread ends, in any way that the C library handles. Other destructors may follow and free their
/// memory, so this asks to be called again until few of them can remain.
pub extern "C" fn end(value: *mut c_void) {
    let state = thread_state();
    state.rounds.set(state.rounds.get() + 1);
    if state.rounds.get() <= ROUNDS {
        // SAFETY: the key exists, as its destructor runs.
        unsafe { libc::pthread_setspecific(process::key(), value) };
        return;
    }
    if let Some(entered) = enter(NOTHING) {
        entered.writer.ring.tell(thread_event(Kind::ThreadEnded));
    }
}

/// Releases the ring for another thread.
#[cold]
fn leave(state: &ThreadState) {
    process::give_back(state.writer.replace(null_mut()));
}

/// Bounds of this thread's stack; (0, 0) if unknown.
pub fn bounds() -> (usize, usize) {
    const MOST: usize = 64 << 20;
    let is_main = rustix::thread::gettid() == rustix::process::getpid();
    if is_main {
        let end = libc_symbols::exported(c"__libc_stack_end").cast::<usize>();
        if end.is_null() {
            return (0, 0);
        }
        // SAFETY: the C library's variable of that name is a pointer.
        let high = unsafe { *end };
        // The kernel keeps mappings out of the room that the stack may grow into, which is at least 128 MiB.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Stack).current;
        let room = limit.map_or(MOST, |limit| (limit as usize).min(MOST));
        return (high.saturating_sub(room), high);
    }
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut low, mut bytes) = (null_mut(), 0);
    // SAFETY: `pthread_getattr_np` initialises the attributes if it returns 0; they are destroyed afterwards.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return (0, 0);
        }
        let attributes = attributes.assume_init_mut();
        let known = libc::pthread_attr_getstack(attributes, &raw mut low, &raw mut bytes) == 0;
        libc::pthread_attr_destroy(attributes);
        if known { (low as usize, low as usize + bytes) } else { (0, 0) }
    }
}

/// Blocks signals of the thread until dropped.
pub struct Blocked(libc::sigset_t);

impl Blocked {
    /// Blocks all signals.
    pub fn new() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: the mask is written before it is read.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: this is the previous mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, null_mut()) };
    }
}

/// Restores `errno` when dropped.
pub struct Errno(i32);

impl Errno {
    /// Saves the current value.
    pub fn keep() -> Self {
        // SAFETY: the C library's address of this thread's errno.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
