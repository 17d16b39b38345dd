//! Drains all sources frequently and writes the trace.

use super::uninstrumented::uninstrumented;
use crate::objects::{ObjectRings, ObjectsError};
use crate::{
    Accesses, CpuCounters, HostCounters, PageAllocations, RegionWatcher, SchedulingCounters, SideBand, TickClock, Told,
};
use linux::Pid;
use machine::Machine;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use trace::{About, Count, Event, FileIdentities, Flush, Sample, What, WriteError, Writer};

/// Exit statuses of programs that forbid what the library does: SIGSEGV, for the time stamp counter, and SIGSYS.
const KILLED_BY_ITS_LIMITS: [(i32, &str); 2] = [(128 + 11, "SIGSEGV"), (128 + 31, "SIGSYS")];
/// Number of events since the last drain after which the next one is due at once: a program's rings are limited.
const MUCH: usize = 4096;
/// Number of events after which the next drain is due soon.
const SOME: usize = 256;
/// This many samples count as one event.
const SAMPLES_PER_EVENT: usize = 16;
/// From as many reads of full rings on a program is slowed visibly: some are bursts.
const MANY_FULL: u64 = 64;
const BUSY_INTERVAL: Duration = Duration::from_millis(1);
/// A drain takes the machine some ten microseconds.
const IDLE_INTERVAL: Duration = Duration::from_millis(10);
/// Reading all counters of a host takes some microseconds each.
const COUNTED: Duration = Duration::from_millis(100);

/// Why a recording ends before the program does.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The trace cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Objects of programs cannot be read.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
}

/// What a recording follows.
pub trait Followed {
    /// Whether the recording is over: all processes have ended, or the user interrupted.
    fn is_over(&mut self) -> bool;
    /// Whether all processes have ended.
    fn has_ended(&mut self) -> bool {
        self.is_over()
    }
    /// The exit status of the recorded program, 128 + n where signal n ended it; none while it runs, and of other processes.
    fn exit_status(&mut self) -> Option<i32> {
        None
    }
    /// The part of the CPU time of a program that ended well which its first thread had; none of others.
    fn first_thread_share(&mut self) -> Option<f64> {
        None
    }
    /// Waits up to this long, less if something happens.
    fn wait(&mut self, patience: Duration) {
        self.wait_for(None, patience);
    }
    /// As [`wait`](Self::wait), and less if this file can be read.
    fn wait_for(&mut self, news: Option<BorrowedFd<'_>>, patience: Duration);
}

/// The sources of a recording.
pub struct Sources {
    /// Clock of all times in ticks.
    pub clock: TickClock,
    /// Objects of the program.
    pub objects: Option<ObjectRings>,
    /// Processes, threads and mappings.
    pub side_band: Option<SideBand>,
    /// Accesses to memory.
    pub accesses: Option<Accesses>,
    /// The host's counters, covering everything that runs on it.
    pub counters: Option<HostCounters>,
    /// Names of ranges that are read from the processes' mappings.
    pub regions: Option<RegionWatcher>,
    /// Page allocations.
    pub allocations: Option<PageAllocations>,
    /// Moves of threads, of all programs.
    pub scheduling: Option<SchedulingCounters>,
    /// What serves the accesses of each CPU, of all programs.
    pub cpus: Option<CpuCounters>,
    /// Notes on sources that are missing.
    pub notes: Vec<String>,
}

/// A recording.
pub struct Recorder {
    sources: Sources,
    writer: Writer,
    files: FileIdentities,
    /// The recorded processes: the program and its descendants.
    processes: HashSet<Pid>,
    /// How often those executed programs, by name, as reported by the kernel.
    executed: BTreeMap<(Pid, Arc<str>), usize>,
    samples: Vec<Sample>,
    events: Vec<Event>,
    counted: Vec<Count>,
    /// When to read the host's counters next.
    next_count: Instant,
    began: Instant,
    counts: Counts,
}

/// What was recorded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Samples.
    pub samples: u64,
    /// Events.
    pub events: u64,
    /// Objects that were allocated.
    pub objects: u64,
    /// Objects that were only counted, not recorded.
    pub small_objects: u64,
}

/// A finished recording.
pub struct Recorded {
    /// The trace.
    pub folder: PathBuf,
    /// Its metadata.
    pub about: About,
    /// What it has.
    pub counts: Counts,
    /// Number of recorded processes.
    pub processes: usize,
    /// How long it took.
    pub duration: Duration,
}

impl Recorder {
    /// Begins a recording into a folder.
    pub fn begin(mut sources: Sources, folder: &Path, machine: &Machine, about: About) -> Result<Self, RecordError> {
        let mut about = about;
        about.notes.append(&mut sources.notes);
        about.sources.extend(sources.accesses.iter().flat_map(Accesses::notes));
        let writer = Writer::create(folder, about, machine, Flush::default())?;
        let mut counted = Vec::new();
        if let Some(scheduling) = &mut sources.scheduling {
            scheduling.counts(&mut counted);
        }
        if let Some(cpus) = &mut sources.cpus {
            cpus.counts(&mut counted);
        }
        Ok(Self {
            sources,
            writer,
            files: FileIdentities::default(),
            processes: HashSet::new(),
            executed: BTreeMap::new(),
            samples: Vec::new(),
            events: Vec::new(),
            counted,
            next_count: Instant::now(),
            began: Instant::now(),
            counts: Counts::default(),
        })
    }

    /// Environment variables for the program.
    pub fn environment(&self, library: Option<&Path>) -> Vec<(&'static str, OsString)> {
        let preloaded = std::env::var_os("LD_PRELOAD");
        let rings = self.sources.objects.as_ref().zip(library);
        rings.map_or(Vec::new(), |(rings, library)| rings.environment(library, preloaded.as_deref()).to_vec())
    }

    /// Used when the program could not be started: removes the trace.
    pub fn take_back(self) -> Result<(), RecordError> {
        Ok(self.writer.take_back()?)
    }

    /// Adds a process to the recording.
    pub fn add_process(&mut self, pid: Pid) {
        self.processes.insert(pid);
        if let Some(objects) = &mut self.sources.objects {
            objects.add_process(pid);
        }
    }

    /// Records until it is over, or for the given time.
    pub fn follow(mut self, whom: &mut dyn Followed, duration: Option<Duration>) -> Result<Recorded, RecordError> {
        let end = duration.and_then(|duration| Instant::now().checked_add(duration));
        loop {
            let patience = self.drain()?;
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            if whom.is_over() || left.is_zero() {
                let exit_status = whom.exit_status();
                let about = self.writer.about();
                (about.program_ended, about.exit_status) = (whom.has_ended(), exit_status);
                return self.finish();
            }
            whom.wait(patience.min(left));
        }
    }

    /// Drains what has arrived since the last time. Returns when to drain next.
    fn drain(&mut self) -> Result<Duration, RecordError> {
        self.take(false)?;
        // Sources of samples have larger buffers.
        let told = self.events.len() + self.samples.len() / SAMPLES_PER_EVENT;
        self.write()?;
        self.writer.tick()?;
        Ok(match told {
            MUCH.. => Duration::ZERO,
            SOME.. => BUSY_INTERVAL,
            _ => IDLE_INTERVAL,
        })
    }

    /// Ends the recording: drains the rest, and resolves names.
    fn finish(mut self) -> Result<Recorded, RecordError> {
        let duration = self.began.elapsed();
        self.take(true)?;
        self.write()?;
        let Sources { objects, side_band, accesses, allocations, regions, .. } = &self.sources;
        let unkept = self.writer.stacks().unkept();
        let about = self.writer.about();
        about.lose("call chains beyond the first million", unkept);
        about.notes.extend(regions.iter().flat_map(RegionWatcher::notes));
        if let Some(objects) = objects {
            let losses = objects.losses();
            let full = "object events that did not fit into a program's ring; --small-objects makes them fewer";
            about.lose(full, losses.lost);
            let folder = objects.folder().parent().unwrap_or(objects.folder()).display();
            about.lose(
                &format!(
                    "object events of threads for whose rings {folder} had no room, or in a signal handler during \
                     another event"
                ),
                losses.outside,
            );
            about.lose("records that a program overwrote", losses.malformed);
            about.lose(
                "files in which another user reported objects, ignored because no living process of the program ran as that user",
                losses.unbelieved,
            );
            if losses.full >= MANY_FULL {
                about.notes.push(format!(
                    "the program waited for the recorder: a buffer of a thread's objects was nearly full {} times; \
                     --small-objects BYTES only counts objects up to that size, which slows the program less",
                    losses.full
                ));
            }
            if losses.closed {
                about.notes.push(
                    "the folder in which programs report their objects was filled with files that are not theirs: it was \
                     closed, and programs of other users have reported no objects since"
                        .into(),
                );
            }
            about.lose("forked processes that could create no file to report their objects in", losses.silent);
            about.notes.extend(uninstrumented(&self.executed, |pid, name| objects.times_in(pid, name)));
        }
        let kernels = side_band.iter().flat_map(SideBand::lost);
        let unrecorded = allocations.iter().flat_map(|allocations| allocations.lost().iter().cloned());
        for loss in accesses.iter().flat_map(Accesses::lost).chain(kernels).chain(unrecorded) {
            about.lose(&loss.what, loss.count);
        }
        let killed = KILLED_BY_ITS_LIMITS.iter().find(|(status, _)| about.exit_status == Some(*status));
        if let Some((_, signal)) = killed.filter(|_| objects.is_some()) {
            about.notes.push(format!(
                "the program was killed by {signal}, and the trace ends there: if it is not killed without nearside, it \
                 may forbid itself what the library in it does (seccomp, PR_SET_TSC); --no-objects records it without \
                 the library"
            ));
        }
        let about = about.clone();
        let folder = self.writer.finish()?;
        Ok(Recorded { folder, about, counts: self.counts, processes: self.processes.len(), duration })
    }

    /// Drains all sources. Samples come first, because they set the clock that converts the times of objects; the
    /// kernel's events of processes are then at least as recent as the samples.
    fn take(&mut self, last: bool) -> Result<(), RecordError> {
        let Sources { clock, objects, side_band, accesses, counters, allocations, scheduling, cpus, .. } =
            &mut self.sources;
        if let Some(scheduling) = scheduling.as_mut().filter(|_| last) {
            scheduling.counts(&mut self.counted);
        }
        if let Some(cpus) = cpus.as_mut().filter(|_| last) {
            cpus.counts(&mut self.counted);
        }
        if let Some(counters) = counters.as_mut().filter(|_| last || self.next_count <= Instant::now()) {
            counters.counts(&mut self.counted);
            self.next_count = Instant::now() + COUNTED;
        }
        if let Some(objects) = objects {
            objects.look(clock)?;
        }
        if let Some(accesses) = accesses {
            let told = Told { samples: &mut self.samples, events: &mut self.events, counts: &mut self.counted };
            accesses.drain(last, clock, self.writer.stacks(), told);
        }
        if let Some(objects) = objects {
            let (stacks, events) = (self.writer.stacks(), &mut self.events);
            if last { objects.finish(clock, stacks, events) } else { objects.drain(clock, stacks, events) }
        }
        if let Some(side_band) = side_band {
            // The kernel reports all processes, threads and files from their start; the library inside a program
            // reports only its own, from when it is ready.
            let is_start = |event: &&Event| matches!(event.what, What::ProcessStarted { .. });
            let starts: Vec<Event> = self.events.iter().filter(is_start).cloned().collect();
            self.events.retain(|event| !is_reported_by_kernel(&event.what));
            let (stacks, events) = (self.writer.stacks(), &mut self.events);
            if last {
                side_band.finish(stacks, events);
            } else {
                side_band.drain(stacks, events);
            }
            // The kernel drops records where many come at a time.
            let is_known =
                |pid| self.processes.contains(&pid) || events.iter().any(|event| event.pid == pid && is_start(&event));
            let unknown: Vec<Event> = starts.into_iter().filter(|start| !is_known(start.pid)).collect();
            events.extend(unknown);
        }
        if let Some(allocations) = allocations {
            if last { allocations.finish(&mut self.events) } else { allocations.drain(&mut self.events) }
        }
        if let Some(regions) = &mut self.sources.regions {
            let no_stack = self.writer.stacks().id(&[]);
            regions.forget_unmapped(&self.events);
            regions.look(self.processes.iter().copied(), no_stack, &mut self.events);
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), RecordError> {
        let mut events = std::mem::take(&mut self.events);
        for mut event in events.drain(..) {
            self.files.complete(&mut event);
            match event.what {
                What::ProcessStarted { .. } => {
                    self.add_process(event.pid);
                    self.sources.regions.iter_mut().for_each(|regions| regions.begins(event.pid));
                }
                What::Named { exec: true, ref name } => {
                    *self.executed.entry((event.pid, name.clone())).or_default() += 1;
                    self.sources.regions.iter_mut().for_each(|regions| regions.begins(event.pid));
                }
                What::Allocated { .. } | What::Announced { .. } => self.counts.objects += 1,
                What::Counted { objects, .. } => {
                    self.counts.small_objects = self.counts.small_objects.saturating_add(objects);
                }
                _ => {}
            }
            self.counts.events += 1;
            self.writer.event(event)?;
        }
        self.events = events;
        for sample in self.samples.drain(..).filter(|sample| self.processes.contains(&sample.pid)) {
            self.counts.samples += 1;
            self.writer.sample(sample)?;
        }
        for count in self.counted.drain(..) {
            self.writer.count(count)?;
        }
        Ok(())
    }
}

fn is_reported_by_kernel(what: &What) -> bool {
    match what {
        What::ProcessStarted { .. } | What::ThreadStarted | What::ThreadEnded | What::Named { .. } => true,
        What::Mapped { file, .. } => file.is_some(),
        _ => false,
    }
}
