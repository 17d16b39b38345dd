//! Memory timing of a NUMA machine. A pure, deterministic model, fast enough to time every access of a virtual machine:
//! no I/O, and on the path of an access no hash map, and a lock only where cores write a line in turns. See the crate's
//! README for what it models, what it leaves out, and what it requires of its caller.

mod access;
mod cache;
mod checked_parts;
mod coherence;
pub mod control_block;
mod controls;
mod core;
mod counters;
mod cpu;
mod error;
mod line_queue;
mod lines_in_turns;
mod mechanism;
mod memory_map;
mod model;
mod own_counts;
mod plugin;
pub mod pmu;
mod queues;
mod reorder;
mod resources;
mod siblings;
mod streams;
mod throttle;
mod tlb;
mod totals;
mod windows;
mod write_buffer;

pub use access::{Access, AccessKind, Level, PageEntry, Request};
pub use controls::{ControlHardware, Controls, Share};
pub use counters::{ControllerCounters, Counters, CpuCounters, LinkCounters, Load};
pub use error::ModelError;
pub use mechanism::{Mechanism, Mechanisms};
pub use memory_map::MemoryRange;
pub use model::Model;
pub use own_counts::WINDOW_PS;
pub use plugin::{Configuration, Measured, MeasuredCpu, MeasuredTask};
pub use windows::MAX_QUANTUM_PS;

/// The only size of a line that the model supports.
pub use machine::LINE_BYTES;

/// The version of the model: simulated times are comparable only between runs of the same version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
