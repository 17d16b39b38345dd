//! What each thread has here, and the way in: at most one event of a thread is being told at a time.

use crate::loss::NOTHING;
use crate::module::{self, Mapped};
use crate::process::{self, Writer};
use crate::ring::Ring;
use crate::{clock, real};
use core::arch::{asm, global_asm};
use core::cell::Cell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst, compiler_fence};
use rings::{Head, Kind};

/// Nothing is being told.
const IDLE: u32 = 0;
/// An event is being told: another one, of a signal handler, is lost.
const TELLING: u32 = 1;
/// Functions of the C library are at work for this library: what they allocate is nobody's business.
const OWN: u32 = 2;
/// Destructors of a thread run so often: `PTHREAD_DESTRUCTOR_ITERATIONS`. The last but one is late enough to say that the
/// thread ends.
const ROUNDS: u32 = 2;

// Rust's own thread-local variables of a library are found by a call that may allocate. These are at a fixed place.
global_asm!(
    ".pushsection .tbss.nearside_here, \"awT\", @nobits",
    ".hidden nearside_here",
    ".globl nearside_here",
    ".type nearside_here, @object",
    ".size nearside_here, 40",
    ".balign 8",
    "nearside_here: .zero 40",
    ".popsection",
);

/// What a thread has here: zeroes when it begins; a forked thread has its parent's.
#[repr(C)]
pub struct Here {
    writer: Cell<*mut Writer>,
    busy: AtomicU32,
    /// Rounds of destructors that have passed; beyond `ROUNDS` the thread has ended, and what it still does is told at once.
    rounds: Cell<u32>,
    /// Its stack; none while 0.
    pub low: Cell<usize>,
    pub high: Cell<usize>,
    /// The object that it told of last, its beginning or its end.
    last: Cell<usize>,
}

const _: () = assert!(size_of::<Here>() == 40);

#[inline]
fn here() -> &'static Here {
    let here: *const Here;
    // SAFETY: the two instructions are the x86-64 ABI's for the address of a thread-local variable.
    unsafe {
        asm!("mov {here}, qword ptr fs:[0]", "add {here}, qword ptr [rip + nearside_here@GOTTPOFF]",
            here = out(reg) here, options(nostack, pure, readonly));
    }
    // SAFETY: it lives as long as the thread, is zeroes at first, which is a value of it, and only its thread uses it.
    unsafe { &*here }
}

/// The right to tell an event.
pub struct Entered {
    here: &'static Here,
    pub writer: &'static mut Writer,
}

/// The way in, with an event about so many bytes from an address on. None if nothing is recorded, or nothing can be told
/// now, which is counted.
#[inline]
pub fn enter(about: (usize, usize)) -> Option<Entered> {
    if !process::is_recording() {
        return None;
    }
    let here = here();
    if here.busy.load(Relaxed) != IDLE {
        refuse(here, about);
        return None;
    }
    here.busy.store(TELLING, Relaxed);
    compiler_fence(SeqCst);
    let writer = here.writer.get();
    // SAFETY: a thread's writer is never given back to the system, and nobody else's while it is the thread's.
    if writer.is_null() || unsafe { (*writer).epoch } != process::epoch() {
        return begin(here, about);
    }
    // SAFETY: as above; there is no other reference, as `busy` was idle.
    Some(Entered { here, writer: unsafe { &mut *writer } })
}

impl Entered {
    /// The thread's stack.
    #[inline]
    pub fn stack(&self) -> (usize, usize) {
        (self.here.low.get(), self.here.high.get())
    }

    /// Keeps in mind that this object is told, for operators that it may have been allocated or freed for.
    #[inline]
    pub fn note(&self, object: usize) {
        self.here.last.set(object);
    }
}

/// The object that this thread told of since [`forget_last`]; the last of several.
#[inline]
pub fn last() -> usize {
    here().last.get()
}

/// Until it tells of another, it has told of none.
#[inline]
pub fn forget_last() {
    here().last.set(0);
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        if self.here.rounds.get() > ROUNDS {
            leave(self.here);
        }
        compiler_fence(SeqCst);
        self.here.busy.store(IDLE, Relaxed);
    }
}

#[cold]
fn refuse(here: &Here, about: (usize, usize)) {
    if here.busy.load(Relaxed) == TELLING {
        process::lose(about);
    }
}

/// Gets the thread what it needs, at its first event, and at the first after a fork.
#[cold]
#[inline(never)]
fn begin(here: &'static Here, about: (usize, usize)) -> Option<Entered> {
    let errno = Errno::keep();
    // What is not counted is then of this library alone.
    let blocked = Blocked::new();
    here.busy.store(OWN, Relaxed);
    let writer = process::revive().then(|| prepare(here)).flatten();
    here.busy.store(TELLING, Relaxed);
    drop(blocked);
    drop(errno);
    let Some(writer) = writer else {
        process::lose(about);
        here.busy.store(IDLE, Relaxed);
        return None;
    };
    Some(Entered { here, writer })
}

fn prepare(here: &Here) -> Option<&'static mut Writer> {
    if here.high.get() == 0 {
        let (low, high) = bounds();
        here.low.set(low);
        here.high.set(high);
    }
    let writer = process::take_writer()?;
    here.writer.set(writer);
    // SAFETY: it was just taken, so that it is this thread's alone.
    let writer = unsafe { &mut *writer };
    let has_ended = here.rounds.get() > ROUNDS;
    writer.ring.tell(Head { address: has_ended.into(), ..thread_event(Kind::Thread) });
    tell_stack(here, &mut writer.ring);
    if here.rounds.get() == 0 {
        // The key's destructor is `end`, called for any value but null.
        // SAFETY: the key was made before anything was recorded.
        unsafe { libc::pthread_setspecific(process::key(), core::ptr::from_ref(here).cast()) };
    }
    Some(writer)
}

/// The kernel does not say what threads have their stacks where.
fn tell_stack(here: &Here, ring: &mut Ring) {
    let (start, bytes) = (here.low.get(), here.high.get().saturating_sub(here.low.get()));
    if bytes == 0 {
        return;
    }
    process::stack_name(id(), |name| {
        let mut words = [0; 4];
        let used = module::copy(name, &mut words);
        let mapped = Mapped { time: clock::now(), start, bytes, offset: 0, flags: 0, slot: 0 };
        mapped.tell(ring, words.get(..used).unwrap_or_default());
    });
}

/// The number of this thread.
pub fn id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

fn thread_event(kind: Kind) -> Head {
    crate::ring::event(kind, clock::now(), 0, id() as usize)
}

/// Called when the thread ends, by any way that the C library knows. Other destructors may follow, and free what they
/// have, so that it is called again until few can.
pub extern "C" fn end(value: *mut c_void) {
    let here = here();
    here.rounds.set(here.rounds.get() + 1);
    if here.rounds.get() <= ROUNDS {
        // SAFETY: the key is there, as its destructor runs.
        unsafe { libc::pthread_setspecific(process::key(), value) };
        return;
    }
    if let Some(entered) = enter(NOTHING) {
        entered.writer.ring.tell(thread_event(Kind::ThreadEnded));
    }
}

/// Gives the ring back, for another thread.
#[cold]
fn leave(here: &Here) {
    process::give_back(here.writer.replace(null_mut()));
}

/// Where this thread's stack is; (0, 0) where that is not known.
fn bounds() -> (usize, usize) {
    const MOST: usize = 64 << 20;
    let is_main = rustix::thread::gettid() == rustix::process::getpid();
    if is_main {
        let end = real::exported(c"__libc_stack_end").cast::<usize>();
        if end.is_null() {
            return (0, 0);
        }
        // SAFETY: the C library's variable of that name is a pointer.
        let high = unsafe { *end };
        // The kernel keeps mappings off as much room as the stack may grow to, and off 128 MiB in any case.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Stack).current;
        let room = limit.map_or(MOST, |limit| (limit as usize).min(MOST));
        return (high.saturating_sub(room), high);
    }
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut low, mut bytes) = (null_mut(), 0);
    // SAFETY: `pthread_getattr_np` initialises the attributes if it returns 0; they are given back.
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

/// Keeps signals from the thread until it goes.
pub struct Blocked(libc::sigset_t);

impl Blocked {
    /// From now on.
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
        // SAFETY: the mask is that of before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, null_mut()) };
    }
}

/// Puts `errno` back when it goes.
pub struct Errno(i32);

impl Errno {
    /// What it is now.
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
