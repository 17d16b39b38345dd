//! Threads that are kept on the node that has their memory: otherwise the kernel's scheduler moves them to any idle CPU,
//! and what they touched first is remote for them. Nothing has to be copied for it.

use super::Matrix;
use super::waiting::samples;
use crate::action::{Action, Step};
use crate::costs::{Costs, NodeCosts};
use crate::observation::{Observation, Process, Thread};
use crate::reason::{Quantity, Reason, Rule};
use crate::settings::Settings;
use machine::{CpuSet, NodeId, Pid, Tid};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

type ThreadId = (Pid, Tid);

/// Fewest samples for each thread, on average.
const SAMPLES: u64 = 16;
/// Least additional part of the accesses that is local with them.
const LEAST_MORE_LOCAL: f64 = 0.1;
/// Least part of the CPU time that shorter ways save. Where hardly any access reaches memory, fewer CPUs only do harm.
const LEAST_SAVED: f64 = 0.01;
/// A thread that waits for a CPU for a larger part of a round has too little room on its node.
const MOST_WAITING: f64 = 0.25;
/// Successive rounds of that after which threads are released: once may be nearside's own work.
const CROWDED_ROUNDS: u64 = 2;
/// Rounds in which none is kept after that, doubled each time, this often at most.
const PAUSE_ROUNDS: u64 = 16;
const MOST_DOUBLINGS: u32 = 8;
/// Rounds after a release in which new threads may still have been made by kept ones.
const LATE_ROUNDS: u64 = 2;

/// The threads that are kept, with their nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Homes {
    #[serde(with = "crate::pairs")]
    nodes: BTreeMap<ThreadId, NodeId>,
    /// Rounds in succession in which a kept thread waited for a CPU.
    crowded: u64,
    /// How often there was too little room, and until which round none is kept for that.
    pauses: u32,
    paused_until: u64,
    /// Processes that use other memory from now on, whose threads are to be released.
    changed: BTreeSet<Pid>,
    /// The first round in which no new thread can have been made by a kept one.
    free_from: u64,
}

/// Threads to keep from now on.
pub(super) struct Proposal {
    homes: Vec<(ThreadId, NodeId)>,
    /// Accesses of all threads, as they run now.
    pub now: Matrix,
    /// The same with these threads on their nodes.
    pub kept: Matrix,
}

impl Proposal {
    /// Local accesses over all: now, and with the threads near their memory.
    pub fn local(&self) -> [f64; 2] {
        [&self.now, &self.kept].map(|traffic| traffic.local() / traffic.all())
    }

    /// Whether shorter ways save enough of the CPU time of threads that make this many accesses in a nanosecond of it, if
    /// they wait for each.
    pub fn is_worth_it(&self, accesses_per_ns: f64, costs: &Costs) -> bool {
        let mean_ns = |traffic: &Matrix| Some(traffic.mean_idle_ns(costs)? * accesses_per_ns);
        mean_ns(&self.now).zip(mean_ns(&self.kept)).is_some_and(|(now, kept)| now - kept >= LEAST_SAVED)
    }
}

/// A thread with accesses, its process, and the index of its node.
type User<'a> = (&'a Thread, &'a Process, usize);

impl Homes {
    /// Whether new threads may inherit the CPUs of kept ones.
    pub fn are_kept(&self, round: u64) -> bool {
        !self.nodes.is_empty() || !self.changed.is_empty() || round < self.free_from
    }

    pub fn forget(&mut self, pid: Pid) {
        self.nodes.retain(|(of, _), _| *of != pid);
        self.changed.remove(&pid);
    }

    /// A process executes another program, or has another phase.
    pub fn changed(&mut self, pid: Pid) {
        if self.nodes.keys().any(|(of, _)| *of == pid) {
            self.forget(pid);
            self.changed.insert(pid);
        }
    }

    /// Forgets threads that have ended, or that their owners have bound. Returns what releases those of processes that have
    /// changed, and all where there is too little room for some.
    pub fn released(&mut self, observation: &Observation) -> Vec<Step> {
        let changed = std::mem::take(&mut self.changed);
        let free = observation.threads.iter().filter(|thread| thread.bound_to.is_none());
        let free: BTreeMap<ThreadId, &Thread> = free.map(|thread| ((thread.pid, thread.tid), thread)).collect();
        self.nodes.retain(|id, _| free.contains_key(id));
        let waits = |id: &&ThreadId| free.get(*id).is_some_and(|thread| thread.waiting_share > MOST_WAITING);
        let waiting = self.nodes.keys().filter(waits).count();
        self.crowded = if waiting > 0 { self.crowded.saturating_add(1) } else { 0 };
        let of_changed = free.keys().copied().filter(|(pid, _)| changed.contains(pid));
        let mut released: Vec<(ThreadId, Reason)> =
            of_changed.map(|id| (id, Reason::new(Rule::ProgramChanged))).collect();
        if self.crowded >= CROWDED_ROUNDS {
            let reason = Reason::new(Rule::ThreadsWait).with(Quantity::Threads, waiting as f64);
            released.extend(std::mem::take(&mut self.nodes).into_keys().map(|id| (id, reason.clone())));
            self.crowded = 0;
            self.paused_until = observation.round.saturating_add(PAUSE_ROUNDS << self.pauses.min(MOST_DOUBLINGS));
            self.pauses = self.pauses.saturating_add(1);
        }
        if !released.is_empty() {
            self.free_from = observation.round.saturating_add(LATE_ROUNDS);
        }
        let step = |(id, reason)| Some(Step { action: release(id, observation)?, reason });
        released.into_iter().filter_map(step).collect()
    }

    /// What to keep, besides those that are kept already; none if no thread has most of its memory on a node with room for
    /// it. A process's first thread is never kept: the threads and processes that it makes, and the number of CPUs that a
    /// program asks for, follow its CPUs. Each node has room for its part of the threads, by CPUs.
    pub fn propose(&self, observation: &Observation, costs: &Costs, settings: &Settings) -> Option<Proposal> {
        let users = users(observation, costs);
        let mut cpus = CpuSet::new();
        for (_, process, _) in &users {
            cpus.insert_all(&process.cpus);
        }
        let is_known = samples(observation) >= SAMPLES * users.len() as u64;
        if users.is_empty() || users.len() > cpus.len() || !is_known || observation.round < self.paused_until {
            return None;
        }
        let all = users.iter().map(|(thread, ..)| accesses(thread)).fold(0_u64, u64::saturating_add);
        let enough = all / users.len() as u64 / 2;
        let cpus_of = |node: NodeId| costs.cpus_of(&[node].into_iter().collect());
        let room = |node: &NodeCosts| (users.len() * cpus_of(node.id).intersection(&cpus).len()).div_ceil(cpus.len());
        let mut room: Vec<usize> = costs.nodes().iter().map(room).collect();
        let take = |room: &mut Vec<usize>, at: usize| {
            let left = room[at].checked_sub(1);
            room[at] = left.unwrap_or(0);
            left.is_some()
        };
        for home in self.nodes.values().filter_map(|home| costs.index_of(*home)) {
            take(&mut room, home);
        }
        let mut wanted: Vec<(u64, ThreadId, usize)> = Vec::new();
        for (thread, process, now) in &users {
            let id = (thread.pid, thread.tid);
            let home = self.nodes.get(&id);
            let is_bound = thread.bound_to.is_some() || process.cpus.is_subset(&cpus_of(costs.nodes()[*now].id));
            if is_bound && home.is_none() {
                take(&mut room, *now);
            }
            let is_busy = process.cpu_share > settings.thresholds.cpu_share_min && accesses(thread) >= enough;
            if is_bound || !is_busy || thread.tid.0 == thread.pid.0 {
                continue;
            }
            if let Some((accesses, at)) = most_used(thread, process, costs) {
                let node = costs.nodes()[at].id;
                if home != Some(&node) && !cpus_of(node).intersection(&process.cpus).is_empty() {
                    wanted.push((accesses, id, at));
                }
            }
        }
        wanted.sort_unstable_by_key(|(accesses, id, _)| (Reverse(*accesses), *id));
        let mut homes: BTreeMap<ThreadId, usize> = BTreeMap::new();
        for (_, id, node) in wanted {
            if take(&mut room, node) {
                homes.insert(id, node);
                if let Some(left) = self.nodes.get(&id).and_then(|home| costs.index_of(*home)) {
                    room[left] += 1;
                }
            }
        }
        let matrix = |kept: &BTreeMap<ThreadId, usize>| {
            let mut matrix = Matrix::new(costs.nodes().len());
            for (thread, _, now) in &users {
                let at = kept.get(&(thread.pid, thread.tid)).unwrap_or(now);
                for by in &thread.accesses {
                    if let Some(to) = costs.index_of(by.node) {
                        matrix.add(*at, to, by.accesses as f64);
                    }
                }
            }
            matrix
        };
        let (now, kept) = (matrix(&BTreeMap::new()), matrix(&homes));
        let homes = homes.into_iter().map(|(id, at)| (id, costs.nodes()[at].id)).collect();
        Some(Proposal { homes, now, kept }).filter(|proposal| {
            let [now, near] = proposal.local();
            near - now >= LEAST_MORE_LOCAL
        })
    }

    /// Keeps what was proposed. Returns the moves, and what would take them back.
    pub fn keep(
        &mut self,
        proposal: Proposal,
        observation: &Observation,
        costs: &Costs,
        reason: &Reason,
    ) -> (Vec<Step>, Vec<Action>) {
        let (mut steps, mut back) = (Vec::new(), Vec::new());
        for (id, node) in proposal.homes {
            let Some(Action::MoveThread { pid, tid, cpus }) = release(id, observation) else { continue };
            let own = costs.cpus_of(&[node].into_iter().collect()).intersection(&cpus);
            steps.push(Step { action: Action::MoveThread { pid, tid, cpus: own }, reason: reason.clone() });
            back.push(Action::MoveThread { pid, tid, cpus });
            self.nodes.insert(id, node);
        }
        (steps, back)
    }

    /// Of what takes back a trial, threads that are still kept; they are kept no more.
    pub fn give_back(&mut self, back: Vec<Action>, round: u64) -> Vec<Action> {
        let mut is_kept = |action: &Action| match action {
            Action::MoveThread { pid, tid, .. } => self.nodes.remove(&(*pid, *tid)).is_some(),
            _ => true,
        };
        let back: Vec<Action> = back.into_iter().filter(|action| is_kept(action)).collect();
        if back.iter().any(|action| matches!(action, Action::MoveThread { .. })) {
            self.free_from = round.saturating_add(LATE_ROUNDS);
        }
        back
    }
}

/// Threads with accesses that memory served, whose CPU is known.
fn users<'a>(observation: &'a Observation, costs: &Costs) -> Vec<User<'a>> {
    let processes: BTreeMap<Pid, &Process> = observation.processes.iter().map(|of| (of.pid, of)).collect();
    let user = |thread: &'a Thread| {
        let node = costs.node_of_cpu(thread.cpu.filter(|_| accesses(thread) > 0)?)?;
        Some((thread, *processes.get(&thread.pid)?, costs.index_of(node)?))
    };
    observation.threads.iter().filter_map(user).collect()
}

fn accesses(thread: &Thread) -> u64 {
    thread.accesses.iter().fold(0, |sum, by| sum.saturating_add(by.accesses))
}

/// The node that has most of a thread's memory, with its accesses there: clearly more than if it used all nodes alike.
fn most_used(thread: &Thread, process: &Process, costs: &Costs) -> Option<(u64, usize)> {
    let nodes = costs.memory_nodes().intersection(&process.nodes).len().max(1);
    let most = thread.accesses.iter().max_by_key(|by| (by.accesses, Reverse(by.node)))?;
    let least = f64::midpoint(1.0, 1.0 / nodes as f64);
    let is_clear = most.accesses as f64 > least * accesses(thread) as f64;
    costs.index_of(most.node).filter(|_| is_clear).map(|at| (most.accesses, at))
}

/// Gives a thread all CPUs of its process; none if that has ended.
fn release((pid, tid): ThreadId, observation: &Observation) -> Option<Action> {
    let process = observation.processes.iter().find(|process| process.pid == pid)?;
    Some(Action::MoveThread { pid, tid, cpus: process.cpus.clone() })
}
