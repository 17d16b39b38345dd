//! What a NUMA machine is: its nodes, CPUs, caches, firmware distances, links and routes.
//!
//! [`Machine`] is the one description that every other part of nearside reads. It comes from a machine file (TOML), from
//! a running or saved Linux system (sysfs), from firmware tables (SRAT, SLIT, HMAT) or from hwloc XML, and
//! can be drawn as text, JSON, hwloc XML or SVG.

mod description;
mod ids;
mod set;
pub mod size;

pub use description::{
    Cache, CacheKind, Core, Distances, Latency, Link, LinkDirection, Machine, Node, Package, Route, Sharing, Source,
};
pub use ids::{CpuId, NodeId, PackageId};
pub use set::{CpuSet, IdSet, NodeSet, SetError};
