//! Who touched what, when: samples of memory accesses, and the lifecycle events that say what was at an address at that
//! time. All times are the traced system's `CLOCK_MONOTONIC`, ns.

mod event;
pub mod objects;
mod sample;
mod stack;

pub use event::{Event, FileIdentity, What};
pub use sample::{AccessKind, Sample, Served, Source};
pub use stack::{StackId, Stacks};
