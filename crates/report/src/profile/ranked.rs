//! Objects, sites, threads, processes and functions, the most expensive first.

use super::site_key::{callers, source_of};
use super::without_samples::WithoutSamples;
use machine::NodeId;
use profile::{
    ChainId, Counts, Facts, ObjectId, ObjectKind, ObjectSummary, ProcessId, ProcessSummary, Ranking, SiteId,
    SmallObjects, Tally, ThreadId, ThreadSummary, View,
};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The order of a ranking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Memory time, or remote accesses if no latencies are known.
    #[default]
    Cost,
    /// Memory time of remote accesses, or their number if no latencies are known.
    RemoteCost,
    /// Number of samples.
    Samples,
    /// Number of sampled writes.
    Stores,
    /// The mean latency of accesses that reached memory.
    Latency,
}

/// The first items of a ranking.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranked<T> {
    /// Number of all items.
    pub all: usize,
    /// The first of them.
    pub first: Vec<T>,
}

/// An object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectRow {
    /// The object.
    #[serde(flatten)]
    pub summary: ObjectSummary,
    /// The line of source that allocates it.
    pub source: Option<String>,
    /// The accesses.
    #[serde(flatten)]
    pub counts: Counts,
    /// Facts about it.
    pub facts: Facts,
}

/// A site.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SiteRow {
    /// Its number.
    pub site: SiteId,
    /// Its label.
    pub label: String,
    /// The kind of its objects.
    pub kind: ObjectKind,
    /// The line of source that allocates them.
    pub source: Option<String>,
    /// Functions of the call chain, innermost first.
    pub called_from: Vec<String>,
    /// Number of its accessed objects; for a trace without samples, of all its objects.
    pub objects: usize,
    /// Their total size, each at its largest.
    pub bytes: u64,
    /// The costliest of them; for a trace without samples, the largest.
    pub object: Option<ObjectId>,
    /// The thread that allocated it, if it is the only one.
    pub allocated_by: Option<AllocatedBy>,
    /// Facts about them.
    pub facts: Facts,
    /// The accesses.
    #[serde(flatten)]
    pub counts: Counts,
}

/// The thread that allocated an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AllocatedBy {
    /// The TID.
    pub tid: u32,
    /// The node that it ran on.
    pub node: Option<NodeId>,
}

impl AllocatedBy {
    /// For an object, if it is known.
    pub(crate) fn of(summary: &ObjectSummary) -> Option<Self> {
        Some(Self { tid: summary.allocated_by_tid?, node: summary.allocated_on_node })
    }
}

/// A site's allocations that are too small to be recorded one by one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SmallRow {
    /// Its number.
    pub site: SiteId,
    /// Its label.
    pub label: String,
    /// The line of source that allocates them.
    pub source: Option<String>,
    /// Functions of the call chain, innermost first.
    pub called_from: Vec<String>,
    /// Number of objects.
    pub objects: u64,
    /// Their total size.
    pub bytes: u64,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadRow {
    /// The thread.
    #[serde(flatten)]
    pub summary: ThreadSummary,
    /// The accesses.
    #[serde(flatten)]
    pub counts: Counts,
    /// Its accesses, by the node that it ran on.
    pub ran_on: BTreeMap<NodeId, f64>,
    /// Its accesses that reached memory, by the memory's node.
    pub memory_on: BTreeMap<NodeId, f64>,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessRow {
    /// The process.
    #[serde(flatten)]
    pub summary: ProcessSummary,
    /// The accesses.
    #[serde(flatten)]
    pub counts: Counts,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FunctionRow {
    /// Its name, or its file's in brackets.
    pub function: String,
    /// The accesses.
    #[serde(flatten)]
    pub counts: Counts,
}

impl By {
    /// The first items of a ranking. `all` is the tally that shares refer to.
    pub(crate) fn first<T: Ord>(self, mut ranking: Ranking<T>, most: usize, all: &Tally) -> (usize, Ranking<T>) {
        let key = |tally: &Tally| match self {
            Self::Cost => tally.cost(all),
            Self::RemoteCost => tally.remote_cost(all),
            Self::Samples => tally.samples as f64,
            Self::Stores => tally.store_samples as f64,
            Self::Latency => tally.latency_mean_ns().unwrap_or(0.0),
        };
        if self != Self::Cost {
            ranking.sort_by(|(a, first), (b, second)| key(second).total_cmp(&key(first)).then_with(|| a.cmp(b)));
        }
        let count = ranking.len();
        ranking.truncate(most);
        (count, ranking)
    }
}

/// Makes rows of the first items of a view. Shares are of `all`.
pub(crate) struct Ranks<'a> {
    pub view: &'a View<'a>,
    pub by: By,
    pub most: usize,
    pub all: &'a Tally,
    /// Objects by size, for a trace without samples.
    pub without_samples: &'a WithoutSamples,
}

/// Properties of a site's objects.
struct OfSite {
    objects: usize,
    bytes: u64,
    /// The first of them in the order of the ranking, and its call chain.
    first: ObjectId,
    example: ChainId,
}

impl Ranks<'_> {
    pub fn objects(&self) -> Ranked<ObjectRow> {
        let profile = self.view.profile();
        let (all, first) = if self.without_samples.is_empty() {
            self.by.first(self.view.objects(), self.most, self.view.tally())
        } else {
            (
                self.without_samples.len(),
                self.without_samples.iter().take(self.most).map(|object| (object, Tally::default())).collect(),
            )
        };
        let ids: Vec<ObjectId> = first.iter().map(|(object, _)| *object).collect();
        let row = |((object, tally), flow): ((ObjectId, Tally), profile::Flow)| {
            let summary = profile.object_summary(object)?;
            Some(ObjectRow {
                source: source_of(profile, summary.site),
                counts: tally.counts(self.all),
                facts: Facts { objects: 1, ..flow.facts() },
                summary,
            })
        };
        Ranked { all, first: first.into_iter().zip(self.view.flows_of_objects(&ids)).filter_map(row).collect() }
    }

    pub fn sites(&self) -> Ranked<SiteRow> {
        let profile = self.view.profile();
        let of_sites = self.objects_of_sites();
        let (all, first) = if self.without_samples.is_empty() {
            self.by.first(self.view.sites(), self.most, self.view.tally())
        } else {
            let mut sites: Vec<(SiteId, u64)> = of_sites.iter().map(|(site, of)| (*site, of.bytes)).collect();
            sites.sort_by_key(|(site, bytes)| (Reverse(*bytes), *site));
            (sites.len(), sites.into_iter().take(self.most).map(|(site, _)| (site, Tally::default())).collect())
        };
        let ids: Vec<SiteId> = first.iter().map(|(site, _)| *site).collect();
        let row = |((site, tally), flow): ((SiteId, Tally), profile::Flow)| {
            let OfSite { objects, bytes, first, example } = of_sites.get(&site)?;
            let summary = profile.object_summary(*first);
            Some(SiteRow {
                site,
                label: profile.site_label(site),
                kind: profile.site(site)?.kind,
                source: source_of(profile, site),
                called_from: callers(profile, site, *example),
                objects: *objects,
                bytes: *bytes,
                object: Some(*first),
                allocated_by: summary.as_ref().filter(|_| *objects == 1).and_then(AllocatedBy::of),
                facts: Facts { objects: *objects as u64, ..flow.facts() },
                counts: tally.counts(self.all),
            })
        };
        Ranked { all, first: first.into_iter().zip(self.view.flows_of_sites(&ids)).filter_map(row).collect() }
    }

    /// Those with the most bytes first.
    pub fn small_objects(&self) -> Ranked<SmallRow> {
        let profile = self.view.profile();
        let all = profile.small_objects();
        let row = |small: &SmallObjects| SmallRow {
            site: small.site,
            label: profile.site_label(small.site),
            source: source_of(profile, small.site),
            called_from: callers(profile, small.site, small.chain),
            objects: small.objects,
            bytes: small.bytes,
        };
        Ranked { all: all.len(), first: all.iter().take(self.most).map(row).collect() }
    }

    fn objects_of_sites(&self) -> BTreeMap<SiteId, OfSite> {
        let profile = self.view.profile();
        let seen = self.view.objects().into_iter().map(|(object, _)| object);
        let mut found: BTreeMap<SiteId, OfSite> = BTreeMap::new();
        for id in seen.chain(self.without_samples.iter()) {
            let known = profile.site_of(id).zip(profile.objects().get(id.0 as usize));
            if let Some((site, object)) = known {
                let of = found.entry(site).or_insert(OfSite { objects: 0, bytes: 0, first: id, example: object.site });
                of.objects += 1;
                of.bytes = of.bytes.saturating_add(object.bytes);
            }
        }
        found
    }

    /// `cells` are those of [`View::thread_nodes`].
    pub fn threads(&self, cells: &BTreeMap<(ThreadId, Option<NodeId>, Option<NodeId>), Tally>) -> Ranked<ThreadRow> {
        let mut threads: BTreeMap<ThreadId, Tally> = BTreeMap::new();
        for ((thread, _, _), tally) in cells {
            threads.entry(*thread).or_default().merge(tally);
        }
        let mut ranking: Ranking<ThreadId> = threads.into_iter().collect();
        let cost = |tally: &Tally| tally.cost(self.view.tally());
        ranking.sort_by(|(a, first), (b, second)| cost(second).total_cmp(&cost(first)).then(a.cmp(b)));
        let (all, first) = self.by.first(ranking, self.most, self.view.tally());
        let row = |(thread, tally): (ThreadId, Tally)| {
            let (mut ran_on, mut memory_on) = (BTreeMap::new(), BTreeMap::new());
            for ((_, from, to), tally) in cells.range((thread, None, None)..).take_while(|(key, _)| key.0 == thread) {
                // Lines of other cores' caches tell where a thread ran, and not which memory it used.
                let of_memory = tally.of_memory().accesses;
                for (nodes, node, accesses) in [(&mut ran_on, from, tally.accesses), (&mut memory_on, to, of_memory)] {
                    if let Some(node) = node.filter(|_| accesses > 0.0) {
                        *nodes.entry(node).or_default() += accesses;
                    }
                }
            }
            let summary = self.view.profile().thread_summary(thread)?;
            Some(ThreadRow { summary, counts: tally.counts(self.all), ran_on, memory_on })
        };
        Ranked { all, first: first.into_iter().filter_map(row).collect() }
    }

    pub fn processes(&self) -> Ranked<ProcessRow> {
        let (all, first) = self.by.first(self.view.processes(), self.most, self.view.tally());
        let row = |(process, tally): (ProcessId, Tally)| {
            let summary = self.view.profile().process_summary(process)?;
            Some(ProcessRow { summary, counts: tally.counts(self.all) })
        };
        Ranked { all, first: first.into_iter().filter_map(row).collect() }
    }

    pub fn functions(&self) -> Ranked<FunctionRow> {
        let (all, first) = self.by.first(self.view.functions(), self.most, self.view.tally());
        let row = |(function, tally): (String, Tally)| FunctionRow { function, counts: tally.counts(self.all) };
        Ranked { all, first: first.into_iter().map(row).collect() }
    }
}
