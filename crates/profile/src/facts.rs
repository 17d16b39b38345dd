//! Facts about the accesses to an object, or to all objects of a site.

use crate::flow::Flow;
use crate::groups::Cells;
use crate::ids::{ObjectId, ThreadId};
use crate::profile::{Access, Profile};
use crate::statistics::ratio;
use crate::tally::{Counts, Tally};
use crate::view::View;
use machine::NodeId;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::collections::BTreeMap;
use trace::AccessKind;

/// Facts about the accesses to an object, or to all objects of a site. Facts about the allocating thread are evaluated
/// per object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Facts {
    /// Number of objects.
    pub objects: u64,
    /// Accesses by pair of nodes, only those that reached memory. Rows are the CPUs' nodes.
    pub nodes: Vec<NodePair>,
    /// The threads, those with the most accesses first.
    pub threads: Vec<ThreadUse>,
    /// The share of accesses by the allocating thread, 0 to 1; none if no allocation is known.
    pub by_allocating_thread: Option<f64>,
    /// Samples of the allocating thread before those of any other thread.
    pub before_others_samples: u64,
    /// The first thread with a sampled write.
    pub first_writer: Option<Writer>,
    /// Time of the last sampled write, after which there are only reads, ns; none if nothing is read after it.
    pub read_only_since_ns: Option<u64>,
    /// Remote accesses that could have been local.
    pub avoidable: Avoidable,
    /// Pages of it that were migrated.
    pub page_migrations: u64,
}

/// Remote accesses by threads to what they allocated themselves, by what would have made them local.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Avoidable {
    /// The thread ran on another node than when it allocated: pinning would have avoided these.
    pub by_pinning_accesses: f64,
    /// The thread ran on the node where it allocated: the memory is on the wrong node.
    pub by_allocation_accesses: f64,
}

impl Avoidable {
    fn add(&mut self, profile: &Profile, access: &Access) {
        let object = &profile.objects()[access.object.index()];
        if !access.is_remote() || object.allocated_by != Some(access.thread) {
            return;
        }
        let node = object.allocated_on.and_then(|cpu| profile.node_of_cpu(cpu));
        match node.zip(access.from) {
            Some((then, now)) if then == now => self.by_allocation_accesses += f64::from(access.weight),
            Some(_) => self.by_pinning_accesses += f64::from(access.weight),
            None => {}
        }
    }
}

impl View<'_> {
    /// Remote accesses that could have been local, of all objects together.
    pub fn avoidable(&self) -> Avoidable {
        let mut avoidable = Avoidable::default();
        self.accesses().for_each(|access| avoidable.add(self.profile(), &access));
        avoidable
    }
}

/// Accesses of one node's CPUs to one node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NodePair {
    /// The node of the CPU.
    pub from: NodeId,
    /// The node of the memory.
    pub to: NodeId,
    /// The accesses.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Accesses of one thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadUse {
    /// Its number in the profile.
    pub thread: ThreadId,
    /// PID of its process.
    pub pid: u32,
    /// The TID.
    pub tid: u32,
    /// Its last name.
    pub name: Option<String>,
    /// The accesses.
    #[serde(flatten)]
    pub counts: Counts,
}

/// The first writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Writer {
    /// Its number in the profile.
    pub thread: ThreadId,
    /// The TID.
    pub tid: u32,
    /// When, ns.
    pub time_ns: u64,
}

/// The allocating thread's accesses to an object.
#[derive(Clone, Copy, Default)]
struct Owned {
    others: bool,
    before_others: u64,
}

impl Flow<'_> {
    /// The facts.
    pub fn facts(&self) -> Facts {
        let profile = self.profile();
        let mut cells = Cells::new(profile);
        let mut owned: FxHashMap<ObjectId, Owned> = FxHashMap::default();
        let (mut own, mut of_allocated) = (0.0, 0.0);
        let mut avoidable = Avoidable::default();
        let (mut first_writer, mut last_write, mut last_read) = (None, None, None);
        for access in self.accesses() {
            cells.add(&access);
            avoidable.add(profile, &access);
            match access.kind {
                AccessKind::Store => {
                    let tid = profile.threads()[access.thread.index()].tid.0;
                    first_writer =
                        first_writer.or(Some(Writer { thread: access.thread, tid, time_ns: access.time_ns }));
                    last_write = Some(access.time_ns);
                }
                AccessKind::Load => last_read = Some(access.time_ns),
                AccessKind::Unknown => {}
            }
            let object = &profile.objects()[access.object.index()];
            let owned = owned.entry(access.object).or_default();
            let Some(allocated_by) = object.allocated_by else { continue };
            let weight = f64::from(access.weight);
            of_allocated += weight;
            if allocated_by != access.thread {
                owned.others = true;
                continue;
            }
            own += weight;
            owned.before_others += u64::from(!owned.others);
        }
        let mut all = Tally::default();
        let mut pairs: BTreeMap<(NodeId, NodeId), Tally> = BTreeMap::new();
        let mut threads: BTreeMap<ThreadId, Tally> = BTreeMap::new();
        for ((thread, from, to), cell) in cells.in_order(profile) {
            all.merge(&cell.tally);
            threads.entry(thread).or_default().merge(&cell.tally);
            if let (Some(from), Some(to)) = (from, to) {
                pairs.entry((from, to)).or_default().merge(&cell.tally);
            }
        }
        let mut threads: Vec<(ThreadId, Tally)> = threads.into_iter().collect();
        threads.sort_by(|(a, first), (b, second)| second.accesses.total_cmp(&first.accesses).then(a.cmp(b)));
        let of_thread = |(thread, tally): (ThreadId, Tally)| {
            let known = &profile.threads()[thread.index()];
            ThreadUse {
                thread,
                pid: profile.processes()[known.process.index()].pid.0,
                tid: known.tid.0,
                name: known.name.as_deref().map(str::to_owned),
                counts: tally.counts(&all),
            }
        };
        Facts {
            objects: owned.len() as u64,
            nodes: pairs
                .into_iter()
                .map(|((from, to), tally)| NodePair { from, to, counts: tally.counts(&all) })
                .collect(),
            threads: threads.into_iter().map(of_thread).collect(),
            by_allocating_thread: ratio(own, of_allocated),
            before_others_samples: owned.values().map(|owned| owned.before_others).sum(),
            first_writer,
            read_only_since_ns: last_write.filter(|&write| last_read.is_some_and(|read| read > write)),
            avoidable,
            page_migrations: page_migrations(profile, owned.keys()),
        }
    }
}

fn page_migrations<'a>(profile: &Profile, objects: impl Iterator<Item = &'a ObjectId>) -> u64 {
    let moved = profile.placements().iter().filter(|placement| placement.from.is_some());
    let mut moved: Vec<_> = moved.collect();
    moved.sort_by_key(|placement| (placement.process, placement.address));
    let mut found = 0;
    for object in objects.map(|object| &profile.objects()[object.index()]).filter(|object| object.bytes > 0) {
        let last = object.start.saturating_add(object.bytes - 1);
        // No page is larger than this, so none that begins before can overlap the object.
        let first = object.start.saturating_sub(1 << 30);
        let at = moved.partition_point(|placement| (placement.process, placement.address) < (object.process, first));
        let near =
            moved[at..].iter().take_while(|placement| placement.process == object.process && placement.address <= last);
        let lives =
            |time_ns: u64| time_ns >= object.from_ns && object.until_ns.is_none_or(|until_ns| time_ns < until_ns);
        let touches = |address: u64, bytes: u64| address.saturating_add(bytes) > object.start;
        found += near.filter(|page| lives(page.time_ns) && touches(page.address, page.bytes)).count() as u64;
    }
    found
}
