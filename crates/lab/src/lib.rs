//! A machine you do not have: builds, boots and drives a virtual NUMA machine that runs unmodified Linux and
//! unmodified programs, on a clock that follows a model of its memory.

mod attempts;
mod cache_groups;
mod console;
mod cpu_table;
mod error;
mod first_files;
pub mod guest;
mod kernel_image;
mod kernel_module;
mod monitor;
mod out_folder;
mod passed_files;
pub mod protocol;
mod qemu_arguments;
mod qemu_files;
mod run;
mod running;
mod saved_boot;
pub mod setup;
mod shake;
mod shape;
mod signals;
mod streams;

/// The environment variable that holds the divisor of the periods of kernel services, for programs in the guest: those
/// with periods of seconds divide them likewise.
pub const TIME_SCALE: &str = "NEARSIDE_TIME_SCALE";

pub use attempts::run;
pub use error::LabError;
pub use kernel_module::KernelModule;
pub use passed_files::{PLUGIN, PLUGIN_VARIABLE};
pub use run::{Event, Outcome, Run, Stage, check_memory};
pub use shape::{CPUS_MAX, Changes, CpuNumbers, MEMORY_PER_NODE, NODES_MAX, Shape, ShapeError, Topology, shape};
pub use signals::default_signals;
pub use streams::terminal_size;
