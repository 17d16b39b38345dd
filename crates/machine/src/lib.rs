//! The description of a NUMA machine: its nodes, CPUs, caches, firmware distances, links and routes.
//!
//! [`Machine`] is the one description that every other part of nearside reads. It comes from a machine file (TOML),
//! from a running or saved Linux system (sysfs), from firmware tables (SRAT, SLIT, HMAT) or from hwloc XML, and can be
//! written as TOML, JSON or hwloc XML.

pub mod acpi;
mod addresses;
pub mod bounded;
mod chain;
mod control;
mod description;
mod devices;
mod disk;
mod file;
mod files;
mod hwloc;
mod ids;
mod memory_policy;
mod nearest;
pub mod number;
mod numbers;
mod objects;
mod odd_character;
mod pairs;
mod pinning;
pub mod presets;
mod random;
mod ranges;
mod routes;
mod selection;
mod set;
mod simple_sharing;
pub mod size;
mod source;
mod statistics;
mod synthetic;
mod sysfs;
mod validate;
mod violation;

pub use addresses::{HUGE_PAGE, LINE_BYTES, SMALL_PAGE, is_kernel_address};
pub use chain::{chain, system_words};
pub use control::{CONTROLLED_LEVEL, Control, MOST_WAYS};
pub use description::{
    Cache, CacheKind, Coherence, Core, Distances, Latency, Link, LinkDirection, Machine, Node, Package, PageSize,
    Probes, Route, Sharing, Tlb,
};
pub use devices::{PciDevice, PciKind};
pub use disk::Disk;
pub use file::{MachineError, Mistake, read_checked};
pub use files::Archive;
pub use hwloc::HwlocError;
pub use ids::{CpuId, NodeId, PackageId, Pid, Tid};
pub use memory_policy::{MemoryMode, MemoryPolicy, NodeNumbering, NodeWeight};
pub use nearest::{did_you_mean, nearest};
pub use objects::{ObjectError, Objects, Part};
pub use odd_character::is_obeyed;
pub use pinning::{Pinning, Places, PlacesError};
pub use random::Random;
pub use ranges::{NumberRange, number_ranges};
pub use routes::{Direction, Hop, Routes};
pub use selection::{Device, DeviceKind, Named, Selection, SelectionError, SelectionTextError};
pub use set::{CpuSet, IdSet, MAX_ID, NodeSet, SetError};
pub use source::Source;
pub use statistics::{imbalance, median, median_low, quantile};
pub use synthetic::{SyntheticError, is_synthetic};
pub use sysfs::SysfsError;
pub use validate::MAX_NODES;
pub use violation::{Violation, Violations};
