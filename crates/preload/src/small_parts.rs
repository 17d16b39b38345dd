//! Keeps parts of objects on small pages from their allocation on: those huge pages of which a recording of the same
//! program showed that several nodes use parts. The program has the rules in a file ([`rings::SMALL_PARTS_VARIABLE`]);
//! without the variable, an allocation costs one comparison more.

use crate::module::{self, Module};
use crate::path_buffer::descriptor_path;
use crate::process::symbols;
use crate::ring::{Wait, pause};
use crate::thread::{Blocked, Errno, bounds};
use crate::walk::{Frame, Walk};
use core::ffi::c_void;
use core::ops::Range;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use core::time::Duration;
use rings::{
    CountedFrom, HEADER_WORDS, ObjectKey, PAGE, RULE_WORDS, SMALL_PARTS_MAGIC, SMALL_PARTS_VARIABLE, TOO_MANY_MARKS,
    around_border, is_aligned_as, small_part,
};
use rustix::fs::{Mode, OFlags, fstat, open as open_path};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

/// The words of the file; null without one. Immutable from the first allocation on.
static WORDS: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
static NUMBER: AtomicUsize = AtomicUsize::new(0);
/// Size of the smallest object that has a rule.
static LEAST: AtomicUsize = AtomicUsize::new(usize::MAX);
/// The walker of all threads, for one at a time.
static WALK: AtomicPtr<Walk> = AtomicPtr::new(null_mut());
static LOCKED: AtomicU32 = AtomicU32::new(0);
/// Ranges that were to be marked.
static TRIES: AtomicUsize = AtomicUsize::new(0);
/// Tries between two counts of the process's mappings. Each is at most two mappings more: those of a range that is marked
/// again, or that another one borders on, are no more, and the program unmaps ranges in ways that are not seen here.
const TRIES_A_COUNT: usize = 5_000;
/// Mappings from which on nothing is marked. With those until the next count, they are 50,000 of the 65,530 that Linux
/// allows a process, beside what the program maps meanwhile.
const MOST_MAPPINGS: usize = 40_000;
/// Whether there were more at the last count.
static IS_FULL: AtomicBool = AtomicBool::new(false);
/// Whether parts of mappings may have marks.
static MARKED: AtomicBool = AtomicBool::new(false);
/// How long a thread waits for another's walk, of microseconds.
const WALK_TIMEOUT: Duration = Duration::from_millis(10);

/// Maps the rules, if there are any. Called once, before other threads exist.
pub fn open() {
    let _errno = Errno::keep();
    const { assert!(SMALL_PARTS_VARIABLE.len() < 32) };
    let mut name = [0; 32];
    name.iter_mut().zip(SMALL_PARTS_VARIABLE.bytes()).for_each(|(place, byte)| *place = byte.cast_signed());
    // SAFETY: the name is NUL-terminated, and the environment is set up.
    let path = unsafe { libc::getenv(name.as_ptr()) };
    if !path.is_null() {
        // SAFETY: the environment's values are C strings.
        let _ = map(unsafe { core::ffi::CStr::from_ptr(path) });
    }
}

fn map(path: &core::ffi::CStr) -> Option<()> {
    let file = open_path(path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty()).ok()?;
    let bytes = usize::try_from(fstat(&file).ok()?.st_size).ok()?;
    let both = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: new mappings touch no existing memory.
    let (words, walk) = unsafe {
        let words = mmap(null_mut(), bytes, both, MapFlags::SHARED, &file, 0).ok()?;
        (words, mmap_anonymous(null_mut(), size_of::<Walk>(), both, MapFlags::PRIVATE).ok()?)
    };
    WORDS.store(words.cast(), Relaxed);
    NUMBER.store(bytes / 8, Relaxed);
    let is_ours = all().first()?.load(Relaxed) == SMALL_PARTS_MAGIC;
    let least = rules().map(|rule| word(rule, small_part::BYTES) as usize).min().filter(|_| is_ours)?;
    module::look();
    WALK.store(walk.cast(), Release);
    // SAFETY: the handler only writes this library's own memory.
    unsafe { libc::pthread_atfork(None, None, Some(unlock_in_child)) };
    LEAST.store(least.max(PAGE), Release);
    Some(())
}

/// A forked child has one thread: what another one of its parent has locked, it would never unlock.
extern "C" fn unlock_in_child() {
    if LOCKED.load(Relaxed) == 0 {
        return;
    }
    let walk = WALK.load(Relaxed);
    if !walk.is_null() {
        // SAFETY: the child's only thread is here, and not in a walk. Zeroes are a valid value.
        unsafe { walk.write_bytes(0, 1) };
    }
    LOCKED.store(0, Release);
}

fn all() -> &'static [AtomicU64] {
    let words = WORDS.load(Relaxed);
    if words.is_null() {
        return &[];
    }
    // SAFETY: the mapping has this number of words, and is never unmapped.
    unsafe { core::slice::from_raw_parts(words, NUMBER.load(Relaxed)) }
}

fn rules() -> impl Iterator<Item = &'static [AtomicU64]> {
    let number = all().get(1).map_or(0, |number| number.load(Relaxed) as usize);
    all().get(HEADER_WORDS..).unwrap_or_default().chunks_exact(RULE_WORDS).take(number)
}

/// The rules of objects of this size.
fn rules_of(bytes: usize) -> impl Iterator<Item = &'static [AtomicU64]> {
    rules().filter(move |rule| word(rule, small_part::BYTES) == bytes as u64)
}

fn word(rule: &[AtomicU64], place: usize) -> u64 {
    rule.get(place).map_or(0, |word| word.load(Relaxed))
}

/// An object begins, whose allocation returns to this frame.
#[inline]
pub fn allocated(address: *mut c_void, bytes: usize, frame: Frame) {
    if bytes >= LEAST.load(Relaxed) && !address.is_null() {
        look(address, bytes, frame);
    }
}

/// A mapping begins.
#[inline]
pub fn mapped(address: *mut c_void, bytes: usize, frame: Frame, file: Option<u32>) {
    if bytes >= LEAST.load(Relaxed) {
        look(address, bytes.next_multiple_of(PAGE), frame);
        if let Some(number) = file {
            descriptor_path(number, |link| {
                let mut path = [0_u8; 512];
                if let Ok(length) = rustix::fs::readlinkat_raw(rustix::fs::CWD, link, &mut path[..]) {
                    named(address, bytes.next_multiple_of(PAGE), path.get(..length).unwrap_or_default());
                }
            });
        }
    }
}

/// A range of memory has this name from now on.
pub fn named(address: *mut c_void, bytes: usize, name: &[u8]) {
    if bytes < LEAST.load(Acquire) {
        return;
    }
    let key = ObjectKey::of_name(name).word();
    for rule in rules_of(bytes) {
        if word(rule, small_part::FILE) == 0 && word(rule, small_part::KEY) == key {
            keep(rule, address as usize, bytes);
        }
    }
}

#[cold]
fn look(address: *mut c_void, bytes: usize, frame: Frame) {
    if !rules_of(bytes).any(|rule| word(rule, small_part::FILE) != 0) {
        return;
    }
    let _errno = Errno::keep();
    // A signal handler that allocates would wait for the walk that it interrupts.
    let _blocked = Blocked::new();
    let wait = Wait::begin(WALK_TIMEOUT);
    while LOCKED.swap(1, Acquire) != 0 {
        if wait.is_over() {
            return;
        }
        pause();
    }
    // SAFETY: never unmapped, zeroes are a valid value, and only the thread that has the lock uses it.
    let walk = unsafe { WALK.load(Acquire).as_mut() };
    if let Some(walk) = walk {
        let chain = walk.chain(frame, bounds());
        for rule in rules_of(bytes).filter(|rule| is_of(rule, chain)) {
            keep(rule, address as usize, bytes);
        }
    }
    LOCKED.store(0, Release);
}

/// Whether the frames of a rule's file are those of this chain. Equal neighbours count once, as in the recording, where
/// inlined functions share an address.
fn is_of(rule: &[AtomicU64], chain: &[u64]) -> bool {
    let (file, frames) = (word(rule, small_part::FILE), word(rule, small_part::FRAMES) as usize);
    let mut key = ObjectKey::SITE;
    let is_new = |at: &usize| *at == 0 || chain.get(at - 1) != chain.get(*at);
    for &address in (0..chain.len()).filter(is_new).take(frames).filter_map(|at| chain.get(at)) {
        if let Some(module) = Module::at(address as usize - 1)
            && ObjectKey::of_build(module.build_id()) == file
            && let Some(offset) = module.file_offset(address as usize)
        {
            key = key.with_frame(offset);
        }
    }
    key.word() == word(rule, small_part::KEY) && key != ObjectKey::SITE
}

/// Keeps the huge pages around an object's borders small.
#[cold]
fn keep(rule: &[AtomicU64], address: usize, bytes: usize) {
    let add = |place: usize, number: u64| {
        if let Some(word) = rule.get(place) {
            word.fetch_add(number, Relaxed);
        }
    };
    add(small_part::MET, 1);
    let [first, number] = [small_part::FIRST, small_part::BORDERS].map(|place| word(rule, place) as usize);
    let borders = all().get(first..).and_then(|borders| borders.get(..number)).unwrap_or_default();
    let object = address as u64..address.saturating_add(bytes) as u64;
    let recorded = word(rule, small_part::START);
    let from = CountedFrom::of_word(word(rule, small_part::FROM));
    // The ways agree then.
    let most = if is_aligned_as(object.start, recorded) { 1 } else { 2 };
    for way in from.ways().iter().take(most) {
        // Several borders may be in one huge page.
        let mut done = 0;
        for border in borders {
            let mut range = around_border(&object, recorded, border.load(Relaxed), *way);
            range.start = range.start.max(done);
            if range.start >= range.end {
                continue;
            }
            done = range.end;
            match stay_small(&range) {
                0 => add(small_part::KEPT, (range.end - range.start).div_ceil(2 << 20)),
                errno => {
                    add(small_part::REFUSED, 1);
                    if let Some(word) = rule.get(small_part::ERRNO) {
                        word.store(errno, Relaxed);
                    }
                }
            }
        }
    }
}

/// Whether the process has room for the mappings of one more range.
fn may_mark() -> bool {
    if TRIES.fetch_add(1, Relaxed).is_multiple_of(TRIES_A_COUNT) {
        // Where the kernel does not list them, they may be as few as before.
        if let Some(number) = mappings() {
            IS_FULL.store(number > MOST_MAPPINGS, Relaxed);
        }
    }
    !IS_FULL.load(Relaxed)
}

/// The mappings of this process; none if the kernel does not list them. Not inlined, as its buffer would be on each stack.
#[cold]
#[inline(never)]
fn mappings() -> Option<usize> {
    let file = open_path(c"/proc/self/maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let (mut text, mut lines) = ([0_u8; 2048], 0);
    loop {
        match rustix::io::read(&file, &mut text) {
            Ok(0) => return Some(lines),
            Ok(bytes) => lines += text.get(..bytes)?.split(|byte| *byte == b'\n').skip(1).count(),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Returns an error number or 0.
fn stay_small(range: &Range<u64>) -> u64 {
    if !may_mark() {
        return TOO_MANY_MARKS;
    }
    note_marks();
    let start = range.start as *mut c_void;
    // SAFETY: neither advice changes what memory holds. The kernel checks the range, which is in an object that the
    // caller has just got.
    unsafe {
        if libc::madvise(start, (range.end - range.start) as usize, libc::MADV_NOHUGEPAGE) != 0 {
            return (*libc::__errno_location()).unsigned_abs().into();
        }
        // The heap may have had this memory before, as huge pages: this splits them, and does nothing to new memory.
        let mut page = range.start;
        while page < range.end {
            libc::madvise(page as *mut c_void, PAGE, libc::MADV_COLD);
            page = (page + 1).next_multiple_of(2 << 20);
        }
    }
    0
}

/// Notes that a part of a mapping gets a mark.
pub fn note_marks() {
    MARKED.store(true, Relaxed);
}

/// Moves a range with marks, after `mremap` failed: the marks have made several mappings of it, of which the kernel moves
/// one at a time. Returns null if it was not that, or if that fails as well: then all is as it was.
#[cold]
pub fn remapped(old: *mut c_void, old_bytes: usize, bytes: usize, flags: i32) -> *mut c_void {
    // SAFETY: this thread's error number.
    let is_several = unsafe { *libc::__errno_location() } == libc::EFAULT && MARKED.load(Relaxed);
    let (Some(symbols), true) = (symbols(), is_several && old_bytes > 0 && flags == libc::MREMAP_MAYMOVE) else {
        return null_mut();
    };
    let [old_bytes, bytes] = [old_bytes, bytes].map(|bytes| bytes.next_multiple_of(PAGE));
    let (protection, kind) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a new mapping touches no existing memory.
    let new = unsafe { (symbols.mmap)(null_mut(), bytes, protection, kind, -1, 0) };
    if new == libc::MAP_FAILED {
        return null_mut();
    }
    let kept = old_bytes.min(bytes);
    // Marks begin and end with huge pages, so each of these parts is within a mapping.
    let end_of = |at: usize| ((old as usize + at + 1).next_multiple_of(2 << 20) - old as usize).min(kept);
    let put = |from: *mut c_void, length: usize, new_length: usize, to: *mut c_void| {
        // SAFETY: the caller may move the range, and the reserved one has no other user.
        unsafe { (symbols.mremap)(from, length, new_length, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, to) == to }
    };
    let mut done = 0;
    while done < kept {
        let end = end_of(done);
        let new_length = if end == kept { bytes - done } else { end - done };
        if !put(old.wrapping_byte_add(done), end - done, new_length, new.wrapping_byte_add(done)) {
            break;
        }
        done = end;
    }
    let has_moved = done == kept;
    // What is moved back was mapped there a moment ago.
    let mut back = 0;
    while !has_moved && back < done {
        let end = end_of(back).min(done);
        put(new.wrapping_byte_add(back), end - back, end - back, old.wrapping_byte_add(back));
        back = end;
    }
    let (rest, length) =
        if has_moved { (old.wrapping_byte_add(bytes), old_bytes.saturating_sub(bytes)) } else { (new, bytes) };
    if length > 0 {
        // SAFETY: this is what the caller gives up, or what was reserved here.
        unsafe { (symbols.munmap)(rest, length) };
    }
    if !has_moved {
        // SAFETY: this thread's error number, which the calls above have changed.
        unsafe { *libc::__errno_location() = libc::EFAULT };
        return null_mut();
    }
    new
}
