//! Counters of this host: load of memory controllers, local and remote traffic of caches, and instructions per CPU.

use super::LiveError;
use super::controller_events::{BYTES, controller_events};
use super::perf_rings::online_cpus;
use super::permission::{Refusal, Scope};
use super::pmu::DEVICES;
use linux::{BandwidthMonitors, monotonic_ns};
use machine::{CpuId, CpuSet, Machine, NodeId};
use perf_event::Builder;
use perf_event::events::Hardware;
use rustix::param::clock_ticks_per_second;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;
use trace::{Count, Counter};

const RESCTRL: &str = "/sys/fs/resctrl";
/// A counter that ran for less than this part of the time is not extrapolated.
const LEAST_PART: f64 = 0.15;

/// The memory counters of a host. Not yet tested on hardware.
pub struct HostCounters {
    controllers: Vec<Controller>,
    caches: Option<BandwidthMonitors>,
    /// Instruction counter of each CPU.
    cpus: Vec<perf_event::Counter>,
    machine: Machine,
}

/// Counters of one controller's data.
struct Controller {
    counter: perf_event::Counter,
    /// The nodes whose memory the controller may serve. Its load is divided equally among them: on packages with
    /// several nodes, the hardware does not say which node a controller serves.
    nodes: Vec<NodeId>,
}

impl HostCounters {
    /// Opens the available counters: memory controllers (Intel's IMC, AMD's UMC or data fabric) and, if
    /// `instructions` is set, instructions, both of which need `kernel.perf_event_paranoid` at 0 or less or
    /// `CAP_PERFMON`; and resctrl's bandwidth monitors. All cover the whole machine. `notes` receives what is missing
    /// and why. Returns `None` if there are no counters at all.
    pub fn open(machine: &Machine, instructions: bool, notes: &mut Vec<String>) -> Option<Self> {
        let controllers = open_controllers(machine).unwrap_or_else(|why| {
            notes.push(why);
            Vec::new()
        });
        let caches = BandwidthMonitors::find(Path::new(RESCTRL), Path::new("/sys"));
        let caches = caches.map_err(|why| notes.push(format!("local and remote traffic are not counted: {why}"))).ok();
        let of_caches: Vec<&CpuSet> = caches.iter().flat_map(BandwidthMonitors::caches).collect();
        notes.extend(not_by_node(machine, controllers.iter().any(|controller| controller.nodes.len() > 1), &of_caches));
        let cpus = if instructions { open_cpus() } else { Ok(Vec::new()) };
        let cpus = cpus.unwrap_or_else(|error| {
            let what = "count instructions (perf)";
            notes.push(LiveError::refused(what, &Refusal::Event(None, error), Scope::Cpu).to_string());
            Vec::new()
        });
        let is_any = !controllers.is_empty() || caches.is_some() || !cpus.is_empty();
        is_any.then(|| Self { controllers, caches, cpus, machine: machine.clone() })
    }

    /// Counter values so far.
    pub fn counts(&mut self, counts: &mut Vec<Count>) {
        // A node has no sum if one of its counters cannot be read.
        let mut bytes: BTreeMap<NodeId, Option<u64>> = BTreeMap::new();
        for Controller { counter, nodes } in &mut self.controllers {
            let counted = counted(counter);
            for node in nodes.iter() {
                let sum = bytes.entry(*node).or_insert(Some(0));
                let more = counted.map(|counted| counted.saturating_mul(BYTES) / nodes.len() as u64);
                *sum = sum.zip(more).map(|(sum, more)| sum.saturating_add(more));
            }
        }
        let time_ns = monotonic_ns();
        let count = |counter, from, to, value| Count { time_ns, counter, from, to, cpu: None, value };
        let told = bytes.into_iter().filter_map(|(node, bytes)| Some((node, bytes?)));
        counts.extend(told.map(|(node, bytes)| count(Counter::ControllerBytes, None, Some(node), bytes)));
        // A node may have several caches.
        let mut read: BTreeMap<NodeId, [u64; 2]> = BTreeMap::new();
        for cache in self.caches.iter().flat_map(BandwidthMonitors::read) {
            let Some(node) = self.machine.nodes.iter().find(|node| cache.cpus.is_subset(&node.cpus)) else { continue };
            let [local, remote] = read.entry(node.id).or_default();
            *local = local.saturating_add(cache.local_bytes);
            *remote = remote.saturating_add(cache.total_bytes.saturating_sub(cache.local_bytes));
        }
        for (node, [local, remote]) in read {
            counts.push(count(Counter::MemoryAccesses, Some(node), Some(node), local / BYTES));
            counts.push(count(Counter::MemoryAccesses, Some(node), None, remote / BYTES));
        }
        let instructions: Option<u64> = self.cpus.iter_mut().map(counted).sum();
        let busy = || busy_ns(&fs::read_to_string("/proc/stat").ok()?, clock_ticks_per_second());
        if let Some((instructions, busy_ns)) = instructions.filter(|_| !self.cpus.is_empty()).zip(busy()) {
            counts.push(count(Counter::Instructions, None, None, instructions));
            counts.push(count(Counter::CpuTime, None, None, busy_ns));
        }
    }
}

/// What is not counted by node, as the hardware counts something else: some controllers serve several nodes, or a cache
/// has CPUs of several.
fn not_by_node(machine: &Machine, shares_controllers: bool, caches: &[&CpuSet]) -> Vec<String> {
    let mut notes = Vec::new();
    if shares_controllers {
        notes.push(
            "memory controllers are counted by package: each of its nodes is shown with an equal part of their load"
                .to_owned(),
        );
    }
    if let Some(cpus) = caches.iter().find(|cpus| !machine.nodes.iter().any(|node| cpus.is_subset(&node.cpus))) {
        notes.push(format!(
            "local and remote traffic are not counted for CPUs {cpus}: they share a last-level cache, which resctrl \
             counts, and are of several nodes"
        ));
    }
    notes
}

fn open_controllers(machine: &Machine) -> Result<Vec<Controller>, String> {
    let events = controller_events(Path::new(DEVICES));
    if events.is_empty() {
        return Err(
            "the load of memory controllers is not counted: the processor, or its virtual machine, exposes no \
                    counters for them (Intel's uncore_imc, AMD's amd_umc or amd_df)"
                .to_owned(),
        );
    }
    let mut controllers = Vec::new();
    for event in events {
        for cpu in event.cpus.iter() {
            let open = || -> io::Result<perf_event::Counter> {
                let mut builder = event.config.builder();
                // Uncore units cannot filter by privilege level or task.
                builder.exclude_kernel(false).exclude_hv(false).any_pid().one_cpu(cpu.0 as usize);
                let mut counter = builder.build()?;
                counter.enable()?;
                Ok(counter)
            };
            let failed = |error| {
                let what = "count what memory controllers carry (perf)";
                LiveError::refused(what, &Refusal::Event(None, error), Scope::Cpu).to_string()
            };
            let nodes = memory_near(machine, cpu);
            controllers.push(Controller { counter: open().map_err(failed)?, nodes });
        }
    }
    Ok(controllers)
}

/// Opens the instruction counters of all CPUs, for all processes.
fn open_cpus() -> io::Result<Vec<perf_event::Counter>> {
    let open = |cpu: CpuId| {
        let mut builder = Builder::new(Hardware::INSTRUCTIONS);
        builder.exclude_kernel(false).any_pid().one_cpu(cpu.0 as usize);
        let mut counter = builder.build()?;
        counter.enable()?;
        Ok(counter)
    };
    online_cpus()?.iter().map(open).collect()
}

fn counted(counter: &mut perf_event::Counter) -> Option<u64> {
    let data = counter.read_full().ok()?;
    whole(data.count(), data.time_enabled(), data.time_running())
}

/// Busy time of all CPUs, in ns, from the first line of `/proc/stat`: user, nice, system, idle, iowait, irq and
/// softirq.
fn busy_ns(stat: &str, ticks_per_second: u64) -> Option<u64> {
    let times = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map(str::parse);
    let times: Vec<u64> = times.collect::<Result<_, _>>().ok()?;
    let &[user, nice, system, _, _, irq, soft_irq, ..] = &times[..] else { return None };
    let ticks = [user, nice, system, irq, soft_irq].iter().fold(0_u64, |sum, ticks| sum.saturating_add(*ticks));
    Some(ticks.saturating_mul(1_000_000_000 / ticks_per_second.max(1)))
}

/// The nodes with memory in the CPU's package, or the CPU's own node if packages are unknown.
fn memory_near(machine: &Machine, cpu: CpuId) -> Vec<NodeId> {
    let package = machine.packages.iter().find(|package| package.cpus.contains(cpu));
    let is_near = |node: &&machine::Node| match package {
        Some(package) => !node.cpus.is_empty() && node.cpus.is_subset(&package.cpus),
        None => node.cpus.contains(cpu),
    };
    machine.nodes.iter().filter(|node| node.memory_bytes > 0).filter(is_near).map(|node| node.id).collect()
}

/// Extrapolates a multiplexed count to the whole time. Returns `None` if the counter ran for too small a part of it.
pub(super) fn whole(count: u64, enabled: Option<Duration>, running: Option<Duration>) -> Option<u64> {
    let Some((enabled, running)) = enabled.zip(running).filter(|(enabled, running)| running < enabled) else {
        return Some(count);
    };
    let part = running.as_secs_f64() / enabled.as_secs_f64();
    (part >= LEAST_PART).then(|| (count as f64 / part) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::presets;

    #[test]
    fn a_package_of_several_nodes_has_the_memory_of_all() {
        let machine = presets::find("opteron-6164x2").unwrap();
        let nodes = |cpu| memory_near(&machine, CpuId(cpu)).iter().map(|node| node.0).collect::<Vec<_>>();
        let mut without = machine.clone();
        without.packages.clear();
        let first = machine.nodes[0].cpus.first().unwrap();
        assert_eq!(nodes(first.0).len(), 2);
        assert_eq!(memory_near(&without, first), [machine.nodes[0].id]);
    }

    #[test]
    fn what_the_hardware_does_not_count_by_node_is_noted() {
        let machine = presets::find("opteron-6164x2").unwrap();
        let whole: CpuSet = machine.packages[0].cpus.clone();
        assert!(not_by_node(&machine, false, &[&machine.nodes[0].cpus]).is_empty());
        let notes = not_by_node(&machine, true, &[&machine.nodes[0].cpus, &whole]);
        assert!(notes[0].contains("by package") && notes[1].contains(&format!("CPUs {whole}:")), "{notes:?}");
    }

    #[test]
    fn what_counted_half_of_the_time_counts_double() {
        let s = |seconds| Some(Duration::from_secs(seconds));
        let whole = |enabled, running| whole(100, enabled, running);
        assert_eq!(
            [whole(s(4), s(2)), whole(s(4), s(4)), whole(s(0), s(0)), whole(None, None)],
            [Some(200), Some(100), Some(100), Some(100)]
        );
    }

    /// Feature F10.
    #[test]
    fn what_counted_hardly_any_of_the_time_counts_nothing() {
        let s = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!([0, 14, 15].map(|running| whole(30, s(100), s(running))), [None, None, Some(200)]);
    }

    #[test]
    fn cpus_work_but_for_when_they_are_idle() {
        let stat = "cpu  100 20 30 9999 9999 4 5 0 0 0\ncpu0 1 2 3\n";
        assert_eq!(busy_ns(stat, 100), Some(1_590_000_000));
        for text in ["", "cpu", "cpu  1 2 3\n", "cpu  a b c d e f g\n", "cpu0 1 2 3 4 5 6 7\n"] {
            assert_eq!(busy_ns(text, 100), None, "{text}");
        }
        assert!(busy_ns(&fs::read_to_string("/proc/stat").unwrap(), clock_ticks_per_second()) > Some(0));
    }

    #[test]
    fn missing_counters_are_noted() {
        let mut notes = Vec::new();
        let machine = presets::find("small-4x2").unwrap();
        let Some(mut counters) = HostCounters::open(&machine, true, &mut notes) else {
            assert_eq!(notes.len(), 3, "{notes:?}");
            return test_tools::skipped("this machine has none of the counters");
        };
        let mut counts = Vec::new();
        counters.counts(&mut counts);
        assert!(counts.iter().all(|count| count.time_ns > 0));
    }
}
