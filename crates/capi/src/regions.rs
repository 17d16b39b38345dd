//! Names of ranges.

use crate::boundary::{ErrorOut, call, text};
use crate::policies::range;
use std::ffi::{c_char, c_int, c_void};

/// Names a range, or ends the name of the one that begins there. Returns 1 if the program is being recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_name_region(
    address: *const c_void,
    bytes: usize,
    name: *const c_char,
    error: ErrorOut<'_>,
) -> c_int {
    call(error, || {
        if name.is_null() {
            return Ok(library::end_region(address as usize).into());
        }
        // SAFETY: by the contract of all calls it ends with a zero byte.
        let name = unsafe { text(name, "name") }?;
        Ok(library::name_region(&range(address, bytes)?, &name)?.into())
    })
}
