//! What to do about the objects that cost most: rules on how they are used, with the numbers that decide.

use crate::distances::Distances;
use crate::flow::Flow;
use crate::gain::{Gain, Placement, gain};
use crate::ids::{ObjectId, ProcessId, SiteId};
use crate::object::ObjectKind;
use crate::pattern::Pattern;
use crate::profile::{Access, Profile};
use crate::rules::{Decision, Situation, decide};
use crate::statistics::{Confidence, Share};
use crate::symbols::File;
use crate::tally::{Counts, Tally};
use crate::view::View;
use machine::NodeId;
use serde::Serialize;
use std::collections::BTreeMap;
use std::thread;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Have each object's memory on the node of the thread that allocates it: `numa_alloc_local`, or a first touch by
    /// that thread in pages that no other object is in.
    AllocateLocally,
    /// Interleave the pages of these objects, and of no others, over all nodes.
    Interleave,
    /// Have a copy on each node once it is initialised; each thread reads the nearest.
    Replicate,
    /// Move the pages to the node that uses them, and again when another node does.
    Migrate,
    /// Keep threads where they are: all of a process on one node, or each where it allocates.
    PinThreads,
    /// Use small pages there: parts of one huge page are used by different nodes.
    SplitHugePages,
    /// Nothing.
    LeaveAlone,
}

/// A number that a decision rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    /// Its name.
    pub what: &'static str,
    /// The number; of a share 0 to 1.
    pub value: f64,
    /// What decides, in the same unit.
    pub threshold: f64,
    /// So many samples are behind it.
    pub samples: u64,
    /// In words, with its numbers.
    pub text: String,
}

/// An action that would not help, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RuledOut {
    /// What would not help.
    pub action: Action,
    /// Why.
    pub because: Evidence,
}

/// What to do about the objects of a site.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The site.
    pub site: SiteId,
    /// Its label: see [`Profile::site_label`].
    pub label: String,
    /// What the objects are.
    pub kind: ObjectKind,
    /// How many were accessed.
    pub objects: u64,
    /// The one that is meant, where one of them has nine in ten of the cost or more.
    pub object: Option<ObjectId>,
    /// Bytes of the largest.
    pub bytes: u64,
    /// Their accesses.
    #[serde(flatten)]
    pub counts: Counts,
    /// What to do.
    pub action: Action,
    /// Where to: of [`Action::Migrate`] the node that uses them, if it is one.
    pub node: Option<NodeId>,
    /// From when on, ns: of [`Action::Replicate`] the end of the initialisation.
    pub after_ns: Option<u64>,
    /// Kernel's numbers of the processes whose threads belong on one node each, and which: of [`Action::PinThreads`].
    pub processes: Vec<ProcessNode>,
    /// What that rests on.
    pub evidence: Vec<Evidence>,
    /// How sure the decision is.
    pub confidence: Confidence,
    /// What it should gain; none where latencies are not known, and of [`Action::LeaveAlone`].
    pub gain: Option<Gain>,
    /// What would not help.
    pub ruled_out: Vec<RuledOut>,
}

/// Where a process belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessNode {
    /// Its number in the profile.
    pub process: ProcessId,
    /// The kernel's number.
    pub pid: u32,
    /// The node.
    pub node: NodeId,
}

/// Threads that look at sites at the same time.
const THREADS: usize = 4;
/// An object with this share of the cost of its site's is meant alone.
const ALONE: f64 = 0.9;

impl View<'_> {
    /// Advice for the sites that cost most, at most so many. Gains are of the accesses of this view: of one that leaves
    /// accesses out they are too large.
    pub fn advice(&self, most: usize) -> Vec<Advice> {
        let profile = self.profile();
        // The kernel's own memory is nobody's to place.
        let is_kernel =
            |site: &SiteId| profile.site(*site).is_some_and(|site| site.name.as_deref() == Some(File::KERNEL));
        let sites = self.sites().into_iter().filter(|(site, _)| !is_kernel(site));
        let sites: Vec<(SiteId, Tally)> = sites.take(most).collect();
        let ids: Vec<SiteId> = sites.iter().map(|(site, _)| *site).collect();
        let flows = self.flows_of_sites(&ids);
        let all = Pattern::of_all(self, &Distances::of(profile.machine()));
        let (sites, flows, all) = (&sites, &flows, &all);
        // Each thread takes every fourth site, and so its part of what costs most.
        let part = |first: usize| {
            let distances = Distances::of(profile.machine());
            let advise =
                |((site, tally), flow): (&(SiteId, Tally), &Flow)| self.advise(*site, tally, flow, all, &distances);
            sites.iter().zip(flows).skip(first).step_by(THREADS).map(advise).collect::<Vec<_>>()
        };
        let parts: Vec<Vec<Advice>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS.min(sites.len())).map(|first| scope.spawn(move || part(first))).collect();
            let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
            joined.map(|part| part.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        let mut parts: Vec<_> = parts.into_iter().map(Vec::into_iter).collect();
        (0..sites.len()).filter_map(|at| parts.get_mut(at % THREADS)?.next()).collect()
    }

    fn advise(&self, site: SiteId, tally: &Tally, flow: &Flow, all: &Pattern, distances: &Distances) -> Advice {
        let profile = self.profile();
        let pattern = Pattern::of(flow, distances);
        let kind = profile.site(site).map_or(ObjectKind::Unknown, |site| site.kind);
        let situation = Situation { kind, machine: profile.machine(), factor: distances.saturated_factor(), all, flow };
        let Decision { mut action, evidence, confidence, mut ruled_out } = decide(&pattern, &situation);
        let nodes = process_nodes(&pattern, all, profile);
        let placed = |access: &Access| profile.site_of(access.object) == Some(site);
        let is_spread = |action| action == Action::PinThreads && pattern.processes.len() > 1;
        let mut gain = match action {
            Action::LeaveAlone => None,
            Action::Interleave => gain(self, flow, distances, placed, &Placement::Interleaved),
            // All that a process uses comes along.
            Action::PinThreads if is_spread(action) => {
                let placement = Placement::ProcessesOnNodes(nodes.clone());
                let placed = |access: &Access| nodes.contains_key(&profile.threads()[access.thread.index()].process);
                gain(self, flow, distances, placed, &placement)
            }
            _ => gain(self, flow, distances, placed, &Placement::Local),
        };
        // The rules look at one site; what the whole program gets of it may be a loss.
        if let Some(loss) = gain.take_if(|gain| gain.speedup < 1.0) {
            ruled_out.push(RuledOut { action, because: predicted_loss(&loss, flow.len() as u64) });
            action = Action::LeaveAlone;
        }
        let process_node = |(&process, &node): (&ProcessId, &NodeId)| ProcessNode {
            process,
            pid: profile.processes()[process.index()].pid.0,
            node,
        };
        Advice {
            site,
            label: profile.site_label(site),
            kind,
            objects: pattern.objects,
            object: self.alone(site),
            bytes: pattern.bytes,
            counts: tally.counts(self.tally()),
            action,
            node: (action == Action::Migrate).then(|| only_node(&pattern)).flatten(),
            after_ns: (action == Action::Replicate).then_some(pattern.settled_ns),
            processes: if is_spread(action) { nodes.iter().map(process_node).collect() } else { Vec::new() },
            evidence,
            confidence,
            gain,
            ruled_out,
        }
    }

    /// The object of a site that has nearly all of its cost.
    fn alone(&self, site: SiteId) -> Option<ObjectId> {
        let objects = self.profile().sites_of_objects().iter().zip(&self.groups().objects).zip(0..);
        let of_site = objects.filter(|((of, tally), _)| **of == site && tally.samples > 0);
        let costs: Vec<(ObjectId, f64)> =
            of_site.map(|((_, tally), number)| (ObjectId(number), tally.cost(self.tally()))).collect();
        let whole: f64 = costs.iter().map(|(_, cost)| cost).sum();
        costs.into_iter().find(|(_, cost)| *cost >= ALONE * whole).map(|(object, _)| object)
    }
}

fn predicted_loss(gain: &Gain, samples: u64) -> Evidence {
    let text = format!("the program should be {:.2} times as fast", gain.speedup);
    Evidence { what: "predicted_speedup", value: gain.speedup, threshold: 1.0, samples, text }
}

fn only_node(pattern: &Pattern) -> Option<NodeId> {
    let whole: u64 = pattern.from.values().sum();
    let node = pattern.from.iter().find(|(_, count)| Share { part: **count, of: whole, threshold: ALONE }.is_reached());
    node.map(|(node, _)| *node)
}

/// A node for each process, so that nodes get about as many accesses each: the process with the most first, to the node
/// that has the fewest so far.
fn process_nodes(pattern: &Pattern, all: &Pattern, profile: &Profile) -> BTreeMap<ProcessId, NodeId> {
    let mut loads: BTreeMap<NodeId, u64> = BTreeMap::new();
    for node in profile.machine().nodes.iter().filter(|node| !node.cpus.is_empty() && node.memory_bytes > 0) {
        loads.insert(node.id, 0);
    }
    let samples = |process: &ProcessId| all.processes.get(process).map_or(0, |used| used.samples);
    let mut processes: Vec<ProcessId> = pattern.processes.keys().copied().collect();
    processes.sort_by_key(|process| (std::cmp::Reverse(samples(process)), *process));
    let mut nodes = BTreeMap::new();
    for process in processes {
        if let Some((&node, load)) = loads.iter_mut().min_by_key(|(_, load)| **load) {
            *load += samples(&process);
            nodes.insert(process, node);
        }
    }
    nodes
}
