//! Objects, sites, threads, processes and functions, those that cost most first.

use super::site_key::callers;
use machine::NodeId;
use profile::{
    Counts, Facts, ObjectId, ObjectKind, ObjectSummary, ProcessId, ProcessSummary, Profile, Ranking, SiteId, Tally,
    ThreadId, ThreadSummary, View,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// What decides who comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The time spent waiting for memory, or remote accesses where no latencies are known.
    #[default]
    Cost,
    /// The time spent waiting for memory of other nodes, or remote accesses where no latencies are known.
    RemoteCost,
    /// Observed accesses.
    Samples,
    /// Observed writes.
    Stores,
    /// The mean latency of accesses that reached memory.
    Latency,
}

/// The first of a ranking.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranked<T> {
    /// How many there are.
    pub all: usize,
    /// The first of them.
    pub first: Vec<T>,
}

/// An object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectRow {
    /// What it is.
    #[serde(flatten)]
    pub summary: ObjectSummary,
    /// The line of source that allocates it.
    pub source: Option<String>,
    /// The accesses.
    #[serde(flatten)]
    pub counts: Counts,
    /// What happened to it.
    pub facts: Facts,
}

/// A site.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SiteRow {
    /// Its number.
    pub site: SiteId,
    /// Its label.
    pub label: String,
    /// What its objects are.
    pub kind: ObjectKind,
    /// The line of source that allocates them.
    pub source: Option<String>,
    /// The functions that led there, innermost first.
    pub called_from: Vec<String>,
    /// How many of its objects were accessed.
    pub objects: usize,
    /// The accesses.
    #[serde(flatten)]
    pub counts: Counts,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadRow {
    /// Who it is.
    #[serde(flatten)]
    pub summary: ThreadSummary,
    /// The accesses.
    #[serde(flatten)]
    pub counts: Counts,
    /// Samples of it by the node that it ran on.
    pub ran_on: BTreeMap<NodeId, u64>,
    /// Samples of it that reached memory, by the node of that.
    pub memory_on: BTreeMap<NodeId, u64>,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessRow {
    /// Which it is.
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
    /// The first of a ranking. `all` is what they are parts of.
    pub(crate) fn first<T: Ord>(self, mut ranking: Ranking<T>, most: usize, all: &Tally) -> (usize, Ranking<T>) {
        let key = |tally: &Tally| match self {
            Self::Cost => tally.cost(all),
            Self::RemoteCost if all.timed_accesses > 0.0 => tally.remote_time_ns,
            Self::RemoteCost => tally.remote_accesses,
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

/// Makes rows of the first of what a view has. Shares are of `all`.
pub(crate) struct Ranks<'a> {
    pub view: &'a View<'a>,
    pub by: By,
    pub most: usize,
    pub all: &'a Tally,
}

impl Ranks<'_> {
    pub fn objects(&self) -> Ranked<ObjectRow> {
        let profile = self.view.profile();
        let (all, first) = self.by.first(self.view.objects(), self.most, self.view.tally());
        let ids: Vec<ObjectId> = first.iter().map(|(object, _)| *object).collect();
        let row = |((object, tally), flow): ((ObjectId, Tally), profile::Flow)| {
            let summary = profile.object_summary(object)?;
            Some(ObjectRow {
                source: source_of(profile, summary.site),
                counts: tally.counts(self.all),
                facts: flow.facts(),
                summary,
            })
        };
        Ranked { all, first: first.into_iter().zip(self.view.flows_of_objects(&ids)).filter_map(row).collect() }
    }

    pub fn sites(&self) -> Ranked<SiteRow> {
        let profile = self.view.profile();
        let mut objects: BTreeMap<SiteId, (usize, ObjectId)> = BTreeMap::new();
        for (object, _) in self.view.objects() {
            if let Some(site) = profile.site_of(object) {
                objects.entry(site).or_insert((0, object)).0 += 1;
            }
        }
        let (all, first) = self.by.first(self.view.sites(), self.most, self.view.tally());
        let row = |(site, tally): (SiteId, Tally)| {
            let (count, example) = objects.get(&site).copied()?;
            Some(SiteRow {
                site,
                label: profile.site_label(site),
                kind: profile.site(site)?.kind,
                source: source_of(profile, site),
                called_from: callers(profile, site, example),
                objects: count,
                counts: tally.counts(self.all),
            })
        };
        Ranked { all, first: first.into_iter().filter_map(row).collect() }
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
                for (nodes, node) in [(&mut ran_on, from), (&mut memory_on, to)] {
                    if let Some(node) = node {
                        *nodes.entry(*node).or_default() += tally.samples;
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

/// The line of source that allocates the objects of a site.
pub(crate) fn source_of(profile: &Profile, site: SiteId) -> Option<String> {
    profile.frame(profile.site(site)?.code?)?.source
}
