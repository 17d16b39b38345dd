//! IDs of the parts of a profile: indices into its lists. They are the same whenever the same trace is read.

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
    /// One instance of an object; addresses may be reused by later ones.
    ObjectId
}
id! {
    /// A thread, from its start to its end. The kernel may reuse its TID, but this number is unique.
    ThreadId
}
id! {
    /// A process, from its start to its end.
    ProcessId
}
id! {
    /// A code location: see [`Code`](crate::Code).
    CodeId
}
id! {
    /// A call chain of code locations. Equal chains of several processes that run the same files are one.
    ChainId
}
id! {
    /// A source of objects: see [`Site`](crate::Site).
    SiteId
}
id! {
    /// A mapped file.
    FileId
}

impl ChainId {
    /// Unknown code.
    pub const UNKNOWN: Self = Self(0);
}
