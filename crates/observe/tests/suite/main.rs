//! All integration tests of this crate: one binary, as each takes its time to link.

mod live;
