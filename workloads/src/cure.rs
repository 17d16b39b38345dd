//! Machine properties that the cures of programs with a flaw need.

use crate::error::Error;
use linux::{MemoryMode, MemoryPolicy, NodeState, memory_policy, set_memory_policy};
use machine::{CpuSet, NodeId};
use std::io;
use std::path::Path;

/// The nodes with CPUs that this process may use, and those CPUs.
pub fn nodes(allowed: &CpuSet) -> Result<Vec<(NodeId, CpuSet)>, Error> {
    let state = state()?;
    let used = state.cpus.into_iter().map(|(node, cpus)| (node, cpus.intersection(allowed)));
    Ok(used.filter(|(_, cpus)| !cpus.is_empty()).collect())
}

/// Runs `fill` with all memory that it touches first interleaved over all nodes.
pub fn interleaved<T>(fill: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let nodes = state()?.with_memory;
    let before = memory_policy().map_err(Error::System)?;
    set_memory_policy(&MemoryPolicy::new(MemoryMode::Interleave, nodes)).map_err(Error::System)?;
    let filled = fill();
    set_memory_policy(&before).map_err(Error::System)?;
    filled
}

fn state() -> Result<NodeState, Error> {
    NodeState::read(Path::new("/sys")).map_err(|error| Error::System(io::Error::other(error)))
}
