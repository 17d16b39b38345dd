//! Comparison of two traces.

use super::change::Change;
use super::site_key::{SiteKey, pairs};
use super::trace_facts::TraceFacts;
use machine::NodeId;
use profile::{ChainId, Counts, ObjectKind, SiteId, Tally, ThreadId, Verdict, View};
use serde::Serialize;
use std::collections::BTreeMap;

/// Comparison of two traces: `a` is the first, `b` the second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiffReport {
    /// The first.
    pub a: Side,
    /// The second.
    pub b: Side,
    /// The filter of both as text; empty for everything.
    pub filter: Vec<String>,
    /// The change as a whole: that of the run's time if it is known and changed beyond noise, or else of the accesses. Noise
    /// if one program failed and the other did not: they have not done the same work.
    pub overall: Change,
    /// The change of the run's time; none if one of the traces does not know it.
    pub run_change: Option<Change>,
    /// The change of all accesses together.
    pub change: Change,
    /// Sites, those with the most memory time in either trace first.
    pub sites: Vec<SiteChange>,
    /// Number of sites in both together.
    pub sites_all: usize,
    /// Threads, grouped by application and name.
    pub threads: Vec<ThreadChange>,
    /// Pairs of nodes, those whose share changed most first.
    pub nodes: Vec<NodeChange>,
}

/// One trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// Facts about the trace.
    pub trace: TraceFacts,
    /// Whether NUMA is its problem.
    pub verdict: Verdict,
    /// All accesses of the view.
    pub counts: Counts,
}

/// The change of a site.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SiteChange {
    /// The change.
    pub change: Change,
    /// Its label, from the second trace if it is in both.
    pub label: String,
    /// The line of source.
    pub source: Option<String>,
    /// The kind of its objects.
    pub kind: ObjectKind,
    /// In the first trace.
    pub a: Option<SiteSide>,
    /// In the second.
    pub b: Option<SiteSide>,
}

/// A site in one trace.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SiteSide {
    /// Its number in that trace.
    pub site: SiteId,
    /// Number of its accessed objects.
    pub objects: usize,
    /// The accesses.
    #[serde(flatten)]
    pub counts: Counts,
}

/// The change of a group of threads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadChange {
    /// The change.
    pub change: Change,
    /// The name of their process.
    pub application: String,
    /// Their own name.
    pub name: String,
    /// In the first trace.
    pub a: Option<ThreadSide>,
    /// In the second.
    pub b: Option<ThreadSide>,
}

/// Threads in one trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadSide {
    /// Number of threads.
    pub threads: usize,
    /// The accesses.
    #[serde(flatten)]
    pub counts: Counts,
    /// Accesses that reached memory, by its node.
    pub memory_on: BTreeMap<NodeId, f64>,
}

/// The change of accesses between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NodeChange {
    /// The node of the CPU.
    pub from: NodeId,
    /// The node of the memory.
    pub to: NodeId,
    /// Their share of the accesses that reached memory, 0 to 1, in the first trace.
    pub a_share: f64,
    /// In the second.
    pub b_share: f64,
}

/// One trace, as input of [`DiffReport::new`].
pub struct Compared<'a> {
    /// Its accesses.
    pub view: &'a View<'a>,
    /// Facts about the trace.
    pub trace: TraceFacts,
}

type Cells = BTreeMap<(ThreadId, Option<NodeId>, Option<NodeId>), Tally>;

impl DiffReport {
    /// Compares two traces, with at most `most` rows of each part.
    pub fn new(a: Compared, b: Compared, most: usize, filter: Vec<String>) -> Self {
        let (cells_a, cells_b) = (a.view.thread_nodes(), b.view.thread_nodes());
        let (sites_all, sites) = sites(a.view, b.view, most);
        let change = Change::between(a.view.tally(), b.view.tally());
        let has_failed = [&a, &b].map(|side| side.trace.failure().is_some());
        let run = |side: &Compared| Some((side.trace.run_ns?, side.view.profile().len() as u64));
        let run_change = run(&a).zip(run(&b)).map(|(a, b)| Change::of_runs(a, b));
        Self {
            overall: if has_failed[0] == has_failed[1] { Change::overall(run_change, change) } else { Change::Noise },
            run_change,
            change,
            sites,
            sites_all,
            threads: threads((a.view, &cells_a), (b.view, &cells_b), most),
            nodes: nodes(&cells_a, &cells_b, most),
            a: side(a),
            b: side(b),
            filter,
        }
    }
}

impl DiffReport {
    /// Which program failed, if the other one did not, and its exit status.
    pub(crate) fn failed_alone(&self) -> Option<(&'static str, i32)> {
        match (self.a.trace.failure(), self.b.trace.failure()) {
            (Some(status), None) => Some(("A", status)),
            (None, Some(status)) => Some(("B", status)),
            _ => None,
        }
    }

    /// Whether the traces have something in common that can be compared: the time of a run, or accesses to memory, of
    /// programs of which both or none failed.
    pub fn is_comparable(&self) -> bool {
        let reaches_memory = |side: &Side| side.counts.local_access_ratio.is_some();
        self.failed_alone().is_none()
            && (self.run_change.is_some() || reaches_memory(&self.a) && reaches_memory(&self.b))
    }
}

fn side(compared: Compared) -> Side {
    let Compared { view, trace } = compared;
    Side { trace, verdict: view.verdict(view.measured()), counts: view.tally().counts(view.tally()) }
}

/// Memory time, ns, by which rows are ordered: the higher of both traces counts.
fn cost(view: &View, tally: Option<&Tally>) -> f64 {
    let share = |tally: &Tally| {
        let all = view.tally().cost(view.tally());
        if all > 0.0 { tally.cost(view.tally()) / all } else { 0.0 }
    };
    tally.map_or(0.0, share)
}

struct SiteOf {
    key: SiteKey,
    side: SiteSide,
    tally: Tally,
    label: String,
}

fn sites_of(view: &View) -> Vec<SiteOf> {
    let profile = view.profile();
    let mut objects: BTreeMap<SiteId, (usize, ChainId)> = BTreeMap::new();
    for (object, _) in view.objects() {
        if let Some((site, object)) = profile.site_of(object).zip(profile.objects().get(object.0 as usize)) {
            objects.entry(site).or_insert((0, object.site)).0 += 1;
        }
    }
    let of = |(site, tally): (SiteId, Tally)| {
        let (count, example) = objects.get(&site).copied()?;
        let side = SiteSide { site, objects: count, counts: tally.counts(view.tally()) };
        Some(SiteOf { key: SiteKey::new(profile, site, example)?, side, tally, label: profile.site_label(site) })
    };
    view.sites().into_iter().filter_map(of).collect()
}

fn sites(a: &View, b: &View, most: usize) -> (usize, Vec<SiteChange>) {
    let (of_a, of_b) = (sites_of(a), sites_of(b));
    let keys = |sites: &[SiteOf]| sites.iter().map(|site| site.key.clone()).collect::<Vec<_>>();
    let mut found: Vec<(f64, SiteChange)> = Vec::new();
    for (in_a, in_b) in pairs(&keys(&of_a), &keys(&of_b)) {
        let (in_a, in_b) = (in_a.and_then(|at| of_a.get(at)), in_b.and_then(|at| of_b.get(at)));
        let Some(named) = in_b.or(in_a) else { continue };
        let (tally_a, tally_b) = (in_a.map(|site| &site.tally), in_b.map(|site| &site.tally));
        let change = SiteChange {
            change: Change::new(tally_a, tally_b, (a.tally(), b.tally())),
            label: named.label.clone(),
            source: named.key.source.clone(),
            kind: named.key.kind,
            a: in_a.map(|site| site.side),
            b: in_b.map(|site| site.side),
        };
        found.push((cost(a, tally_a).max(cost(b, tally_b)), change));
    }
    found.sort_by(|(x, first), (y, second)| y.total_cmp(x).then_with(|| first.label.cmp(&second.label)));
    (found.len(), found.into_iter().take(most).map(|(_, change)| change).collect())
}

#[derive(Default)]
struct Named {
    tally: Tally,
    threads: Vec<ThreadId>,
    memory_on: BTreeMap<NodeId, f64>,
}

/// Threads by application and name.
fn named(view: &View, cells: &Cells) -> BTreeMap<(String, String), Named> {
    let mut found: BTreeMap<(String, String), Named> = BTreeMap::new();
    for ((thread, _, to), tally) in cells {
        let Some(summary) = view.profile().thread_summary(*thread) else { continue };
        let key = (summary.process.application.unwrap_or_default(), summary.name.unwrap_or_default());
        let named = found.entry(key).or_default();
        named.tally.merge(tally);
        if named.threads.last() != Some(thread) {
            named.threads.push(*thread);
        }
        let reached = tally.of_memory().accesses;
        if let Some(node) = to.filter(|_| reached > 0.0) {
            *named.memory_on.entry(node).or_default() += reached;
        }
    }
    found
}

fn threads((a, cells_a): (&View, &Cells), (b, cells_b): (&View, &Cells), most: usize) -> Vec<ThreadChange> {
    let (of_a, of_b) = (named(a, cells_a), named(b, cells_b));
    let names: std::collections::BTreeSet<_> = of_a.keys().chain(of_b.keys()).collect();
    let side = |view: &View, named: &Named| ThreadSide {
        threads: named.threads.len(),
        counts: named.tally.counts(view.tally()),
        memory_on: named.memory_on.clone(),
    };
    let mut found: Vec<(f64, ThreadChange)> = Vec::new();
    for key in names {
        let (in_a, in_b) = (of_a.get(key), of_b.get(key));
        let (tally_a, tally_b) = (in_a.map(|named| &named.tally), in_b.map(|named| &named.tally));
        let (application, name) = key.clone();
        let change = Change::new(tally_a, tally_b, (a.tally(), b.tally()));
        let change = ThreadChange {
            change,
            application,
            name,
            a: in_a.map(|named| side(a, named)),
            b: in_b.map(|named| side(b, named)),
        };
        found.push((cost(a, tally_a).max(cost(b, tally_b)), change));
    }
    found.sort_by(|(x, _), (y, _)| y.total_cmp(x));
    found.into_iter().take(most).map(|(_, change)| change).collect()
}

fn nodes(a: &Cells, b: &Cells, most: usize) -> Vec<NodeChange> {
    let shares = |cells: &Cells| {
        let mut shares: BTreeMap<(NodeId, NodeId), f64> = BTreeMap::new();
        for ((_, from, to), tally) in cells {
            let reached = tally.of_memory().accesses;
            if let (Some(from), Some(to)) = (from, to.filter(|_| reached > 0.0)) {
                *shares.entry((*from, to)).or_default() += reached;
            }
        }
        let all: f64 = shares.values().sum();
        for share in shares.values_mut() {
            *share /= all;
        }
        shares
    };
    let (of_a, of_b) = (shares(a), shares(b));
    let pairs: std::collections::BTreeSet<_> = of_a.keys().chain(of_b.keys()).copied().collect();
    let share = |shares: &BTreeMap<(NodeId, NodeId), f64>, pair| shares.get(&pair).copied().unwrap_or(0.0);
    let change = |pair: (NodeId, NodeId)| NodeChange {
        from: pair.0,
        to: pair.1,
        a_share: share(&of_a, pair),
        b_share: share(&of_b, pair),
    };
    let mut found: Vec<NodeChange> = pairs.into_iter().map(change).collect();
    let moved = |change: &NodeChange| (change.b_share - change.a_share).abs();
    found.sort_by(|x, y| moved(y).total_cmp(&moved(x)).then_with(|| (x.from, x.to).cmp(&(y.from, y.to))));
    found.truncate(most);
    found
}
