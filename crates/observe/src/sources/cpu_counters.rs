//! Where the accesses of each CPU were served: counters of cores, on hosts and in the lab.

use super::cpu_events::{CpuEvent, cpu_events};
use super::host_counters::whole;
use super::lab_counters::LabCounters;
use super::perf_rings::online_cpus;
use super::permission::{LiveError, Refusal, Scope};
use super::pmu::{Config, DEVICES};
use linux::{Cause, monotonic_ns};
use machine::{CpuId, Machine, bounded, chain};
use model::MeasuredCpu;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};
use trace::{Count, Counter};

const WHAT: &str = "count where each CPU's accesses are served (perf)";
/// The lab publishes its counters many times per second of its host's time.
const COUNTERS_TIMEOUT: Duration = Duration::from_secs(1);

/// The counters of [`Counter::SERVED`] of each CPU, since any time. A CPU is missing if one of its counters was not read.
pub type CpuTotals = BTreeMap<CpuId, BTreeMap<Counter, u64>>;

/// The counters of all CPUs, whatever runs on them. Those of hosts are not yet tested on hardware.
pub struct CpuCounters {
    kind: Kind,
}

enum Kind {
    Lab(LabCounters, Box<Machine>),
    Host(Vec<(CpuId, Vec<Opened>)>),
}

/// A counter of a CPU.
struct Opened {
    counter: Counter,
    count: perf_event::Counter,
    /// What is not part of it.
    less: Option<perf_event::Counter>,
}

impl CpuCounters {
    /// Opens the counters of all CPUs. On hosts, needs `kernel.perf_event_paranoid` at 0 or less or `CAP_PERFMON`, and a
    /// processor whose events are known; in the lab, to run as the user of the lab's run, or as root.
    pub fn open(machine: &Machine) -> Result<Self, LiveError> {
        let failed = |why: String| LiveError::new(WHAT, Cause::Other(why));
        if let Some(counters) = LabCounters::find().map_err(|error| failed(chain(&error)))? {
            return Ok(Self { kind: Kind::Lab(counters, Box::new(machine.clone())) });
        }
        let cpuinfo = bounded::text("/proc/cpuinfo").map_err(|error| failed(format!("/proc/cpuinfo: {error}")))?;
        let events = cpu_events(Path::new(DEVICES), &cpuinfo).map_err(failed)?;
        Ok(Self { kind: Kind::Host(open_cpus(&events)?) })
    }

    /// The counters so far.
    pub fn totals(&mut self) -> CpuTotals {
        match &mut self.kind {
            Kind::Lab(counters, machine) => {
                news(counters).map_or(CpuTotals::new(), |per_cpu| lab_totals(machine, &per_cpu))
            }
            Kind::Host(cpus) => {
                let of_cpu = |(cpu, counters): &mut (CpuId, Vec<Opened>)| {
                    let counts: Option<_> =
                        counters.iter_mut().map(|opened| Some((opened.counter, opened.count()?))).collect();
                    Some((*cpu, counts?))
                };
                cpus.iter_mut().filter_map(of_cpu).collect()
            }
        }
    }

    /// The same as rows of a trace.
    pub fn counts(&mut self, counts: &mut Vec<Count>) {
        let totals = self.totals();
        let time_ns = monotonic_ns();
        let count = |cpu, counter, value| Count { time_ns, counter, from: None, to: None, cpu: Some(cpu), value };
        let of_cpu = |(cpu, of): (CpuId, BTreeMap<Counter, u64>)| {
            of.into_iter().map(move |(counter, value)| count(cpu, counter, value))
        };
        counts.extend(totals.into_iter().flat_map(of_cpu));
    }
}

/// The counters of the lab's virtual PMU as of now. `None` if it published none.
fn news(counters: &mut LabCounters) -> Option<Vec<MeasuredCpu>> {
    let (now, since) = (monotonic_ns(), Instant::now());
    while since.elapsed() < COUNTERS_TIMEOUT {
        match counters.news() {
            Some(count) if count.time_ns >= now => return Some(count.measured()?.per_cpu),
            Some(_) => {}
            None => sleep(Duration::from_millis(1)),
        }
    }
    None
}

/// The lab's counters of each CPU. They are of loads and stores, and of caches of all other cores.
pub fn lab_totals(machine: &Machine, per_cpu: &[MeasuredCpu]) -> CpuTotals {
    let of_cpu = |(cpu, of): (CpuId, &MeasuredCpu)| {
        let counters = &of.counters;
        let own = machine.nodes.iter().position(|node| node.cpus.contains(cpu));
        let local = own.and_then(|own| counters.dram_accesses_by_node.get(own)).copied().unwrap_or(0);
        let all = counters.dram_accesses_by_node.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let counts = [
            (Counter::LocalDram, local),
            (Counter::RemoteDram, all - local),
            (Counter::PeerModified, counters.peer_modified_hits),
            (Counter::PeerClean, counters.peer_clean_hits),
        ];
        (cpu, counts.into())
    };
    machine.cpus().iter().zip(per_cpu).map(of_cpu).collect()
}

/// Opens events on all CPUs, for all processes.
fn open_cpus(events: &[CpuEvent]) -> Result<Vec<(CpuId, Vec<Opened>)>, LiveError> {
    let failed = |error| LiveError::refused(WHAT, &Refusal::Event(None, error), Scope::Cpu);
    let open = |config: Config, cpu: CpuId| -> io::Result<perf_event::Counter> {
        let mut builder = config.builder();
        builder.exclude_kernel(false).any_pid().one_cpu(cpu.0 as usize);
        let mut counter = builder.build()?;
        counter.enable()?;
        Ok(counter)
    };
    let opened = |event: &CpuEvent, cpu| -> io::Result<Opened> {
        let less = event.less.map(|config| open(config, cpu)).transpose()?;
        Ok(Opened { counter: event.counter, count: open(event.config, cpu)?, less })
    };
    let of_cpu = |cpu| Ok((cpu, events.iter().map(|event| opened(event, cpu)).collect::<io::Result<_>>()?));
    online_cpus().and_then(|cpus| cpus.iter().map(of_cpu).collect()).map_err(failed)
}

impl Opened {
    /// Its count, extrapolated to the whole time if other events had the processor's counters meanwhile.
    fn count(&mut self) -> Option<u64> {
        let read = |counter: &mut perf_event::Counter| {
            let data = counter.read_full().ok()?;
            whole(data.count(), data.time_enabled(), data.time_running())
        };
        let less = self.less.as_mut().map_or(Some(0), read)?;
        Some(read(&mut self.count)?.saturating_sub(less))
    }
}

#[cfg(test)]
mod tests {
    use super::super::cpu_events::tests::cpuinfo;
    use super::super::pmu::tests::devices;
    use super::*;
    use machine::presets;

    /// The same path as on hardware, with a PMU that any kernel has: all four events are the kernel's clock of CPUs.
    #[test]
    fn each_cpu_counts_on_its_own() {
        let software = [("cpu/type", "1"), ("cpu/format/event", "config2:0-7"), ("cpu/format/umask", "config2:8-15")];
        let events = cpu_events(devices(&software).path(), &cpuinfo("GenuineIntel", 6, 0x55)).unwrap();
        let clock = |event: CpuEvent| CpuEvent { config: Config { words: [0; 4], ..event.config }, ..event };
        let events: Vec<CpuEvent> = events.into_iter().map(clock).collect();
        let cpus = match open_cpus(&events) {
            Ok(cpus) => cpus,
            Err(why) => {
                assert!(why.to_string().starts_with("cannot count where each CPU's accesses are served"), "{why}");
                return test_tools::skipped("this user may not count what runs on CPUs");
            }
        };
        let mut counters = CpuCounters { kind: Kind::Host(cpus) };
        let before = counters.totals();
        sleep(Duration::from_millis(20));
        let after = counters.totals();
        let cpus = online_cpus().unwrap();
        assert!(after.len() == cpus.iter().count() && after.keys().all(|cpu| cpus.contains(*cpu)), "{after:?}");
        for (cpu, counts) in &after {
            assert_eq!(counts.len(), 4);
            for (counter, count) in counts {
                let grown = count - before[cpu][counter];
                assert!((20_000_000..10_000_000_000).contains(&grown), "{cpu}: {counter:?} grew by {grown} ns");
            }
        }
        let mut rows = Vec::new();
        counters.counts(&mut rows);
        assert_eq!(rows.len(), 4 * after.len());
        assert!(rows.iter().all(|row| row.cpu.is_some() && row.time_ns > 0));
    }

    #[test]
    fn what_is_not_part_of_a_counter_is_taken_off() {
        let config = |event| Config { pmu: 1, words: [event, 0, 0, 0] };
        // The clock of a CPU without the same clock, and without its page faults.
        let events = [(0, 0), (0, 2)].map(|(event, less)| CpuEvent {
            counter: Counter::LocalDram,
            config: config(event),
            less: Some(config(less)),
        });
        let Ok(mut cpus) = open_cpus(&events) else {
            return test_tools::skipped("this user may not count what runs on CPUs");
        };
        sleep(Duration::from_millis(20));
        for (cpu, opened) in &mut cpus {
            let counts: Vec<u64> = opened.iter_mut().filter_map(Opened::count).collect();
            // The second clock is read after the first.
            assert!(counts.len() == 2 && counts[0] < counts[1] && counts[1] > 10_000_000, "{cpu}: {counts:?}");
        }
    }

    /// T16 (Gachod 2024, 5.3.2): the four are all there is, of each CPU.
    #[test]
    fn the_lab_counts_four_kinds_by_cpu() {
        let machine = presets::find("small-2x2").unwrap();
        let totals = lab_totals(&machine, &[[5, 3], [0, 0], [2, 9], [1, 4]].map(of_nodes));
        let of = |cpu| totals[&CpuId(cpu)].values().copied().collect::<Vec<u64>>();
        assert_eq!((totals.len(), machine.nodes[1].cpus.to_string()), (4, "2-3".to_owned()));
        assert_eq!([0, 1, 2, 3].map(of), [[5, 3, 7, 8], [0, 0, 7, 8], [9, 2, 7, 8], [4, 1, 7, 8]]);
    }

    fn of_nodes(dram_accesses_by_node: [u64; 2]) -> MeasuredCpu {
        serde_json::from_value(serde_json::json!({
            "instructions": 0, "cpu_time_s": 0.0, "memory_wait_s": 0.0, "l1_hits": 0, "l2_hits": 0, "l3_hits": 0,
            "peer_clean_hits": 8, "peer_modified_hits": 7, "dram_accesses_by_node": dram_accesses_by_node,
        }))
        .unwrap()
    }
}
