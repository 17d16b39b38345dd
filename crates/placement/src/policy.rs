//! A policy at work: both of its parts, and the state that they keep between rounds.

use crate::action::{Action, Decision, Sampling, Step};
use crate::carrefour::Carrefour;
use crate::costs::Costs;
use crate::memory;
use crate::metrics::Metrics;
use crate::name::{MemoryPlacement, PolicyName, ThreadPolicy};
use crate::observation::{Observation, Process, Thread};
use crate::outcome::Outcome;
use crate::predict::{self, Lesson, Predict};
use crate::reason::{Reason, Rule};
use crate::settings::Settings;
use crate::start::Start;
use crate::threads::{self, Threads};
use machine::{CpuId, CpuSet, Machine, MemoryPolicy, NodeId, NodeSet, Pid, Selection, SelectionError};
use serde::{Deserialize, Serialize};

/// Why a policy is not available on a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The nodes that it names cannot be resolved.
    #[error("policy {policy}")]
    Selection {
        /// The policy.
        policy: String,
        /// What is wrong.
        source: SelectionError,
    },
    /// Nodes do not exist, or lack memory or CPUs.
    #[error("policy {policy} wants {what} on nodes {missing}, which have none; nodes {there} have")]
    Nodes {
        /// The policy.
        policy: String,
        /// `memory` or `CPUs`.
        what: &'static str,
        /// The nodes without any.
        missing: NodeSet,
        /// The nodes that have some.
        there: NodeSet,
    },
    /// A threshold is of what the policy leaves out.
    #[error("carrefour-published has no {0}: `carrefour` has")]
    Addition(&'static str),
    /// The CPU does not exist.
    #[error("policy {policy} wants CPU {cpu}, which {machine} does not have: it has {there}")]
    Cpu {
        /// The policy.
        policy: String,
        /// The CPU.
        cpu: CpuId,
        /// The machine's name.
        machine: String,
        /// The machine's CPUs.
        there: CpuSet,
    },
}

/// Which processes' mappings a policy needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mappings {
    /// Those of all processes.
    All,
    /// Those of processes whose accesses were sampled, or that run where nothing samples.
    OfUsers,
}

/// State that a policy keeps between rounds: it can be saved, and passed to [`Policy::with_state`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct State {
    threads: Threads,
    carrefour: Carrefour,
    predict: Predict,
}

/// A policy at work on a machine.
#[derive(Clone, Debug)]
pub struct Policy {
    name: PolicyName,
    /// The user's settings.
    settings: Settings,
    /// Those without what the policy leaves out.
    effective: Settings,
    costs: Costs,
    /// The nodes that the name gives for threads, and for memory.
    thread_nodes: NodeSet,
    memory_nodes: NodeSet,
    state: State,
}

impl Policy {
    /// Creates a policy for a machine. Fails if it names nodes or a CPU that the machine does not have.
    pub fn new(name: PolicyName, machine: &Machine, settings: Settings) -> Result<Self, PolicyError> {
        let costs = Costs::new(machine);
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
        let mut effective = match &name.memory {
            MemoryPlacement::CarrefourPublished => settings.clone().without_additions()?,
            _ => settings.clone(),
        };
        if !name.is_predict_alone() {
            // Another policy places threads.
            effective.thresholds.keep_threads = 0;
        }
        // Others decide for each process by itself.
        effective.shared &= name.memory == MemoryPlacement::Predict;
        Ok(Self { name, settings, effective, costs, thread_nodes, memory_nodes, state: State::default() })
    }

    /// Continues from a saved state.
    #[must_use]
    pub fn with_state(self, state: State) -> Self {
        Self { state, ..self }
    }

    /// The state that it keeps between rounds.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Begins with what an earlier run of the program taught. Only `predict` uses it.
    pub fn begin_with(&mut self, lesson: Lesson) {
        self.state.predict.begin_with(lesson);
    }

    /// What this run teaches about the next one, or those before it did; none unless the policy is `predict`.
    pub fn lesson(&self) -> Option<Lesson> {
        self.state.predict.lesson()
    }

    /// Its name.
    pub fn name(&self) -> &PolicyName {
        &self.name
    }

    /// The machine's memory costs that it uses.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// The user's settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether it needs observations with pages and traffic in every round. Other policies decide when processes and
    /// threads begin, and use pages only of processes that ran before.
    pub fn is_dynamic(&self) -> bool {
        let threads = &self.name.threads;
        let looks_again = matches!(threads, ThreadPolicy::Auto | ThreadPolicy::AutoThreads);
        let memory = &self.name.memory;
        let is_moving = memory.is_carrefour() || *memory == MemoryPlacement::Predict;
        looks_again || *threads == ThreadPolicy::ThreadClustering || is_moving
    }

    /// Whether it splits huge pages that are found falsely shared: [`split_shared`](crate::Thresholds::split_shared).
    pub fn splits_shared(&self) -> bool {
        self.name.memory.is_carrefour() && self.effective.thresholds.split_shared > 0
    }

    /// Whether it decides where nothing samples accesses and memory traffic is counted.
    pub fn decides_by_counters(&self) -> bool {
        let places_by_samples = matches!(
            self.name.threads,
            ThreadPolicy::Auto | ThreadPolicy::AutoThreads | ThreadPolicy::ThreadClustering
        );
        self.name.memory == MemoryPlacement::Predict && !places_by_samples
    }

    /// What the name requests and the process's cpuset denies.
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

    /// Whether the observation of this round, which has this number of samples, must include mappings, and of which processes.
    pub fn needs_ranges(&self, round: u64, samples: u64) -> Option<Mappings> {
        let is_predicting = self.name.memory == MemoryPlacement::Predict;
        let is_choosing = is_predicting && self.state.predict.may_choose(round, samples);
        match (self.follows(), is_choosing) {
            (true, _) => Some(Mappings::All),
            (false, true) => Some(Mappings::OfUsers),
            (false, false) => None,
        }
    }

    /// Whether whole mappings follow their process to its home: true for `auto`, unless the name gives another memory
    /// policy.
    fn follows(&self) -> bool {
        let is_near =
            matches!(self.name.memory, MemoryPlacement::Default | MemoryPlacement::FirstTouch | MemoryPlacement::Local);
        self.name.threads == ThreadPolicy::Auto && is_near
    }

    /// The sampling rate until a decision sets another.
    pub fn sampling(&self) -> Sampling {
        let thresholds = &self.effective.thresholds;
        match self.name.memory {
            MemoryPlacement::Predict => Sampling::at(!self.state.predict.needs_samples(), thresholds),
            _ => self.state.carrefour.sampling(thresholds),
        }
    }

    /// Rounds after the last one in which it will decide nothing, unless the traffic changes: these may be observed as one.
    pub fn idle_rounds(&self) -> u64 {
        if self.name.is_predict_alone() { self.state.predict.idle_rounds() } else { 0 }
    }

    /// Most samples of a round that it uses.
    pub fn samples_max(&self) -> u64 {
        if self.name.memory == MemoryPlacement::Predict {
            predict::MOST_SAMPLES
        } else {
            self.effective.thresholds.page_cap
        }
    }

    /// Places a new process, or a later thread of it: its CPUs and memory policy. Call it before it runs, or as soon as
    /// it is seen; threads not passed here are placed by the next [`Policy::decide`].
    pub fn admit(&mut self, process: &Process, thread: &Thread) -> Start {
        if self.has_nothing_to_place() {
            return Start { cpus: None, cpus_reason: None, memory: None };
        }
        let rules = thread_rules(&self.name, &self.thread_nodes, &self.costs, &self.effective);
        let placed = self.state.threads.admit(process, thread, rules);
        let nodes_of = |cpus: &CpuSet| cpus.iter().filter_map(|cpu| self.costs.node_of_cpu(cpu)).collect();
        let of_cpus = |cpus: &CpuSet| {
            let nodes: NodeSet = nodes_of(cpus);
            nodes.first().filter(|_| nodes.len() == 1)
        };
        let own = placed.as_ref().and_then(|(cpus, _)| of_cpus(cpus));
        let home = own.or_else(|| self.state.threads.home(process.pid)).or_else(|| self.node_to_be_remote_from(thread));
        let own_cpus = placed.as_ref().map(|(cpus, _)| cpus).or(thread.bound_to.as_ref());
        let memory = self.start_memory(process, own_cpus, home);
        let is_heir = self.keeps_threads() && thread.bound_to.is_none();
        let freed = || (process.cpus.clone(), Reason::new(Rule::MayRunAnywhere));
        let placed = placed.or_else(|| is_heir.then(freed));
        let (cpus, cpus_reason) = placed.unzip();
        Start { cpus, cpus_reason, memory }
    }

    /// Whether it moves shared mappings, by one decision for all processes that have them.
    pub fn moves_shared(&self) -> bool {
        self.effective.shared
    }

    /// Whether it needs to know for how long threads run, and wait for CPUs.
    pub fn watches_threads(&self) -> bool {
        let threads = &self.name.threads;
        matches!(threads, ThreadPolicy::Auto | ThreadPolicy::AutoThreads | ThreadPolicy::ThreadClustering)
            || self.keeps_threads()
    }

    /// Whether new threads and processes must be placed at once: by policies for threads, and where they inherit the CPUs of
    /// threads that are kept near their memory.
    pub fn is_prompt(&self) -> bool {
        self.name.threads != ThreadPolicy::Kernel || self.keeps_threads()
    }

    fn keeps_threads(&self) -> bool {
        self.state.predict.keeps_threads()
    }

    /// Removes a process that has ended. One that is missing from an observation is removed too.
    pub fn forget(&mut self, pid: Pid) {
        self.state.threads.forget(pid);
        self.state.predict.forget(pid);
        // Another process may get its PID before the next decision.
        self.state.carrefour.forget_process(pid);
    }

    /// Records that a process executes another program, and has other memory, or uses its memory in another way from now
    /// on.
    pub fn executed(&mut self, pid: Pid) {
        self.state.predict.changed(pid);
        self.state.carrefour.forget_process(pid);
    }

    /// Decides what to do after this round. The same observations, outcomes and settings give the same decisions.
    pub fn decide(&mut self, observation: &Observation) -> Decision {
        let metrics = Metrics::new(observation, &self.costs);
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

    /// Decides where nothing is carried out: [`decide`](Self::decide), but rounds with steps that change something are not
    /// remembered.
    pub fn try_out(&mut self, observation: &Observation) -> Decision {
        let mut tried = self.clone();
        let decision = tried.decide(observation);
        if decision.steps.iter().all(|step| matches!(step.action, Action::Nothing | Action::SetSampling(_))) {
            *self = tried;
        }
        decision
    }

    /// Records the outcome of a decision. Can be called at any time before the next decision.
    pub fn learn(&mut self, outcome: &Outcome) {
        self.state.carrefour.learn(outcome, &self.effective);
        self.state.predict.learn(outcome);
    }

    fn steps(&mut self, observation: &Observation, metrics: &Metrics) -> Vec<Step> {
        let has_carrefour = self.name.memory.is_carrefour();
        let is_clustering = self.name.threads == ThreadPolicy::ThreadClustering;
        // Clusters and pages take turns, because each invalidates what the other has observed; in rounds without thread
        // moves, pages get both turns.
        let is_pages_turn = is_clustering && has_carrefour && !observation.round.is_multiple_of(2);
        let rules = thread_rules(&self.name, &self.thread_nodes, &self.costs, &self.effective);
        let mut steps = if is_pages_turn { Vec::new() } else { self.state.threads.decide(observation, rules) };
        if has_carrefour {
            if !is_clustering || steps.is_empty() {
                steps.extend(self.state.carrefour.decide(observation, &self.costs, &self.effective, metrics));
            }
            return steps;
        }
        if self.name.memory == MemoryPlacement::Predict {
            // Threads that move invalidate what was observed of memory.
            if !steps.is_empty() {
                self.state.predict.threads_moved();
                return steps;
            }
            steps.extend(self.state.predict.decide(observation, &self.costs, &self.effective, metrics));
            return steps;
        }
        let thresholds = &self.effective.thresholds;
        self.state.carrefour.forget(observation, thresholds);
        if self.follows() {
            steps.extend(self.state.threads.follow(observation, rules));
        } else {
            let State { threads, carrefour, .. } = &self.state;
            let stays = |page| carrefour.keeps(page, observation.round, thresholds);
            steps.extend(self.memory_rules().settle(observation, |pid| threads.home(pid), stays));
        }
        steps
    }

    /// The nodes over which a new program is to spread what it touches before it makes threads, so that what one thread
    /// fills for many is not on one node: those with memory among the nodes of its CPUs. None if that is one, if earlier
    /// runs taught something, or if the owner chose a policy. Only of `predict`, with
    /// [`spread_start`](crate::Thresholds::spread_start).
    pub fn spread_start(&self, process: &Process, thread: &Thread) -> Option<NodeSet> {
        let is_used = self.name.memory == MemoryPlacement::Predict && self.effective.thresholds.spread_start > 0;
        let is_free = process.memory_policy.is_none() || !self.effective.respect_owner;
        let nodes = self.nodes_to_spread_over(process, thread.bound_to.as_ref());
        (is_used && is_free && self.state.predict.began_with().is_none() && nodes.len() > 1).then_some(nodes)
    }

    /// The nodes with memory among those of its CPUs: its own, else all that its process may use.
    fn nodes_to_spread_over(&self, process: &Process, own_cpus: Option<&CpuSet>) -> NodeSet {
        let cpus = own_cpus.unwrap_or(&process.cpus);
        let of_cpus: NodeSet = cpus.iter().filter_map(|cpu| self.costs.node_of_cpu(cpu)).collect();
        self.costs.memory_nodes().intersection(&process.nodes).intersection(&of_cpus)
    }

    /// The memory policy that a process or thread begins with, on these CPUs or all of its process. None if the program's
    /// own choice stands.
    fn start_memory(&self, process: &Process, own_cpus: Option<&CpuSet>, home: Option<NodeId>) -> Option<MemoryPolicy> {
        let is_predicting = self.name.memory == MemoryPlacement::Predict;
        if !is_predicting || self.state.predict.began_with() != Some(Lesson::Spread) {
            return self.memory_rules().start(process, home);
        }
        let nodes = self.nodes_to_spread_over(process, own_cpus);
        let spread = &MemoryPlacement::WeightedInterleave(None);
        let rules = memory::Rules { policy: spread, nodes: &nodes, ..self.memory_rules() };
        if nodes.len() > 1 { rules.start(process, home) } else { None }
    }

    fn memory_rules(&self) -> memory::Rules<'_> {
        memory::Rules {
            policy: &self.name.memory,
            nodes: &self.memory_nodes,
            costs: &self.costs,
            settings: &self.effective,
        }
    }

    /// The node that `remote` is to be far from where the kernel places threads: the thread's current one.
    fn node_to_be_remote_from(&self, thread: &Thread) -> Option<NodeId> {
        let is_remote = self.name.memory == MemoryPlacement::Remote;
        thread.cpu.filter(|_| is_remote).and_then(|cpu| self.costs.node_of_cpu(cpu))
    }

    /// Whether only one node has memory, so that nothing is ever placed.
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
