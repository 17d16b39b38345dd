//! Per-process state: the file of rings, and how recording starts, including after a fork.
//!
//! This file, `thread`, `ring`, `walk`, `module`, `libc_symbols` and the hooks use each other, because what they do is
//! one loop: a hook needs its thread's ring, the first ring of a thread starts or revives the process's recording, a
//! full ring waits until that is over, and a fork ends all threads but one. The operators name the functions that
//! `libc_symbols` looks up, and call those.

use crate::libc_symbols::{self, LibcSymbols};
use crate::loss::{self, NOTHING};
use crate::module::link_target;
use crate::path_buffer::{PATH_BYTES, PathBuffer};
use crate::ring::{Ring, Wait, pause};
use crate::walk::Walk;
use crate::{clock, thread};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicPtr, AtomicU8, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use core::time::Duration;
use rings::{FOLDER_VARIABLE, MAGIC, PAGE, SETTINGS_FILE, Settings, VERSION, process, process_file, ring_stride};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, fchmod, ftruncate, open, stat};
use rustix::io::{Errno, read};
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap, mmap_anonymous, mremap, munmap};
use rustix::process::{Resource, getpid, getrlimit};

/// The replaced functions are not known yet.
const UNKNOWN: u8 = 0;
/// They are being looked up.
const LOOKING: u8 = 1;
/// They are known; whether the process is recorded is not.
const KNOWN: u8 = 2;
/// Recording is being set up.
const STARTING: u8 = 3;
/// The process is not recorded.
const PASSING: u8 = 4;
/// The process is recorded.
const RECORDING: u8 = 5;

static PHASE: AtomicU8 = AtomicU8::new(UNKNOWN);
/// Immutable from `KNOWN` on.
static SYMBOLS: Once<LibcSymbols> = Once(UnsafeCell::new(MaybeUninit::uninit()));
/// Immutable from `RECORDING` on.
static RECORDING_OF: Once<Recording> = Once(UnsafeCell::new(MaybeUninit::uninit()));
/// On a page that the kernel wipes in every forked child, so that a child cannot mistake itself for its parent.
static PROCESS_STATE: AtomicPtr<ProcessState> = AtomicPtr::new(null_mut());
/// PID of the most recent process in this line of forks.
static PID: AtomicU32 = AtomicU32::new(0);
/// The first page of that process's file.
static WORDS: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
static EPOCHS: AtomicU64 = AtomicU64::new(0);

/// The C library's `environ`, which points to null until it is set up. Immutable from `KNOWN` on.
static ENVIRONMENT: AtomicPtr<*const c_char> = AtomicPtr::new(null_mut());

/// Marks an epoch that is being prepared.
const PREPARING: u64 = u64::MAX;
/// Minimum wait for other threads of the program, however short the wait for the recorder is.
const LEAST_TIMEOUT: Duration = Duration::from_millis(10);

struct Once<T>(UnsafeCell<MaybeUninit<T>>);

// SAFETY: each is written by one thread, before the phase in which all threads only read it.
unsafe impl<T: Sync> Sync for Once<T> {}

struct Recording {
    settings: Settings,
    /// NUL-terminated.
    folder: [u8; PATH_BYTES],
    key: libc::pthread_key_t,
}

#[repr(C)]
struct ProcessState {
    /// 0 in a process that is not set up yet.
    epoch: AtomicU64,
    /// The first page of its file; null if it got none.
    words: AtomicPtr<AtomicU64>,
    locked: AtomicU32,
    rings: AtomicU32,
    last: AtomicPtr<AtomicU64>,
    free: AtomicPtr<Writer>,
}

/// The state that a thread needs to record events.
pub struct Writer {
    /// The process that it belongs to.
    pub epoch: u64,
    pub ring: Ring,
    pub walk: Walk,
    next: *mut Writer,
}

/// Whether this process is recorded.
#[inline]
pub fn is_recording() -> bool {
    PHASE.load(Acquire) == RECORDING
}

/// The functions that this library replaces; `None` while they are being looked up.
#[inline]
pub fn symbols() -> Option<&'static LibcSymbols> {
    if PHASE.load(Acquire) < PASSING && !look() {
        return None;
    }
    // SAFETY: written before the phase was `KNOWN`, and never again.
    Some(unsafe { (*SYMBOLS.0.get()).assume_init_ref() })
}

fn recording() -> &'static Recording {
    // SAFETY: only called while recording, and written before.
    unsafe { (*RECORDING_OF.0.get()).assume_init_ref() }
}

fn process_state() -> &'static ProcessState {
    // SAFETY: only called while recording; the page is never unmapped, and zeroes are a valid value.
    unsafe { &*PROCESS_STATE.load(Acquire) }
}

/// The recorder's settings.
#[inline]
pub fn settings() -> &'static Settings {
    &recording().settings
}

/// The key whose destructor records the end of a thread.
pub fn key() -> libc::pthread_key_t {
    recording().key
}

/// A number that differs between a forked process and its parent.
#[inline]
pub fn epoch() -> u64 {
    process_state().epoch.load(Acquire)
}

/// Looks up the functions, and starts recording once the C library has set up its environment. The first call comes
/// from the dynamic linker, before there is a second thread.
#[cold]
fn look() -> bool {
    if PHASE.compare_exchange(UNKNOWN, LOOKING, AcqRel, Acquire).is_ok() {
        // Without one of these functions the program cannot run.
        let Some(symbols) = LibcSymbols::find() else { std::process::abort() };
        // SAFETY: only this thread is in this phase.
        unsafe { (*SYMBOLS.0.get()).write(symbols) };
        // A symbol lookup may free memory, which comes back here: after this there are no more lookups.
        ENVIRONMENT.store(libc_symbols::exported(c"environ").cast(), Relaxed);
        PHASE.store(KNOWN, Release);
    }
    if PHASE.load(Acquire) == LOOKING {
        return false;
    }
    if has_environment() {
        decide();
    }
    true
}

fn decide() {
    if PHASE.compare_exchange(KNOWN, STARTING, AcqRel, Acquire).is_ok() {
        crate::small_parts::open();
        let recording = start().is_some();
        PHASE.store(if recording { RECORDING } else { PASSING }, Release);
    }
}

/// The C library calls this during initialization, if no function was called before.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn constructor() {
        let errno = thread::Errno::keep();
        symbols();
        decide();
        // Record an event now, so that the process is known even if it never allocates.
        drop(thread::enter(NOTHING));
        crate::advice::serve_if_asked();
        drop(errno);
    }
    constructor
};

fn has_environment() -> bool {
    let environment = ENVIRONMENT.load(Relaxed);
    // SAFETY: the C library's variable of that name is a pointer.
    !environment.is_null() && unsafe { !(*environment).is_null() }
}

fn start() -> Option<()> {
    let _errno = thread::Errno::keep();
    const { assert!(FOLDER_VARIABLE.len() < 32) };
    let mut name = [0; 32];
    name.iter_mut().zip(FOLDER_VARIABLE.bytes()).for_each(|(place, byte)| *place = byte.cast_signed());
    // SAFETY: the name is NUL-terminated.
    let folder = unsafe { libc::getenv(name.as_ptr()) };
    if folder.is_null() {
        return None;
    }
    // SAFETY: the environment's values are C strings.
    let folder = unsafe { CStr::from_ptr(folder) }.to_bytes();
    let settings = read_settings(folder)?;
    // The page that is wiped by forks. Linux 4.14. SAFETY: a new mapping touches no existing memory.
    let page =
        unsafe { mmap_anonymous(null_mut(), PAGE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) }.ok()?;
    // SAFETY: the page was just mapped.
    unsafe { madvise(page, PAGE, Advice::LinuxWipeOnFork) }.ok()?;
    PROCESS_STATE.store(page.cast(), Release);
    let mut key = 0;
    // SAFETY: the key is written, and the destructor has the required type.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(ends)) } != 0 {
        return None;
    }
    let rseq = libc_symbols::exported(c"__rseq_offset").cast::<isize>();
    // SAFETY: the C library's variable of that name (2.35) is a `ptrdiff_t`.
    clock::choose(settings.clock, (!rseq.is_null()).then(|| unsafe { *rseq }));
    crate::module::look();
    let mut copy = [0; PATH_BYTES];
    copy.get_mut(..folder.len())?.copy_from_slice(folder);
    // SAFETY: only this thread is in this phase.
    unsafe { (*RECORDING_OF.0.get()).write(Recording { settings, folder: copy, key }) };
    open_file(0).then_some(())
}

unsafe extern "C" fn ends(value: *mut core::ffi::c_void) {
    thread::end(value);
}

fn read_settings(folder: &[u8]) -> Option<Settings> {
    let mut path = PathBuffer::new(folder);
    path.push(SETTINGS_FILE.as_bytes());
    let file = open(path.as_c(), OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty()).ok()?;
    let mut bytes = [0; 8 * Settings::WORDS];
    if read(&file, &mut bytes).ok()? != bytes.len() {
        return None;
    }
    let mut words = [0; Settings::WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    Settings::from_words(words).ok()
}

/// Creates this process's file. No descriptor stays open: rings are mapped through the mapping of the first page.
fn open_file(parent: u32) -> bool {
    let pid = getpid().as_raw_nonzero().get().cast_unsigned();
    let settings = settings();
    if !is_recorders_namespace() {
        return false;
    }
    let Some(file) = create(pid) else { return false };
    let room = getrlimit(Resource::Fsize).current.map_or(usize::MAX, |limit| limit as usize);
    let bytes = process_file(settings.rings, settings.ring_bytes).min(room);
    if ftruncate(&file, bytes as u64).is_err() || bytes < process_file(1, settings.ring_bytes) {
        return false;
    }
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping touches no existing memory.
    let Ok(start) = (unsafe { mmap(null_mut(), PAGE, protection, MapFlags::SHARED, &file, 0) }) else { return false };
    // SAFETY: the page was just mapped.
    if unsafe { madvise(start, PAGE, Advice::LinuxPopulateWrite) }.is_err() {
        return false;
    }
    let words: *mut AtomicU64 = start.cast();
    let put = |word: usize, value: u64| {
        // SAFETY: all words named by `rings::process` are in the page.
        unsafe { (*words.add(word)).store(value, Release) };
    };
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes at most 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let rings = (bytes - PAGE) / ring_stride(settings.ring_bytes);
    put(process::VERSION, VERSION);
    put(process::PID, pid.into());
    put(process::PARENT, parent.into());
    put(process::STARTED, clock::now());
    put(process::TID, thread::id().into());
    for (word, bytes) in (process::NAME..).zip(name.as_chunks().0) {
        put(word, u64::from_le_bytes(*bytes));
    }
    put(process::MAGIC, MAGIC);
    let state = process_state();
    state.words.store(words, Relaxed);
    state.last.store(words, Relaxed);
    state.rings.store(rings as u32, Relaxed);
    PID.store(pid, Relaxed);
    WORDS.store(words, Relaxed);
    state.epoch.store(EPOCHS.fetch_add(1, Relaxed) + 1, Release);
    true
}

/// Creates a file for this process: it gets another one for each program that it executes. Its name, `PID.TIME`, is not
/// used twice, and no other user can know it before.
fn create(pid: u32) -> Option<OwnedFd> {
    let folder = CStr::from_bytes_until_nul(&recording().folder).ok()?;
    for _ in 0..1000 {
        let mut path = PathBuffer::new(folder.to_bytes());
        path.push_number(pid.into());
        path.push(b".");
        path.push_number(clock::monotonic());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match open(path.as_c(), flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::EXIST) => {}
            Err(_) => return None,
            // The umask may have removed what the recorder needs.
            Ok(file) => return fchmod(&file, Mode::RUSR | Mode::WUSR).is_ok().then_some(file),
        }
    }
    None
}

/// Ensures that this process has its own file, also as a forked child.
pub fn revive() -> bool {
    let state = process_state();
    match state.epoch.compare_exchange(0, PREPARING, AcqRel, Acquire) {
        Ok(_) => {
            let opened = open_file(PID.load(Relaxed));
            if !opened {
                say_silent(WORDS.load(Relaxed));
                PHASE.store(PASSING, Release);
            }
            opened
        }
        Err(PREPARING) => false,
        Err(_) => true,
    }
}

/// Whether the recorder has ended, after which nothing is recorded.
pub fn is_over() -> bool {
    // SAFETY: only called with a writer, so the first page is mapped.
    let is_over = unsafe { (*process_state().words.load(Relaxed).add(process::OVER)).load(Relaxed) } != 0;
    if is_over {
        PHASE.store(PASSING, Release);
    }
    is_over
}

/// Counts an event that cannot be recorded, which concerns `about`: an address and a number of bytes.
#[cold]
pub fn lose(about: (usize, usize)) {
    let state = process_state();
    let words = state.words.load(Relaxed);
    if state.epoch.load(Acquire) != 0 && !words.is_null() {
        let word = |word| words.wrapping_add(word).cast_const();
        loss::lose(|number| word(process::LOST + number), word(process::LOST_SEEN), about);
    }
}

/// Notes in the parent's file, which is still mapped, that this process records nothing. Otherwise the parent's objects
/// would be attributed to this process forever.
fn say_silent(parent: *mut AtomicU64) {
    if parent.is_null() {
        return;
    }
    // SAFETY: all words named by `rings::process` are in the page, which is never unmapped.
    let word = |number: usize| unsafe { &*parent.add(number) };
    let number = word(process::SILENT).fetch_add(1, AcqRel) as usize;
    if number < process::MOST_SILENT_FORKS {
        let place = process::SILENT_FORKS + 2 * number;
        word(place).store(recorders_pid().into(), Relaxed);
        word(place + 1).store(clock::now(), Release);
    }
}

/// The recorder's PID for this process; 0 if that is unknown. In another PID namespace the recorder's /proc may still
/// be mounted.
fn recorders_pid() -> u32 {
    if is_recorders_namespace() {
        return getpid().as_raw_nonzero().get().cast_unsigned();
    }
    let mut link = [0; 2];
    let words = link_target(c"/proc/self", &mut link);
    let bytes = link.map(u64::to_le_bytes);
    let digits = bytes.as_flattened().iter().take(8 * words).take_while(|byte| byte.is_ascii_digit());
    let pid = digits.fold(0_u32, |pid, digit| pid.wrapping_mul(10).wrapping_add(u32::from(digit - b'0')));
    if pid == getpid().as_raw_nonzero().get().cast_unsigned() { 0 } else { pid }
}

fn is_recorders_namespace() -> bool {
    let wanted = settings().namespace;
    wanted == 0 || stat(c"/proc/self/ns/pid").map_or(0, |namespace| namespace.st_ino) == wanted
}

/// A ring for this thread: one that an exited thread released, or a new one.
pub fn take_writer() -> Option<*mut Writer> {
    let taken = locked(|state| {
        let free = state.free.load(Relaxed);
        if free.is_null() {
            return new_writer(state);
        }
        // SAFETY: writers in the list have no owner.
        unsafe {
            state.free.store((*free).next, Relaxed);
            (*free).walk.forget();
        }
        Some(free)
    });
    taken.flatten()
}

/// Releases a writer for another thread. If that fails, the writer stays unused.
pub fn give_back(writer: *mut Writer) {
    locked(|state| {
        // SAFETY: it belonged to the caller, and has no owner from now on.
        unsafe { (*writer).next = state.free.load(Relaxed) };
        state.free.store(writer, Relaxed);
    });
}

/// Runs `work` with the lock. The lock is held briefly, and never interrupted by a signal handler of the same thread:
/// `thread::enter` ensures that. The holder may have to wait for this thread's CPU, so this thread sleeps, but not
/// forever. `None` on a timeout.
fn locked<T>(work: impl FnOnce(&ProcessState) -> T) -> Option<T> {
    let (state, patience) = (process_state(), Duration::from_nanos(settings().patience_ns).max(LEAST_TIMEOUT));
    if state.locked.swap(1, Acquire) != 0 {
        let wait = Wait::begin(patience);
        while state.locked.swap(1, Acquire) != 0 {
            if wait.is_over() {
                return None;
            }
            pause();
        }
    }
    let result = work(state);
    state.locked.store(0, Release);
    Some(result)
}

fn new_writer(state: &ProcessState) -> Option<*mut Writer> {
    // SAFETY: recording, so the first page is mapped.
    let rings = unsafe { &*state.words.load(Relaxed).add(process::RINGS) };
    let number = rings.load(Relaxed);
    let Settings { ring_bytes, patience_ns, .. } = *settings();
    if number >= u64::from(state.rings.load(Relaxed)) {
        return None;
    }
    // A page precedes the first ring, and a ring each of the others.
    let (last, before) = (state.last.load(Relaxed), if number == 0 { PAGE } else { ring_stride(ring_bytes) });
    let bytes = before + ring_stride(ring_bytes);
    // SAFETY: with size 0 it maps the file again from the offset of `last`, and touches no existing memory.
    let start = unsafe { mremap(last.cast(), 0, bytes, MremapFlags::MAYMOVE) }.ok()?;
    // SAFETY: only this function knows the mapping, of which it keeps the ring.
    let _ = unsafe { munmap(start, before) };
    let start = start.wrapping_byte_add(before);
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the page of the ring was just mapped; a new mapping touches no existing memory.
    let memory = unsafe {
        madvise(start, PAGE, Advice::LinuxPopulateWrite)
            .and_then(|()| mmap_anonymous(null_mut(), size_of::<Writer>(), protection, MapFlags::PRIVATE))
    };
    let Ok(memory) = memory else {
        // SAFETY: as above.
        let _ = unsafe { munmap(start, ring_stride(ring_bytes)) };
        return None;
    };
    let writer: *mut Writer = memory.cast();
    let epoch = state.epoch.load(Relaxed);
    // SAFETY: the ring is never unmapped and has no other owner; the writer's memory is large enough and zeroed, which
    // is valid for all other fields.
    unsafe {
        let ring = Ring::new(start.cast(), ring_bytes, Duration::from_nanos(patience_ns));
        (&raw mut (*writer).ring).write(ring);
        (&raw mut (*writer).epoch).write(epoch);
    }
    state.last.store(start.cast(), Relaxed);
    rings.store(number + 1, Release);
    Some(writer)
}
