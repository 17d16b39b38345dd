//! Numbers of a run that no program prints: what the kernel and, in the lab, the virtual PMU counted.

use linux::system_events;
use machine::CpuId;
use model::Measured;
use observe::{CpuTotals, SchedulingCounters};
use std::collections::BTreeMap;
use std::path::Path;
use strum::VariantNames;
use trace::Counter;

/// The kernel's counters that are kept with each run, of all programs.
const EVENTS: [&str; 8] = [
    "numa_hint_faults",
    "numa_hint_faults_local",
    "numa_pages_migrated",
    "pgfault",
    "pgmigrate_success",
    "thp_collapse_alloc",
    "thp_fault_alloc",
    "thp_split_page",
];

/// The kernel's counters at one time.
pub struct Events(BTreeMap<String, u64>);

impl Events {
    /// With those of the scheduler, if they can be read.
    pub fn now(scheduling: Option<&mut SchedulingCounters>) -> Self {
        let counted = system_events(Path::new("/proc")).unwrap_or_default();
        let of_memory = EVENTS.iter().filter_map(|name| Some((format!("vmstat.{name}"), *counted.get(*name)?)));
        let moves = scheduling.map(SchedulingCounters::totals).unwrap_or_default();
        Self(of_memory.chain(moves.into_iter().map(|(counter, moves)| (of_thread(counter), moves))).collect())
    }

    /// What was counted since then.
    pub fn since(&self, before: &Self) -> BTreeMap<String, f64> {
        let more = |(name, now): (&String, &u64)| {
            let before = before.0.get(name)?;
            Some((name.clone(), now.saturating_sub(*before) as f64))
        };
        self.0.iter().filter_map(more).collect()
    }
}

/// `sched.numa_moves`, with the word of a trace.
fn of_thread(counter: Counter) -> String {
    format!("sched.{}", <Counter as VariantNames>::VARIANTS[counter as usize])
}

/// How often each part of the memory system was used between two readings, all CPUs together.
pub fn uses(before: &Measured, after: &Measured) -> BTreeMap<String, f64> {
    let counts = |measured: &Measured| {
        let of = &measured.counters;
        [
            ("lab.instructions", measured.instructions),
            ("lab.l2_hits", of.l2_hits),
            ("lab.l3_hits", of.l3_hits),
            ("lab.peer_hits", of.peer_hits),
            ("lab.dram_accesses", of.dram_accesses),
            ("lab.page_walks", of.page_walks),
            ("lab.write_backs", of.write_backs),
        ]
    };
    let all = counts(after).into_iter().zip(counts(before));
    all.map(|((name, after), (_, before))| (name.to_owned(), after.saturating_sub(before) as f64)).collect()
}

/// A CPU counts if it has at least this share of the accesses of the busiest: others only ran the kernel.
const LEAST: f64 = 0.01;

/// The mean and the extremes over the CPUs of the parts that each source served, between two readings.
pub fn sources(before: &CpuTotals, after: &CpuTotals) -> BTreeMap<String, f64> {
    let more = |(cpu, after): (&CpuId, &BTreeMap<Counter, u64>)| {
        let before = before.get(cpu)?;
        let more = |(counter, count): (&Counter, &u64)| Some((*counter, count.saturating_sub(*before.get(counter)?)));
        after.iter().map(more).collect::<Option<BTreeMap<Counter, u64>>>()
    };
    let counts: Vec<BTreeMap<Counter, u64>> = after.iter().filter_map(more).collect();
    let sum =
        |counts: &BTreeMap<Counter, u64>| counts.values().fold(0, |sum: u64, count| sum.saturating_add(*count)) as f64;
    let busiest = counts.iter().map(sum).fold(0.0, f64::max);
    let busy: Vec<_> = counts.iter().filter(|counts| sum(counts) > 0.0 && sum(counts) >= LEAST * busiest).collect();
    let mut metrics = BTreeMap::new();
    for (counter, name) in Counter::SERVED {
        let share = |counts: &&BTreeMap<Counter, u64>| Some(*counts.get(&counter)? as f64 / sum(counts));
        let shares: Vec<f64> = busy.iter().filter_map(share).collect();
        let Some(mean) = explore::mean(&shares) else { continue };
        metrics.insert(format!("mean({name})"), mean);
        metrics.insert(format!("min({name})"), shares.iter().copied().fold(f64::INFINITY, f64::min));
        metrics.insert(format!("max({name})"), shares.iter().copied().fold(0.0, f64::max));
    }
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of CPUs that count these kinds.
    fn totals(kinds: usize, cpus: [[u64; 4]; 4]) -> CpuTotals {
        let of_cpu = |counts: [u64; 4]| Counter::SERVED.map(|(counter, _)| counter).into_iter().zip(counts).take(kinds);
        (0..).map(CpuId).zip(cpus.map(|counts| of_cpu(counts).collect())).collect()
    }

    /// T16 (Gachod 2024, 5.3.2): the four shares are all there is, with remote memory in the denominator.
    #[test]
    fn the_four_sources_add_up_to_one() {
        let before = totals(4, [[10; 4]; 4]);
        let after = totals(4, [[910, 60, 30, 40], [10, 10, 10, 11], [510, 510, 10, 10], [10, 10, 10, 10]]);
        let found = sources(&before, &after);
        let sum: f64 = ["A", "B", "C", "D"].iter().map(|name| found[&format!("mean({name})")]).sum();
        assert!((sum - 1.0).abs() < 1e-12 && !found.contains_key("mean(CD)"), "{found:?}");
        // The second and fourth CPU hardly ran.
        assert!((found["mean(A)"] - 0.7).abs() < 1e-12, "{found:?}");
        assert_eq!((found["max(B)"], found["min(A)"], found["max(C)"]), (0.5, 0.5, 0.02));
        assert!(sources(&before, &before).is_empty());
    }

    #[test]
    fn a_cpu_that_was_not_counted_whole_is_left_out() {
        let before = totals(2, [[0; 4]; 4]);
        let mut after = totals(2, [[30, 10, 0, 0], [10, 30, 0, 0], [0; 4], [0; 4]]);
        assert_eq!(sources(&before, &after).get("mean(A)"), Some(&0.5));
        after.get_mut(&CpuId(1)).unwrap().insert(Counter::Peer, 5);
        let found = sources(&before, &after);
        assert_eq!((found["mean(A)"], found["max(B)"], found.get("mean(C)")), (0.75, 0.25, None));
    }

    #[test]
    fn what_the_memory_system_did_is_what_grew() {
        let before: Measured = serde_json::from_value(serde_json::json!({
            "instructions": 0, "cpu_time_s": 0.0, "memory_wait_s": 0.0, "time_s": 0.0, "loads": 0, "stores": 0,
            "instruction_fetches": 0, "l1_hits": 0, "l2_hits": 0, "l3_hits": 0, "stream_misses": 0, "dram_accesses": 0,
            "peer_hits": 0, "page_walks": 0, "write_backs": 0, "dram_latency_mean_ns": null, "local_access_ratio": null,
            "imbalance": null, "nodes": [0, 1], "dram_accesses_by_node": [], "controllers": [], "links": [],
        }))
        .unwrap();
        let mut later = before.clone();
        (later.counters.page_walks, later.counters.l3_hits) = (7, 9);
        let used = uses(&before, &later);
        assert_eq!((used["lab.page_walks"], used["lab.l3_hits"], used["lab.peer_hits"]), (7.0, 9.0, 0.0));
    }

    #[test]
    fn events_are_those_since_then() {
        let before = Events::now(None);
        let more = Events::now(None).since(&before);
        assert!(more.contains_key("vmstat.pgfault") && more.values().all(|count| *count >= 0.0));
    }
}
