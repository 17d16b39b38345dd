//! Names of ranges, for nearside's recorder.

use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;
use std::sync::OnceLock;

/// `void nearside_name_region(const void *address, size_t bytes, const char *name)` of the recorder's library.
type NameRegion = unsafe extern "C" fn(*const c_void, usize, *const c_char);

/// Reports the name of a range of this process to the recorder; without a name, the end of the one that begins at the
/// range's start. Returns whether a recorder's library is in this process: without one, this tests an address and does
/// nothing. The name is cut to 255 bytes. Needs no privileges.
pub fn name_region(range: &Range<usize>, name: Option<&CStr>) -> bool {
    static FUNCTION: OnceLock<Option<NameRegion>> = OnceLock::new();
    let function = FUNCTION.get_or_init(|| {
        // SAFETY: a C string; the handle stands for all libraries of this process.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"nearside_name_region".as_ptr()) };
        // SAFETY: a function of this name is the recorder's, whose type this is. Null is `None`.
        unsafe { std::mem::transmute::<*mut c_void, Option<NameRegion>>(found) }
    });
    let name = name.map_or(std::ptr::null(), CStr::as_ptr);
    if let Some(function) = function {
        // SAFETY: it reads the name only, and takes the range as numbers.
        unsafe { function(std::ptr::without_provenance(range.start), range.len(), name) };
    }
    function.is_some()
}
