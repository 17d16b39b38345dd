//! All integration tests of this crate: one binary, as each takes its time to link.

mod controls;
mod machines;
mod mechanisms;
mod queues;
#[path = "../support/mod.rs"]
mod support;
