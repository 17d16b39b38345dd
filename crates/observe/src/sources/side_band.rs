//! Processes, threads, names and mappings, from perf's side-band records. They come from a software event that never
//! counts, so they need no PMU and little of the programs' time.

use super::perf_rings::{Rings, Wanted};
use super::permission::Scope;
use super::running::{all_pids, events_of, stack_of};
use super::{LiveError, Target};
use linux::{Process, ProcessError, clear_perf_rings, monotonic_ns, stack_around, stack_pointer_of};
use perf_data::attribute::{CPU, IDENTIFIER, TID, TIME};
use perf_data::{Attribute, Bytes};
use perf_event::Builder;
use perf_event::events::Software;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use trace::perf::{Decoder, LOST_BY_KERNEL, Starts};
use trace::{Event, Loss, Source, SourceNote, Stacks, What};

/// Name of the event.
const EVENT: &str = "dummy";
/// With file names of 4 KiB, this holds some dozens of mappings between two drains.
const RING_BYTES: usize = 128 << 10;
const SAMPLE_TYPE: u64 = IDENTIFIER | TID | TIME | CPU;
/// Maximum number of attempts to find a new thread's stack, which the kernel does not report, and of threads per
/// attempt. An attempt takes about 30 µs, possibly of the observed thread's time.
const TRIES: u8 = 20;
const THREADS_AT_ONCE: usize = 4;
/// Maximum number of new threads remembered.
const MOST_THREADS: usize = 4096;

/// A live source of processes, threads, names and mappings, including those that exist already.
pub struct SideBand {
    rings: Rings,
    decoder: Decoder,
    starts: Starts,
    /// Threads whose stacks are not known yet, with the number of attempts so far.
    young: VecDeque<(Event, u8)>,
    hidden: u64,
    /// Whether mappings are reported.
    with_mappings: bool,
    /// Can be read when there are events, unless mappings are reported.
    watch: Option<OwnedFd>,
}

impl SideBand {
    /// Opens the source. The first [`drain`](Self::drain) returns what is already running, as of this moment. One's
    /// own processes need `kernel.perf_event_paranoid` at 2 or less (Linux's default; Debian's kernels have 3), other
    /// users' also `CAP_SYS_PTRACE`, and the system 0 or less; `CAP_PERFMON` replaces these levels. Mappings of other
    /// users' running processes need `CAP_SYS_PTRACE`.
    pub fn open(target: &Target) -> Result<Self, LiveError> {
        Self::listen(target, true)
    }

    /// Opens the source for processes, threads and names only, which costs next to no time. What is already running
    /// is not reported.
    pub fn open_lives(target: &Target) -> Result<Self, LiveError> {
        Self::listen(target, false)
    }

    fn listen(target: &Target, with_mappings: bool) -> Result<Self, LiveError> {
        let scope = Scope::new(target);
        let failed = |refusal| LiveError::refused("listen to processes, threads and mappings (perf)", &refusal, scope);
        let mut builder = Builder::new(Software::DUMMY);
        // Exclude the kernel.
        builder.exclude_kernel(true).sample_period(1).mmap(with_mappings).mmap2(with_mappings).mmap_data(with_mappings);
        builder.comm(true).comm_exec(true).task(true);
        if !with_mappings {
            builder.wakeup_watermark(1);
        }
        builder.attrs_mut().sample_type = SAMPLE_TYPE;
        let mut rings = Rings::open(target, &[Wanted::new(builder)], RING_BYTES).map_err(failed)?;
        let began = monotonic_ns();
        rings.enable(target).map_err(failed)?;
        let mut decoder = Decoder::default();
        let ids = rings.ids.concat();
        decoder.session.add_attribute(Attribute::live(EVENT, SAMPLE_TYPE, 1, ids));
        let (starts, young) = (Starts::default(), VecDeque::new());
        let watch = if with_mappings { None } else { rings.watch().ok() };
        let mut side_band = Self { rings, decoder, starts, young, hidden: 0, with_mappings, watch };
        if with_mappings {
            side_band.add_what_runs(target, began);
        }
        Ok(side_band)
    }

    /// Events that arrive during this call are later than what it finds.
    fn add_what_runs(&mut self, target: &Target, began: u64) {
        let pids = match target {
            Target::Program => Vec::new(),
            Target::Pids(pids) => pids.clone(),
            Target::System => all_pids(),
        };
        for pid in pids {
            let told = events_of(pid, |tid, what| self.decoder.event(began, pid, tid, what));
            // A process that has ended is not a hidden one.
            self.hidden += u64::from(matches!(told, Err(ProcessError::Read { .. })));
        }
    }

    /// What the source observes, and what it cannot see.
    pub fn notes(&self) -> Vec<SourceNote> {
        if !self.with_mappings {
            let event = "processes and threads".to_owned();
            return vec![SourceNote { source: Source::Perf, event, cannot_see: Vec::new() }];
        }
        let cannot_see = [
            "The end of a mapping is not reported, only what replaces it.",
            "A thread's stack is reported once the thread is seen waiting; until then it is anonymous memory.",
        ];
        let event = "processes, threads and mappings".to_owned();
        vec![SourceNote { source: Source::Perf, event, cannot_see: cannot_see.map(str::to_owned).into() }]
    }

    /// A file that can be read, for `poll`, when a process or thread has begun, ended or executed a program since the last
    /// [`drain`](Self::drain); none where mappings are reported, which are too many.
    pub fn news(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    /// Returns the events since the last call, in time order. Never blocks.
    pub fn drain(&mut self, stacks: &mut Stacks, events: &mut Vec<Event>) {
        self.watch.iter().for_each(clear_perf_rings);
        std::mem::swap(stacks, &mut self.decoder.stacks);
        self.rings.drain(|kind, misc, body| {
            self.decoder.take(kind, misc, Bytes(body));
        });
        std::mem::swap(stacks, &mut self.decoder.stacks);
        let (_, mut told) = self.decoder.finish();
        told.sort_by_key(|event| event.time_ns);
        for event in told {
            if self.with_mappings {
                self.keep_young(&event);
            }
            events.extend(self.starts.missing(&event));
            events.push(event);
        }
        if self.with_mappings {
            self.find_stacks(events);
        }
    }

    /// Returns the remaining events, at the end of the recording.
    pub fn finish(&mut self, stacks: &mut Stacks, events: &mut Vec<Event>) {
        self.drain(stacks, events);
        let lost = self.rings.take_losses();
        self.decoder.lose(LOST_BY_KERNEL, lost);
    }

    /// Remembers new threads, and forgets those that have ended.
    fn keep_young(&mut self, event: &Event) {
        match event.what {
            What::ThreadStarted if self.young.len() < MOST_THREADS => self.young.push_back((event.clone(), 0)),
            What::ThreadEnded => self.young.retain(|(young, _)| young.tid != event.tid),
            _ => {}
        }
    }

    fn find_stacks(&mut self, events: &mut Vec<Event>) {
        for _ in 0..self.young.len().min(THREADS_AT_ONCE) {
            let Some((event, tries)) = self.young.pop_front() else { return };
            // A process that has ended has no threads.
            let Ok(process) = Process::open(event.pid) else { continue };
            // Reading mappings takes longer, and is of no use while the thread runs.
            let pointer = stack_pointer_of(&process, event.tid);
            match pointer.and_then(|pointer| stack_around(pointer, &process.mappings().ok()?)) {
                Some(range) => {
                    let what = stack_of(event.tid, range.start, range.end - range.start);
                    events.push(Event { what, ..event });
                }
                None if tries < TRIES => self.young.push_back((event, tries + 1)),
                None => {}
            }
        }
    }

    /// How many records the kernel has reported as dropped: those of one CPU with the next one there.
    pub fn records_lost(&self) -> u64 {
        self.decoder.lost.iter().filter(|loss| loss.what == LOST_BY_KERNEL).map(|loss| loss.count).sum()
    }

    /// Losses so far.
    pub fn lost(&self) -> Vec<Loss> {
        let mut lost = self.decoder.lost.clone();
        for loss in lost.iter_mut().filter(|loss| loss.what == LOST_BY_KERNEL) {
            "records of processes, threads and mappings that the kernel dropped".clone_into(&mut loss.what);
        }
        Loss::add(&mut lost, "running processes whose mappings may not be read", self.hidden);
        lost
    }
}
