//! Access paths: who accesses from where, and whose memory. There are few, each with many accesses.

use crate::ids::ThreadId;
use crate::samples::{AccessPath, NONE};
use machine::{CpuId, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// A thread, the node of its CPU, and that of the memory if memory was reached.
pub(crate) type CellKey = (ThreadId, Option<NodeId>, Option<NodeId>);

/// A resolved [`AccessPath`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResolvedPath {
    pub thread: ThreadId,
    pub cpu: CpuId,
    /// The node of that CPU.
    pub from: Option<NodeId>,
    /// The node that the line came from or went to.
    pub to: Option<NodeId>,
    /// Index into the list of cells.
    pub cell: u32,
    /// [`Traits`](crate::samples::Traits), packed.
    pub traits: u16,
}

impl ResolvedPath {
    /// Resolves all paths, in order, and returns the cells that they use, ordered by key.
    pub fn all(paths: &[AccessPath], node_of_cpu: impl Fn(CpuId) -> Option<NodeId>) -> (Vec<Self>, Vec<CellKey>) {
        let known = paths.iter().map(|path| {
            let (thread, cpu) = (ThreadId(path.caller), CpuId(path.cpu));
            let (from, to) = (node_of_cpu(cpu), (path.node != NONE).then_some(NodeId(path.node)));
            let reached = to.filter(|_| path.leaves_caches && from.is_some());
            (Self { thread, cpu, from, to, cell: 0, traits: path.traits }, (thread, from, reached))
        });
        let known: Vec<(Self, CellKey)> = known.collect();
        let cells: Vec<CellKey> = known.iter().map(|(_, key)| *key).collect::<BTreeSet<_>>().into_iter().collect();
        let numbers: BTreeMap<CellKey, u32> = cells.iter().copied().zip(0..).collect();
        let paths = known.into_iter().map(|(path, key)| Self { cell: numbers[&key], ..path }).collect();
        (paths, cells)
    }
}
