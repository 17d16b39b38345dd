//! The pages of an object.

use super::nodes::MOST_NODES;
use crate::layout::Layout;
use crate::{Address, Table};
use machine::number::count;
use machine::{NodeId, NodeSet};
use profile::{Flow, HugePage, PageUse, ProcessId};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

/// The accessed pages of an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectPages {
    /// Number of small pages.
    pub small: usize,
    /// Number of those accessed by a single thread.
    pub of_one_thread: usize,
    /// Number of those accessed by threads of a single node.
    pub from_one_node: usize,
    /// Number of those that changed their physical address.
    pub moved: usize,
    /// Number of pages by node of their memory.
    pub by_node: BTreeMap<NodeId, usize>,
    /// Those with the most samples.
    pub first: Vec<PageRow>,
    /// 2 MiB blocks of which different nodes use different parts.
    pub falsely_shared: Vec<HugePage>,
}

/// A small page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PageRow {
    /// Its process.
    pub process: ProcessId,
    /// Its first address.
    pub address: Address,
    /// Samples.
    pub samples: u64,
    /// Samples that went to another node.
    pub remote_samples: u64,
    /// Samples that are writes.
    pub store_samples: u64,
    /// Number of threads that accessed it.
    pub threads: usize,
    /// The nodes of their CPUs.
    pub from: NodeSet,
    /// How often it was seen at a different physical address than before.
    pub moves: u64,
}

impl ObjectPages {
    /// For a flow, with at most `most` single pages.
    pub fn new(flow: &Flow, most: usize) -> Self {
        let pages = flow.pages();
        let mut by_node: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut home: BTreeMap<(ProcessId, u64), NodeId> = BTreeMap::new();
        for access in flow.accesses() {
            if let (Some(node), Some(thread)) = (access.to, flow.profile().threads().get(access.thread.0 as usize)) {
                home.insert((thread.process, access.address & !(machine::SMALL_PAGE - 1)), node);
            }
        }
        for node in home.into_values() {
            *by_node.entry(node).or_default() += 1;
        }
        let mut first: Vec<&PageUse> = pages.iter().collect();
        first.sort_by_key(|page| (Reverse(page.tally.samples), page.process, page.address));
        let row = |page: &&PageUse| PageRow {
            process: page.process,
            address: Address(page.address),
            samples: page.tally.samples,
            remote_samples: page.tally.remote_samples,
            store_samples: page.tally.store_samples,
            threads: page.threads.len(),
            from: page.from.iter().copied().collect(),
            moves: page.moves,
        };
        Self {
            small: pages.len(),
            of_one_thread: pages.iter().filter(|page| page.threads.len() == 1).count(),
            from_one_node: pages.iter().filter(|page| page.from.len() == 1).count(),
            moved: pages.iter().filter(|page| page.moves > 0).count(),
            by_node,
            first: first.iter().take(most).map(row).collect(),
            falsely_shared: flow.huge_pages().into_iter().filter(HugePage::is_falsely_shared).collect(),
        }
    }
}

impl fmt::Display for ObjectPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { small, of_one_thread, from_one_node, moved, by_node, first, falsely_shared } = self;
        let mut nodes: Vec<(&NodeId, &usize)> = by_node.iter().collect();
        nodes.sort_by_key(|(node, pages)| (Reverse(**pages), **node));
        let nodes: Vec<String> =
            nodes.iter().take(MOST_NODES).map(|(node, pages)| format!("{pages} on node {node}")).collect();
        let nodes = if nodes.is_empty() { String::new() } else { format!(" ({})", nodes.join(", ")) };
        let layout = Layout::of(f);
        f.write_str(&layout.wrapped("  ", &format!("{small} of 4 KiB were seen{nodes}")))?;
        let used = format!("{of_one_thread} used by one thread, {from_one_node} by one node; {moved} were moved");
        f.write_str(&layout.wrapped("  ", &used))?;
        for page in falsely_shared {
            let of = if page.is_huge { "the huge page" } else { "2 MiB" };
            let share = 100.0 * page.held;
            let (at, samples) = (page.address, page.samples);
            let text = format!("{of} at {at:x}: nodes use parts of their own ({share:.0} % of {samples})");
            f.write_str(&layout.wrapped("  ", &text))?;
        }
        let mut table =
            Table::new(["  page", "samples", "remote", "writes", "threads", "from nodes", "moves"]).optional(&[6, 3]);
        for page in first {
            table.row([
                format!("  {:x}", page.address.0),
                count(page.samples),
                count(page.remote_samples),
                count(page.store_samples),
                page.threads.to_string(),
                page.from.to_string(),
                page.moves.to_string(),
            ]);
        }
        f.write_str(&layout.text(&table))
    }
}
