//! Compares one program under several policies: results of each run, a summary per policy, and the fastest policy, as
//! far as it is statistically significant.

mod memory_counts;
pub(crate) mod text;
mod verdict;

pub use explore::Estimate;
pub use memory_counts::MemoryCounts;
pub use verdict::Verdict;

use explore::mean;
use model::Mechanism;
use serde::{Deserialize, Serialize};

/// The baseline, if it is among the policies.
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
    /// How the machine was simulated; none for a real one.
    pub simulation: Option<Simulation>,
    /// Number of runs requested per policy.
    pub repeat: usize,
    /// Number of unmeasured runs per policy before those; 0 in results of older versions.
    #[serde(default)]
    pub warm_ups: usize,
    /// What `seconds` of a run measures, as text.
    pub seconds_are: String,
    /// The policies, in the requested order.
    pub policies: Vec<PolicyRuns>,
    /// Notes for the user.
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
    /// Factor by which the periods of kernel services and policies were divided.
    pub time_scale: u32,
    /// The guest's kernel, as printed by `uname -r`; empty in results of older versions.
    #[serde(default)]
    pub kernel: String,
}

/// The runs under one policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicyRuns {
    /// Its name.
    pub policy: String,
    /// How it is applied, as text.
    pub means: String,
    /// Why there is no run, if it is not permitted or not available.
    pub left_out: Option<String>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// The successful runs, in order.
    pub runs: Vec<OneRun>,
    /// The failed run, after which there was none.
    pub failed: Option<FailedRun>,
}

/// A successful run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OneRun {
    /// Its position among all runs, with unmeasured ones, from 1.
    #[serde(alias = "place")]
    pub index: usize,
    /// Duration of the program, measured as `seconds_are` says, s.
    pub seconds: f64,
    /// From the program's `exec` to its end, s.
    pub wall_seconds: f64,
    /// Memory accesses during the run; none if not counted.
    pub memory: Option<MemoryCounts>,
    /// Pages that the kernel moved for any reason, also within a node (`pgmigrate_success`); none if not reported.
    pub pages_moved: Option<u64>,
    /// CPU time of the policy itself, s: 0 if nothing runs besides the program; none if not known.
    pub policy_cpu_seconds: Option<f64>,
}

/// A failed run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRun {
    /// Its position among all runs, from 1.
    #[serde(alias = "place")]
    pub index: usize,
    /// The error.
    pub why: String,
    /// The end of the program's output, from both streams.
    pub output: String,
}

/// Summary of the runs under a policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicySummary {
    /// The policy.
    pub policy: String,
    /// Number of runs.
    pub runs: usize,
    /// Duration of the program, s.
    pub seconds: Option<Estimate>,
    /// Speedup over the baseline.
    pub speedup: Option<Estimate>,
    /// Of all runs together, as in [`MemoryCounts`].
    pub local_access_ratio: Option<f64>,
    /// Likewise.
    pub imbalance: Option<f64>,
    /// Likewise, ns.
    pub latency_mean_ns: Option<f64>,
    /// Likewise.
    pub busiest_share: Option<f64>,
    /// Of all runs together.
    pub memory: Option<MemoryCounts>,
    /// Mean per run.
    pub pages_moved: Option<f64>,
    /// Mean per run, s.
    pub policy_cpu_seconds: Option<f64>,
    /// That over the time of all CPUs.
    pub policy_cpu_share: Option<f64>,
}

/// The output of `nearside compare`. It deserializes as the [`Comparison`] in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CompareReport {
    /// What was run.
    #[serde(flatten)]
    pub comparison: Comparison,
    /// The baseline: first touch, or else the first policy, of those that did not fail, if there are any.
    pub baseline: Option<String>,
    /// Summaries of the runs, by policy.
    pub summaries: Vec<PolicySummary>,
    /// The fastest policy, and why.
    pub verdict: Verdict,
}

impl CompareReport {
    /// Summarizes the runs.
    pub fn new(comparison: Comparison) -> Self {
        let ran = || comparison.policies.iter().filter(|policy| !policy.runs.is_empty());
        // `min_by_key` returns the first of several.
        let baseline = ran().min_by_key(|policy| (policy.failed.is_some(), policy.policy != FIRST_TOUCH));
        let summaries: Vec<PolicySummary> =
            comparison.policies.iter().map(|policy| policy.summary(baseline, comparison.cpus)).collect();
        let baseline = baseline.map(|policy| policy.policy.clone());
        let verdict = Verdict::new(&comparison.policies, &summaries, baseline.as_deref());
        Self { comparison, baseline, summaries, verdict }
    }

    /// Whether every policy that was not left out has all requested runs, and there is one.
    pub fn is_complete(&self) -> bool {
        let policies = &self.comparison.policies;
        let any_ran = policies.iter().any(|policy| !policy.runs.is_empty());
        any_ran && !self.comparison.interrupted && policies.iter().all(|policy| policy.failed.is_none())
    }
}

impl PolicyRuns {
    fn seconds(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.seconds).collect()
    }

    fn summary(&self, baseline: Option<&Self>, cpus: usize) -> PolicySummary {
        let seconds = self.seconds();
        let speedup = baseline.and_then(|baseline| {
            let is_itself = baseline.policy == self.policy;
            if is_itself { Some(Estimate::ONE) } else { Estimate::ratio(&baseline.seconds(), &seconds) }
        });
        let memory = MemoryCounts::sum(self.runs.iter().filter_map(|run| run.memory.as_ref()));
        // Values that only some runs have would be averaged over other runs than the time.
        let all = |of: fn(&OneRun) -> Option<f64>| {
            let known: Vec<f64> = self.runs.iter().filter_map(of).collect();
            mean(&known).filter(|_| known.len() == self.runs.len())
        };
        let policy_cpu_seconds = all(|run| run.policy_cpu_seconds);
        let cpu_seconds = all(|run| Some(run.wall_seconds)).map(|wall| wall * cpus as f64).filter(|time| *time > 0.0);
        PolicySummary {
            policy: self.policy.clone(),
            runs: seconds.len(),
            seconds: Estimate::from_values(&seconds),
            speedup,
            local_access_ratio: memory.as_ref().and_then(MemoryCounts::local_access_ratio),
            imbalance: all(|run| run.memory.as_ref()?.imbalance()),
            latency_mean_ns: memory.as_ref().and_then(|memory| memory.latency_mean_ns),
            busiest_share: all(|run| run.memory.as_ref()?.busiest_share()),
            memory,
            pages_moved: all(|run| run.pages_moved.map(|pages| pages as f64)),
            policy_cpu_seconds,
            policy_cpu_share: policy_cpu_seconds.zip(cpu_seconds).map(|(policy, all)| policy / all),
        }
    }
}
