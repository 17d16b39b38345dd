//! Objects of custom allocators and named regions, which the program announces (include/nearside.h).

use super::called_from;
use super::heap::tell_begun;
use crate::process::Writer;
use crate::thread::{Errno, enter};
use crate::walk::Frame;
use crate::{clock, ring, small_parts};
use core::ffi::{CStr, c_char, c_void};
use rings::{Head, Kind, MOST_NAME, PAGE, payload_records};

called_from! {
    /// Records an object: `void nearside_allocated(const void *address, size_t bytes)`.
    nearside_allocated => nearside_allocated_from, "rdx", "rcx";
    /// Records a name of a range: `void nearside_name_region(const void *address, size_t bytes, const char *name)`.
    /// Without a name, records the end of the one that begins there.
    nearside_name_region => nearside_name_region_from, "rcx", "r8";
}

extern "C" fn nearside_allocated_from(address: *mut c_void, bytes: usize, stack: usize, base: usize) {
    small_parts::allocated(address, bytes, Frame { stack, base });
    if !address.is_null()
        && let Some(mut entered) = enter((address as usize, bytes))
    {
        tell_begun(&mut entered, Kind::Announced, (address, bytes), Frame { stack, base }, false);
    }
}

/// Records the end of an object: `void nearside_freed(const void *address)`.
#[unsafe(no_mangle)]
pub extern "C" fn nearside_freed(address: *mut c_void) {
    if !address.is_null()
        && let Some(entered) = enter((address as usize, 0))
    {
        let time = clock::now();
        entered.writer.ring.tell(ring::event(Kind::Withdrawn, time, address as usize, 0));
    }
}

unsafe extern "C" fn nearside_name_region_from(
    address: *mut c_void,
    bytes: usize,
    name: *const c_char,
    stack: usize,
    base: usize,
) {
    let _errno = Errno::keep();
    name_mapping(address, bytes, name);
    if name.is_null() {
        return nearside_freed(address);
    }
    // SAFETY: the caller passes a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let about = (address as usize, bytes);
    if address.is_null() || bytes == 0 {
        return;
    }
    small_parts::named(address, bytes, name.get(..MOST_NAME).unwrap_or(name));
    let Some(entered) = enter(about) else { return };
    let mut words = [0; MOST_NAME.div_ceil(8)];
    for (at, &byte) in name.iter().take(MOST_NAME).enumerate() {
        words[at / 8] |= u64::from(byte) << (8 * (at % 8));
    }
    let length = name.len().min(MOST_NAME).div_ceil(8);
    let own = entered.stack();
    let Writer { ring, walk, .. } = &mut *entered.writer;
    let slot = walk.slot(ring, Frame { stack, base }, own);
    let Some(slot) = slot.filter(|_| ring.has_room(2 + payload_records(length))) else { return ring.lose(about) };
    let region = ring::event(Kind::Region, clock::now_after_reads(), address as usize, bytes);
    ring.put(Head { slot, ..region }.to_words());
    ring.put_words(&[length as u64]);
    ring.put_words(words.get(..length).unwrap_or_default());
    ring.publish();
}

/// Has the kernel show the name in /proc/PID/maps, for the whole pages of the range, so that commands find them there by
/// the name. Only anonymous memory has such names (Linux 5.17, if built so), and not all characters are allowed: a
/// refusal changes nothing.
fn name_mapping(address: *mut c_void, bytes: usize, name: *const c_char) {
    let start = (address as usize).next_multiple_of(PAGE);
    let end = (address as usize).saturating_add(bytes) / PAGE * PAGE;
    if start < end {
        // SAFETY: the kernel copies the name, which is null or a C string, and changes no memory.
        unsafe { libc::prctl(libc::PR_SET_VMA, libc::PR_SET_VMA_ANON_NAME, start, end - start, name) };
    }
}
