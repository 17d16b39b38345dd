//! What every call does: check pointers, keep panics inside, and turn errors into a code and a text.

use library::Error;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr::null_mut;

/// Major version times 1,000 plus minor version: of the interface, not of nearside.
const VERSION: c_uint = 1_003;

/// Why a call did nothing.
pub struct ns_error {
    code: c_int,
    text: CString,
}

impl ns_error {
    fn new(error: &Error) -> Self {
        // A text without zero bytes: they could only come from an argument, which is C text itself.
        Self { code: error.errno(), text: CString::new(error.to_string().replace('\0', " ")).unwrap_or_default() }
    }
}

/// Where a result is stored; the caller's variable may be uninitialized. Null: the caller does not want it.
pub(crate) type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;
/// Where the error is stored.
pub(crate) type ErrorOut<'a> = Out<'a, Option<Box<ns_error>>>;

/// Runs a call. Returns its value, or the negative error number; `error` gets the error, or null.
pub(crate) fn call(error: ErrorOut<'_>, run: impl FnOnce() -> Result<c_int, Error>) -> c_int {
    outcome(error, run).unwrap_or_else(|code| -code)
}

/// Runs a call that returns a pointer: null on failure.
pub(crate) fn call_for<T>(error: ErrorOut<'_>, run: impl FnOnce() -> Result<*mut T, Error>) -> *mut T {
    outcome(error, run).unwrap_or(null_mut())
}

unsafe extern "C" {
    /// Missing from libc.
    safe fn pthread_setcancelstate(state: c_int, former: Option<&mut c_int>) -> c_int;
}

/// While it lives, the calling thread is not cancelled: Rust cannot be unwound by that.
struct Uncancelled {
    former: c_int,
}

impl Uncancelled {
    fn new() -> Self {
        /// From pthread.h.
        const PTHREAD_CANCEL_DISABLE: c_int = 1;
        let mut former = 0;
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, Some(&mut former));
        Self { former }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        pthread_setcancelstate(self.former, None);
    }
}

fn outcome<T>(error: ErrorOut<'_>, run: impl FnOnce() -> Result<T, Error>) -> Result<T, c_int> {
    let _whole_call = Uncancelled::new();
    // A call that panicked has not published anything: what it was building is dropped.
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        let why = "a defect of libnearside: please report it".to_owned();
        let diagnosis = Box::new(linux::Cause::Other(why).into());
        Err(Error::Refused { attempt: "finish the call".to_owned(), call: "none", errno: libc::EFAULT, diagnosis })
    });
    match result {
        Ok(value) => {
            store(error, None);
            Ok(value)
        }
        Err(why) => {
            store(error, Some(Box::new(ns_error::new(&why))));
            // No code may be 0: that is success.
            Err(if why.errno() > 0 { why.errno() } else { libc::EIO })
        }
    }
}

/// A null pointer where there must be none.
fn missing(name: &str) -> Error {
    Error::Argument { attempt: format!("use the argument `{name}`"), why: "it is null".to_owned() }
}

/// An argument that must not be null.
pub(crate) fn given<T>(argument: Option<T>, name: &str) -> Result<T, Error> {
    argument.ok_or_else(|| missing(name))
}

/// A path that must be there, of any bytes.
///
/// # Safety
///
/// As of [`text`].
pub(crate) unsafe fn path<'a>(pointer: *const c_char, name: &str) -> Result<&'a Path, Error> {
    if pointer.is_null() {
        return Err(missing(name));
    }
    // SAFETY: it ends with a zero byte.
    Ok(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(pointer) }.to_bytes())))
}

/// Text that must be there. Bytes that are not UTF-8 are replaced: no valid text has them.
///
/// # Safety
///
/// The text is null, or ends with a zero byte.
pub(crate) unsafe fn text(pointer: *const c_char, name: &str) -> Result<String, Error> {
    if pointer.is_null() {
        return Err(missing(name));
    }
    // SAFETY: it ends with a zero byte.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

/// Stores a result where the caller wants it, if it does.
pub(crate) fn store<T>(place: Out<'_, T>, value: T) {
    if let Some(place) = place {
        place.write(value);
    }
}

/// Gives a new handle to the caller, who must want it.
pub(crate) fn give<T>(place: Out<'_, Box<T>>, name: &str, value: T) -> Result<c_int, Error> {
    given(place, name)?.write(Box::new(value));
    Ok(0)
}

/// Frees a handle. A panic while dropping stays inside.
pub(crate) fn free<T>(handle: Option<Box<T>>) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(handle)));
}

/// Version of the interface: major times 1,000 plus minor.
#[unsafe(no_mangle)]
pub extern "C" fn ns_version() -> c_uint {
    VERSION
}

/// The number of `errno.h`, positive; 0 for null.
#[unsafe(no_mangle)]
pub extern "C" fn ns_error_code(error: Option<&ns_error>) -> c_int {
    error.map_or(0, |error| error.code)
}

/// What was tried, the answer, why, and what helps. Valid until the error is freed; empty for null.
#[unsafe(no_mangle)]
pub extern "C" fn ns_error_text(error: Option<&ns_error>) -> *const c_char {
    error.map_or(c"".as_ptr(), |error| error.text.as_ptr())
}

/// Frees an error; null is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn ns_error_free(error: Option<Box<ns_error>>) {
    free(error);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_stays_inside_and_becomes_an_error() {
        let mut place = MaybeUninit::uninit();
        assert_eq!(call(Some(&mut place), || panic!("unexpected")), -libc::EFAULT);
        // SAFETY: every call stores an error or none.
        let error = unsafe { place.assume_init() };
        assert_eq!(ns_error_code(error.as_deref()), libc::EFAULT);
        // SAFETY: the text of an error ends with a zero byte.
        let text = unsafe { CStr::from_ptr(ns_error_text(error.as_deref())) }.to_str().unwrap();
        assert!(text.contains("a defect of libnearside"), "{text}");
        ns_error_free(error);
        assert_eq!(call(None, || panic!("unexpected")), -libc::EFAULT);
        assert_eq!(call(None, || Ok(7)), 7);
    }
}
