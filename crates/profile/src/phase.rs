//! Phases: times of uniform use of an object.

use crate::flow::Flow;
use machine::NodeId;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use trace::AccessKind;

/// Number of intervals that the time is divided into.
const PARTS: u64 = 64;
/// Share of writes from which on usage is writing; up to one minus it, it is reading.
const MOSTLY: f64 = 0.95;
/// Share from which on accesses count as from one node.
const ONE_NODE: f64 = 0.9;

/// The kind of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Usage {
    /// At least 95 % reads.
    Read,
    /// At least 95 % writes.
    Write,
    /// Both.
    ReadAndWrite,
    /// The source does not report it.
    Unknown,
}

/// A time of uniform use.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Phase {
    /// When it begins, ns.
    pub from_ns: u64,
    /// When it ends, ns.
    pub until_ns: u64,
    /// The kind of use.
    pub usage: Usage,
    /// The node with at least nine tenths of the accesses.
    pub node: Option<NodeId>,
    /// Number of threads.
    pub threads: u64,
    /// Number of samples.
    pub samples: u64,
}

impl Flow<'_> {
    /// The phases: adjacent intervals, of 64 equal ones, with the same use. Intervals without accesses belong to the
    /// phase before them.
    pub fn phases(&self) -> Vec<Phase> {
        let (Some(first), Some(last)) = (self.accesses().next(), self.accesses().next_back()) else {
            return Vec::new();
        };
        let length = ((last.time_ns - first.time_ns) / PARTS).max(1);
        let mut found: Vec<(Phase, BTreeSet<u32>)> = Vec::new();
        let mut accesses = self.accesses().peekable();
        while let Some(next) = accesses.peek() {
            let part_of = |time_ns: u64| ((time_ns - first.time_ns) / length).min(PARTS - 1);
            let part = part_of(next.time_ns);
            let from_ns = first.time_ns + part * length;
            let until_ns = if part == PARTS - 1 { last.time_ns } else { from_ns.saturating_add(length) };
            let (mut loads, mut stores, mut samples) = (0_u64, 0_u64, 0_u64);
            let (mut nodes, mut threads) = (BTreeMap::<NodeId, u64>::new(), BTreeSet::new());
            while let Some(access) = accesses.next_if(|access| part_of(access.time_ns) == part) {
                samples += 1;
                loads += u64::from(access.kind == AccessKind::Load);
                stores += u64::from(access.kind == AccessKind::Store);
                threads.insert(access.thread.0);
                if let Some(node) = access.from {
                    *nodes.entry(node).or_default() += 1;
                }
            }
            let known = (loads + stores) as f64;
            let usage = match stores as f64 / known {
                share if share >= MOSTLY => Usage::Write,
                share if share <= 1.0 - MOSTLY => Usage::Read,
                share if share.is_nan() => Usage::Unknown,
                _ => Usage::ReadAndWrite,
            };
            let node = nodes.into_iter().find(|(_, count)| *count as f64 >= ONE_NODE * samples as f64);
            let node = node.map(|(node, _)| node);
            match found.last_mut() {
                Some((before, them)) if before.usage == usage && before.node == node => {
                    before.until_ns = until_ns;
                    before.samples += samples;
                    them.extend(threads);
                }
                before => {
                    if let Some((before, _)) = before {
                        before.until_ns = from_ns;
                    }
                    found.push((Phase { from_ns, until_ns, usage, node, threads: 0, samples }, threads));
                }
            }
        }
        found.into_iter().map(|(phase, threads)| Phase { threads: threads.len() as u64, ..phase }).collect()
    }
}
