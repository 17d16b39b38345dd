//! `nearside run --replicate`: files of which the program has a copy on its own node.

use crate::options::usage_error::UsageError;
use linux::{FreeMemory, NodeState, Tid, affinity, replicate_files};
use machine::{MemoryPolicy, NodeSet, chain};
use rustix::io::Errno;
use std::error::Error;
use std::path::PathBuf;

const RIGHTS: &str = "it needs root, or user namespaces that any user may make (see kernel.unprivileged_userns_clone, \
                      user.max_user_namespaces and kernel.apparmor_restrict_unprivileged_userns)";

/// The nodes for the copies: those of the memory policy, else those that the CPUs are at.
fn nodes(policy: Option<&MemoryPolicy>, state: &NodeState) -> Result<NodeSet, Box<dyn Error>> {
    if let Some(policy) = policy.filter(|policy| !policy.nodes.is_empty()) {
        return Ok(policy.nodes.clone());
    }
    let cpus = affinity(Tid::CALLER)?;
    let near: NodeSet = state.nodes_of(&cpus).intersection(&state.with_memory);
    // A copy that is spread over all nodes would be no nearer than the file.
    if near.is_empty() || near == state.with_memory && near.len() > 1 {
        return Err(UsageError::boxed(
            "--replicate needs the nodes of the copies: add --cpunodebind NODES, or --membind NODES",
        ));
    }
    Ok(near)
}

/// Shows this process, which becomes the program, a copy of each of these files on its nodes.
pub fn replicate(files: &[PathBuf], policy: Option<&MemoryPolicy>, state: &NodeState) -> Result<(), Box<dyn Error>> {
    if files.is_empty() {
        return Ok(()); // no nodes are needed either
    }
    let nodes = nodes(policy, state)?;
    let bytes: u64 = files.iter().filter_map(|file| file.metadata().ok()).map(|found| found.len()).sum();
    if let Some(why) = FreeMemory::for_caller().in_the_way(bytes, Some(&nodes)) {
        return Err(format!("cannot keep copies of {bytes} bytes on nodes {nodes}: {why}").into());
    }
    replicate_files(files, &nodes).map_err(|refused| {
        let is_forbidden = matches!(Errno::from_io_error(&refused.why), Some(Errno::PERM | Errno::ACCESS));
        let remedy = if is_forbidden { format!(": {RIGHTS}") } else { String::new() };
        format!("{}{remedy}", chain(&refused)).into()
    })
}
