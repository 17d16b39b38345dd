//! Linux's numbers of nodes, CPUs, packages, processes and threads, as types that cannot be mixed up.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<u32> for $name {
            fn from(id: u32) -> Self {
                Self(id)
            }
        }

        impl From<$name> for u32 {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    };
}

id! {
    /// A NUMA node, numbered as in Linux. IDs may be sparse.
    NodeId
}
id! {
    /// A logical CPU: one hardware thread.
    CpuId
}
id! {
    /// A package: the contents of one socket.
    PackageId
}
id! {
    /// A process, by the number of its first thread.
    Pid
}
id! {
    /// A thread.
    Tid
}

impl Tid {
    /// The calling thread, as the kernel's own calls denote it.
    pub const CALLER: Self = Self(0);
}
