//! `operator new` and `delete`. Those of the C++ library call `malloc` and `free`, which record the object; those of an
//! allocator that defines its own do not, and are recorded here. Each call determines which case applies: whether the
//! last object that the thread recorded has this address.
//!
//! An exception may pass through here, and a handler of the program may run in the middle: no lock or state is held
//! while the operator itself runs.

use super::called_from;
use super::heap::{told_by_operator, told_end_by_operator};
use crate::clock;
use crate::libc_symbols::{self, EARLY};
use crate::process::{is_recording, symbols};
use crate::thread::{forget_last, last};
use crate::walk::Frame;
use core::ffi::{CStr, c_void};
use core::mem::transmute;
use core::ptr::null_mut;

// In the order of `NEW`.
called_from! {
    /// Records an object.
    _Znwm => new::<0>, "rcx", "r8";
    /// Records an object.
    _Znam => new::<1>, "rcx", "r8";
    /// Records an object.
    _ZnwmRKSt9nothrow_t => new::<2>, "rcx", "r8";
    /// Records an object.
    _ZnamRKSt9nothrow_t => new::<3>, "rcx", "r8";
    /// Records an object.
    _ZnwmSt11align_val_t => new::<4>, "rcx", "r8";
    /// Records an object.
    _ZnamSt11align_val_t => new::<5>, "rcx", "r8";
    /// Records an object.
    _ZnwmSt11align_val_tRKSt9nothrow_t => new::<6>, "rcx", "r8";
    /// Records an object.
    _ZnamSt11align_val_tRKSt9nothrow_t => new::<7>, "rcx", "r8";
}

/// A form of `operator new`.
pub struct New {
    pub name: &'static CStr,
    /// Whether its second argument is an alignment.
    aligned: bool,
    throws: bool,
}

/// All forms of `operator new`.
pub const NEW: [New; 8] = [
    New { name: c"_Znwm", aligned: false, throws: true },
    New { name: c"_Znam", aligned: false, throws: true },
    New { name: c"_ZnwmRKSt9nothrow_t", aligned: false, throws: false },
    New { name: c"_ZnamRKSt9nothrow_t", aligned: false, throws: false },
    New { name: c"_ZnwmSt11align_val_t", aligned: true, throws: true },
    New { name: c"_ZnamSt11align_val_t", aligned: true, throws: true },
    New { name: c"_ZnwmSt11align_val_tRKSt9nothrow_t", aligned: true, throws: false },
    New { name: c"_ZnamSt11align_val_tRKSt9nothrow_t", aligned: true, throws: false },
];

unsafe extern "C-unwind" fn new<const FORM: usize>(
    bytes: usize,
    second: usize,
    third: usize,
    stack: usize,
    base: usize,
) -> *mut c_void {
    let form = const { &NEW[FORM] };
    let Some(symbols) = symbols() else { return EARLY.allocate(bytes, if form.aligned { second } else { 16 }) };
    let recording = is_recording();
    if recording {
        forget_last();
    }
    let address = match symbols.operators.new[FORM] {
        // SAFETY: the caller's own call. An operator with fewer arguments ignores the others.
        Some(operator) => unsafe { operator(bytes, second, third) },
        // SAFETY: as above; the return address is at `stack`.
        None => unsafe { without_library(form, bytes, second, third, *(stack as *const usize)) },
    };
    if recording && !address.is_null() && last() != address as usize {
        told_by_operator(address, bytes, Frame { stack, base });
    }
    address
}

/// The program has no global C++ library; only libraries loaded later have their own. Those would call `malloc`, too.
unsafe fn without_library(form: &New, bytes: usize, second: usize, third: usize, caller: usize) -> *mut c_void {
    let Some(symbols) = symbols() else { return null_mut() };
    // SAFETY: the C library's functions of these names, or the program's replacements. The size for an aligned
    // allocation must be a multiple of the alignment.
    let address = unsafe {
        if form.aligned {
            let bytes = bytes.max(1).checked_next_multiple_of(second.max(1));
            bytes.map_or(null_mut(), |bytes| (symbols.operators.aligned_alloc)(second, bytes))
        } else {
            (symbols.operators.malloc)(bytes.max(1))
        }
    };
    if !address.is_null() {
        return address;
    }
    // Only the original operator can run the program's handler and throw.
    match operator_of(form.name, caller) {
        // SAFETY: the caller's own call.
        Some(operator) => unsafe { operator(bytes, second, third) },
        None if form.throws => std::process::abort(),
        None => null_mut(),
    }
}

/// The operator that the library with this address would have called without this one.
#[cold]
fn operator_of(name: &CStr, caller: usize) -> Option<libc_symbols::New> {
    // SAFETY: `dladdr` reports whether it has written, and then names a C string; the library is loaded, as it made the
    // call.
    let found = unsafe {
        let mut library = core::mem::zeroed::<libc::Dl_info>();
        if libc::dladdr(caller as *const c_void, &raw mut library) == 0 {
            return None;
        }
        let handle = libc::dlopen(library.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if handle.is_null() {
            return None;
        }
        libc::dlsym(handle, name.as_ptr())
    };
    let own: [unsafe extern "C" fn(); 8] = [
        _Znwm,
        _Znam,
        _ZnwmRKSt9nothrow_t,
        _ZnamRKSt9nothrow_t,
        _ZnwmSt11align_val_t,
        _ZnamSt11align_val_t,
        _ZnwmSt11align_val_tRKSt9nothrow_t,
        _ZnamSt11align_val_tRKSt9nothrow_t,
    ];
    let is_own = own.iter().any(|own| *own as usize == found as usize);
    // SAFETY: an operator of that name has this type, except for arguments that it ignores.
    (!found.is_null() && !is_own).then(|| unsafe { transmute::<*mut c_void, libc_symbols::New>(found) })
}

/// Defines forms of `operator delete`: `name => index in DELETE, whether the second argument is the size`.
macro_rules! deletes {
    ($($name:ident => $form:literal, $sized:literal;)*) => {
        /// The names of all forms of `operator delete`.
        pub const DELETE: [&CStr; 12] = [$(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name without zeroes"),
            }
        ),*];

        $(
            /// Records the end of an object.
            ///
            /// # Safety
            ///
            /// As for the C++ library's function of this name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(address: *mut c_void, second: usize, third: usize) {
                // SAFETY: the caller's own call.
                unsafe { delete::<$form>(address, second, third, $sized.then_some(second)) }
            }
        )*
    };
}

deletes! {
    _ZdlPv => 0, false;
    _ZdaPv => 1, false;
    _ZdlPvm => 2, true;
    _ZdaPvm => 3, true;
    _ZdlPvRKSt9nothrow_t => 4, false;
    _ZdaPvRKSt9nothrow_t => 5, false;
    _ZdlPvSt11align_val_t => 6, false;
    _ZdaPvSt11align_val_t => 7, false;
    _ZdlPvmSt11align_val_t => 8, true;
    _ZdaPvmSt11align_val_t => 9, true;
    _ZdlPvSt11align_val_tRKSt9nothrow_t => 10, false;
    _ZdaPvSt11align_val_tRKSt9nothrow_t => 11, false;
}

unsafe fn delete<const FORM: usize>(address: *mut c_void, second: usize, third: usize, bytes: Option<usize>) {
    if address.is_null() || EARLY.has(address) {
        return;
    }
    let Some(symbols) = symbols() else { return };
    // Before its memory can be reused.
    let before = is_recording().then(clock::now);
    forget_last();
    // SAFETY: the caller's own call, as above. Without an operator the object came from `malloc`.
    unsafe {
        match symbols.operators.delete[FORM] {
            Some(operator) => operator(address, second, third),
            None => (symbols.operators.free)(address),
        }
    }
    if let Some(before) = before
        && last() != address as usize
    {
        told_end_by_operator(address, bytes, before);
    }
}
