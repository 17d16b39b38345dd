//! Safe, typed wrappers of the Linux interfaces that nearside needs and no library has. The only crate, beside the
//! QEMU plugin, with `unsafe` code.

mod affinity;
mod child;
mod loopback;
mod memory_policy;
mod pages;
mod process;
mod shared_words;

pub use affinity::{affinity, set_affinity};
pub use child::{ChildSetup, Credentials};
pub use loopback::bring_loopback_up;
pub use memory_policy::{MemoryPolicy, allowed_memory_nodes, node_of};
pub use pages::{HUGE_PAGE, Pages};
pub use process::{MalformedLine, Mapping, Pid, Process, ProcessError, Status, Tid, parse_maps, parse_status};
pub use shared_words::SharedWords;
