//! Numbers of what a profile has, each a position in one of its lists. They are the same whenever the same trace is
//! read.

use serde::Serialize;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            pub(crate) fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// One instance of an object: of all that were ever at an address, one.
    ObjectId
}
id! {
    /// A thread, from its start to its end. The kernel may use its tid again, this number is its own.
    ThreadId
}
id! {
    /// A process, from its start to its end.
    ProcessId
}
id! {
    /// A place in code: see [`Code`](crate::Code).
    CodeId
}
id! {
    /// A call chain whose addresses are places in code. Chains of several processes that run the same files are one.
    ChainId
}
id! {
    /// Where objects of one kind come from: see [`Site`](crate::Site).
    SiteId
}
id! {
    /// A mapped file.
    FileId
}

impl ChainId {
    /// Of code that is not known.
    pub const UNKNOWN: Self = Self(0);
}
