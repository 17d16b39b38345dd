//! Pages whose name says something to other processes, which read it in /proc/PID/maps.

use crate::processes::process::Mapping;
use machine::SMALL_PAGE;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::ptr::{NonNull, null_mut};

/// A page of a memory file with a name. It ends when it is dropped, when the process ends, or when it executes another
/// program. Forked processes have it, too.
#[derive(Debug)]
pub(crate) struct NamedPage(NonNull<u8>);

// SAFETY: the mapping belongs to the process, and nothing reads or writes it.
unsafe impl Send for NamedPage {}
// SAFETY: as above.
unsafe impl Sync for NamedPage {}

impl NamedPage {
    /// Maps it. A name has at most 249 bytes, as the kernel says. Needs no privileges.
    pub fn new(name: &str) -> io::Result<Self> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC)?;
        ftruncate(&file, SMALL_PAGE)?;
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
        let page = unsafe { mmap(null_mut(), SMALL_PAGE as usize, ProtFlags::READ, MapFlags::SHARED, &file, 0) }?;
        NonNull::new(page.cast()).map(Self).ok_or_else(|| io::Error::other("mmap returned address 0"))
    }
}

impl Drop for NamedPage {
    fn drop(&mut self) {
        // SAFETY: `new` made this mapping, and nothing refers to it.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), SMALL_PAGE as usize) };
    }
}

/// The names that begin so, without this beginning. The kernel shows `/memfd:` before, and ` (deleted)` after the name
/// of a memory file.
pub(crate) fn page_names<'a>(mappings: &'a [Mapping], beginning: &'a str) -> impl Iterator<Item = &'a str> {
    mappings.iter().filter_map(move |mapping| {
        let name = mapping.name.strip_prefix("/memfd:")?.strip_prefix(beginning)?;
        Some(name.strip_suffix(" (deleted)").unwrap_or(name))
    })
}
