//! Safe, typed wrappers of the Linux interfaces that nearside needs and no library has. The only crate, beside the
//! QEMU plugin, with `unsafe` code.

mod child;
mod loopback;
mod shared_words;

pub use child::{ChildSetup, Credentials};
pub use loopback::bring_loopback_up;
pub use shared_words::SharedWords;
