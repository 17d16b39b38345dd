//! Steps 1 and 2: whether anything may be done at all, and which techniques are enabled for which process. Counters are
//! cheap and exact, so they decide before samples are read.

use crate::costs::Costs;
use crate::metrics::Metrics;
use crate::observation::{Observation, Process, Thread};
use crate::reason::{Quantity, Reason, Rule};
use crate::thresholds::Thresholds;
use machine::Pid;
use rustc_hash::FxHashMap;

/// The techniques enabled for a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Techniques {
    pub migrate: bool,
    pub replicate: bool,
    pub interleave: bool,
}

impl Techniques {
    fn any(self) -> bool {
        self.migrate || self.replicate || self.interleave
    }
}

/// The verdict of the counters: why nothing is done, or which techniques are enabled, with the numbers for reasons.
pub(crate) struct Gates {
    pub processes: Result<FxHashMap<Pid, Techniques>, Reason>,
    numbers: Metrics,
    accesses_per_us_min: f64,
}

impl Gates {
    pub fn new(observation: &Observation, costs: &Costs, thresholds: &Thresholds, metrics: &Metrics) -> Self {
        let accesses_per_us_min = thresholds.accesses_per_us_min_on(costs);
        let gates = |processes| Self { processes, numbers: metrics.clone(), accesses_per_us_min };
        let Some(accesses_per_us) = metrics.accesses_per_us else {
            return gates(Err(Reason::new(Rule::NoTraffic)));
        };
        if let Some(running) = observation.counters_running.filter(|&part| part < thresholds.counters_running_min) {
            let reason = Reason::new(Rule::CountersRanTooLittle);
            let least = thresholds.counters_running_min;
            return gates(Err(reason.against(Quantity::CountersRunning, running, least)));
        }
        let link_utilisation_min = thresholds.link_utilisation_min;
        if accesses_per_us < accesses_per_us_min && metrics.busiest_link.is_none_or(|link| link < link_utilisation_min)
        {
            let few = Reason::new(Rule::FewAccesses);
            let few = few.against(Quantity::AccessesPerUs, accesses_per_us, accesses_per_us_min);
            return gates(Err(match metrics.busiest_link {
                Some(link) => few.against(Quantity::LinkUtilisation, link, link_utilisation_min),
                None => few,
            }));
        }
        let busy: Vec<&Process> =
            observation.processes.iter().filter(|process| process.cpu_share > thresholds.cpu_share_min).collect();
        if busy.is_empty() {
            let busiest = observation.processes.iter().map(|process| process.cpu_share).fold(0.0, f64::max);
            let reason = Reason::new(Rule::NoBusyProcess);
            return gates(Err(reason.against(Quantity::CpuShare, busiest, thresholds.cpu_share_min)));
        }
        let all = everywhere(metrics, thresholds);
        let mut modified = modified_shares(&observation.threads);
        let techniques: FxHashMap<Pid, Techniques> = busy
            .into_iter()
            .map(|process| {
                let mostly_reads = modified.remove(&process.pid).map_or_else(
                    || process.read_ratio.is_some_and(|ratio| ratio >= thresholds.read_ratio_min),
                    |share| share <= thresholds.modified_share_max,
                );
                (process.pid, Techniques { replicate: all.replicate && mostly_reads, ..all })
            })
            .collect();
        if techniques.values().any(|techniques| techniques.any()) {
            return gates(Ok(techniques));
        }
        let shut = gates(Ok(FxHashMap::default())).explain(Reason::new(Rule::AllGatesShut), thresholds);
        gates(Err(shut))
    }

    /// Adds the numbers that opened the gates to a reason.
    pub fn explain(&self, mut reason: Reason, thresholds: &Thresholds) -> Reason {
        let numbers = [
            (Quantity::AccessesPerUs, self.numbers.accesses_per_us, self.accesses_per_us_min),
            (Quantity::LinkUtilisation, self.numbers.busiest_link, thresholds.link_utilisation_min),
            (Quantity::LocalAccessRatio, self.numbers.local_access_ratio, thresholds.local_access_ratio_max),
            (Quantity::Imbalance, self.numbers.imbalance, thresholds.imbalance_min),
        ];
        for (quantity, value, threshold) in numbers {
            if let Some(value) = value {
                reason = reason.against(quantity, value, threshold);
            }
        }
        reason
    }
}

/// The techniques that the whole machine's metrics allow.
fn everywhere(metrics: &Metrics, thresholds: &Thresholds) -> Techniques {
    let local = metrics.local_access_ratio;
    Techniques {
        migrate: local.is_some_and(|ratio| ratio < thresholds.local_access_ratio_max),
        replicate: metrics.memory_used.is_some_and(|used| used <= thresholds.memory_used_max),
        // If all accesses are local, there is nothing to interleave.
        interleave: metrics.imbalance.is_some_and(|imbalance| imbalance > thresholds.imbalance_min)
            && local.is_some_and(|ratio| ratio < 1.0),
    }
}

/// The highest share of modified lines among each process's measured threads: all of them have to be low.
fn modified_shares(threads: &[Thread]) -> FxHashMap<Pid, f64> {
    let mut shares = FxHashMap::default();
    for (pid, share) in threads.iter().filter_map(|thread| Some((thread.pid, thread.modified_share?))) {
        let highest = shares.entry(pid).or_insert(share);
        *highest = f64::max(*highest, share);
    }
    shares
}
