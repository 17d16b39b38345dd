//! Takes what all sources tell, often, and writes it down.

use super::untold::untold;
use linux::Pid;
use machine::Machine;
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use trace::live::{Accesses, FileIdentities, HostCounters, SideBand, Told};
use trace::objects::{ObjectRings, ObjectsError};
use trace::{About, Count, Event, Flush, Sample, TickClock, What, WriteError, Writer};

/// Events since the last time that call for the next look at once: a program's rings are of limited size.
const MUCH: usize = 4096;
/// ... or soon.
const SOME: usize = 256;
/// So many samples call for a look as one event does.
const SAMPLES_PER_EVENT: usize = 16;
const SOON: Duration = Duration::from_millis(1);
/// A look costs the machine some ten microseconds.
const LATER: Duration = Duration::from_millis(10);
/// To read all counters of a host takes some microseconds each.
const COUNTED: Duration = Duration::from_millis(100);

/// Why recording ends before the program does.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The trace cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// What programs tell cannot be read.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
}

/// Whom a recording follows.
pub trait Followed {
    /// Whether the recording is over: all have ended, or the user has enough.
    fn is_over(&mut self) -> bool;
    /// Waits so long, or less where something happens.
    fn wait(&mut self, patience: Duration);
}

/// Who is asked.
pub struct Sources {
    /// What all times in ticks are of.
    pub clock: TickClock,
    pub objects: Option<ObjectRings>,
    pub side_band: Option<SideBand>,
    pub accesses: Option<Accesses>,
    /// The host's, of all that it runs.
    pub counters: Option<HostCounters>,
    /// What should be known of those that are not here.
    pub notes: Vec<String>,
}

/// A recording.
pub struct Recorder {
    sources: Sources,
    writer: Writer,
    files: FileIdentities,
    /// The processes that it is about: the program and what it started.
    processes: HashSet<Pid>,
    /// The programs that those executed, as the kernel tells it.
    executed: BTreeSet<(Pid, Arc<str>)>,
    samples: Vec<Sample>,
    events: Vec<Event>,
    counted: Vec<Count>,
    /// When the host's counters are to be read next.
    next_count: Instant,
    began: Instant,
    counts: Counts,
}

/// What was recorded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub samples: u64,
    pub events: u64,
    pub objects: u64,
    /// Objects that were only counted.
    pub small_objects: u64,
}

/// A recording that has ended.
pub struct Recorded {
    pub folder: PathBuf,
    pub about: About,
    pub counts: Counts,
    pub processes: usize,
    pub duration: Duration,
}

impl Recorder {
    /// Begins a recording into a folder.
    pub fn begin(mut sources: Sources, folder: &Path, machine: &Machine, about: About) -> Result<Self, RecordError> {
        let mut about = about;
        about.notes.append(&mut sources.notes);
        about.sources.extend(sources.accesses.iter().flat_map(Accesses::notes));
        let writer = Writer::create(folder, about, machine, Flush::default())?;
        Ok(Self {
            sources,
            writer,
            files: FileIdentities::default(),
            processes: HashSet::new(),
            executed: BTreeSet::new(),
            samples: Vec::new(),
            events: Vec::new(),
            counted: Vec::new(),
            next_count: Instant::now(),
            began: Instant::now(),
            counts: Counts::default(),
        })
    }

    /// What the program needs in its environment.
    pub fn environment(&self, library: Option<&Path>) -> Vec<(&'static str, OsString)> {
        let preloaded = std::env::var_os("LD_PRELOAD");
        let rings = self.sources.objects.as_ref().zip(library);
        rings.map_or(Vec::new(), |(rings, library)| rings.environment(library, preloaded.as_deref()).to_vec())
    }

    /// The program could not be started: there is no trace.
    pub fn take_back(self) -> Result<(), RecordError> {
        Ok(self.writer.take_back()?)
    }

    /// A process that the recording is about.
    pub fn add_process(&mut self, pid: Pid) {
        self.processes.insert(pid);
    }

    /// Records until it is over, or for so long.
    pub fn follow(mut self, whom: &mut dyn Followed, duration: Option<Duration>) -> Result<Recorded, RecordError> {
        let end = duration.and_then(|duration| Instant::now().checked_add(duration));
        loop {
            let patience = self.drain()?;
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            if whom.is_over() || left.is_zero() {
                return self.finish();
            }
            whom.wait(patience.min(left));
        }
    }

    /// Takes what was told since the last time. Says when to come again.
    fn drain(&mut self) -> Result<Duration, RecordError> {
        self.take(false)?;
        // Those who take samples have room for more of them.
        let told = self.events.len() + self.samples.len() / SAMPLES_PER_EVENT;
        self.write()?;
        self.writer.tick()?;
        Ok(match told {
            MUCH.. => Duration::ZERO,
            SOME.. => SOON,
            _ => LATER,
        })
    }

    /// Ends the recording: takes what is left, and looks up what it names.
    fn finish(mut self) -> Result<Recorded, RecordError> {
        let duration = self.began.elapsed();
        self.take(true)?;
        self.write()?;
        let Sources { objects, side_band, accesses, .. } = &self.sources;
        let unkept = self.writer.stacks().unkept();
        let about = self.writer.about();
        about.lose("call chains beyond the first million", unkept);
        if let Some(objects) = objects {
            let losses = objects.losses();
            about.lose(
                "events of objects that found no room in a program's ring, or came in a signal handler amid another",
                losses.lost,
            );
            about.lose("records that a program overwrote", losses.malformed);
            about.lose("forked processes that could make no file to tell of their objects in", losses.silent);
            about.notes.extend(untold(&self.executed, |pid, name| objects.has_been_in(pid, name)));
        }
        let kernels = side_band.iter().flat_map(SideBand::lost);
        for loss in accesses.iter().flat_map(Accesses::lost).chain(kernels) {
            about.lose(&loss.what, loss.count);
        }
        let about = about.clone();
        let folder = self.writer.finish()?;
        Ok(Recorded { folder, about, counts: self.counts, processes: self.processes.len(), duration })
    }

    /// Takes what all have told. What samples tell the clock is known before it is asked for the times of objects, and what
    /// the kernel tells of processes then is not older than the samples.
    fn take(&mut self, last: bool) -> Result<(), RecordError> {
        let Sources { clock, objects, side_band, accesses, counters, .. } = &mut self.sources;
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
            // The kernel knows of all processes, threads and files, from their first moment; the library in a program tells of
            // those that it is in, from when it is ready.
            self.events.retain(|event| !is_told_by_kernel(&event.what));
            let (stacks, events) = (self.writer.stacks(), &mut self.events);
            if last { side_band.finish(stacks, events) } else { side_band.drain(stacks, events) }
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), RecordError> {
        for mut event in self.events.drain(..) {
            self.files.complete(&mut event);
            match event.what {
                What::ProcessStarted { .. } => drop(self.processes.insert(event.pid)),
                What::Named { exec: true, ref name } => drop(self.executed.insert((event.pid, name.clone()))),
                What::Allocated { .. } => self.counts.objects += 1,
                What::Counted { objects, .. } => {
                    self.counts.small_objects = self.counts.small_objects.saturating_add(objects);
                }
                _ => {}
            }
            self.counts.events += 1;
            self.writer.event(event)?;
        }
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

fn is_told_by_kernel(what: &What) -> bool {
    match what {
        What::ProcessStarted { .. } | What::ThreadStarted | What::ThreadEnded | What::Named { .. } => true,
        What::Mapped { file, .. } => file.is_some(),
        _ => false,
    }
}
