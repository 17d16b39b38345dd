//! hwloc 2.x XML, out and in: what `lstopo --of xml` writes and `lstopo -i` reads.
//!
//! Of what nearside knows, hwloc has a place for nodes, packages, cores, CPUs, caches, firmware distances, latencies by
//! pair of nodes (whole ns) and a node's bandwidth (whole MiB/s); it has none for links, routes, sources and cache
//! latencies.

mod bitmap;
mod document;
mod read;
#[cfg(test)]
mod tests;
mod write;

use crate::validate::Violations;

/// hwloc's unit of bandwidth is one of these a second.
const MEBIBYTE: f64 = 1_048_576.0;

/// Why hwloc XML describes no machine, or a machine cannot be written as hwloc XML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HwlocError {
    /// The text is not hwloc 2.x XML.
    #[error("hwloc XML, line {line}: {what}: {rule}")]
    Text {
        /// Line, from 1.
        line: usize,
        /// The element or attribute.
        what: String,
        /// The rule, and what is there instead.
        rule: String,
    },
    /// The XML is good, but describes something that is no machine.
    #[error("the hwloc XML describes no machine that works: {0}")]
    Machine(#[from] Violations),
    /// hwloc's objects are a tree.
    #[error("hwloc cannot hold this machine: {0}")]
    NoTree(String),
}
