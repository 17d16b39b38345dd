//! Observes programs, interval by interval.

use super::live_set::LiveSet;
use crate::regions::announced;
use crate::{AccessError, AccessOptions, AccessSource, Accesses, Regions, SideBand, Target, TickClock, Told};
use linux::{NodeError, NodeFiles, Pid, Process, Tid, monotonic_ns, nodes, parse_numa_maps};
use machine::NodeId;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::path::Path;
use trace::{Count, Event, Loss, Sample, Source, SourceNote, Stacks, What};

/// Without samples, at most this many processes have their memory shown: the largest ones.
const MOST_PROCESSES: usize = 50;
const PAGE_BYTES: u64 = machine::SMALL_PAGE;
/// Default sampling rate per CPU, in samples per second.
const RATE: u64 = 1000;

/// Observes programs, interval by interval.
pub struct Observer {
    accesses: Option<Accesses>,
    side_band: Option<SideBand>,
    clock: TickClock,
    target: Target,
    /// The observed processes and their descendants; unused for a whole system.
    processes: HashSet<Pid>,
    live_set: LiveSet,
    regions: Regions,
    stacks: Stacks,
    samples: Vec<Sample>,
    events: Vec<Event>,
    counts: Vec<Count>,
    notes: Vec<String>,
    began_ns: u64,
    last_ns: u64,
    last_nodes: Vec<NodeFiles>,
}

/// An interval.
#[derive(Debug)]
pub struct Interval {
    /// Its end, in seconds from the first one's begin.
    pub at_s: f64,
    /// Its length, in seconds.
    pub seconds: f64,
    /// The nodes at its end.
    pub nodes: Vec<NodeFiles>,
    /// The nodes at its begin.
    pub nodes_before: Vec<NodeFiles>,
    /// Losses so far and unavailable sources, as sentences.
    pub notes: Vec<String>,
    /// What the sources cannot see, one sentence each.
    pub cannot_see: Vec<String>,
    /// What the programs did.
    pub observed: Observed,
}

/// What programs did in an interval.
#[derive(Debug)]
pub enum Observed {
    /// Their accesses.
    Accesses {
        /// The source of the samples.
        source: Option<Source>,
        /// The samples.
        samples: Vec<Sample>,
        /// Events that describe what was there at the begin, and those since.
        events: Vec<Event>,
        /// Counter values, from the last of the interval before.
        counts: Vec<Count>,
    },
    /// Where their memory is, as no source of accesses is available.
    Memory(Vec<ProcessMemory>),
}

/// Where a process's memory is.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessMemory {
    /// The process.
    pub pid: Pid,
    /// Its name.
    pub name: String,
    /// Its resident memory on each node.
    pub bytes: BTreeMap<NodeId, f64>,
}

/// Why nothing can be observed.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The requested source of accesses cannot be opened.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The machine's nodes cannot be read.
    #[error(transparent)]
    Nodes(#[from] NodeError),
}

impl Observer {
    /// Opens all available sources, and notes those that are not. Call before the program is started.
    pub fn open(target: Target, source: AccessSource, rate: Option<u64>, regions: Regions) -> Result<Self, WatchError> {
        let mut notes = Vec::new();
        let options = AccessOptions { target: &target, period: None, rate: rate.or(Some(RATE)), stacks: false };
        let accesses = options.open(source, &mut notes)?;
        notes.extend(Accesses::note_of_pace(accesses.as_ref(), rate.is_some()));
        let side_band = match (&accesses, &target) {
            (Some(_), _) => SideBand::open(&target).map_err(|error| notes.push(error.to_string())).ok(),
            (None, Target::System) => None,
            // Without it, children are still found while their parents live.
            (None, _) => SideBand::open_lives(&target).ok(),
        };
        let now = monotonic_ns();
        Ok(Self {
            clock: Accesses::tick_clock(accesses.as_ref()),
            accesses,
            side_band,
            processes: if let Target::Pids(pids) = &target { pids.iter().copied().collect() } else { HashSet::new() },
            target,
            live_set: LiveSet::default(),
            regions,
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

    /// The call chains of the samples.
    pub fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    /// Ends an interval and returns it.
    pub fn end_interval(&mut self) -> Result<Interval, WatchError> {
        self.look();
        let (began, now) = (self.last_ns, monotonic_ns());
        let seconds = now.saturating_sub(self.last_ns) as f64 / 1e9;
        let nodes = nodes(Path::new("/sys"))?;
        let nodes_before = std::mem::replace(&mut self.last_nodes, nodes.clone());
        self.last_ns = now;
        Ok(Interval {
            at_s: now.saturating_sub(self.began_ns) as f64 / 1e9,
            seconds,
            nodes,
            nodes_before,
            notes: self.notes(),
            cannot_see: self.sources().flat_map(|source| source.cannot_see).collect(),
            observed: self.observed(began),
        })
    }

    fn observed(&mut self, began_ns: u64) -> Observed {
        if self.target != Target::System {
            let started = self.events.iter().filter(|event| matches!(event.what, What::ProcessStarted { .. }));
            self.processes.extend(started.map(|event| event.pid));
            add_children(&mut self.processes);
        }
        let Some(accesses) = &self.accesses else {
            self.events.clear();
            self.processes.retain(|pid| Process::open(*pid).is_ok());
            return Observed::Memory(self.pids().into_iter().filter_map(memory_of).collect());
        };
        let source = accesses.notes().first().map(|note| note.source);
        if self.target != Target::System {
            self.samples.retain(|sample| self.processes.contains(&sample.pid));
        }
        // The next interval starts from the last counts.
        let last_ns = self.counts.last().map(|count| count.time_ns);
        let last = self.counts.iter().filter(|count| Some(count.time_ns) == last_ns).copied().collect();
        let counts = std::mem::replace(&mut self.counts, last);
        let mut events: Vec<Event> = self.live_set.events().collect();
        events.extend(self.events.iter().cloned());
        events.extend(self.named_ranges(began_ns));
        self.events.drain(..).for_each(|event| self.live_set.take(event));
        Observed::Accesses { source, samples: std::mem::take(&mut self.samples), events, counts }
    }

    /// The named ranges of the processes with samples, as if they had been named when the interval began, or when their
    /// memory did.
    fn named_ranges(&mut self, began_ns: u64) -> Vec<Event> {
        let pids: BTreeSet<Pid> = self.samples.iter().map(|sample| sample.pid).collect();
        let no_stack = self.stacks.id(&[]);
        let mut events = Vec::new();
        for pid in pids {
            let mappings = Process::open(pid).and_then(|process| process.mappings()).unwrap_or_default();
            let own: Vec<&Event> = self.events.iter().filter(|event| event.pid == pid).collect();
            for named in self.regions.named(&mappings) {
                let begins = own.iter().filter(|event| begins(&event.what, &named.range));
                let time_ns = begins.map(|event| event.time_ns).max().unwrap_or(0).max(began_ns);
                let what = announced(&named, no_stack);
                events.push(Event { time_ns, pid, tid: Tid(pid.0), cpu: None, what });
            }
        }
        events
    }

    fn notes(&self) -> Vec<String> {
        let (accesses, side_band) = (self.accesses.as_ref(), self.side_band.as_ref());
        let lost = accesses.map(Accesses::lost).into_iter().chain(side_band.map(SideBand::lost)).flatten();
        sentences(lost, &self.notes)
    }

    fn sources(&self) -> impl Iterator<Item = SourceNote> {
        let (accesses, side_band) = (self.accesses.as_ref(), self.side_band.as_ref());
        accesses.map(Accesses::notes).into_iter().chain(side_band.map(SideBand::notes)).flatten()
    }

    /// Processes whose memory to show if no accesses are observed.
    fn pids(&self) -> Vec<Pid> {
        if self.target == Target::System { largest_processes() } else { self.processes.iter().copied().collect() }
    }
}

/// Whether memory among these addresses begins with this event.
fn begins(what: &What, addresses: &Range<u64>) -> bool {
    let overlaps = |start: u64, bytes: u64| start < addresses.end && addresses.start < start.saturating_add(bytes);
    match what {
        What::ProcessStarted { .. } => true,
        What::Named { exec, .. } => *exec,
        What::Mapped { start, bytes, .. } | What::Unmapped { start, bytes } | What::Remapped { start, bytes, .. } => {
            overlaps(*start, *bytes)
        }
        _ => false,
    }
}

/// Notes on losses so far, and on unavailable sources.
fn sentences(lost: impl Iterator<Item = Loss>, notes: &[String]) -> Vec<String> {
    lost.map(|Loss { what, count }| format!("lost: {count} {what}")).chain(notes.iter().cloned()).collect()
}

/// Where a process's memory is. `None` if it has ended or may not be read.
fn memory_of(pid: Pid) -> Option<ProcessMemory> {
    let process = Process::open(pid).ok()?;
    let name = process.status().ok()?.name;
    let mappings = parse_numa_maps(&process.text("numa_maps").ok()?).ok()?;
    let mut bytes: BTreeMap<NodeId, f64> = BTreeMap::new();
    for mapping in mappings {
        for (node, pages) in &mapping.pages {
            *bytes.entry(*node).or_default() += (pages * mapping.page_bytes) as f64;
        }
    }
    Some(ProcessMemory { pid, name, bytes })
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
    fn losses_are_the_first_notes() {
        let lost = Loss { what: "samples that the kernel dropped".into(), count: 7 };
        let told = sentences([lost].into_iter(), &["no PMU".into()]);
        assert_eq!(told, ["lost: 7 samples that the kernel dropped", "no PMU"]);
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
