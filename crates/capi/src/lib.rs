//! `libnearside`: the calls of crate `library` for programs in C. `include/nearside.h` documents each call.
//!
//! The contract of all calls, on which the SAFETY comments rely: a pointer is null where the header allows it, or is valid
//! for what its type says, for the length that is passed beside it, and during the call; a handle comes from this library
//! and has not been freed; text ends with a zero byte. A handle is used by one thread at a time, unless all use it as
//! `const`. A null pointer where the header does not allow it is refused with EINVAL.
//!
//! No panic crosses the boundary: it becomes the error EFAULT. The library has no global state but the heap's, and prints nothing; only the
//! heap ends the process, where a program frees what is no object of it.

#![allow(non_camel_case_types, reason = "the names are those of the header")]

mod boundary;
mod grants;
mod hints;
mod lazy;
mod memory;
mod objects;
mod policies;
mod regions;
mod replicas;
mod sets;
mod templates;
mod threads;
mod topology;

pub use boundary::*;
pub use memory::*;
pub use objects::*;
pub use policies::*;
pub use regions::*;
pub use replicas::*;
pub use sets::*;
pub use templates::*;
pub use threads::*;
pub use topology::*;
