//! Actions: the output of a decision.

use crate::metrics::Metrics;
use crate::reason::Reason;
use machine::{CpuSet, NodeId, NodeSet, NodeWeight, Pid, SMALL_PAGE, Tid};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What was decided in a round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    /// The round's number: [`crate::Observation::round`].
    pub round: u64,
    /// Metrics of the round's traffic.
    #[serde(default)]
    pub metrics: Metrics,
    /// What to do, in this order. Never empty: [`Action::Nothing`] if there is nothing to do.
    pub steps: Vec<Step>,
}

/// An action and its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The action.
    pub action: Action,
    /// The reason.
    pub reason: Reason,
}

/// An action. Its pages belong to one process, are in ascending order of address, and are at most one batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Move pages to one node.
    MovePages {
        /// The process.
        pid: Pid,
        /// The target node.
        node: NodeId,
        /// Addresses of the pages.
        pages: Vec<u64>,
        /// Their total size, bytes.
        bytes: u64,
    },
    /// Distribute pages among nodes, each to its own target.
    InterleavePages {
        /// The process.
        pid: Pid,
        /// The weights that nodes were drawn with, so that later allocations can use them too.
        weights: Vec<NodeWeight>,
        /// The pages and their targets.
        pages: Vec<PageTarget>,
        /// Their total size, bytes.
        bytes: u64,
    },
    /// Move those pages of whole mappings that are on other nodes.
    MoveRanges {
        /// The process.
        pid: Pid,
        /// The target node.
        node: NodeId,
        /// The mappings.
        ranges: Vec<AddressRange>,
        /// Most bytes to move in this round; the rest is requested again.
        bytes: u64,
        /// Longest time that moving may take, s; none if that is not limited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        most_s: Option<f64>,
    },
    /// Distribute the pages of whole mappings, or parts of them, over nodes by address.
    DealRanges {
        /// The process.
        pid: Pid,
        /// The nodes and their weights.
        weights: Vec<NodeWeight>,
        /// The mappings.
        ranges: Vec<AddressRange>,
        /// Most bytes to move in this round; the rest is requested again.
        bytes: u64,
        /// Longest time that moving may take, s; none if that is not limited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        most_s: Option<f64>,
    },
    /// Make a copy of these pages on each of these nodes, as far as possible.
    Replicate {
        /// The process.
        pid: Pid,
        /// Addresses of the pages.
        pages: Vec<u64>,
        /// The nodes that read them; if `is_possible`, the node that this process reads them from.
        nodes: NodeSet,
        /// Whether the process can have a private copy, as the pages are [`crate::Page::is_replicable`]. Otherwise only
        /// a kernel that replicates pages could make copies.
        is_possible: bool,
        /// What to do if that fails; none for nothing.
        instead: Option<Box<Action>>,
    },
    /// Permanently give up the copies of these pages.
    Revert {
        /// The process.
        pid: Pid,
        /// Addresses of the pages.
        pages: Vec<u64>,
    },
    /// Split huge pages, and keep them split.
    SplitHugePages {
        /// The process.
        pid: Pid,
        /// Addresses of the pages.
        pages: Vec<u64>,
    },
    /// Restrict a thread to these CPUs.
    MoveThread {
        /// The process.
        pid: Pid,
        /// The thread.
        tid: Tid,
        /// The CPUs.
        cpus: CpuSet,
    },
    /// Restrict all threads of a process to these CPUs, including later ones.
    MoveProcess {
        /// The process.
        pid: Pid,
        /// The CPUs.
        cpus: CpuSet,
    },
    /// Set the sampling rate.
    SetSampling(Sampling),
    /// Do nothing.
    Nothing,
}

/// A page and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageTarget {
    /// Its address.
    pub address: u64,
    /// The target node.
    pub node: NodeId,
}

/// Addresses from `start` up to, but not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddressRange {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
}

/// The sampling rate, and how many pages to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sampling {
    /// Core cycles between samples. Sources that count something else use `divisor`.
    pub interval_cycles: u64,
    /// Factor by which there are fewer samples than at the full rate: 1 or 4.
    pub divisor: u64,
    /// Most pages to keep per round.
    pub page_cap: u64,
}

impl Action {
    /// The nodes whose memory it uses, with an upper bound of bytes.
    pub fn fills(&self) -> Vec<(NodeId, u64)> {
        match self {
            Self::MovePages { node, bytes, .. } | Self::MoveRanges { node, bytes, .. } => vec![(*node, *bytes)],
            Self::DealRanges { weights, bytes, .. } => {
                let all: u64 = weights.iter().map(|by| u64::from(by.weight)).sum();
                let part = |by: &NodeWeight| (by.node, bytes / all.max(1) * u64::from(by.weight));
                weights.iter().map(part).collect()
            }
            Self::InterleavePages { pages, bytes, .. } => {
                let each = bytes / (pages.len() as u64).max(1);
                pages.iter().map(|page| (page.node, each)).collect()
            }
            Self::Replicate { nodes, pages, is_possible: true, .. } => {
                nodes.iter().map(|node| (node, pages.len() as u64 * SMALL_PAGE)).collect()
            }
            Self::Replicate { instead: Some(instead), .. } => instead.fills(),
            _ => Vec::new(),
        }
    }

    /// The first address that it affects, of pages and mappings.
    pub fn first_page(&self) -> Option<u64> {
        match self {
            Self::MovePages { pages, .. }
            | Self::Replicate { pages, .. }
            | Self::Revert { pages, .. }
            | Self::SplitHugePages { pages, .. } => pages.first().copied(),
            Self::InterleavePages { pages, .. } => pages.first().map(|page| page.address),
            Self::MoveRanges { ranges, .. } | Self::DealRanges { ranges, .. } => {
                ranges.first().map(|range| range.start)
            }
            Self::MoveThread { .. } | Self::MoveProcess { .. } | Self::SetSampling(_) | Self::Nothing => None,
        }
    }

    /// The process that it affects.
    pub fn pid(&self) -> Option<Pid> {
        match self {
            Self::MovePages { pid, .. }
            | Self::InterleavePages { pid, .. }
            | Self::MoveRanges { pid, .. }
            | Self::DealRanges { pid, .. }
            | Self::Replicate { pid, .. }
            | Self::Revert { pid, .. }
            | Self::SplitHugePages { pid, .. }
            | Self::MoveThread { pid, .. }
            | Self::MoveProcess { pid, .. } => Some(*pid),
            Self::SetSampling(_) | Self::Nothing => None,
        }
    }

    /// Upper bound of bytes that it moves or copies; for pages that cannot be replicated, those of the fallback.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::MovePages { bytes, .. }
            | Self::InterleavePages { bytes, .. }
            | Self::MoveRanges { bytes, .. }
            | Self::DealRanges { bytes, .. } => *bytes,
            Self::Replicate { is_possible: true, pages, .. } => pages.len() as u64 * SMALL_PAGE,
            Self::Replicate { instead: Some(instead), .. } => instead.bytes(),
            _ => 0,
        }
    }
}

fn pages(count: usize) -> String {
    format!("{count} {}", if count == 1 { "page" } else { "pages" })
}

fn named(nodes: &NodeSet) -> String {
    format!("{} {nodes}", if nodes.len() == 1 { "node" } else { "nodes" })
}

/// As an imperative: `move 412 pages (1.61 MiB) of process 7 to node 2`.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = machine::size::rounded;
        match self {
            Self::MovePages { pid, node, pages: moved, bytes } => {
                write!(f, "move {} ({}) of process {pid} to node {node}", pages(moved.len()), size(*bytes))
            }
            Self::InterleavePages { pid, pages: dealt, bytes, .. } => {
                let nodes: NodeSet = dealt.iter().map(|page| page.node).collect();
                write!(f, "deal {} ({}) of process {pid} to {}", pages(dealt.len()), size(*bytes), named(&nodes))
            }
            Self::MoveRanges { pid, node, ranges, bytes, .. } => {
                let mappings = if ranges.len() == 1 { "mapping" } else { "mappings" };
                let (count, most) = (ranges.len(), size(*bytes));
                write!(f, "move {count} {mappings} of process {pid} to node {node}, at most {most} of them")
            }
            Self::DealRanges { pid, weights, ranges, bytes, .. } => {
                let nodes: NodeSet = weights.iter().map(|by| by.node).collect();
                let (count, most) = (ranges.len(), size(*bytes));
                let mappings = if count == 1 { "mapping" } else { "mappings" };
                let nodes = named(&nodes);
                write!(f, "deal {count} {mappings} of process {pid} to {nodes}, at most {most} of them")
            }
            Self::Replicate { pid, pages: copied, nodes, is_possible, instead } => {
                write!(f, "replicate {} of process {pid} on {}", pages(copied.len()), named(nodes))?;
                match instead {
                    Some(instead) if *is_possible => write!(f, ", or else {instead}"),
                    Some(instead) => write!(f, " if the kernel could; instead {instead}"),
                    None if *is_possible => Ok(()),
                    None => f.write_str(" if the kernel could; nothing instead"),
                }
            }
            Self::Revert { pid, pages: reverted } => {
                write!(f, "give up the copies of {} of process {pid}", pages(reverted.len()))
            }
            Self::SplitHugePages { pid, pages: split } => {
                write!(
                    f,
                    "split {} huge {} of process {pid}",
                    split.len(),
                    if split.len() == 1 { "page" } else { "pages" }
                )
            }
            Self::MoveThread { pid, tid, cpus } => write!(f, "run thread {tid} of process {pid} on CPUs {cpus}"),
            Self::MoveProcess { pid, cpus } => write!(f, "run process {pid} on CPUs {cpus}"),
            Self::SetSampling(Sampling { interval_cycles, .. }) => {
                write!(f, "take a sample every {interval_cycles} cycles")
            }
            Self::Nothing => f.write_str("do nothing"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.action, self.reason)
    }
}
