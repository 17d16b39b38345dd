//! All integration tests of this crate: one binary, as each takes its time to link.

mod controls;
mod machines;
mod mechanisms;
mod queues;
mod shared_words;
#[path = "../support/mod.rs"]
mod support;
