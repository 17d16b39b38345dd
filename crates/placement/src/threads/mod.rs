//! Thread placement: policies that decide when a process or thread begins, and policies that decide again every round.

mod auto;
mod clusters;
mod occupancy;

use crate::action::{Action, Step};
use crate::costs::Costs;
use crate::name::ThreadPolicy;
use crate::observation::{Observation, Process, Thread};
use crate::reason::{Quantity, Reason, Rule};
use crate::settings::Settings;
use machine::{CpuId, CpuSet, NodeId, NodeSet, Pid, Tid};
use occupancy::Occupancy;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// State of threads kept between rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Threads {
    #[serde(with = "crate::pairs")]
    processes: BTreeMap<Pid, Placed>,
    /// The lowest CPU that may be next.
    next_cpu: u32,
}

/// Where a process is placed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Placed {
    /// Its home.
    node: Option<NodeId>,
    /// CPUs of all its threads, if the policy places whole processes.
    cpus: Option<CpuSet>,
    /// Its threads, and the CPUs given to each.
    #[serde(with = "crate::pairs")]
    threads: BTreeMap<Tid, Option<CpuSet>>,
    /// The round of its last move to another node.
    moved: Option<u64>,
    /// Whether it needs more CPUs than a node has.
    is_wide: bool,
    /// Consecutive rounds in which the opposite was true.
    other_rounds: u64,
}

/// The policy and its inputs.
#[derive(Clone, Copy)]
pub(crate) struct Rules<'a> {
    pub policy: &'a ThreadPolicy,
    /// The nodes of [`ThreadPolicy::Bind`].
    pub nodes: &'a NodeSet,
    pub costs: &'a Costs,
    pub settings: &'a Settings,
}

impl Rules<'_> {
    /// CPUs that a thread may be given; none if its owner has chosen some.
    fn allowed(&self, process: &Process, thread: &Thread) -> Option<CpuSet> {
        let is_free = thread.bound_to.is_none() || !self.settings.respect_owner;
        is_free.then(|| process.cpus.clone()).filter(|cpus| !cpus.is_empty())
    }

    /// CPUs of a node that a process may use.
    fn cpus_of(&self, node: NodeId, process: &Process) -> CpuSet {
        self.costs.cpus_of(&[node].into_iter().collect()).intersection(&process.cpus)
    }
}

impl Threads {
    /// Places a new thread, the first of its process or a later one: CPUs for it, and why.
    pub fn admit(&mut self, process: &Process, thread: &Thread, rules: Rules) -> Option<(CpuSet, Reason)> {
        if !self.processes.contains_key(&process.pid) {
            let placed = self.place(process, rules);
            self.processes.insert(process.pid, placed);
        }
        let cpus = self.cpus_of_thread(process, thread, rules);
        let placed = self.processes.entry(process.pid).or_default();
        let own = matches!(rules.policy, ThreadPolicy::RrThreads | ThreadPolicy::Auto | ThreadPolicy::AutoThreads);
        placed.threads.insert(thread.tid, cpus.as_ref().map(|(cpus, _)| cpus.clone()).filter(|_| own));
        cpus
    }

    /// Removes a process that has ended.
    pub fn forget(&mut self, pid: Pid) {
        self.processes.remove(&pid);
    }

    /// The home of a process, if the policy gave it one.
    pub fn home(&self, pid: Pid) -> Option<NodeId> {
        self.processes.get(&pid).filter(|placed| !placed.is_wide)?.node
    }

    /// Places new processes, removes those that have ended, and lets dynamic policies decide.
    pub fn decide(&mut self, observation: &Observation, rules: Rules) -> Vec<Step> {
        let alive: BTreeSet<(Pid, Tid)> = observation.threads.iter().map(|thread| (thread.pid, thread.tid)).collect();
        let pids: BTreeSet<Pid> = observation.processes.iter().map(|process| process.pid).collect();
        self.processes.retain(|pid, _| pids.contains(pid));
        for (pid, placed) in &mut self.processes {
            placed.threads.retain(|tid, _| alive.contains(&(*pid, *tid)));
        }
        match rules.policy {
            ThreadPolicy::Kernel => Vec::new(),
            ThreadPolicy::ThreadClustering => self.cluster(observation, rules),
            ThreadPolicy::Auto | ThreadPolicy::AutoThreads => self.auto(observation, rules),
            _ => self.place_new(observation, rules),
        }
    }

    /// Gives a new process its home.
    fn place(&mut self, process: &Process, rules: Rules) -> Placed {
        let mut placed = Placed::default();
        match rules.policy {
            ThreadPolicy::Balanced | ThreadPolicy::Auto | ThreadPolicy::AutoThreads => {
                placed.node = self.node_with_fewest(process, rules);
                placed.cpus = placed.node.map(|node| rules.cpus_of(node, process));
            }
            ThreadPolicy::Fixed(cpu) => {
                let cpu = cpu.filter(|&cpu| process.cpus.contains(cpu)).or_else(|| process.cpus.first());
                placed.cpus = cpu.map(|cpu| [cpu].into_iter().collect());
            }
            ThreadPolicy::RrTasks => placed.cpus = self.next_cpu(process).map(|cpu| [cpu].into_iter().collect()),
            ThreadPolicy::Bind(_) => placed.cpus = Some(rules.costs.cpus_of(rules.nodes).intersection(&process.cpus)),
            ThreadPolicy::Kernel | ThreadPolicy::RrThreads | ThreadPolicy::ThreadClustering => {}
        }
        let nodes_of = |cpus: &CpuSet| cpus.iter().filter_map(|cpu| rules.costs.node_of_cpu(cpu)).collect::<NodeSet>();
        let only = placed.cpus.as_ref().map(nodes_of).filter(|nodes| nodes.len() == 1);
        placed.node = placed.node.or_else(|| only?.first());
        placed.cpus = placed.cpus.filter(|cpus| !cpus.is_empty());
        placed
    }

    /// The node with the fewest processes relative to its CPUs, among those whose CPUs the process may use; the lowest
    /// of several.
    fn node_with_fewest(&self, process: &Process, rules: Rules) -> Option<NodeId> {
        let processes_for_cpus = |node: NodeId| {
            let cpus = rules.cpus_of(node, process).len();
            (cpus > 0).then(|| self.processes_on(node) as f64 / cpus as f64)
        };
        let nodes = rules.costs.cpu_nodes();
        let loads = nodes.iter().filter_map(|node| Some((node, processes_for_cpus(node)?)));
        loads.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(node, _)| node)
    }

    fn processes_on(&self, node: NodeId) -> usize {
        self.processes.values().filter(|placed| placed.node == Some(node) && !placed.is_wide).count()
    }

    /// The next CPU by number that a process may use, wrapping around after the last.
    fn next_cpu(&mut self, process: &Process) -> Option<CpuId> {
        let later = process.cpus.iter().find(|cpu| cpu.0 >= self.next_cpu);
        let cpu = later.or_else(|| process.cpus.first())?;
        self.next_cpu = cpu.0.saturating_add(1);
        Some(cpu)
    }

    fn cpus_of_thread(&mut self, process: &Process, thread: &Thread, rules: Rules) -> Option<(CpuSet, Reason)> {
        let allowed = rules.allowed(process, thread)?;
        let placed = self.processes.get(&process.pid)?;
        let (cpus, reason) = match rules.policy {
            ThreadPolicy::Kernel | ThreadPolicy::ThreadClustering => return None,
            ThreadPolicy::RrThreads => {
                let cpu = self.next_cpu(process)?;
                ([cpu].into_iter().collect(), Reason::new(Rule::NextCpu))
            }
            ThreadPolicy::Auto | ThreadPolicy::AutoThreads => {
                let node = placed.node.filter(|_| !placed.is_wide)?;
                let (cpus, rule) = Occupancy::new(&self.processes).free_cpu(node, &allowed, rules.costs)?;
                (cpus, Reason::new(rule))
            }
            policy => (placed.cpus.clone()?, self.reason(policy, placed)),
        };
        Some((cpus, reason)).filter(|(cpus, _): &(CpuSet, Reason)| cpus.is_subset(&allowed) && !cpus.is_empty())
    }

    fn reason(&self, policy: &ThreadPolicy, placed: &Placed) -> Reason {
        match policy {
            ThreadPolicy::Fixed(_) => Reason::new(Rule::FixedCpu),
            ThreadPolicy::RrTasks => Reason::new(Rule::NextCpuOfProcess),
            ThreadPolicy::Bind(_) => Reason::new(Rule::NodesAsked),
            _ => {
                let others = placed.node.map_or(0, |node| self.processes_on(node));
                Reason::new(Rule::FewestProcesses).with(Quantity::Processes, others as f64)
            }
        }
    }

    /// Policies that decide once: places processes and threads that are new to the policy.
    fn place_new(&mut self, observation: &Observation, rules: Rules) -> Vec<Step> {
        let mut steps = Vec::new();
        for (process, threads) in by_process(observation) {
            let is_new = !self.processes.contains_key(&process.pid);
            let is_known = |placed: &Placed, thread: &Thread| placed.threads.contains_key(&thread.tid);
            let placed = self.processes.get(&process.pid);
            let new: Vec<&Thread> = threads
                .iter()
                .copied()
                .filter(|thread| placed.is_none_or(|placed| !is_known(placed, thread)))
                .collect();
            let admitted: Vec<_> = new.iter().map(|thread| (thread.tid, self.admit(process, thread, rules))).collect();
            if *rules.policy == ThreadPolicy::RrThreads {
                let moved = admitted.into_iter().filter_map(|(tid, placed)| Some((tid, placed?)));
                steps.extend(moved.map(|(tid, (cpus, reason))| Step {
                    action: Action::MoveThread { pid: process.pid, tid, cpus },
                    reason,
                }));
                continue;
            }
            // Later threads inherit the CPUs of their creators.
            let all = admitted.iter().all(|(_, placed)| placed.is_some());
            for (tid, (cpus, reason)) in admitted.into_iter().filter_map(|(tid, placed)| Some((tid, placed?))) {
                let pid = process.pid;
                match (is_new, all) {
                    (true, true) => {
                        steps.push(Step { action: Action::MoveProcess { pid, cpus }, reason });
                        break;
                    }
                    (true, false) => steps.push(Step { action: Action::MoveThread { pid, tid, cpus }, reason }),
                    (false, _) => {}
                }
            }
        }
        steps
    }
}

/// Each process with its threads, in the order of the observation.
fn by_process(observation: &Observation) -> Vec<(&Process, Vec<&Thread>)> {
    let mut threads: BTreeMap<Pid, Vec<&Thread>> = BTreeMap::new();
    for thread in &observation.threads {
        threads.entry(thread.pid).or_default().push(thread);
    }
    let processes = observation.processes.iter();
    processes.map(|process| (process, threads.remove(&process.pid).unwrap_or_default())).collect()
}
