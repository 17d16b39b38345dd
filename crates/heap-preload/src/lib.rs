//! The allocator of [`heap`] as `malloc`, `free` and all functions beside them: `LD_PRELOAD=libnearside_heap.so program` runs
//! an unmodified program with it.
//!
//! No crate may depend on this one, because it contains a `malloc`; a Rust program uses `heap`.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use heap::{MAX_NODES, Place};

/// Alignment that suits every type of C.
const ALIGNMENT: usize = 16;
const PAGE: usize = 4096;

/// Environment variable that says where objects lie: `local` (also if it is not set), `interleave`, or `node:N`.
const PLACE_VARIABLE: &CStr = c"NEARSIDE_HEAP";

/// The dynamic linker calls this before the program's own code. Objects of earlier calls are local.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    // SAFETY: no thread that could change the environment runs yet. The result is null or a C string of the environment.
    let text: *const c_char = unsafe { libc::getenv(PLACE_VARIABLE.as_ptr()) };
    if !text.is_null() {
        // SAFETY: as above.
        heap::place_all(place(unsafe { CStr::from_ptr(text) }.to_bytes()));
    }
}

/// What cannot be understood is local: a library must not end the program that it is loaded into.
fn place(text: &[u8]) -> Place {
    let node = text.strip_prefix(b"node:").and_then(|number| core::str::from_utf8(number).ok()?.parse().ok());
    match node.filter(|node| *node < MAX_NODES) {
        Some(node) => Place::On(node),
        None if text == b"interleave" => Place::Interleaved,
        None => Place::Local,
    }
}

/// What a failed call returns: null, with the reason in `errno`.
#[cold]
fn failed(why: c_int) -> *mut c_void {
    // SAFETY: the C library's address of this thread's errno.
    unsafe { *libc::__errno_location() = why };
    null_mut()
}

#[inline]
fn checked(object: *mut u8) -> *mut c_void {
    if object.is_null() { failed(libc::ENOMEM) } else { object.cast() }
}

/// # Safety
///
/// As for the C library's function of this name, and so for those below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    let object = heap::allocate_at_once(bytes);
    if object.is_null() { malloc_slowly(bytes) } else { object.cast() }
}

#[cold]
#[inline(never)]
fn malloc_slowly(bytes: usize) -> *mut c_void {
    checked(heap::allocate(bytes, ALIGNMENT, Place::Local))
}

/// # Safety
///
/// See [`malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(number: usize, each: usize) -> *mut c_void {
    match number.checked_mul(each) {
        Some(bytes) => checked(heap::allocate_zeroed(bytes, ALIGNMENT, Place::Local)),
        None => failed(libc::ENOMEM),
    }
}

/// # Safety
///
/// See [`malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(object: *mut c_void) {
    // SAFETY: the caller's own call.
    unsafe { heap::free(object.cast()) };
}

/// # Safety
///
/// See [`malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(object: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's own call. As in glibc, a size of 0 frees.
    unsafe {
        if object.is_null() {
            return malloc(bytes);
        }
        if bytes == 0 {
            free(object);
            return null_mut();
        }
        checked(heap::reallocate(object.cast(), bytes, ALIGNMENT, Place::Local))
    }
}

/// # Safety
///
/// See [`malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(object: *mut c_void, number: usize, each: usize) -> *mut c_void {
    match number.checked_mul(each) {
        // SAFETY: the caller's own call.
        Some(bytes) => unsafe { realloc(object, bytes) },
        None => failed(libc::ENOMEM),
    }
}

/// An alignment that is no power of two is rounded up, as glibc does.
///
/// # Safety
///
/// See [`malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(alignment: usize, bytes: usize) -> *mut c_void {
    match alignment.max(ALIGNMENT).checked_next_power_of_two() {
        Some(alignment) => checked(heap::allocate(bytes, alignment, Place::Local)),
        None => failed(libc::EINVAL),
    }
}

/// # Safety
///
/// See [`malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(alignment: usize, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's own call. glibc 2.36 also accepts every alignment here.
    unsafe { memalign(alignment, bytes) }
}

/// # Safety
///
/// See [`malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(place: *mut *mut c_void, alignment: usize, bytes: usize) -> c_int {
    if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<usize>()) {
        return libc::EINVAL;
    }
    let object = heap::allocate(bytes, alignment, Place::Local);
    if object.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's place for the result.
    unsafe { *place = object.cast() };
    0
}

/// # Safety
///
/// See [`malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(bytes: usize) -> *mut c_void {
    checked(heap::allocate(bytes, PAGE, Place::Local))
}

/// # Safety
///
/// See [`malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    match bytes.checked_next_multiple_of(PAGE) {
        Some(bytes) => checked(heap::allocate(bytes, PAGE, Place::Local)),
        None => failed(libc::ENOMEM),
    }
}

/// # Safety
///
/// See [`malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(object: *mut c_void) -> usize {
    // SAFETY: the caller's own call.
    unsafe { heap::usable_size(object.cast()) }
}

/// glibc's other names of these functions, which some libraries call, so that what they return can be freed here.
macro_rules! aliases {
    ($($name:ident => $of:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            /// # Safety
            ///
            /// See [`malloc`].
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                // SAFETY: the caller's own call.
                unsafe { $of($($argument),*) }
            }
        )*
    };
}

aliases! {
    __libc_malloc => malloc(bytes: usize) -> *mut c_void;
    __libc_calloc => calloc(number: usize, each: usize) -> *mut c_void;
    __libc_realloc => realloc(object: *mut c_void, bytes: usize) -> *mut c_void;
    __libc_memalign => memalign(alignment: usize, bytes: usize) -> *mut c_void;
    __libc_valloc => valloc(bytes: usize) -> *mut c_void;
    __libc_pvalloc => pvalloc(bytes: usize) -> *mut c_void;
    __libc_free => free(object: *mut c_void) -> ();
    cfree => free(object: *mut c_void) -> ();
}
