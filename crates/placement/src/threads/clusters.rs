//! `thread-clustering`: threads that use the same pages share a node (Lepers, 2014; his code has it switched off).

use super::{Rules, Threads, by_process};
use crate::action::{Action, Step};
use crate::observation::{Observation, Process, Thread};
use crate::physical_pages::physical_pages;
use crate::reason::{Quantity, Reason, Rule};
use crate::thresholds::Thresholds;
use machine::{CpuSet, NodeId, Pid, Tid};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

type ThreadId = (Pid, Tid);

/// Threads that share pages.
struct Cluster<'a> {
    threads: Vec<(&'a Process, &'a Thread)>,
    node: NodeId,
    /// Number of CPUs that its threads keep busy.
    busy_cpus: f64,
    /// Accesses to pages that two of its threads share.
    shared: u64,
}

impl Threads {
    /// Moves clusters to the nodes with most of their accesses, if they fit there. Threads that left their cluster are
    /// released.
    pub(super) fn cluster(&mut self, observation: &Observation, rules: Rules) -> Vec<Step> {
        let threads: Vec<(&Process, &Thread)> = by_process(observation)
            .into_iter()
            .flat_map(|(process, threads)| threads.into_iter().map(move |t| (process, t)))
            .collect();
        let common = common_accesses(observation, &rules.settings.thresholds);
        let chosen = fitting(clusters(&threads, &common, rules), rules);
        let mut steps = Vec::new();
        let mut placed: BTreeSet<ThreadId> = BTreeSet::new();
        for cluster in &chosen {
            for (process, thread) in &cluster.threads {
                let (pid, tid) = (process.pid, thread.tid);
                let Some(allowed) = rules.allowed(process, thread) else { continue };
                let cpus = rules.cpus_of(cluster.node, process).intersection(&allowed);
                if cpus.is_empty() {
                    continue;
                }
                placed.insert((pid, tid));
                let reason = Reason::new(Rule::SharedPages).against(
                    Quantity::SharedAccesses,
                    cluster.shared as f64,
                    rules.settings.thresholds.shared_accesses_min as f64,
                );
                if self.set_own(pid, tid, Some(cpus.clone())) {
                    steps.push(Step { action: Action::MoveThread { pid, tid, cpus }, reason });
                }
            }
        }
        for (process, thread) in threads {
            let (pid, tid) = (process.pid, thread.tid);
            let has_own = self.processes.get(&pid).and_then(|own| own.threads.get(&tid)?.as_ref()).is_some();
            let free = rules.allowed(process, thread).filter(|_| has_own && !placed.contains(&(pid, tid)));
            if let Some(cpus) = free {
                self.set_own(pid, tid, None);
                let reason = Reason::new(Rule::NoLongerClustered);
                steps.push(Step { action: Action::MoveThread { pid, tid, cpus }, reason });
            }
        }
        steps
    }

    /// Records the CPUs that a thread has for its cluster; returns whether they changed.
    fn set_own(&mut self, pid: Pid, tid: Tid, own: Option<CpuSet>) -> bool {
        let threads = &mut self.processes.entry(pid).or_default().threads;
        let is_new = threads.get(&tid).cloned().flatten() != own;
        threads.insert(tid, own);
        is_new
    }
}

/// Shared accesses of each pair of threads: for each page, the smaller of both counts. Lepers's code counts those after
/// the other thread's first, which depends on the order of samples.
fn common_accesses(observation: &Observation, thresholds: &Thresholds) -> BTreeMap<(ThreadId, ThreadId), u64> {
    let most = usize::try_from(thresholds.cluster_threads_max).unwrap_or(usize::MAX);
    let mut common = BTreeMap::new();
    for (first, page) in physical_pages(observation) {
        let mappings = std::iter::once(first).chain(page.others.iter().copied());
        let mut users: Vec<(u64, ThreadId)> = mappings
            .flat_map(|page| page.threads.iter().map(move |by| (by.accesses, (page.pid, by.tid))))
            .filter(|(accesses, _)| *accesses > 0)
            .collect();
        if users.len() < 2 {
            continue;
        }
        users.sort_by_key(|(accesses, thread)| (Reverse(*accesses), *thread));
        users.truncate(most);
        for (index, (more, one)) in users.iter().enumerate() {
            for (fewer, other) in &users[index + 1..] {
                let pair = if one < other { (*one, *other) } else { (*other, *one) };
                *common.entry(pair).or_default() += more.min(fewer);
            }
        }
    }
    common
}

/// Threads connected by enough shared accesses, also through others. The lowest thread is the cluster's label.
fn clusters<'a>(
    threads: &[(&'a Process, &'a Thread)],
    common: &BTreeMap<(ThreadId, ThreadId), u64>,
    rules: Rules,
) -> Vec<Cluster<'a>> {
    let mut labels: BTreeMap<ThreadId, ThreadId> =
        threads.iter().map(|(process, thread)| (process.pid, thread.tid)).map(|id| (id, id)).collect();
    let least = rules.settings.thresholds.shared_accesses_min;
    let joined: Vec<_> = common.iter().filter(|(_, accesses)| **accesses >= least).collect();
    let mut changed = true;
    while changed {
        changed = false;
        for ((one, other), _) in &joined {
            let (Some(&a), Some(&b)) = (labels.get(one), labels.get(other)) else { continue };
            if a != b {
                labels.insert(*one, a.min(b));
                labels.insert(*other, a.min(b));
                changed = true;
            }
        }
    }
    let mut members: BTreeMap<ThreadId, Vec<(&Process, &Thread)>> = BTreeMap::new();
    for &(process, thread) in threads {
        if let Some(label) = labels.get(&(process.pid, thread.tid)) {
            members.entry(*label).or_default().push((process, thread));
        }
    }
    let mut shared: BTreeMap<ThreadId, u64> = BTreeMap::new();
    for ((one, _), accesses) in joined {
        if let Some(label) = labels.get(one) {
            *shared.entry(*label).or_default() += accesses;
        }
    }
    let cluster = |(label, threads): (ThreadId, Vec<(&'a Process, &'a Thread)>)| {
        let node = most_accessed(&threads, rules)?;
        let busy_cpus = threads.iter().map(|(_, thread)| thread.cpu_share).sum();
        Some(Cluster { threads, node, busy_cpus, shared: shared.get(&label).copied().unwrap_or(0) })
    };
    members.into_iter().filter_map(cluster).collect()
}

/// The node with CPUs that gets most of their accesses; the lowest of several.
fn most_accessed(threads: &[(&Process, &Thread)], rules: Rules) -> Option<NodeId> {
    let mut accesses: BTreeMap<NodeId, u64> = BTreeMap::new();
    for by in threads.iter().flat_map(|(_, thread)| &thread.accesses) {
        *accesses.entry(by.node).or_default() += by.accesses;
    }
    let cpu_nodes = rules.costs.cpu_nodes();
    let with_cpus = accesses.into_iter().filter(|(node, count)| *count > 0 && cpu_nodes.contains(*node));
    with_cpus.min_by_key(|(node, count)| (Reverse(*count), *node)).map(|(node, _)| node)
}

/// All clusters, if no node would get more threads than it has CPUs; otherwise those whose threads keep no more CPUs
/// busy than their node has left. A thread without shared pages stays where it is. Lepers's code moves it too unless
/// all threads are like that, but there is no thread that it should be near.
fn fitting<'a>(mut clusters: Vec<Cluster<'a>>, rules: Rules) -> Vec<Cluster<'a>> {
    clusters.retain(|cluster| cluster.threads.len() > 1);
    let cpus_of = |node: NodeId| rules.costs.cpus_of(&[node].into_iter().collect()).len();
    let mut on_nodes: BTreeMap<NodeId, usize> = BTreeMap::new();
    for cluster in &clusters {
        *on_nodes.entry(cluster.node).or_default() += cluster.threads.len();
    }
    let all_fit = on_nodes.iter().all(|(node, count)| *count <= cpus_of(*node));
    if all_fit && clusters.len() <= rules.costs.cpu_nodes().len() {
        return clusters;
    }
    clusters.sort_by_key(|cluster| Reverse(cluster.shared));
    let mut left: BTreeMap<NodeId, f64> = on_nodes.keys().map(|node| (*node, cpus_of(*node) as f64)).collect();
    clusters.retain(|cluster| {
        let fits = left.get_mut(&cluster.node).filter(|left| cluster.busy_cpus <= **left);
        fits.map(|left| *left -= cluster.busy_cpus).is_some()
    });
    clusters
}
