//! Memory policies: which nodes new pages are allocated on.

use crate::{NodeId, NodeSet};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How the kernel chooses the nodes of new pages: modes of `set_mempolicy` and `mbind`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryMode {
    /// No policy of its own: the thread's policy applies or, without one, the node of the CPU that first touches a
    /// page, with fallback to other nodes.
    #[default]
    Default,
    /// The node of the CPU that first touches a page, with fallback to other nodes. Since Linux 3.8.
    Local,
    /// This node, with fallback to other nodes.
    Preferred,
    /// These nodes, nearest first, with fallback to other nodes. Since Linux 5.15.
    PreferredMany,
    /// These nodes only. If they are full, the allocation fails as out of memory.
    Bind,
    /// These nodes in turn, page by page.
    Interleave,
    /// These nodes in turn, with each node's weight as the number of consecutive pages. Since Linux 6.9; on older
    /// kernels [`MemoryMode::Interleave`] is the closest.
    WeightedInterleave,
}

impl MemoryMode {
    /// All modes.
    pub const ALL: [Self; 7] = [
        Self::Default,
        Self::Local,
        Self::Preferred,
        Self::PreferredMany,
        Self::Bind,
        Self::Interleave,
        Self::WeightedInterleave,
    ];
}

/// numactl's names.
impl fmt::Display for MemoryMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::Local => "local",
            Self::Preferred => "preferred",
            Self::PreferredMany => "preferred-many",
            Self::Bind => "bind",
            Self::Interleave => "interleave",
            Self::WeightedInterleave => "weighted interleave",
        })
    }
}

/// How a policy's node numbers are interpreted when the cpuset changes. Since Linux 2.6.26.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeNumbering {
    /// Remapped to the nodes of the new cpuset.
    #[default]
    Remapped,
    /// Unchanged; nodes are ignored while the cpuset does not allow them.
    Static,
    /// Relative to the nodes of the cpuset.
    Relative,
}

/// A memory policy: a mode and its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryPolicy {
    /// How pages are distributed over nodes.
    pub mode: MemoryMode,
    /// The nodes; empty with [`MemoryMode::Default`] and [`MemoryMode::Local`].
    #[serde(default)]
    pub nodes: NodeSet,
    /// The weights of [`MemoryMode::WeightedInterleave`], 1 to 255, one per node; empty where they are not known. The
    /// kernel has one weight per node for the whole system, and no policy carries its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<NodeWeight>,
    /// How the node numbers are interpreted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub numbering: NodeNumbering,
    /// Whether the kernel's NUMA balancing may move pages among the nodes: with [`MemoryMode::Bind`] since Linux 5.12,
    /// with [`MemoryMode::PreferredMany`] since 6.13.
    #[serde(default, skip_serializing_if = "is_default")]
    pub balancing: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
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
    /// A policy with this mode and these nodes.
    pub fn new(mode: MemoryMode, nodes: NodeSet) -> Self {
        Self { mode, nodes, ..Self::default() }
    }

    /// A mode without nodes.
    pub fn plain(mode: MemoryMode) -> Self {
        Self { mode, ..Self::default() }
    }

    /// A policy that binds to one node.
    pub fn bind(node: NodeId) -> Self {
        Self::new(MemoryMode::Bind, [node].into_iter().collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_policy_leaves_open_is_not_written() {
        let policy = MemoryPolicy::bind(NodeId(1));
        let text = serde_json::to_string(&policy).unwrap();
        assert_eq!(text, r#"{"mode":"bind","nodes":"1"}"#);
        assert_eq!(serde_json::from_str::<MemoryPolicy>(&text).unwrap(), policy);
        let weights = vec![NodeWeight { node: NodeId(0), weight: 3 }, NodeWeight { node: NodeId(1), weight: 1 }];
        let all = MemoryPolicy {
            weights,
            numbering: NodeNumbering::Static,
            balancing: true,
            ..MemoryPolicy::new(MemoryMode::WeightedInterleave, "0-1".parse().unwrap())
        };
        assert_eq!(serde_json::from_str::<MemoryPolicy>(&serde_json::to_string(&all).unwrap()).unwrap(), all);
        assert_eq!(all.to_string(), "weighted interleave: 0-1 with weights 0=3,1=1");
    }
}
