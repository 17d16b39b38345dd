//! One program under several policies, side by side: what each run came to, what that comes to by policy, and which is
//! the fastest, as far as chance allows to say.

mod estimate;
mod memory_counts;
pub(crate) mod text;
mod verdict;

pub use estimate::Estimate;
pub use memory_counts::MemoryCounts;
pub use verdict::Verdict;

use estimate::mean;
use model::Mechanism;
use serde::{Deserialize, Serialize};

/// The policy that others are compared with, where it is among them.
const FIRST_TOUCH: &str = "first-touch";

/// All runs of a program under all policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The name of the machine.
    pub machine: String,
    /// Its nodes.
    pub nodes: usize,
    /// Its CPUs.
    pub cpus: usize,
    /// Where the machine is the lab's; nothing of a real one.
    pub simulation: Option<Simulation>,
    /// So many runs were wanted under each policy.
    pub repeat: usize,
    /// What `seconds` of a run is, in words.
    pub seconds_are: String,
    /// The policies, in the order in which they were asked for.
    pub policies: Vec<PolicyRuns>,
    /// What else to know.
    pub notes: Vec<String>,
    /// Whether the user ended it early.
    pub interrupted: bool,
}

/// How a machine was simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Simulation {
    /// The version of the model.
    pub model_version: String,
    /// The parts of the model that were switched off.
    pub model_without: Vec<Mechanism>,
    /// What the periods of the kernel's services and of policies were divided by.
    pub time_scale: u32,
    /// The guest's kernel, as `uname -r` says it; empty where an older nearside compared.
    #[serde(default)]
    pub kernel: String,
}

/// The runs under one policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicyRuns {
    /// Its name.
    pub policy: String,
    /// What is done for it, in words.
    pub means: String,
    /// Why there is no run, where it may not be or is not there.
    pub left_out: Option<String>,
    /// What else to know of it.
    pub notes: Vec<String>,
    /// The runs that went well, in their order.
    pub runs: Vec<OneRun>,
    /// The run that did not, after which there was none.
    pub failed: Option<FailedRun>,
}

/// A run that went well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OneRun {
    /// Its place in the order of all runs, from 1.
    pub place: usize,
    /// How long the program took, as `seconds_are` says, s.
    pub seconds: f64,
    /// From the start to the end of the command, s.
    pub wall_seconds: f64,
    /// What the machine's memory did meanwhile; nothing where nobody counts.
    pub memory: Option<MemoryCounts>,
    /// Pages that the kernel moved from node to node, for whomever; nothing where it does not tell.
    pub pages_moved: Option<u64>,
    /// CPU time that the policy itself took, s: 0 where nothing runs beside the program; nothing where nobody tells.
    pub policy_cpu_seconds: Option<f64>,
}

/// A run that did not go well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRun {
    /// Its place in the order of all runs, from 1.
    pub place: usize,
    /// What went wrong.
    pub why: String,
    /// The last that the program printed, to both streams.
    pub output: String,
}

/// What the runs under a policy come to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicySummary {
    /// The policy.
    pub policy: String,
    /// How long the program took, s.
    pub seconds: Option<Estimate>,
    /// How many times as fast it was as under the baseline.
    pub speedup: Option<Estimate>,
    /// Of all runs together, as [`MemoryCounts`] has it.
    pub local_access_ratio: Option<f64>,
    /// Likewise.
    pub imbalance: Option<f64>,
    /// Likewise, ns.
    pub latency_mean_ns: Option<f64>,
    /// Likewise.
    pub busiest_share: Option<f64>,
    /// Of all runs together.
    pub memory: Option<MemoryCounts>,
    /// A run.
    pub pages_moved: Option<f64>,
    /// A run, s.
    pub policy_cpu_seconds: Option<f64>,
    /// That over all the time of all CPUs.
    pub policy_cpu_share: Option<f64>,
}

/// All that `nearside compare` tells. It is read as the [`Comparison`] in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CompareReport {
    /// What was run.
    #[serde(flatten)]
    pub comparison: Comparison,
    /// The policy that others are compared with: first touch, or else the first that ran.
    pub baseline: Option<String>,
    /// What the runs come to, policy by policy.
    pub summaries: Vec<PolicySummary>,
    /// Which is the fastest, and why.
    pub verdict: Verdict,
}

impl CompareReport {
    /// What runs come to.
    pub fn of(comparison: Comparison) -> Self {
        let ran = || comparison.policies.iter().filter(|policy| !policy.runs.is_empty());
        let baseline = ran().find(|policy| policy.policy == FIRST_TOUCH).or_else(|| ran().next());
        let summaries: Vec<PolicySummary> =
            comparison.policies.iter().map(|policy| policy.summary(baseline, comparison.cpus)).collect();
        let baseline = baseline.map(|policy| policy.policy.clone());
        let verdict = Verdict::of(&comparison.policies, &summaries, baseline.as_deref());
        Self { comparison, baseline, summaries, verdict }
    }

    /// Whether every policy that was not left out ran as often as wanted.
    pub fn is_complete(&self) -> bool {
        !self.comparison.interrupted && self.comparison.policies.iter().all(|policy| policy.failed.is_none())
    }
}

impl PolicyRuns {
    fn seconds(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.seconds).collect()
    }

    fn summary(&self, baseline: Option<&Self>, cpus: usize) -> PolicySummary {
        let seconds = self.seconds();
        let speedup = baseline.and_then(|baseline| Estimate::ratio(&baseline.seconds(), &seconds));
        let memory = MemoryCounts::sum(self.runs.iter().filter_map(|run| run.memory.as_ref()));
        // The mean of what only some runs know would be that of other runs than the time's.
        let all = |of: fn(&OneRun) -> Option<f64>| {
            let known: Vec<f64> = self.runs.iter().filter_map(of).collect();
            mean(&known).filter(|_| known.len() == self.runs.len())
        };
        let policy_cpu_seconds = all(|run| run.policy_cpu_seconds);
        let cpu_seconds = all(|run| Some(run.wall_seconds)).map(|wall| wall * cpus as f64).filter(|time| *time > 0.0);
        PolicySummary {
            policy: self.policy.clone(),
            seconds: Estimate::of(&seconds),
            speedup,
            local_access_ratio: memory.as_ref().and_then(MemoryCounts::local_access_ratio),
            imbalance: memory.as_ref().and_then(MemoryCounts::imbalance),
            latency_mean_ns: memory.as_ref().and_then(|memory| memory.latency_mean_ns),
            busiest_share: memory.as_ref().and_then(MemoryCounts::busiest_share),
            memory,
            pages_moved: all(|run| run.pages_moved.map(|pages| pages as f64)),
            policy_cpu_seconds,
            policy_cpu_share: policy_cpu_seconds.zip(cpu_seconds).map(|(policy, all)| policy / all),
        }
    }
}
