//! A policy at work: both of its halves, and what they keep from round to round.

use crate::action::{Action, Decision, Sampling, Step};
use crate::carrefour::Carrefour;
use crate::costs::Costs;
use crate::memory;
use crate::metrics::Metrics;
use crate::name::{MemoryPlacement, PolicyName, ThreadPolicy};
use crate::observation::{Observation, Process, Thread};
use crate::outcome::Outcome;
use crate::reason::{Reason, Rule};
use crate::settings::Settings;
use crate::start::Start;
use crate::threads::{self, Threads};
use machine::{CpuId, Machine, NodeId, NodeSet, Pid, Selection, SelectionError};
use serde::{Deserialize, Serialize};

/// Why a policy cannot be had on a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The nodes that it names cannot be told.
    #[error("policy {policy}: {source}")]
    Selection {
        /// The policy.
        policy: String,
        /// What is wrong.
        source: SelectionError,
    },
    /// Nodes are not there, or have not what is wanted.
    #[error("policy {policy} wants {what} on nodes {missing}, which have none; nodes {there} have")]
    Nodes {
        /// The policy.
        policy: String,
        /// `memory` or `CPUs`.
        what: &'static str,
        /// The nodes that have none.
        missing: NodeSet,
        /// The nodes that have.
        there: NodeSet,
    },
    /// A CPU is not there.
    #[error("policy {policy} wants CPU {cpu}, which {machine} does not have: it has {there}")]
    Cpu {
        /// The policy.
        policy: String,
        /// The CPU.
        cpu: CpuId,
        /// The machine's name.
        machine: String,
        /// The CPUs that are there.
        there: machine::CpuSet,
    },
}

/// What a policy keeps from round to round: to be saved, and given to [`Policy::with_state`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct State {
    threads: Threads,
    carrefour: Carrefour,
}

/// A policy at work on a machine.
#[derive(Clone, Debug)]
pub struct Policy {
    name: PolicyName,
    settings: Settings,
    costs: Costs,
    /// Nodes that the name has for threads, and for memory.
    thread_nodes: NodeSet,
    memory_nodes: NodeSet,
    state: State,
}

impl Policy {
    /// Sets a policy to work on a machine. Fails when it names nodes or a CPU that the machine has not.
    pub fn new(name: PolicyName, machine: &Machine, settings: Settings) -> Result<Self, PolicyError> {
        let costs = Costs::of(machine);
        let resolve = |selection: Option<&Selection<NodeId>>, there: NodeSet, what| {
            let policy = name.to_string();
            let Some(selection) = selection else { return Ok(there) };
            let nodes = selection
                .resolve(&there, None, |_| Err("devices are of a host, and this policy is of a machine".to_owned()))
                .map_err(|source| PolicyError::Selection { policy: policy.clone(), source })?;
            let missing: NodeSet = nodes.iter().filter(|node| !there.contains(*node)).collect();
            if missing.is_empty() { Ok(nodes) } else { Err(PolicyError::Nodes { policy, what, missing, there }) }
        };
        let bound = if let ThreadPolicy::Bind(nodes) = &name.threads { Some(nodes) } else { None };
        let thread_nodes = resolve(bound, costs.cpu_nodes(), "CPUs")?;
        let among = match &name.memory {
            MemoryPlacement::Bind(nodes) => Some(nodes),
            MemoryPlacement::Interleave(nodes) | MemoryPlacement::WeightedInterleave(nodes) => nodes.as_ref(),
            _ => None,
        };
        let memory_nodes = resolve(among, costs.memory_nodes(), "memory")?;
        if let ThreadPolicy::Fixed(Some(cpu)) = name.threads
            && !machine.cpus().contains(cpu)
        {
            let (policy, machine, there) = (name.to_string(), machine.name.clone(), machine.cpus());
            return Err(PolicyError::Cpu { policy, cpu, machine, there });
        }
        Ok(Self { name, settings, costs, thread_nodes, memory_nodes, state: State::default() })
    }

    /// Goes on from a saved state.
    #[must_use]
    pub fn with_state(self, state: State) -> Self {
        Self { state, ..self }
    }

    /// What it keeps from round to round.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Its name.
    pub fn name(&self) -> &PolicyName {
        &self.name
    }

    /// The machine's costs, by which it decides.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// What users chose.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether it wants observations with pages and traffic: others decide when processes and threads begin, and look
    /// at pages only of processes that ran before.
    pub fn is_dynamic(&self) -> bool {
        let threads = &self.name.threads;
        let looks_again = matches!(threads, ThreadPolicy::Auto | ThreadPolicy::AutoThreads);
        looks_again || *threads == ThreadPolicy::ThreadClustering || self.name.memory == MemoryPlacement::Carrefour
    }

    /// What the name asks for and a process may not have, by its cpuset.
    pub fn denies(&self, process: &Process) -> Vec<String> {
        let mut denied = Vec::new();
        match &self.name.threads {
            ThreadPolicy::Fixed(Some(cpu)) if !process.cpus.contains(*cpu) => denied.push(format!("CPU {cpu}")),
            ThreadPolicy::Bind(_) if self.costs.cpus_of(&self.thread_nodes).intersection(&process.cpus).is_empty() => {
                denied.push(format!("CPUs of nodes {}", self.thread_nodes));
            }
            _ => {}
        }
        if self.memory_nodes.intersection(&process.nodes).is_empty() {
            denied.push(format!("memory of nodes {}", self.memory_nodes));
        }
        denied
    }

    /// Whether whole mappings follow their process to its home, so that observations are to have them: `auto`, unless the
    /// name says where else memory is to be.
    pub fn follows(&self) -> bool {
        let is_near =
            matches!(self.name.memory, MemoryPlacement::Default | MemoryPlacement::FirstTouch | MemoryPlacement::Local);
        self.name.threads == ThreadPolicy::Auto && is_near
    }

    /// How often to sample until a decision sets another rate.
    pub fn sampling(&self) -> Sampling {
        self.state.carrefour.sampling(&self.settings.thresholds)
    }

    /// A process or a later thread of it begins: its CPUs and memory policy. To be called before it runs, or as soon as
    /// it is seen; threads of which it is not told get their place in the next [`Policy::decide`].
    pub fn admit(&mut self, process: &Process, thread: &Thread) -> Start {
        if self.has_nothing_to_place() {
            return Start { cpus: None, cpus_reason: None, memory: None };
        }
        let rules = thread_rules(&self.name, &self.thread_nodes, &self.costs, &self.settings);
        let placed = self.state.threads.admit(process, thread, rules);
        let nodes_of = |cpus: &machine::CpuSet| cpus.iter().filter_map(|cpu| self.costs.node_of_cpu(cpu)).collect();
        let of_cpus = |cpus: &machine::CpuSet| {
            let nodes: NodeSet = nodes_of(cpus);
            nodes.first().filter(|_| nodes.len() == 1)
        };
        let own = placed.as_ref().and_then(|(cpus, _)| of_cpus(cpus));
        let home = own.or_else(|| self.state.threads.home(process.pid)).or_else(|| self.node_to_be_remote_from(thread));
        let memory = self.memory_rules().start(process, home);
        let (cpus, cpus_reason) = placed.unzip();
        Start { cpus, cpus_reason, memory }
    }

    /// A process has ended. One that is missing from an observation has ended as well.
    pub fn forget(&mut self, pid: Pid) {
        self.state.threads.forget(pid);
    }

    /// What to do after this round. The same observations, outcomes and settings give the same decisions.
    pub fn decide(&mut self, observation: &Observation) -> Decision {
        let metrics = Metrics::of(observation, &self.costs);
        let mut steps = if self.has_nothing_to_place() {
            vec![Step { action: Action::Nothing, reason: Reason::new(Rule::OneNode) }]
        } else {
            self.steps(observation, &metrics)
        };
        if steps.is_empty() {
            steps.push(Step { action: Action::Nothing, reason: Reason::new(Rule::Settled) });
        }
        Decision { round: observation.round, metrics, steps }
    }

    /// What became of a decision: at any time before the next one.
    pub fn learn(&mut self, outcome: &Outcome) {
        self.state.carrefour.learn(outcome, &self.settings);
    }

    fn steps(&mut self, observation: &Observation, metrics: &Metrics) -> Vec<Step> {
        let has_carrefour = self.name.memory == MemoryPlacement::Carrefour;
        let is_clustering = self.name.threads == ThreadPolicy::ThreadClustering;
        // Clusters and pages take turns, as each undoes what the other has seen; pages have both where no thread moves.
        let is_pages_turn = is_clustering && has_carrefour && !observation.round.is_multiple_of(2);
        let rules = thread_rules(&self.name, &self.thread_nodes, &self.costs, &self.settings);
        let mut steps = if is_pages_turn { Vec::new() } else { self.state.threads.decide(observation, rules) };
        if has_carrefour {
            if !is_clustering || steps.is_empty() {
                steps.extend(self.state.carrefour.decide(observation, &self.costs, &self.settings, metrics));
            }
            return steps;
        }
        let thresholds = &self.settings.thresholds;
        self.state.carrefour.forget(observation, thresholds);
        if self.follows() {
            steps.extend(self.state.threads.follow(observation, rules));
        } else {
            let State { threads, carrefour } = &self.state;
            let stays = |page| carrefour.keeps(page, observation.round, thresholds);
            steps.extend(self.memory_rules().settle(observation, |pid| threads.home(pid), stays));
        }
        steps
    }

    fn memory_rules(&self) -> memory::Rules<'_> {
        memory::Rules {
            policy: &self.name.memory,
            nodes: &self.memory_nodes,
            costs: &self.costs,
            settings: &self.settings,
        }
    }

    /// `remote` wants a node to be far from also where the kernel places threads: that on which it is now.
    fn node_to_be_remote_from(&self, thread: &Thread) -> Option<NodeId> {
        let is_remote = self.name.memory == MemoryPlacement::Remote;
        thread.cpu.filter(|_| is_remote).and_then(|cpu| self.costs.node_of_cpu(cpu))
    }

    /// Whether memory is on one node, so that nothing is ever placed.
    pub fn has_nothing_to_place(&self) -> bool {
        self.costs.memory_nodes().len() < 2
    }
}

fn thread_rules<'a>(
    name: &'a PolicyName,
    nodes: &'a NodeSet,
    costs: &'a Costs,
    settings: &'a Settings,
) -> threads::Rules<'a> {
    threads::Rules { policy: &name.threads, nodes, costs, settings }
}
