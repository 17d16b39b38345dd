//! Observes programs, interval by interval.

use super::live_set::LiveSet;
use crate::verbs::record::note_of_pace;
use linux::{NodeFiles, Pid, Process, monotonic_ns, nodes, parse_numa_maps};
use machine::{Machine, NodeId};
use profile::{Filter, NoSymbols, Recording};
use report::{TopKind, TopNode, TopReport, TopRow};
use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::path::Path;
use trace::live::{AccessOptions, AccessSource, Accesses, SideBand, Target, Told};
use trace::{Count, Event, Loss, Sample, SourceNote, Stacks, TickClock, What};

/// Without samples, at most this many processes have their memory shown: the largest ones.
const MOST_PROCESSES: usize = 50;
const PAGE_BYTES: u64 = machine::SMALL_PAGE;
/// Default sampling rate per CPU, in samples per second.
const RATE: u64 = 1000;

/// Observes programs, interval by interval.
pub struct Observer {
    machine: Machine,
    accesses: Option<Accesses>,
    side_band: Option<SideBand>,
    clock: TickClock,
    target: Target,
    /// The observed processes and their descendants; unused for a whole system.
    processes: HashSet<Pid>,
    live_set: LiveSet,
    stacks: Stacks,
    samples: Vec<Sample>,
    events: Vec<Event>,
    counts: Vec<Count>,
    notes: Vec<String>,
    began_ns: u64,
    last_ns: u64,
    last_nodes: Vec<NodeFiles>,
}

impl Observer {
    /// Opens all available sources, and notes those that are not. Call before the program is started.
    pub fn open(
        machine: Machine,
        target: Target,
        source: AccessSource,
        rate: Option<u64>,
    ) -> Result<Self, Box<dyn Error>> {
        let mut notes = Vec::new();
        let options = AccessOptions { target: &target, period: None, rate: rate.or(Some(RATE)), stacks: false };
        let accesses = options.open(source, &mut notes)?;
        notes.extend(note_of_pace(accesses.as_ref(), rate.is_some()));
        let side_band = match (&accesses, &target) {
            (Some(_), _) => SideBand::open(&target).map_err(|error| notes.push(error.to_string())).ok(),
            (None, Target::System) => None,
            // Without it, children are still found while their parents live.
            (None, _) => SideBand::open_lives(&target).ok(),
        };
        let now = monotonic_ns();
        Ok(Self {
            machine,
            clock: Accesses::tick_clock(accesses.as_ref()),
            accesses,
            side_band,
            processes: if let Target::Pids(pids) = &target { pids.iter().copied().collect() } else { HashSet::new() },
            target,
            live_set: LiveSet::default(),
            stacks: Stacks::new(),
            samples: Vec::new(),
            events: Vec::new(),
            counts: Vec::new(),
            notes,
            began_ns: now,
            last_ns: now,
            last_nodes: nodes(Path::new("/sys"))?,
        })
    }

    /// Adds the started program.
    pub fn add_program(&mut self, pid: Pid) {
        self.processes.insert(pid);
    }

    /// Drains the sources. Call frequently, because rings are limited.
    pub fn look(&mut self) {
        if let Some(accesses) = &mut self.accesses {
            let told = Told { samples: &mut self.samples, events: &mut self.events, counts: &mut self.counts };
            accesses.drain(false, &mut self.clock, &mut self.stacks, told);
        }
        if let Some(side_band) = &mut self.side_band {
            side_band.drain(&mut self.stacks, &mut self.events);
        }
    }

    /// Ends an interval and reports it.
    pub fn report(&mut self) -> Result<TopReport, Box<dyn Error>> {
        self.look();
        let now = monotonic_ns();
        let interval_s = now.saturating_sub(self.last_ns) as f64 / 1e9;
        let nodes = nodes(Path::new("/sys"))?;
        let mut report = TopReport {
            at_s: now.saturating_sub(self.began_ns) as f64 / 1e9,
            interval_s,
            nodes: nodes.iter().map(|node| node_of(node, &self.last_nodes, interval_s)).collect(),
            notes: self.missing(),
            ..TopReport::default()
        };
        (self.last_ns, self.last_nodes) = (now, nodes);
        if self.target != Target::System {
            let started = self.events.iter().filter(|event| matches!(event.what, What::ProcessStarted { .. }));
            self.processes.extend(started.map(|event| event.pid));
            add_children(&mut self.processes);
        }
        if let Some(accesses) = &self.accesses {
            report.source = accesses.notes().first().map(|note| note.source);
            if self.target != Target::System {
                self.samples.retain(|sample| self.processes.contains(&sample.pid));
            }
            // The next interval starts from the last counts.
            let last_ns = self.counts.last().map(|count| count.time_ns);
            let last = self.counts.iter().filter(|count| Some(count.time_ns) == last_ns).copied().collect();
            let counts = std::mem::replace(&mut self.counts, last);
            let mut recording = Recording::new(self.machine.clone()).with_counts(counts);
            recording.add_events(self.live_set.events());
            recording.add_events(self.events.iter().cloned());
            recording.add_samples(self.samples.drain(..));
            self.events.drain(..).for_each(|event| self.live_set.take(event));
            let profile = recording.into_profile(&self.stacks, &NoSymbols);
            report.add(&profile.view(&Filter::default()));
        } else {
            self.events.clear();
            self.processes.retain(|pid| Process::open(*pid).is_ok());
            report.rows = self.pids().into_iter().filter_map(memory_of).collect();
        }
        Ok(report)
    }

    /// What is missing from the report.
    fn missing(&self) -> Vec<String> {
        let (accesses, side_band) = (self.accesses.as_ref(), self.side_band.as_ref());
        let lost = accesses.map(Accesses::lost).into_iter().chain(side_band.map(SideBand::lost)).flatten();
        let sources = accesses.map(Accesses::notes).into_iter().chain(side_band.map(SideBand::notes)).flatten();
        sentences(lost, &self.notes, sources)
    }

    /// Processes whose memory to show if no accesses are observed.
    fn pids(&self) -> Vec<Pid> {
        if self.target == Target::System { largest_processes() } else { self.processes.iter().copied().collect() }
    }
}

/// Notes on losses so far, on unavailable sources, and on what the sources cannot see.
fn sentences(
    lost: impl Iterator<Item = Loss>,
    notes: &[String],
    sources: impl Iterator<Item = SourceNote>,
) -> Vec<String> {
    let lost = lost.map(|Loss { what, count }| format!("lost: {count} {what}"));
    lost.chain(notes.iter().cloned()).chain(sources.flat_map(|source| source.cannot_see)).collect()
}

fn node_of(node: &NodeFiles, before: &[NodeFiles], interval_s: f64) -> TopNode {
    let before = before.iter().find(|before| before.node == node.node).unwrap_or(node);
    let taken = |name: &str| {
        let of = |files: &NodeFiles| files.allocations.get(name).copied().unwrap_or(0);
        of(node).saturating_sub(of(before)) as f64 / interval_s.max(1e-9)
    };
    let memory = |name: &str| node.memory.get(name).copied().unwrap_or(0);
    TopNode {
        node: node.node,
        memory_bytes: memory("MemTotal"),
        free_bytes: memory("MemFree"),
        accesses_per_s: None,
        share: None,
        load: None,
        taken_local_per_s: taken("local_node"),
        taken_remote_per_s: taken("other_node"),
    }
}

/// Where a process's memory is. `None` if it has ended or may not be read.
fn memory_of(pid: Pid) -> Option<TopRow> {
    let process = Process::open(pid).ok()?;
    let name = process.status().ok()?.name;
    let mappings = parse_numa_maps(&process.text("numa_maps").ok()?).ok()?;
    let mut bytes: BTreeMap<NodeId, f64> = BTreeMap::new();
    for mapping in mappings {
        for (node, pages) in &mapping.pages {
            *bytes.entry(*node).or_default() += (pages * mapping.page_bytes) as f64;
        }
    }
    let all: f64 = bytes.values().sum();
    let memory_on = bytes.into_iter().map(|(node, part)| (node, part / all)).collect();
    Some(TopRow {
        kind: TopKind::Process,
        pid: pid.0,
        tid: None,
        name,
        memory_bytes: Some(all as u64),
        samples: 0,
        accesses_per_s: None,
        local_access_ratio: None,
        latency_mean_ns: None,
        remote_cost: None,
        memory_on,
    })
}

/// Adds running descendants of these processes.
fn add_children(processes: &mut HashSet<Pid>) {
    let parent = |pid: Pid| Some((pid, Process::open(pid).ok()?.start_time().ok()?.parent));
    let mut others: Vec<(Pid, Pid)> = all_processes().filter_map(parent).collect();
    loop {
        let (children, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(|(_, parent)| processes.contains(parent));
        if children.is_empty() {
            return;
        }
        processes.extend(children.into_iter().map(|(pid, _)| pid));
        others = rest;
    }
}

fn all_processes() -> impl Iterator<Item = Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).map(Pid)
}

/// The processes with the most memory, largest first.
fn largest_processes() -> Vec<Pid> {
    let pids = all_processes();
    let resident = |pid: Pid| {
        let text = Process::open(pid).ok()?.text("statm").ok()?;
        text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok().map(|pages| (pages * PAGE_BYTES, pid))
    };
    let mut sizes: Vec<(u64, Pid)> = pids.filter_map(resident).filter(|(bytes, _)| *bytes > 0).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes.into_iter().take(MOST_PROCESSES).map(|(_, pid)| pid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn losses_and_blind_spots_are_reported() {
        let lost = Loss { what: "samples that the kernel dropped".into(), count: 7 };
        let source =
            SourceNote { source: trace::Source::Lab, event: "misses".into(), cannot_see: vec!["Hits.".into()] };
        let told = sentences([lost].into_iter(), &["no PMU".into()], [source].into_iter());
        assert_eq!(told, ["lost: 7 samples that the kernel dropped", "no PMU", "Hits."]);
    }

    #[test]
    fn what_a_process_has_started_is_found_without_rights() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let mut processes = HashSet::from([Pid(std::process::id())]);
        add_children(&mut processes);
        assert!(processes.contains(&Pid(child.id())) && !processes.contains(&Pid(1)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
