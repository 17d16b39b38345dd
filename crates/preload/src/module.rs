//! The loaded programs and libraries: which one contains an address, and where its segments are.

use crate::libc_symbols;
use crate::ring::{self, Ring};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::{MaybeUninit, transmute};
use core::ptr::null_mut;
use core::slice;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use rings::{Kind, RECORD_WORDS, mapped_flags, payload_records};

/// Start addresses of the modules that the recorder knows.
static FORWARDED: [AtomicUsize; 256] = [const { AtomicUsize::new(0) }; 256];
/// Number of times that code may have been unloaded, plus 1.
static GENERATION: AtomicU32 = AtomicU32::new(1);
/// Start and length of this library.
static OWN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// The C library's `_dl_find_object` (2.35), which takes no lock. Null in older versions.
static FIND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

type Find = unsafe extern "C" fn(*const c_void, *mut Found) -> c_int;

/// `struct dl_find_object` of x86-64.
#[repr(C)]
struct Found {
    flags: u64,
    start: *const u8,
    end: *const u8,
    link_map: *const LinkMap,
    eh_frame_hdr: *const u8,
    reserved: [u64; 7],
}

/// The first members of `struct link_map`.
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
}

/// A loaded program or library.
pub struct Module {
    start: usize,
    base: usize,
    name: *const c_char,
    /// Address of its unwind table.
    pub eh_frame_hdr: usize,
}

/// Looks up what is needed to find modules.
pub fn look() {
    FIND.store(libc_symbols::exported(c"_dl_find_object"), Release);
    if let Some(own) = Found::at(look as *const () as usize) {
        let bytes = own.end as usize - own.start as usize;
        OWN.iter().zip([own.start as usize, bytes]).for_each(|(place, number)| place.store(number, Relaxed));
    }
}

/// Whether an address is in this library, whose frames are left out of chains.
pub fn is_own(address: usize) -> bool {
    let [start, bytes] = OWN.each_ref().map(|number| number.load(Relaxed));
    address.wrapping_sub(start) < bytes
}

/// The number of times that code may have been unloaded so far, plus 1.
#[inline]
pub fn generation() -> u32 {
    GENERATION.load(Acquire)
}

/// Code may have been unloaded: what is known about code addresses is invalid.
pub fn forget() {
    for told in &FORWARDED {
        told.store(0, Relaxed);
    }
    GENERATION.fetch_add(1, Release);
}

impl Found {
    fn at(address: usize) -> Option<Self> {
        let find = FIND.load(Acquire);
        if find.is_null() {
            return None;
        }
        let mut found = MaybeUninit::<Found>::zeroed();
        // SAFETY: the C library's function of that name has this type, and writes one `struct dl_find_object`.
        unsafe {
            let find = transmute::<*mut c_void, Find>(find);
            (find(address as *const c_void, found.as_mut_ptr()) == 0).then(|| found.assume_init())
        }
    }
}

impl Module {
    /// The module that contains this address.
    pub fn at(address: usize) -> Option<Self> {
        let found = Found::at(address)?;
        if found.eh_frame_hdr.is_null() || found.link_map.is_null() {
            return None;
        }
        // SAFETY: a module is not unloaded while its code is in a call chain, and its link map has this layout.
        let (base, name) = unsafe { ((*found.link_map).base, (*found.link_map).name) };
        Some(Self { start: found.start as usize, base, name, eh_frame_hdr: found.eh_frame_hdr as usize })
    }

    /// The program headers of its segments; empty if they are not in memory.
    fn segments(&self) -> &'static [libc::Elf64_Phdr] {
        let header = self.start as *const libc::Elf64_Ehdr;
        // SAFETY: the first page of a module is mapped. It holds the ELF header if it has the magic number, and every
        // linker puts the program headers in the same page; headers outside of it are ignored.
        unsafe {
            let is_header = (*header).e_ident.starts_with(b"\x7fELF");
            let (offset, number) = ((*header).e_phoff as usize, usize::from((*header).e_phnum));
            let size = size_of::<libc::Elf64_Phdr>();
            if !is_header || offset % align_of::<libc::Elf64_Phdr>() != 0 || offset + number * size > rings::PAGE {
                return &[];
            }
            slice::from_raw_parts((self.start + offset) as *const libc::Elf64_Phdr, number)
        }
    }

    fn loaded(&self) -> impl Iterator<Item = &'static libc::Elf64_Phdr> {
        self.segments().iter().filter(|segment| segment.p_type == libc::PT_LOAD)
    }

    /// Memory from `address` to the end of its segment, if that is read-only.
    pub fn rest(&self, address: usize) -> Option<&'static [u8]> {
        let segment = self.loaded().find(|segment| {
            let start = self.base.wrapping_add(segment.p_vaddr as usize);
            segment.p_flags & libc::PF_W == 0 && address.wrapping_sub(start) < segment.p_filesz as usize
        })?;
        let end = self.base.wrapping_add((segment.p_vaddr + segment.p_filesz) as usize);
        // SAFETY: the segment is mapped, read-only, and stays while its code is in a call chain.
        Some(unsafe { slice::from_raw_parts(address as *const u8, end - address) })
    }

    /// Offset of an address in the module's file.
    pub fn file_offset(&self, address: usize) -> Option<u64> {
        let offset = |segment: &libc::Elf64_Phdr| {
            let within = address.wrapping_sub(self.base.wrapping_add(segment.p_vaddr as usize)) as u64;
            (within < segment.p_memsz).then(|| segment.p_offset + within)
        };
        self.loaded().find_map(offset)
    }

    /// The build ID that its linker wrote; empty without one.
    pub fn build_id(&self) -> &'static [u8] {
        let mut notes = self.segments().iter().filter(|segment| segment.p_type == libc::PT_NOTE);
        let in_segment = |segment: &libc::Elf64_Phdr| {
            let notes =
                self.rest(self.base.wrapping_add(segment.p_vaddr as usize))?.get(..segment.p_filesz as usize)?;
            build_id(notes, if segment.p_align == 8 { 8 } else { 4 })
        };
        notes.find_map(in_segment).unwrap_or_default()
    }

    /// Whether the recorder does not know it yet.
    pub fn is_new(&self) -> bool {
        self.place().is_some_and(|place| place.load(Relaxed) != self.start)
    }

    /// The entry of this module, or an empty one. `None` if all are taken by others.
    fn place(&self) -> Option<&'static AtomicUsize> {
        FORWARDED.iter().find(|told| [0, self.start].contains(&told.load(Relaxed)))
    }

    /// Sends the module's segments to the recorder. `path` is scratch space for its path.
    pub fn tell(&self, ring: &mut Ring, path: &mut [u64]) {
        // SAFETY: a link map's name is a C string.
        let name = unsafe { CStr::from_ptr(self.name) };
        // The main program has an empty name.
        let length = if name.is_empty() { link_target(c"/proc/self/exe", path) } else { copy(name.to_bytes(), path) };
        let path = path.get(..length).unwrap_or_default();
        let told = self.loaded().all(|segment| {
            let start = self.base.wrapping_add(segment.p_vaddr as usize);
            let executable = if segment.p_flags & libc::PF_X == 0 { 0 } else { mapped_flags::EXECUTABLE };
            let flags = executable | mapped_flags::BINARY;
            let time = crate::clock::now();
            let mapped =
                Mapped { time, start, bytes: segment.p_memsz as usize, offset: segment.p_offset, flags, slot: 0 };
            mapped.tell(ring, path)
        });
        if told && let Some(place) = self.place() {
            place.store(self.start, Relaxed);
        }
    }
}

/// The build ID among the notes of a segment: each has the lengths of its name and contents, and its type.
fn build_id(mut notes: &[u8], alignment: usize) -> Option<&[u8]> {
    const NT_GNU_BUILD_ID: usize = 3;
    loop {
        let word = |at: usize| Some(u32::from_le_bytes(*notes.get(at..)?.first_chunk()?) as usize);
        let (name, contents, kind) = (word(0)?, word(4)?, word(8)?);
        let begin = 12_usize.checked_add(name)?.checked_next_multiple_of(alignment)?;
        let end = begin.checked_add(contents)?;
        if kind == NT_GNU_BUILD_ID && notes.get(12..16)? == b"GNU\0" {
            return notes.get(begin..end);
        }
        notes = notes.get(end.checked_next_multiple_of(alignment)?..)?;
    }
}

/// A mapping to record.
pub struct Mapped {
    pub time: u64,
    pub start: usize,
    pub bytes: usize,
    /// Offset in its file.
    pub offset: u64,
    pub flags: u64,
    /// Slot of the call chain that requested it.
    pub slot: u16,
}

impl Mapped {
    /// Records the mapping with the words of its path, which is empty for anonymous memory. Returns whether there was
    /// room.
    pub fn tell(&self, ring: &mut Ring, path: &[u64]) -> bool {
        let records = 2 + payload_records(path.len());
        if !ring.has_room(records) {
            ring.lose((self.start, self.bytes));
            return false;
        }
        let mut head = ring::event(Kind::Mapped, self.time, self.start, self.bytes);
        head.slot = self.slot;
        ring.put(head.to_words());
        ring.put_words(&[self.offset, self.flags, path.len() as u64]);
        ring.put_words(path);
        ring.publish();
        true
    }
}

const _: () = assert!(RECORD_WORDS >= 3);

/// Reads a link of /proc into words, padded with zeroes, and returns their number. Returns 0 if the path is too long:
/// truncated, it would be the path of another file.
pub fn link_target(link: &CStr, path: &mut [u64]) -> usize {
    let mut buffer = [0_u8; 512];
    match rustix::fs::readlinkat_raw(rustix::fs::CWD, link, &mut buffer[..]) {
        Ok(length) if length < buffer.len() => copy(buffer.get(..length).unwrap_or_default(), path),
        _ => 0,
    }
}

/// Copies bytes into words, padded with zeroes, and returns their number. Returns 0 if they do not fit.
pub fn copy(bytes: &[u8], path: &mut [u64]) -> usize {
    if bytes.len() > size_of_val(path) {
        return 0;
    }
    let mut words = 0;
    for (word, chunk) in path.iter_mut().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole.iter_mut().zip(chunk).for_each(|(place, &byte)| *place = byte);
        *word = u64::from_le_bytes(whole);
        words += 1;
    }
    words
}
