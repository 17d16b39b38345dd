//! Rings that the kernel writes the records of events into, one for each CPU.

use super::Target;
use super::aux_data::AuxData;
use super::permission::Refusal;
use crate::perf_data::{AUX, Bytes, LOST, lost_count};
use linux::{AuxArea, CpuSet, Pid, Process, ProcessError, Tid, set_perf_period, share_perf_ring};
use machine::CpuId;
use perf_event::events::Software;
use perf_event::{Builder, Clock, Counter, ReadFormat, Sampler};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::sync::LazyLock;

/// The least that a ring has, bytes.
const LEAST_BYTES: usize = 32 << 10;
const HEADER_BYTES: usize = 8;
const ONLINE_CPUS: &str = "/sys/devices/system/cpu/online";
/// Whether the kernel counts the records that find no room, and not only tells them with the next one that does: Linux 6.0.
static COUNTS_LOSSES: LazyLock<bool> =
    LazyLock::new(|| Builder::new(Software::DUMMY).exclude_kernel(true).read_format(ReadFormat::LOST).build().is_ok());

/// An event to open on each CPU.
pub(super) struct Wanted {
    pub builder: Builder<'static>,
    /// An event that has to lead the group it is in, and writes nothing itself.
    pub leader: Option<Builder<'static>>,
    /// The CPUs that have it; all where nothing is said.
    pub cpus: Option<CpuSet>,
    /// It writes data of the processor's own format into an AUX area as large as the ring. It has to be wanted first:
    /// the area is that of the event whose ring it is.
    pub aux: bool,
}

impl Wanted {
    /// With what all events here have in common.
    pub fn new(mut builder: Builder<'static>) -> Self {
        builder.clockid(Clock::MONOTONIC).sample_id_all(true);
        Self { builder, leader: None, cpus: None, aux: false }
    }

    fn open(&self, task: Task, cpu: CpuId, target: &Target) -> io::Result<(Counter, Option<Counter>)> {
        let aimed = |builder: &Builder<'static>| {
            let mut builder = builder.clone();
            match task {
                Task::Caller => builder.observe_self(),
                Task::Thread(tid) => builder.observe_pid(tid.0.cast_signed()),
                Task::All => builder.any_pid(),
            };
            // Whom a task starts is observed likewise.
            builder.inherit(*target != Target::System).enable_on_exec(*target == Target::Program);
            builder.one_cpu(cpu.0 as usize);
            if *COUNTS_LOSSES {
                builder.read_format(ReadFormat::LOST);
            }
            builder
        };
        let Some(leader) = &self.leader else { return Ok((aimed(&self.builder).build()?, None)) };
        let mut leader = aimed(leader).build()?;
        Ok((aimed(&self.builder).build_with_group(&mut leader)?, Some(leader)))
    }
}

/// Whom an event is opened for.
#[derive(Clone, Copy)]
enum Task {
    /// The calling thread, and whom it starts.
    Caller,
    Thread(Tid),
    All,
}

/// Rings and the events that write into them.
pub(super) struct Rings {
    of_cpus: Vec<CpuRing>,
    /// Events that write into the ring of another one, or into none.
    others: Vec<Counter>,
    /// The ids of each event that was wanted.
    pub ids: Vec<Vec<u64>>,
    bytes: usize,
    /// Records that found no room, as other records have told.
    told_losses: u64,
}

/// The ring of a CPU.
struct CpuRing {
    cpu: CpuId,
    records: Sampler,
    aux: Option<AuxData>,
}

impl Rings {
    /// Opens events for a target, with rings of at most so many bytes, and less where that is more than the user may
    /// lock. They write from [`enable`](Self::enable) on.
    pub fn open(target: &Target, wanted: &[Wanted], most_bytes: usize) -> Result<Self, Refusal> {
        let mut bytes = most_bytes.next_power_of_two().max(LEAST_BYTES);
        loop {
            match Self::open_with(target, wanted, bytes) {
                Err(Refusal::Ring(_, error))
                    if bytes > LEAST_BYTES && Errno::from_io_error(&error) == Some(Errno::PERM) =>
                {
                    bytes /= 2;
                }
                opened => return opened,
            }
        }
    }

    fn open_with(target: &Target, wanted: &[Wanted], bytes: usize) -> Result<Self, Refusal> {
        let (tasks, pid) = (tasks(target)?, first_pid(target));
        let refused = |error| Refusal::Event(pid, error);
        let mut all = Self {
            of_cpus: Vec::new(),
            others: Vec::new(),
            ids: vec![Vec::new(); wanted.len()],
            bytes,
            told_losses: 0,
        };
        for cpu in online_cpus().map_err(refused)?.iter() {
            let mut ring: Option<CpuRing> = None;
            for &task in &tasks {
                for (wanted, ids) in wanted.iter().zip(&mut all.ids) {
                    if wanted.cpus.as_ref().is_some_and(|cpus| !cpus.contains(cpu)) {
                        continue;
                    }
                    let (event, leader) = match wanted.open(task, cpu, target) {
                        Ok(opened) => opened,
                        Err(error) if task.has_ended(&error) => continue,
                        Err(error) => return Err(refused(error)),
                    };
                    ids.push(event.id());
                    all.others.extend(leader);
                    let failed = |error| Refusal::Ring(bytes, error);
                    if let Some(ring) = &ring {
                        share_perf_ring(&event, &ring.records).map_err(failed)?;
                        all.others.push(event);
                    } else {
                        let records = event.sampled(bytes).map_err(failed)?;
                        let area = wanted.aux.then(|| AuxArea::map(&records, bytes, bytes)).transpose();
                        ring = Some(CpuRing { cpu, records, aux: area.map_err(failed)?.map(AuxData::new) });
                    }
                }
            }
            all.of_cpus.extend(ring);
        }
        if all.of_cpus.is_empty() { Err(refused(Errno::SRCH.into())) } else { Ok(all) }
    }

    /// Has the events write: those of running programs from now on. Those of programs to be started begin with them.
    pub fn enable(&mut self, target: &Target) -> Result<(), Refusal> {
        if *target == Target::Program { Ok(()) } else { self.enable_now() }
    }

    /// Has the events write from now on.
    pub fn enable_now(&mut self) -> Result<(), Refusal> {
        self.events().try_for_each(Counter::enable).map_err(|error| Refusal::Event(None, error))
    }

    /// Ends all writing: what processors have not handed over yet, they do now.
    pub fn disable(&mut self) -> io::Result<()> {
        self.events().try_for_each(Counter::disable)
    }

    /// Has the events that were wanted sample as often as `period` says of each by its place. What the kernel does not
    /// allow stays as it is.
    pub fn set_periods(&mut self, period: impl Fn(usize) -> Option<u64>) {
        let ids = std::mem::take(&mut self.ids);
        for event in self.events() {
            let id = event.id();
            let place = ids.iter().position(|ids| ids.contains(&id));
            if let Some(period) = place.and_then(&period) {
                let _ = set_perf_period(event, period);
            }
        }
        self.ids = ids;
    }

    fn events(&mut self) -> impl Iterator<Item = &mut Counter> {
        let rings = self.of_cpus.iter_mut().map(|ring| &mut *ring.records);
        self.others.iter_mut().chain(rings)
    }

    /// Gives what is in the rings, ring by ring: kind, `misc` and body of each record. At most as much as they hold.
    pub fn drain(&mut self, mut take: impl FnMut(u32, u16, &[u8])) {
        for CpuRing { records, aux, .. } in &mut self.of_cpus {
            if let Some(aux) = aux {
                aux.look();
            }
            let mut left = self.bytes;
            while left > 0
                && let Some(record) = records.next_record()
            {
                left = left.saturating_sub(record.len() + HEADER_BYTES);
                let body = record.to_contiguous();
                if record.ty() == LOST {
                    self.told_losses = self.told_losses.saturating_add(lost_count(Bytes(&body), 8).unwrap_or(0));
                }
                if let Some(aux) = aux.as_mut().filter(|_| record.ty() == AUX) {
                    aux.note(&body);
                }
                take(record.ty(), record.misc(), &body);
            }
        }
    }

    /// Records that found no room and after which none came in the same ring, so that none told it.
    pub fn untold_losses(&mut self) -> u64 {
        let counted: u64 = self.events().filter_map(|event| event.read_full().ok()?.lost()).sum();
        counted.saturating_sub(self.told_losses)
    }

    /// Gives the data in the AUX areas of which records were drained, CPU by CPU, piece by piece, each with its place.
    /// Processors that have stopped for want of room go on. Says how many bytes were lost.
    pub fn drain_aux(&mut self, mut take: impl FnMut(CpuId, u64, &[u8])) -> u64 {
        let (mut lost, mut stopped) = (0, false);
        for CpuRing { cpu, aux, .. } in &mut self.of_cpus {
            if let Some(aux) = aux {
                lost = aux.take(|place, piece| take(*cpu, place, piece)).saturating_add(lost);
                stopped |= aux.has_stopped();
            }
        }
        if stopped {
            // An event that cannot be switched on again has ended with its task.
            for event in self.events() {
                let _ = event.enable();
            }
        }
        lost
    }
}

impl Task {
    fn has_ended(self, error: &io::Error) -> bool {
        matches!(self, Self::Thread(_)) && Errno::from_io_error(error) == Some(Errno::SRCH)
    }
}

fn tasks(target: &Target) -> Result<Vec<Task>, Refusal> {
    let Target::Pids(pids) = target else {
        return Ok(vec![if *target == Target::System { Task::All } else { Task::Caller }]);
    };
    let mut tasks = Vec::new();
    for &pid in pids {
        let threads = Process::open(pid).and_then(|process| process.threads());
        let threads = threads.map_err(|error| match error {
            ProcessError::Read { source, .. } => Refusal::Event(Some(pid), source),
            _ => Refusal::Event(Some(pid), Errno::SRCH.into()),
        })?;
        tasks.extend(threads.iter().map(Task::Thread));
    }
    Ok(tasks)
}

/// The process that is to blame.
fn first_pid(target: &Target) -> Option<Pid> {
    if let Target::Pids(pids) = target { pids.first().copied() } else { None }
}

/// The CPUs that run.
pub(super) fn online_cpus() -> io::Result<CpuSet> {
    fs::read_to_string(ONLINE_CPUS)?.trim().parse().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::super::permission::Scope;
    use super::*;
    use crate::Sample;
    use crate::live::LiveError;
    use crate::perf_data::attribute::{ADDR, Attribute, CPU, IDENTIFIER, IP, TID, TIME};
    use crate::perf_data::{Bytes, Decoder};
    use linux::{Pages, current_cpu, monotonic_ns, set_affinity};
    use perf_event::events::Software;
    use std::ops::Range;

    const PAGES: u64 = 20_000;
    const SAMPLE_TYPE: u64 = IDENTIFIER | IP | TID | TIME | ADDR | CPU;

    fn own_thread() -> Tid {
        Tid(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned())
    }

    /// Touches so many pages for the first time, which an event tells: samples of them, and what was lost.
    fn faults(ring_bytes: usize, looks: u64) -> Option<(Vec<Sample>, Pages, u64)> {
        // Each CPU has a ring, and what one has lost is told in that one only.
        let (cpu, _) = current_cpu().unwrap();
        set_affinity(Tid::CALLER, &[cpu].into_iter().collect()).unwrap();
        let mut builder = Builder::new(Software::PAGE_FAULTS);
        builder.sample_period(1);
        builder.attrs_mut().sample_type = SAMPLE_TYPE;
        let target = Target::Pids(vec![Pid(std::process::id())]);
        let opened = Rings::open(&target, &[Wanted::new(builder)], ring_bytes);
        let mut rings = match opened {
            Ok(rings) => rings,
            Err(refusal) => {
                let error = LiveError::of("observe page faults", &refusal, Scope::Own).to_string();
                eprintln!("not tried here: {error}");
                assert!(
                    ["perf_event_paranoid", "seccomp", "perf_event_mlock_kb"].iter().any(|why| error.contains(why))
                );
                return None;
            }
        };
        let mut decoder = Decoder::default();
        decoder.add_attribute(Attribute::live("page-faults", SAMPLE_TYPE, 1, rings.ids.concat()));
        let mut memory = Pages::reserve(usize::try_from(PAGES + 1).unwrap() * 4096).unwrap();
        memory.advise_huge(false).unwrap();
        rings.enable(&target).map_err(|_| "cannot be enabled").unwrap();
        let mut look = |pages: Range<u64>| {
            pages.for_each(|page| memory.touch(usize::try_from(page).unwrap() * 4096));
            rings.drain(|kind, misc, body| {
                decoder.take(kind, misc, Bytes(body));
            });
        };
        (0..looks).for_each(|number| look(number * PAGES / looks..(number + 1) * PAGES / looks));
        // What was lost is told with the next record that finds room.
        look(PAGES..PAGES + 1);
        let own = memory.range();
        let mut samples = decoder.finish().samples;
        samples.retain(|sample| own.contains(&sample.address));
        samples.sort_by_key(|sample| sample.time_ns);
        Some((samples, memory, decoder.lost.iter().map(|loss| loss.count).sum()))
    }

    #[test]
    fn each_access_has_its_address_thread_and_time_although_rings_wrap() {
        let before = monotonic_ns();
        let Some((samples, memory, lost)) = faults(64 << 10, 100) else { return };
        // Other tests of this process may fill the ring meanwhile.
        assert!(samples.len() as u64 + lost > PAGES && samples.len() as u64 > PAGES / 2, "{} {lost}", samples.len());
        for sample in &samples {
            assert_eq!((sample.pid, sample.tid), (Pid(std::process::id()), own_thread()));
            assert!((before..monotonic_ns()).contains(&sample.time_ns));
        }
        let addresses = samples.iter().map(|sample| sample.address);
        let first = memory.range().start;
        assert!(addresses.clone().is_sorted() && addresses.clone().all(|address| (address - first) % 4096 == 0));
    }

    /// The kernel takes the layout of the ring and the area, and then says that the event has none.
    #[test]
    fn what_writes_no_data_of_its_own_has_no_aux_area() {
        let target = Target::Pids(vec![Pid(std::process::id())]);
        let wanted = Wanted { aux: true, ..Wanted::new(Builder::new(Software::PAGE_FAULTS)) };
        match Rings::open(&target, &[wanted], LEAST_BYTES).err().unwrap() {
            Refusal::Ring(LEAST_BYTES, error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => {}
            refusal => {
                let error = LiveError::of("observe page faults", &refusal, Scope::Own).to_string();
                eprintln!("not tried here: {error}");
                assert!(
                    ["perf_event_paranoid", "seccomp", "perf_event_mlock_kb"].iter().any(|why| error.contains(why))
                );
            }
        }
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let Some((samples, _memory, lost)) = faults(LEAST_BYTES, 1) else { return };
        assert!(samples.len() < LEAST_BYTES, "{}", samples.len());
        assert!(lost > 0 && samples.len() as u64 + lost > PAGES, "{} {lost}", samples.len());
    }
}
