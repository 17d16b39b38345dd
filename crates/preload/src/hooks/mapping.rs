//! Mapping functions.

use crate::module::{Mapped, link_target};
use crate::path_buffer::descriptor_path;
use crate::process::symbols;
use crate::ring;
use crate::thread::{Errno, enter};
use crate::walk::Frame;
use crate::{clock, process::Writer, small_parts};
use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use rings::{Head, Kind, PAGE, mapped_flags};
use rustix::mm::{MapFlags, MremapFlags, ProtFlags};

/// Defines functions of up to six arguments that push their caller's frame after those.
macro_rules! with_frame {
    ($($(#[$attribute:meta])* $name:ident => $function:ident;)*) => {$(
        $(#[$attribute])*
        ///
        /// # Safety
        ///
        /// As for the C library's function of this name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "mov rax, rsp", "sub rsp, 8", "push rbp", "push rax", "call {function}", "add rsp, 24", "ret",
                function = sym $function,
            )
        }
    )*};
}

with_frame! {
    /// Records a mapping.
    mmap => mmap_from;
    /// Records a mapping.
    mmap64 => mmap_from;
    /// Records the end of the old mapping and the new one.
    mremap => mremap_from;
}

unsafe extern "C" fn mmap_from(
    wanted: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
    stack: usize,
    base: usize,
) -> *mut c_void {
    let Some(symbols) = symbols() else {
        // SAFETY: the caller's own call, without the C library's functions, which are not known yet.
        return unsafe { early_mmap(wanted, bytes, protection, flags, file, offset) };
    };
    // SAFETY: the caller's own call.
    let start = unsafe { (symbols.mmap)(wanted, bytes, protection, flags, file, offset) };
    if start == libc::MAP_FAILED {
        return start;
    }
    let _errno = Errno::keep();
    let about = (start as usize, bytes);
    small_parts::mapped(start, bytes, Frame { stack, base }, file_of(file, flags));
    let Some(entered) = enter(about) else { return start };
    let own = entered.stack();
    let Writer { ring, walk, .. } = &mut *entered.writer;
    let Some(slot) = walk.slot(ring, Frame { stack, base }, own) else {
        ring.lose(about);
        return start;
    };
    let mut path = [0; 64];
    let named = file_of(file, flags).map_or(0, |number| {
        let mut words = 0;
        descriptor_path(number, |link| words = link_target(link, &mut path));
        words
    });
    let executable = if protection & libc::PROT_EXEC == 0 { 0 } else { mapped_flags::EXECUTABLE };
    let object = mapped_flags::OBJECT;
    Mapped {
        time: clock::now_after_reads(),
        start: start as usize,
        bytes: bytes.next_multiple_of(PAGE),
        offset: offset.cast_unsigned(),
        flags: executable | object,
        slot,
    }
    .tell(ring, path.get(..named).unwrap_or_default());
    start
}

/// The file that is mapped, if one is.
fn file_of(file: c_int, flags: c_int) -> Option<u32> {
    u32::try_from(file).ok().filter(|_| flags & libc::MAP_ANONYMOUS == 0)
}

unsafe fn early_mmap(
    wanted: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    let protection = ProtFlags::from_bits_retain(protection.cast_unsigned());
    let kind = MapFlags::from_bits_retain(flags.cast_unsigned());
    // SAFETY: the caller vouches for its own call. An anonymous mapping has no file.
    let mapped = unsafe {
        if flags & libc::MAP_ANONYMOUS == 0 {
            let file = rustix::fd::BorrowedFd::borrow_raw(file);
            rustix::mm::mmap(wanted, bytes, protection, kind, file, offset.cast_unsigned())
        } else {
            rustix::mm::mmap_anonymous(wanted, bytes, protection, kind)
        }
    };
    mapped.unwrap_or_else(|error| {
        // SAFETY: the C library's address of this thread's errno.
        unsafe { *libc::__errno_location() = error.raw_os_error() };
        libc::MAP_FAILED
    })
}

/// Records the end of a mapping.
///
/// # Safety
///
/// As for the C library's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(start: *mut c_void, bytes: usize) -> c_int {
    let before = clock::now();
    let result = match symbols() {
        // SAFETY: the caller's own call.
        Some(symbols) => unsafe { (symbols.munmap)(start, bytes) },
        // SAFETY: as above.
        None => match unsafe { rustix::mm::munmap(start, bytes) } {
            Ok(()) => 0,
            Err(error) => {
                // SAFETY: the C library's address of this thread's errno.
                unsafe { *libc::__errno_location() = error.raw_os_error() };
                -1
            }
        },
    };
    if result == 0
        && let Some(entered) = enter((start as usize, bytes))
    {
        let bytes = bytes.next_multiple_of(PAGE);
        entered.writer.ring.tell(ring::event(Kind::Unmapped, before, start as usize, bytes));
    }
    result
}

unsafe extern "C" fn mremap_from(
    old: *mut c_void,
    old_bytes: usize,
    bytes: usize,
    flags: c_int,
    wanted: *mut c_void,
    _sixth: usize,
    stack: usize,
    base: usize,
) -> *mut c_void {
    let before = clock::now();
    let new = if let Some(symbols) = symbols() {
        // SAFETY: the caller's own call.
        let new = unsafe { (symbols.mremap)(old, old_bytes, bytes, flags, wanted) };
        let parts = if new == libc::MAP_FAILED { small_parts::remapped(old, old_bytes, bytes, flags) } else { new };
        if parts.is_null() { new } else { parts }
    } else {
        let flags = MremapFlags::from_bits_retain(flags.cast_unsigned());
        // SAFETY: as above; no caller requests a fixed address this early.
        unsafe { rustix::mm::mremap(old, old_bytes, bytes, flags) }.unwrap_or(libc::MAP_FAILED)
    };
    if new == libc::MAP_FAILED {
        return new;
    }
    small_parts::mapped(new, bytes, Frame { stack, base }, None);
    // With old size 0, or `MREMAP_DONTUNMAP`, the old mapping stays.
    let old_bytes = if flags & libc::MREMAP_DONTUNMAP == 0 { old_bytes.next_multiple_of(PAGE) } else { 0 };
    let bytes = bytes.next_multiple_of(PAGE);
    let about = (new as usize, bytes);
    // Without the event, neither the old addresses nor the new ones are known.
    let both = match old as usize {
        old if old_bytes > 0 => old.min(about.0)..(old + old_bytes).max(about.0 + bytes),
        _ => about.0..about.0 + bytes,
    };
    let Some(entered) = enter((both.start, both.len())) else { return new };
    let own = entered.stack();
    let Writer { ring, walk, .. } = &mut *entered.writer;
    let Some(slot) = walk.slot(ring, Frame { stack, base }, own).filter(|_| ring.has_room(2)) else {
        ring.lose((old as usize, old_bytes));
        ring.lose(about);
        return new;
    };
    let moved = ring::event(Kind::Remapped, clock::now_after_reads(), new as usize, bytes);
    ring.put(Head { slot, ..moved }.to_words());
    ring.put_words(&[old as u64, old_bytes as u64, before]);
    ring.publish();
    new
}
