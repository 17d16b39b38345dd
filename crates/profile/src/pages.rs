//! Small pages of an object.

use crate::flow::Flow;
use crate::ids::{ProcessId, ThreadId};
use crate::tally::Tally;
use machine::{NodeId, SMALL_PAGE};
use serde::Serializer;
use std::collections::{BTreeMap, BTreeSet};

/// Share of the accesses to memory from which on it counts as one node's.
pub(crate) const APART: f64 = 0.9;

/// Accesses to one small page.
#[derive(Clone, Debug, PartialEq)]
pub struct PageUse {
    /// Its process.
    pub process: ProcessId,
    /// Its first address.
    pub address: u64,
    /// The accesses.
    pub tally: Tally,
    /// Number of samples by thread.
    pub threads: BTreeMap<ThreadId, u64>,
    /// Nodes of the CPUs that accessed it.
    pub from: BTreeSet<NodeId>,
    /// How often it was seen at a different physical address than before.
    pub moves: u64,
}

impl Flow<'_> {
    /// Its small pages, by process and address.
    pub fn pages(&self) -> Vec<PageUse> {
        let mut pages: BTreeMap<(ProcessId, u64), (PageUse, Option<u64>)> = BTreeMap::new();
        for access in self.accesses() {
            let process = self.profile().threads()[access.thread.index()].process;
            let address = access.address & !(SMALL_PAGE - 1);
            let (page, frame) = pages.entry((process, address)).or_insert_with(|| {
                let page = PageUse {
                    process,
                    address,
                    tally: Tally::default(),
                    threads: BTreeMap::new(),
                    from: BTreeSet::new(),
                    moves: 0,
                };
                (page, None)
            });
            page.tally.add(&access);
            *page.threads.entry(access.thread).or_default() += 1;
            page.from.extend(access.from);
            if let Some(physical) = access.physical {
                let now = physical / SMALL_PAGE;
                page.moves += u64::from(frame.replace(now).is_some_and(|before| before != now));
            }
        }
        pages.into_values().map(|(page, _)| page).collect()
    }
}

/// Hexadecimal text, because many JSON readers round numbers of more than 53 bits.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
pub(crate) fn hexadecimal<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{number:#x}"))
}
