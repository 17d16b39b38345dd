//! What the flow of an object, or of all objects of a site, shows.

use crate::flow::Flow;
use crate::groups::Cells;
use crate::ids::{ObjectId, ThreadId};
use crate::profile::{Access, Profile};
use crate::tally::{Counts, Tally, ratio};
use crate::view::View;
use machine::NodeId;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::collections::BTreeMap;
use trace::AccessKind;

/// What the flow of an object, or of all objects of a site, shows. What is said of the allocating thread is of each
/// object's own.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Facts {
    /// Its objects.
    pub objects: u64,
    /// Accesses by pair of nodes, those that reached memory only. Rows are the CPUs' nodes.
    pub nodes: Vec<NodePair>,
    /// The threads, that with the most accesses first.
    pub threads: Vec<ThreadUse>,
    /// The share of accesses that the allocating thread did, 0 to 1; none where no allocation is known.
    pub by_allocating_thread: Option<f64>,
    /// Samples of the allocating thread before any other thread's.
    pub before_others_samples: u64,
    /// The first thread that was seen writing.
    pub first_writer: Option<Writer>,
    /// From when on nothing was seen writing, ns: the last write; none where nothing is read after it.
    pub read_only_since_ns: Option<u64>,
    /// What would have been local.
    pub avoidable: Avoidable,
    /// Pages of it that were moved from node to node.
    pub page_migrations: u64,
}

/// Remote accesses that threads did to what they allocated themselves, by what would have had them local.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Avoidable {
    /// The thread ran on another node than when it allocated: pinned, it would not have done these.
    pub by_pinning_accesses: f64,
    /// It ran on the node where it allocated: these are of memory that is where it should not be.
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
    /// Of all objects together, what would have been local.
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

/// What one thread did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadUse {
    /// Its number in the profile.
    pub thread: ThreadId,
    /// The kernel's number of its process.
    pub pid: u32,
    /// The kernel's number.
    pub tid: u32,
    /// Its last name.
    pub name: Option<String>,
    /// The accesses.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Who wrote first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Writer {
    /// Its number in the profile.
    pub thread: ThreadId,
    /// The kernel's number.
    pub tid: u32,
    /// When, ns.
    pub time_ns: u64,
}

/// What the allocating thread of an object did to it.
#[derive(Clone, Copy, Default)]
struct Owned {
    others: bool,
    before_others: u64,
}

impl Flow<'_> {
    /// What the flow shows.
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
        // No page is larger than this, so none that begins before can have any of the object.
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
