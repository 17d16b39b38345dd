//! hwloc XML: what `lstopo --of xml` of hwloc 2 or 3 writes is read, and what `lstopo -i` of both reads is written
//! (version 2).
//!
//! Of nearside's description, hwloc can hold nodes, packages, cores, CPUs, caches, firmware distances, latencies by
//! pair of nodes (whole ns) and a node's bandwidth (whole MiB/s); it cannot hold links, routes, sources and cache
//! latencies.

mod bitmap;
mod document;
mod read;
#[cfg(test)]
mod tests;
mod write;

use crate::violation::Violations;

/// hwloc's unit of bandwidth, per second.
const MEBIBYTE: f64 = 1_048_576.0;

/// Why hwloc XML does not describe a valid machine, or a machine cannot be written as hwloc XML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HwlocError {
    /// The text is not XML of hwloc 2 or 3.
    #[error("hwloc XML, line {line}: {what}: {rule}")]
    Text {
        /// Line, from 1.
        line: usize,
        /// The element or attribute.
        what: String,
        /// The rule, and the actual value.
        rule: String,
    },
    /// The XML is well-formed, but does not describe a valid machine.
    #[error("the hwloc XML does not describe a valid machine")]
    Machine(#[from] Violations),
    /// The machine does not fit into hwloc's tree of objects.
    #[error("hwloc cannot hold this machine: {0}")]
    NoTree(String),
}
