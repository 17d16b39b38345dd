//! Whether a program can make threads: by the functions that its own file imports.

use core::ffi::{CStr, c_char, c_int, c_void};
use libc::{Elf64_Addr, Elf64_Phdr, PT_DYNAMIC, dl_phdr_info};

/// Names of functions that make threads, or that begin so: of POSIX, C11, OpenMP's runtimes of GCC and LLVM, C++ and
/// oneTBB.
const MAKE_THREADS: [&[u8]; 6] = [
    b"pthread_create",
    b"thrd_create",
    b"GOMP_parallel",
    b"__kmpc_fork_call",
    b"_ZNSt6thread15_M_start_thread",
    b"_ZN3tbb",
];

/// Tags of entries of the dynamic section, from `elf.h`.
const NULL: u64 = 0;
const PLT_RELOCATIONS_BYTES: u64 = 2;
const STRINGS: u64 = 5;
const SYMBOLS: u64 = 6;
const RELOCATIONS: u64 = 7;
const RELOCATIONS_BYTES: u64 = 8;
const PLT_RELOCATIONS: u64 = 23;

/// An entry of the dynamic section.
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    tag: u64,
    value: u64,
}

/// A relocation with an addend.
#[repr(C)]
#[derive(Clone, Copy)]
struct Relocation {
    offset: Elf64_Addr,
    info: u64,
    addend: i64,
}

/// Whether the program's own file imports a function that makes threads. Those that its libraries import do not count:
/// most programs have a library that could.
pub fn has_threads() -> bool {
    let mut found = false;
    // SAFETY: the function is called during this call only, with the pointer to `found`.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}

/// Looks at the first object, which is the program.
///
/// # Safety
///
/// `found` points to a bool, and `info` describes a loaded object.
unsafe extern "C" fn look(info: *mut dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    let info = unsafe { &*info };
    // SAFETY: the dynamic linker's headers of the object.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let dynamic = headers.iter().find(|header: &&Elf64_Phdr| header.p_type == PT_DYNAMIC);
    if let Some(dynamic) = dynamic {
        let entries = (info.dlpi_addr + dynamic.p_vaddr) as *const Entry;
        // SAFETY: the dynamic section of a loaded object, and the caller's promise.
        unsafe { *found.cast::<bool>() = imports_one(entries, info.dlpi_addr) };
    }
    // The others are libraries.
    1
}

/// # Safety
///
/// `entries` is the dynamic section of an object that is loaded at `base`.
unsafe fn imports_one(entries: *const Entry, base: u64) -> bool {
    let value = |tag: u64| {
        let mut at = entries;
        loop {
            // SAFETY: the section ends with an entry whose tag is `NULL`.
            let entry = unsafe { *at };
            if entry.tag == NULL || entry.tag == tag {
                return (entry.tag == tag).then_some(entry.value);
            }
            // SAFETY: as above.
            at = unsafe { at.add(1) };
        }
    };
    // glibc has added the base already.
    let address = |tag| value(tag).map(|at| if at < base { at + base } else { at });
    let Some((symbols, strings)) = address(SYMBOLS).zip(address(STRINGS)) else { return false };
    [(RELOCATIONS, RELOCATIONS_BYTES), (PLT_RELOCATIONS, PLT_RELOCATIONS_BYTES)].into_iter().any(|(table, bytes)| {
        let Some((table, bytes)) = address(table).zip(value(bytes)) else { return false };
        let count = usize::try_from(bytes).unwrap_or(0) / size_of::<Relocation>();
        // SAFETY: a table of relocations of the loaded object.
        let relocations = unsafe { core::slice::from_raw_parts(table as *const Relocation, count) };
        relocations.iter().any(|relocation| {
            let symbol = (symbols as *const libc::Elf64_Sym).wrapping_add((relocation.info >> 32) as usize);
            // SAFETY: relocations name symbols of the object, whose names are in its strings.
            let name = unsafe { CStr::from_ptr((strings as *const c_char).add((*symbol).st_name as usize)) };
            MAKE_THREADS.iter().any(|begins| name.to_bytes().starts_with(begins))
        })
    })
}
