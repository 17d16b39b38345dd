//! Memory policies: which nodes new pages are allocated on.

use machine::{NodeId, NodeSet};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How the kernel chooses the node of a new page: modes of `set_mempolicy` and `mbind`, shown in numactl's terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "lowercase")]
pub enum MemoryMode {
    /// No policy of its own: inherited from its parent or set by the program.
    #[default]
    Default,
    /// The node of the CPU that first touches the page. Since Linux 3.8.
    Local,
    /// This node, or others when it is full.
    Preferred,
    /// These nodes only.
    Bind,
    /// These nodes in turn.
    Interleave,
    /// These nodes in turn, with a number of consecutive pages on each given by its weight. Since Linux 6.9; on older
    /// kernels [`MemoryMode::Interleave`] is the closest.
    #[strum(serialize = "weighted interleave")]
    WeightedInterleave,
}

/// A memory policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryPolicy {
    /// How nodes are chosen.
    pub mode: MemoryMode,
    /// The nodes; empty with [`MemoryMode::Default`] and [`MemoryMode::Local`].
    #[serde(default)]
    pub nodes: NodeSet,
    /// The weights of [`MemoryMode::WeightedInterleave`], 1 to 255, one per node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<NodeWeight>,
}

/// A node's number of consecutive pages, or its weight in draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeWeight {
    /// The node.
    pub node: NodeId,
    /// Its weight.
    pub weight: u32,
}

impl MemoryPolicy {
    /// A mode without nodes.
    pub fn plain(mode: MemoryMode) -> Self {
        Self { mode, ..Self::default() }
    }

    /// A mode on these nodes.
    pub fn on(mode: MemoryMode, nodes: NodeSet) -> Self {
        Self { mode, nodes, weights: Vec::new() }
    }

    /// Whether it distributes pages over several nodes.
    pub fn is_interleaved(&self) -> bool {
        matches!(self.mode, MemoryMode::Interleave | MemoryMode::WeightedInterleave)
    }
}

/// In numactl's terms, such as `bind: 0-1`.
impl fmt::Display for MemoryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.mode.fmt(f)?;
        if !self.nodes.is_empty() {
            write!(f, ": {}", self.nodes)?;
        }
        for (index, NodeWeight { node, weight }) in self.weights.iter().enumerate() {
            write!(f, "{}{node}={weight}", if index == 0 { " with weights " } else { "," })?;
        }
        Ok(())
    }
}
