//! Names of ranges.

use crate::boundary::{ErrorOut, Out, call, free, give, text};
use crate::policies::range;
use library::GivenRegion;
use std::ffi::{c_char, c_int, c_void};

/// A name that a range has.
pub struct ns_region(#[allow(dead_code, reason = "it holds until it is dropped")] GivenRegion);

/// Names a range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ns_region_new(
    address: *const c_void,
    bytes: usize,
    name: *const c_char,
    region: Out<'_, Box<ns_region>>,
    error: ErrorOut<'_>,
) -> c_int {
    call(error, || {
        // SAFETY: by the contract of all calls it ends with a zero byte.
        let name = unsafe { text(name, "name") }?;
        give(region, "region", ns_region(library::region(&range(address, bytes)?, &name)?))
    })
}

/// Ends a name; null is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn ns_region_free(region: Option<Box<ns_region>>) {
    free(region);
}
