//! Spreads over nodes what a program touches before it makes threads, for `LD_PRELOAD`: one thread often fills what
//! many use later, and by first touch all of that is on one node. From the first thread on, memory is on the node of
//! the CPU that touches it, as without the library.
//!
//! A program that cannot make threads ([`imports`]), or is to make none (`OMP_NUM_THREADS=1`), is left alone, as is
//! one that has a memory policy, and one whose CPUs are all of one node (`taskset`): its threads will be there, too. So
//! are programs that one executes after it has made threads, as each of them fills memory of its own.
//!
//! The policy is that of the first thread. It is marked by `MPOL_F_STATIC_NODES`, by which a program that another one
//! executes knows that it is not its owner's. An owner's static policy over a single node, or over nodes that the
//! variable does not name, is left alone. Programs that are executed without forking (`vfork`, `posix_spawn`) would
//! inherit it, and static ones keep it: the functions that execute do so without it.

mod executes;
mod imports;

use core::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use core::mem::transmute;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::Relaxed};
use std::ffi::CString;

/// Environment variable with the nodes and their CPUs: `0:0-3,8-11;1:4-7`. Without it the library does nothing.
const NODES_VARIABLE: &CStr = c"NEARSIDE_SPREAD_START";
/// Environment variable with the libraries that the dynamic linker loads first.
const PRELOAD_VARIABLE: &CStr = c"LD_PRELOAD";
/// This library's file, whose folder is where nearside is installed.
const FILE_NAME: &[u8] = b"/libnearside_start.so";
/// From `linux/mempolicy.h`.
const DEFAULT: c_int = 0;
const INTERLEAVE: c_int = 3;
const STATIC_NODES: c_int = 1 << 15;
/// The policy that this library sets.
const SPREAD: c_int = INTERLEAVE | STATIC_NODES;
/// Nodes of the largest kernels (`CONFIG_NODES_SHIFT` is at most 10).
const MAX_NODES: usize = 1024;
/// CPUs of the largest kernels (`CONFIG_NR_CPUS` is at most 8192).
const MAX_CPUS: usize = 8192;
const BITS: usize = c_ulong::BITS as usize;

type Nodes = [c_ulong; MAX_NODES / BITS];
type Cpus = [c_ulong; MAX_CPUS / BITS];
type CreateThread = unsafe extern "C-unwind" fn(*mut c_void, *const c_void, *mut c_void, *mut c_void) -> c_int;

/// Whether the environment has this library's variables, which executed programs get as well.
static IS_IN_ENVIRONMENT: AtomicBool = AtomicBool::new(false);
/// Whether this library's policy is that of the only thread.
static IS_SPREAD: AtomicBool = AtomicBool::new(false);
/// The nodes of that policy.
static SPREAD_OVER: [AtomicU64; MAX_NODES / BITS] = [const { AtomicU64::new(0) }; MAX_NODES / BITS];

/// The dynamic linker calls this before the program's own code.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    executes::find_next();
    // SAFETY: no thread that could change the environment runs yet. The result is null or a C string of the environment.
    let text: *const c_char = unsafe { libc::getenv(NODES_VARIABLE.as_ptr()) };
    if text.is_null() {
        return;
    }
    IS_IN_ENVIRONMENT.store(true, Relaxed);
    // SAFETY: as above.
    let nodes = nodes(unsafe { CStr::from_ptr(text) }.to_bytes());
    let inherited = policy();
    let is_default = inherited.is_some_and(|(mode, _)| mode == DEFAULT);
    // That of a parent with other CPUs is over other nodes of the variable, and always over several.
    let is_spread = inherited.zip(nodes.as_ref()).is_some_and(|((mode, over), nodes)| {
        mode == SPREAD && count(&over) > 1 && over.iter().zip(&nodes.all).all(|(over, all)| over & !all == 0)
    });
    // SAFETY: as above.
    let threads: *const c_char = unsafe { libc::getenv(c"OMP_NUM_THREADS".as_ptr()) };
    // SAFETY: as above.
    let is_single = !threads.is_null() && unsafe { CStr::from_ptr(threads) } == c"1";
    if !is_default && !is_spread {
        return;
    }
    if let Some(nodes) = nodes.and_then(|nodes| nodes.own).filter(|_| !is_single && imports::has_threads()) {
        if set_policy(SPREAD, &nodes) {
            SPREAD_OVER.iter().zip(nodes).for_each(|(kept, word)| kept.store(word, Relaxed));
            IS_SPREAD.store(true, Relaxed);
            // SAFETY: the handler only makes a system call.
            unsafe { libc::pthread_atfork(None, None, Some(end_policy)) };
        }
    } else if is_spread {
        // Its parent's, which had no time to end it.
        set_policy(DEFAULT, &[0; MAX_NODES / BITS]);
    }
}

/// A thread is made: this ends the policy. If it is the program's second one, programs that it executes from now on do
/// not load this library: each fills memory of its own, and short ones would pay for the loading.
fn begin_threads() {
    end_policy();
    if !IS_IN_ENVIRONMENT.swap(false, Relaxed) || !is_only_thread() {
        return;
    }
    // SAFETY: no other thread exists that could use the environment. The result is null or a C string of it.
    let loaded: *const c_char = unsafe {
        libc::unsetenv(NODES_VARIABLE.as_ptr());
        libc::getenv(PRELOAD_VARIABLE.as_ptr())
    };
    if loaded.is_null() {
        return;
    }
    // SAFETY: as above.
    let others = others(unsafe { CStr::from_ptr(loaded) });
    // SAFETY: as above; the C library copies the text.
    unsafe {
        match others {
            Some(others) => libc::setenv(PRELOAD_VARIABLE.as_ptr(), others.as_ptr(), 1),
            None => libc::unsetenv(PRELOAD_VARIABLE.as_ptr()),
        }
    };
}

/// The libraries of such a list without this one; none if no other is left.
fn others(loaded: &CStr) -> Option<CString> {
    let paths = loaded.to_bytes().split(|byte| matches!(byte, b':' | b' '));
    let others: Vec<&[u8]> = paths.filter(|path| !path.is_empty() && !path.ends_with(FILE_NAME)).collect();
    if others.is_empty() { None } else { CString::new(others.join(&b':')).ok() }
}

/// Whether the process has one thread; false if that is not known.
fn is_only_thread() -> bool {
    // A folder has two links, and one for each folder in it: here, for each thread.
    const LINKS: libc::nlink_t = 3;
    let mut status = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the path is a C string, and the kernel writes a whole status where it succeeds.
    keeping_errno(|| unsafe { libc::stat(c"/proc/self/task".as_ptr(), status.as_mut_ptr()) }.into()) == 0
        // SAFETY: written, as above.
        && unsafe { status.assume_init() }.st_nlink == LINKS
}

/// Ends this library's policy, unless the program has chosen another one since. What is there stays where it is.
extern "C" fn end_policy() {
    if !IS_SPREAD.load(Relaxed) {
        return;
    }
    // The C library makes threads as well (timer_create), which come here before the first thread of the program: that one
    // keeps the policy until it comes here itself.
    // SAFETY: both calls read numbers only.
    let is_first = unsafe { libc::syscall(libc::SYS_gettid) == libc::c_long::from(libc::getpid()) };
    if is_first {
        IS_SPREAD.store(false, Relaxed);
    }
    if is_own_policy() {
        set_policy(DEFAULT, &[0; MAX_NODES / BITS]);
    }
}

/// Takes this library's policy off the calling task, which may be a child that shares the memory (`vfork`). Returns whether
/// there was one.
fn set_aside() -> bool {
    IS_SPREAD.load(Relaxed) && is_own_policy() && set_policy(DEFAULT, &[0; MAX_NODES / BITS])
}

/// Sets the policy again after [`set_aside`].
fn put_back() {
    set_policy(SPREAD, &spread_over());
}

/// The definition of a function that the program would call without this library; null if there is none.
fn next(name: &CStr, known: &AtomicPtr<c_void>) -> *mut c_void {
    let mut next = known.load(Relaxed);
    if next.is_null() {
        // SAFETY: the name is a C string.
        next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        known.store(next, Relaxed);
    }
    next
}

/// The C library's function of this name: the first thread's first call ends the policy.
///
/// # Safety
///
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_create(
    thread: *mut c_void,
    attributes: *const c_void,
    start: *mut c_void,
    argument: *mut c_void,
) -> c_int {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    begin_threads();
    let next = next(c"pthread_create", &NEXT);
    if next.is_null() {
        return libc::EAGAIN;
    }
    // SAFETY: it is the definition that the program would call without this library, with the caller's arguments.
    unsafe { transmute::<*mut c_void, CreateThread>(next)(thread, attributes, start, argument) }
}

/// The C library's function of this name, which does not call the other: the first thread's first call ends the policy.
///
/// # Safety
///
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn thrd_create(thread: *mut c_void, start: *mut c_void, argument: *mut c_void) -> c_int {
    /// `thrd_error` of threads.h.
    const FAILED: c_int = 2;
    type Create = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *mut c_void) -> c_int;
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    begin_threads();
    let next = next(c"thrd_create", &NEXT);
    if next.is_null() {
        return FAILED;
    }
    // SAFETY: as above.
    unsafe { transmute::<*mut c_void, Create>(next)(thread, start, argument) }
}

/// The nodes of the variable.
struct Named {
    all: Nodes,
    /// Those with CPUs that this process may use; none unless these are several.
    own: Option<Nodes>,
}

fn count(nodes: &Nodes) -> u32 {
    nodes.iter().map(|word| word.count_ones()).sum()
}

/// The variable's nodes, if all of the text is understood.
fn nodes(text: &[u8]) -> Option<Named> {
    let (cpus_of_process, mut all, mut own) = (own_cpus()?, [0; MAX_NODES / BITS], [0; MAX_NODES / BITS]);
    for of_node in core::str::from_utf8(text).ok()?.split(';') {
        let (node, cpus) = of_node.split_once(':')?;
        let node: usize = node.parse().ok()?;
        let bit = 1 << (node % BITS);
        *all.get_mut(node / BITS)? |= bit;
        own[node / BITS] |= if has_any(cpus, &cpus_of_process)? { bit } else { 0 };
    }
    Some(Named { all, own: Some(own).filter(|own| count(own) > 1) })
}

/// Whether a list of CPUs, such as `0-3,8`, has one of these; none if it is not understood.
fn has_any(list: &str, own: &Cpus) -> Option<bool> {
    let mut has_any = false;
    for range in list.split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (from, to): (usize, usize) = (from.parse().ok()?, to.parse().ok()?);
        has_any |= (from..=to.min(MAX_CPUS - 1)).any(|cpu| own[cpu / BITS] & (1 << (cpu % BITS)) != 0);
    }
    Some(has_any)
}

/// The CPUs that the calling thread may use; none if the kernel refuses to tell.
fn own_cpus() -> Option<Cpus> {
    let mut cpus: Cpus = [0; MAX_CPUS / BITS];
    // SAFETY: the kernel writes at most the set's bytes.
    let result = unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of::<Cpus>(), cpus.as_mut_ptr()) };
    (result > 0).then_some(cpus)
}

/// The nodes of this library's policy.
fn spread_over() -> Nodes {
    core::array::from_fn(|word| SPREAD_OVER[word].load(Relaxed))
}

/// Whether the calling thread has this library's policy, and not one that the program has chosen since.
fn is_own_policy() -> bool {
    policy() == Some((SPREAD, spread_over()))
}

/// Mode and flags of the calling thread's policy, and its nodes; none if the kernel refuses to tell.
fn policy() -> Option<(c_int, Nodes)> {
    let (mut mode, mut nodes): (c_int, Nodes) = (-1, [0; MAX_NODES / BITS]);
    let nothing = core::ptr::null_mut::<c_void>();
    // SAFETY: the kernel writes one int, and one bit less than it is passed, which the set has.
    let get = || unsafe {
        libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, nodes.as_mut_ptr(), MAX_NODES + 1, nothing, 0)
    };
    (keeping_errno(get) == 0).then_some((mode, nodes))
}

/// Makes a system call of whose error the program sees nothing.
fn keeping_errno(call: impl FnOnce() -> c_long) -> c_long {
    // SAFETY: the C library's address of this thread's errno.
    let errno = unsafe { &mut *libc::__errno_location() };
    let before = *errno;
    let result = call();
    *errno = before;
    result
}

/// Whether the kernel took the policy: a container or a cpuset may forbid it, and then first touch remains.
fn set_policy(mode: c_int, nodes: &Nodes) -> bool {
    // SAFETY: the kernel reads one bit less than it is passed, which the set has.
    let set = || unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, nodes.as_ptr(), MAX_NODES + 1) };
    keeping_errno(set) == 0
}
