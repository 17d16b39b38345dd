//! Advice for the most expensive objects: rules on their access patterns, with the numbers that decide.

use crate::evidence::{Action, Evidence, RuledOut};
use crate::flow::Flow;
use crate::gain::{Gain, Placement, gain};
use crate::huge_pages::owned;
use crate::ids::{ObjectId, ProcessId, SiteId};
use crate::latency::saturated_alone;
use crate::object::ObjectKind;
use crate::padding::falsely_shared_lines;
use crate::pattern::Pattern;
use crate::profile::{Access, Profile};
use crate::rules::{Decision, FROM_CORES, Situation, decide};
use crate::shared_memory::may_be_shared;
use crate::statistics::{Confidence, Share};
use crate::symbols::File;
use crate::tally::{Counts, Tally};
use crate::together::{PREDICTED_LOSS, SMALLER_GAIN};
use crate::view::View;
use crate::waiting::WaitingAccesses;
use machine::NodeId;
use queueing::Distances;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::thread;

/// Advice for the objects of a site.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The site.
    pub site: SiteId,
    /// Its label: see [`Profile::site_label`].
    pub label: String,
    /// The kind of the objects.
    pub kind: ObjectKind,
    /// Number of accessed objects.
    pub objects: u64,
    /// The object to act on, if one of them has at least nine tenths of the cost.
    pub object: Option<ObjectId>,
    /// Bytes of the largest object.
    pub bytes: u64,
    /// Accesses to them.
    #[serde(flatten)]
    pub counts: Counts,
    /// The action.
    pub action: Action,
    /// For [`Action::Migrate`]: the node that uses them, if it is one.
    pub node: Option<NodeId>,
    /// For [`Action::Replicate`]: the end of initialisation, ns; none if no write was seen.
    pub after_ns: Option<u64>,
    /// For [`Action::PinThreads`]: processes whose threads belong on one node each, with their PIDs and nodes.
    pub processes: Vec<ProcessNode>,
    /// Whether several processes may map the objects, of which each uses its part.
    #[serde(skip)]
    pub may_be_shared: bool,
    /// The numbers that the decision rests on.
    pub evidence: Vec<Evidence>,
    /// The confidence in the decision.
    pub confidence: Confidence,
    /// The expected gain; none if latencies are not known, for [`Action::LeaveAlone`] and [`Action::Pad`], and where lines of
    /// other cores' caches decide.
    pub gain: Option<Gain>,
    /// Actions that would not help.
    pub ruled_out: Vec<RuledOut>,
}

/// The node that a process belongs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessNode {
    /// Its number in the profile.
    pub process: ProcessId,
    /// The PID.
    pub pid: u32,
    /// The node.
    pub node: NodeId,
}

/// Number of threads that analyse sites in parallel.
const THREADS: usize = 4;
/// An object with this share of its site's cost is treated alone.
const ALONE: f64 = 0.9;
/// How many times as fast as by moving memory, or leaving it where all its users are, a program must be by spreading it: the
/// model's errors are of a few percent.
const BETTER: f64 = 1.02;

impl View<'_> {
    /// Advice for at most `most` sites, the most expensive first. Gains refer to this view's accesses: if the view
    /// leaves accesses out, they are too large, and if it [hides](Self::hides_accesses) some, the advice is for the rest
    /// alone.
    pub fn advice(&self, most: usize) -> Vec<Advice> {
        let profile = self.profile();
        // The kernel's own memory cannot be placed.
        let is_kernel =
            |site: &SiteId| profile.site(*site).is_some_and(|site| site.name.as_deref() == Some(File::KERNEL));
        let sites = self.sites().into_iter().filter(|(site, _)| !is_kernel(site));
        let sites: Vec<(SiteId, Tally)> = sites.take(most).collect();
        let ids: Vec<SiteId> = sites.iter().map(|(site, _)| *site).collect();
        let flows = self.flows_of_sites(&ids);
        let whole = Whole {
            pattern: Pattern::of_all(self, &Distances::new(profile.machine())),
            saturated_alone: saturated_alone(&self.flow().latency_over_time(), profile.machine()),
            waiting: WaitingAccesses::new(self),
        };
        let (sites, flows, whole) = (&sites, &flows, &whole);
        // Strided, so that each thread gets an equal part of the most expensive sites.
        let part = |first: usize| {
            let distances = Distances::new(profile.machine());
            let advise =
                |((site, tally), flow): (&(SiteId, Tally), &Flow)| self.advise((*site, tally), flow, whole, &distances);
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

    fn advise(&self, (site, tally): (SiteId, &Tally), flow: &Flow, whole: &Whole, distances: &Distances) -> Advice {
        let profile = self.profile();
        let pattern = Pattern::new(flow, distances);
        let kind = profile.site(site).map_or(ObjectKind::Unknown, |site| site.kind);
        let (machine, factor) = (profile.machine(), distances.saturated_factor());
        let (all, saturated_alone) = (&whole.pattern, whole.saturated_alone);
        let situation = Situation { kind, machine, factor, all, saturated_alone, flow };
        let decision = falsely_shared_lines(flow, profile)
            .map(|lines| Decision::without_pages(Action::Pad, lines))
            .or_else(|| Some(Decision::without_pages(Action::LeaveAlone, self.leaves_sharers_out(flow)?)))
            .or_else(|| Some(Decision::without_pages(Action::LeaveAlone, whole.waiting.evidence(flow, profile)?)))
            .unwrap_or_else(|| decide(&pattern, &situation));
        let nodes = process_nodes(&pattern, all, profile);
        let placed = Placed { view: self, site, flow, distances, nodes: &nodes };
        let (decision, gain) = placed.weigh(decision, &pattern, &situation);
        let Decision { action, evidence, confidence, ruled_out, .. } = decision;
        let process_node = |(&process, &node): (&ProcessId, &NodeId)| ProcessNode {
            process,
            pid: profile.processes()[process.index()].pid.0,
            node,
        };
        let is_spread = pins_processes(action, kind, &pattern);
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
            after_ns: (action == Action::Replicate && pattern.settled_ns > 0).then_some(pattern.settled_ns),
            processes: if is_spread { nodes.iter().map(process_node).collect() } else { Vec::new() },
            may_be_shared: may_be_shared(flow),
            evidence,
            confidence,
            gain,
            ruled_out,
        }
    }

    /// The object that has nearly all of a site's cost.
    fn alone(&self, site: SiteId) -> Option<ObjectId> {
        let objects = self.profile().sites_of_objects().iter().zip(&self.groups().objects).zip(0..);
        let of_site = objects.filter(|((of, tally), _)| **of == site && tally.samples > 0);
        let costs: Vec<(ObjectId, f64)> =
            of_site.map(|((_, tally), number)| (ObjectId(number), tally.cost(self.tally()))).collect();
        let whole: f64 = costs.iter().map(|(_, cost)| cost).sum();
        costs.into_iter().find(|(_, cost)| *cost >= ALONE * whole).map(|(object, _)| object)
    }
}

/// What is known of all accesses.
struct Whole {
    pattern: Pattern,
    saturated_alone: Share,
    waiting: WaitingAccesses,
}

/// A site whose objects may be placed elsewhere.
struct Placed<'a> {
    view: &'a View<'a>,
    site: SiteId,
    flow: &'a Flow<'a>,
    distances: &'a Distances<'a>,
    /// Where its processes belong.
    nodes: &'a BTreeMap<ProcessId, NodeId>,
}

impl Placed<'_> {
    /// What is decided once gains are known, and the gain.
    fn weigh(&self, decision: Decision, pattern: &Pattern, situation: &Situation) -> (Decision, Option<Gain>) {
        let mut gain = self.gain_of(&decision, pattern, situation.kind);
        let Decision { mut action, mut evidence, confidence, mut ruled_out, huge_pages } = decision;
        let samples = self.flow.len() as u64;
        // Where one node uses the most and its memory is saturated, to spread may gain more than to move there.
        let moves = match action {
            Action::Migrate | Action::AllocateLocally => true,
            // Stacks go with their threads.
            Action::PinThreads => situation.kind != ObjectKind::Stacks && pattern.processes.len() == 1,
            _ => false,
        };
        let near = gain.filter(|_| moves);
        if let Some((near, saturated)) = near.zip(situation.saturated_home(pattern)) {
            let spread = self.gain(&Placement::Interleaved).filter(|spread| spread.speedup > near.speedup * BETTER);
            if let Some(spread) = spread {
                let because = smaller_gain(near.speedup, spread.speedup, samples);
                ruled_out.push(RuledOut { action, because });
                evidence.push(saturated);
                (action, gain) = (Action::Interleave, Some(spread));
            }
        }
        // The rules look at one site, but the whole program may lose by it.
        let least = if pattern.is_mostly_local() { BETTER } else { 1.0 };
        if let Some(loss) = gain.take_if(|gain| gain.speedup < least) {
            ruled_out.push(RuledOut { action, because: predicted_loss(&loss, least, samples) });
            action = Action::LeaveAlone;
        }
        (Decision { action, evidence, confidence, ruled_out, huge_pages }, gain)
    }

    /// The gain of an action.
    fn gain_of(&self, decision: &Decision, pattern: &Pattern, kind: ObjectKind) -> Option<Gain> {
        let profile = self.view.profile();
        match decision.action {
            // The model of the gain knows only where memory is.
            Action::LeaveAlone | Action::Pad => None,
            _ if decision.evidence.iter().any(|evidence| evidence.what == FROM_CORES) => None,
            Action::SplitHugePages => {
                let owned = owned(profile, decision.huge_pages.iter());
                self.gain_where(|access| self.has(access) && owned(access), &Placement::Local)
            }
            Action::Interleave => self.gain(&Placement::Interleaved),
            // Pinning a process moves everything that it uses.
            action if pins_processes(action, kind, pattern) => {
                let of_process = |access: &Access| profile.threads()[access.thread.index()].process;
                let placement = Placement::ProcessesOnNodes(self.nodes.clone());
                self.gain_where(|access| self.nodes.contains_key(&of_process(access)), &placement)
            }
            _ => self.gain(&Placement::Local),
        }
    }

    /// The gain of placing its objects.
    fn gain(&self, placement: &Placement) -> Option<Gain> {
        self.gain_where(|access| self.has(access), placement)
    }

    fn gain_where(&self, is_placed: impl Fn(&Access) -> bool, placement: &Placement) -> Option<Gain> {
        gain(self.view, self.flow, self.distances, is_placed, placement)
    }

    fn has(&self, access: &Access) -> bool {
        self.view.profile().site_of(access.object) == Some(self.site)
    }
}

/// Whether an action is to give each of several processes a node. A stack goes with its thread, and says nothing about what
/// else a process uses.
fn pins_processes(action: Action, kind: ObjectKind, pattern: &Pattern) -> bool {
    action == Action::PinThreads && pattern.processes.len() > 1 && kind != ObjectKind::Stacks
}

impl Advice {
    /// The action that was ruled out because the program would lose by it, or gain too little, and the factor of its speed.
    pub fn predicted_loss(&self) -> Option<(Action, f64)> {
        let lost = self.ruled_out.iter().find(|ruled_out| ruled_out.because.what == PREDICTED_LOSS)?;
        Some((lost.action, lost.because.value))
    }
}

fn smaller_gain(speedup: f64, threshold: f64, samples: u64) -> Evidence {
    let text = format!("the program should be {speedup:.3} times as fast, which is less than by interleaving");
    Evidence { what: SMALLER_GAIN, value: speedup, threshold, samples, text }
}

fn predicted_loss(gain: &Gain, threshold: f64, samples: u64) -> Evidence {
    let text = format!("the program should be {:.3} times as fast", gain.speedup);
    Evidence { what: PREDICTED_LOSS, value: gain.speedup, threshold, samples, text }
}

fn only_node(pattern: &Pattern) -> Option<NodeId> {
    let whole: u64 = pattern.from.values().sum();
    let node = pattern.from.iter().find(|(_, count)| Share { part: **count, of: whole, threshold: ALONE }.is_reached());
    node.map(|(node, _)| *node)
}

/// Assigns each process a node so that accesses are balanced: the process with the most accesses first, to the node
/// with the fewest so far, and of several to the one where it is.
fn process_nodes(pattern: &Pattern, all: &Pattern, profile: &Profile) -> BTreeMap<ProcessId, NodeId> {
    let mut loads: BTreeMap<NodeId, u64> = BTreeMap::new();
    for node in profile.machine().nodes.iter().filter(|node| !node.cpus.is_empty() && node.memory_bytes > 0) {
        loads.insert(node.id, 0);
    }
    let samples = |process: &ProcessId| all.processes.get(process).map_or(0, |used| used.samples);
    let mut processes: Vec<ProcessId> = pattern.processes.keys().copied().collect();
    processes.sort_by_key(|process| (Reverse(samples(process)), *process));
    let mut nodes = BTreeMap::new();
    for process in processes {
        let from = all.processes.get(&process).map(|used| &used.from);
        let is_elsewhere = |node: &NodeId| Reverse(from.and_then(|from| from.get(node)).copied().unwrap_or(0));
        if let Some((&node, load)) = loads.iter_mut().min_by_key(|(node, load)| (**load, is_elsewhere(node))) {
            *load += samples(&process);
            nodes.insert(process, node);
        }
    }
    nodes
}
