//! The functions that this library replaces, and memory to use before they are known.

use crate::hooks::operators::{DELETE, NEW};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int, c_void};
use core::mem::transmute_copy;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A thread's start routine.
pub type Start = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// An `operator new`, which may throw. Each form uses the arguments that it has.
pub type New = unsafe extern "C-unwind" fn(usize, usize, usize) -> *mut c_void;
/// An `operator delete`, likewise.
pub type Delete = unsafe extern "C-unwind" fn(*mut c_void, usize, usize);

/// The next definition of each function that this library defines.
#[derive(Clone, Copy)]
pub struct LibcSymbols {
    pub malloc: unsafe extern "C" fn(usize) -> *mut c_void,
    pub calloc: unsafe extern "C" fn(usize, usize) -> *mut c_void,
    pub realloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    pub free: unsafe extern "C" fn(*mut c_void),
    pub memalign: unsafe extern "C" fn(usize, usize) -> *mut c_void,
    pub posix_memalign: unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int,
    pub aligned_alloc: unsafe extern "C" fn(usize, usize) -> *mut c_void,
    pub valloc: unsafe extern "C" fn(usize) -> *mut c_void,
    pub pvalloc: Option<unsafe extern "C" fn(usize) -> *mut c_void>,
    pub usable_size: unsafe extern "C" fn(*mut c_void) -> usize,
    pub mmap: unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void,
    pub munmap: unsafe extern "C" fn(*mut c_void, usize) -> c_int,
    pub mremap: unsafe extern "C" fn(*mut c_void, usize, usize, c_int, *mut c_void) -> *mut c_void,
    pub fork: unsafe extern "C" fn() -> c_int,
    pub dlclose: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub pthread_create: unsafe extern "C" fn(*mut c_void, *const c_void, Start, *mut c_void) -> c_int,
    pub operators: Operators,
}

/// The operators of a C++ library that is visible to the whole program.
#[derive(Clone, Copy)]
pub struct Operators {
    pub new: [Option<New>; NEW.len()],
    pub delete: [Option<Delete>; DELETE.len()],
    /// The functions that the program calls by these names, which may be its own.
    pub malloc: unsafe extern "C" fn(usize) -> *mut c_void,
    pub aligned_alloc: unsafe extern "C" fn(usize, usize) -> *mut c_void,
    pub free: unsafe extern "C" fn(*mut c_void),
    /// The program's own, if it has one in the place of this library's.
    pub own_realloc: Option<unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void>,
}

impl Operators {
    fn find() -> Option<Self> {
        // SAFETY: each is the C++ library's operator of that name or a replacement for it, and so are those below.
        let is_there = NEW.first().is_some_and(|form| unsafe { next::<New>(form.name) }.is_some());
        // Without the first operator, the others are missing too.
        let found = Self {
            // SAFETY: as above.
            new: NEW.map(|form| is_there.then(|| unsafe { next(form.name) }).flatten()),
            // SAFETY: as above.
            delete: DELETE.map(|name| is_there.then(|| unsafe { next(name) }).flatten()),
            // SAFETY: the C library's function of that name or the program's own, of its type.
            malloc: unsafe { first(c"malloc")? },
            // SAFETY: as above.
            aligned_alloc: unsafe { first(c"aligned_alloc")? },
            // SAFETY: as above.
            own_realloc: if is_ours(exported(c"realloc")) { None } else { unsafe { first(c"realloc") } },
            // SAFETY: as above.
            free: unsafe { first(c"free")? },
        };
        // Clears the lookup error, which the program must not see. SAFETY: the result is ignored.
        unsafe { libc::dlerror() };
        Some(found)
    }
}

impl LibcSymbols {
    /// Looks up all functions. `None` if an essential one is missing. May allocate: from [`EARLY`].
    pub fn find() -> Option<Self> {
        // SAFETY: each is the C library's function of that name or a replacement for it, and has its type.
        unsafe {
            Some(Self {
                malloc: next(c"malloc")?,
                calloc: next(c"calloc")?,
                realloc: next(c"realloc")?,
                free: next(c"free")?,
                memalign: next(c"memalign")?,
                posix_memalign: next(c"posix_memalign")?,
                aligned_alloc: next(c"aligned_alloc")?,
                valloc: next(c"valloc")?,
                pvalloc: next(c"pvalloc"),
                usable_size: next(c"malloc_usable_size")?,
                mmap: next(c"mmap")?,
                munmap: next(c"munmap")?,
                mremap: next(c"mremap")?,
                fork: next(c"fork")?,
                dlclose: next(c"dlclose")?,
                pthread_create: next(c"pthread_create")?,
                operators: Operators::find()?,
            })
        }
    }
}

/// The first definition of a name, as a pointer of type `F`.
///
/// # Safety
///
/// `F` must be a pointer to the type of that symbol.
unsafe fn first<F>(name: &CStr) -> Option<F> {
    let found = exported(name);
    // SAFETY: the caller guarantees a pointer of this type, and it is not null.
    (!found.is_null()).then(|| unsafe { transmute_copy(&found) })
}

/// The next definition of a name, as a pointer of type `F`.
///
/// # Safety
///
/// `F` must be a pointer to the type of that symbol.
unsafe fn next<F>(name: &CStr) -> Option<F> {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    // SAFETY: the caller guarantees a pointer of this type, and it is not null.
    (!found.is_null()).then(|| unsafe { transmute_copy(&found) })
}

/// Whether an address is in this library. Its names do not tell: in it, too, they mean the program's definitions.
fn is_ours(address: *const c_void) -> bool {
    let base = |address: *const c_void| {
        // SAFETY: all bytes zero are a `Dl_info`, which the call fills.
        let mut found: libc::Dl_info = unsafe { core::mem::zeroed() };
        // SAFETY: any address may be asked for.
        (unsafe { libc::dladdr(address, &raw mut found) } != 0).then_some(found.dli_fbase)
    };
    base(address) == base(is_ours as *const c_void)
}

/// The address of this symbol in any loaded library.
pub fn exported(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

const EARLY_BYTES: usize = 64 << 10;
/// Header before each allocation, with its size.
const EARLY_HEAD: usize = 16;

/// Memory for allocations while the functions are being looked up. It is never freed.
pub static EARLY: Early = Early { memory: UnsafeCell::new(Memory([0; EARLY_BYTES])), used: AtomicUsize::new(0) };

#[repr(C, align(4096))]
struct Memory([u8; EARLY_BYTES]);

pub struct Early {
    memory: UnsafeCell<Memory>,
    used: AtomicUsize,
}

// SAFETY: an atomic addition gives out each part only once.
unsafe impl Sync for Early {}

impl Early {
    fn start(&self) -> usize {
        self.memory.get() as usize
    }

    /// Whether this address is inside.
    #[inline]
    pub fn has(&self, address: *mut c_void) -> bool {
        (address as usize).wrapping_sub(self.start()) < EARLY_BYTES
    }

    /// Zeroed memory; null when it is exhausted. Supports alignments up to a page.
    pub fn allocate(&self, bytes: usize, alignment: usize) -> *mut c_void {
        let alignment = alignment.max(EARLY_HEAD);
        let room = bytes.saturating_add(EARLY_HEAD + alignment);
        if room > EARLY_BYTES || !alignment.is_power_of_two() {
            return null_mut();
        }
        let begin = self.used.fetch_add(room.next_multiple_of(EARLY_HEAD), Relaxed);
        if begin.saturating_add(room) > EARLY_BYTES {
            return null_mut();
        }
        let piece = (self.start() + begin + EARLY_HEAD).next_multiple_of(alignment);
        // SAFETY: the allocation and the word before it are in the part that was just taken.
        unsafe { *((piece - EARLY_HEAD) as *mut usize) = bytes };
        piece as *mut c_void
    }

    /// The requested size in bytes.
    pub fn size(address: *mut c_void) -> usize {
        // SAFETY: only called for allocations of `allocate`, which have their size before them.
        unsafe { *((address as usize - EARLY_HEAD) as *const usize) }
    }
}
