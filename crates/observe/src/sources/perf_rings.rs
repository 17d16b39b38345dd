//! Perf ring buffers, one per CPU, into which the kernel writes the records of events.

use super::Target;
use super::aux_data::AuxData;
use super::permission::Refusal;
use linux::{AuxArea, CpuSet, Pid, Process, ProcessError, Tid, set_perf_period, share_perf_ring, watch_perf_rings};
use machine::CpuId;
use perf_data::kind::{AUX, LOST};
use perf_data::{Bytes, lost_count};
use perf_event::events::Software;
use perf_event::{Builder, Clock, Counter, ReadFormat, Sampler};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::LazyLock;

/// Smallest ring, in bytes.
const LEAST_BYTES: usize = 32 << 10;
const HEADER_BYTES: usize = 8;
const ONLINE_CPUS: &str = "/sys/devices/system/cpu/online";
/// Whether the kernel counts dropped records (since Linux 6.0), instead of only reporting them with the next record
/// written.
static COUNTS_LOSSES: LazyLock<bool> =
    LazyLock::new(|| Builder::new(Software::DUMMY).exclude_kernel(true).read_format(ReadFormat::LOST).build().is_ok());

/// An event to open on each CPU.
pub(super) struct Wanted {
    pub builder: Builder<'static>,
    /// An event that has to lead the group. It writes no records itself.
    pub leader: Option<Builder<'static>>,
    /// The CPUs that have the event; `None` for all.
    pub cpus: Option<CpuSet>,
    /// Whether it writes data in the processor's own format into an AUX area as large as the ring. Such an event has
    /// to come first: the AUX area belongs to the event that owns the ring.
    pub aux: bool,
}

impl Wanted {
    /// Sets the attributes common to all events here.
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
            // Processes and threads that a task starts are observed likewise.
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

/// Which task an event is opened for.
#[derive(Clone, Copy)]
enum Task {
    /// The calling thread, and the tasks it starts.
    Caller,
    Thread(Tid),
    All,
}

/// Rings and the events that write into them.
pub(super) struct Rings {
    of_cpus: Vec<CpuRing>,
    /// Events that write into another event's ring, or into none.
    others: Vec<Counter>,
    /// The IDs of each wanted event.
    pub ids: Vec<Vec<u64>>,
    bytes: usize,
    /// Dropped records that `LOST` records have reported.
    losses_taken: u64,
}

/// The ring of a CPU.
struct CpuRing {
    cpu: CpuId,
    records: Sampler,
    aux: Option<AuxData>,
}

impl Rings {
    /// Opens the events for a target, with rings of at most `most_bytes`. The rings are smaller if the user may not
    /// lock that much memory. The events are disabled until [`enable`](Self::enable).
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
            losses_taken: 0,
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

    /// Enables the events of running programs now. Events of programs yet to be started are enabled by their `exec`.
    pub fn enable(&mut self, target: &Target) -> Result<(), Refusal> {
        if *target == Target::Program { Ok(()) } else { self.enable_now() }
    }

    /// Enables all events now.
    pub fn enable_now(&mut self) -> Result<(), Refusal> {
        self.events().try_for_each(Counter::enable).map_err(|error| Refusal::Event(None, error))
    }

    /// Disables all events. Processors hand over their pending data.
    pub fn disable(&mut self) -> io::Result<()> {
        self.events().try_for_each(Counter::disable)
    }

    /// Sets the sampling periods: `period` maps the index of a wanted event to its period. Periods that the kernel
    /// refuses stay unchanged.
    pub fn set_periods(&mut self, period: impl Fn(usize) -> Option<u64>) {
        let ids = std::mem::take(&mut self.ids);
        for event in self.events() {
            let id = event.id();
            let index = ids.iter().position(|ids| ids.contains(&id));
            if let Some(period) = index.and_then(&period) {
                let _ = set_perf_period(event, period);
            }
        }
        self.ids = ids;
    }

    fn events(&mut self) -> impl Iterator<Item = &mut Counter> {
        let rings = self.of_cpus.iter_mut().map(|ring| &mut *ring.records);
        self.others.iter_mut().chain(rings)
    }

    /// Passes the records in the rings to `take`, ring by ring: type, `misc` and body. Takes at most one ring's bytes
    /// per ring.
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
                    self.losses_taken = self.losses_taken.saturating_add(lost_count(Bytes(&body), 8).unwrap_or(0));
                }
                if let Some(aux) = aux.as_mut().filter(|_| record.ty() == AUX) {
                    aux.note(&body);
                }
                take(record.ty(), record.misc(), &body);
            }
        }
    }

    /// A file that can be read once the kernel has written into a ring as much as the events' watermark says.
    pub fn watch(&self) -> io::Result<OwnedFd> {
        watch_perf_rings(self.of_cpus.iter().map(|ring| &ring.records))
    }

    /// Dropped records that no `LOST` record has reported, because no later record was written to the same ring.
    pub fn take_losses(&mut self) -> u64 {
        let counted: u64 = self.events().filter_map(|event| event.read_full().ok()?.lost()).sum();
        counted.saturating_sub(self.losses_taken)
    }

    /// Passes the AUX data whose records were drained to `take`, CPU by CPU, piece by piece, each with its offset.
    /// Restarts processors that stopped because the area was full. Returns the number of bytes lost.
    pub fn drain_aux(&mut self, mut take: impl FnMut(CpuId, u64, &[u8])) -> u64 {
        let (mut lost, mut stopped) = (0, false);
        for CpuRing { cpu, aux, .. } in &mut self.of_cpus {
            if let Some(aux) = aux {
                lost = aux.take(|place, piece| take(*cpu, place, piece)).saturating_add(lost);
                stopped |= aux.has_stopped();
            }
        }
        if stopped {
            // An event that cannot be enabled again has ended with its task.
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

/// The process to name in an error.
fn first_pid(target: &Target) -> Option<Pid> {
    if let Target::Pids(pids) = target { pids.first().copied() } else { None }
}

/// The CPUs that are online.
pub(super) fn online_cpus() -> io::Result<CpuSet> {
    fs::read_to_string(ONLINE_CPUS)?.trim().parse().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::super::permission::Scope;
    use super::*;
    use crate::sources::LiveError;
    use linux::{Pages, current_cpu, monotonic_ns, set_affinity};
    use perf_data::Attribute;
    use perf_data::attribute::{ADDR, CPU, IDENTIFIER, IP, TID, TIME};
    use perf_event::events::Software;
    use std::ops::Range;
    use trace::Sample;
    use trace::perf::Decoder;

    const PAGES: u64 = 20_000;
    const SAMPLE_TYPE: u64 = IDENTIFIER | IP | TID | TIME | ADDR | CPU;

    fn own_thread() -> Tid {
        Tid(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned())
    }

    /// Touches pages for the first time, each of which is an event. Returns the samples, the pages and the number of
    /// lost records.
    fn faults(ring_bytes: usize, looks: u64) -> Option<(Vec<Sample>, Pages, u64)> {
        // Each CPU has a ring, and losses are reported in the ring that had them.
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
                let error = LiveError::refused("observe page faults", &refusal, Scope::Own).to_string();
                test_tools::skipped(&error);
                assert!(
                    ["perf_event_paranoid", "seccomp", "perf_event_mlock_kb"].iter().any(|why| error.contains(why))
                );
                return None;
            }
        };
        let mut decoder = Decoder::default();
        decoder.session.add_attribute(Attribute::live("page-faults", SAMPLE_TYPE, 1, rings.ids.concat()));
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
        // Losses are reported with the next record that is written.
        look(PAGES..PAGES + 1);
        let own = memory.range();
        let (mut samples, _) = decoder.finish();
        samples.retain(|sample| own.contains(&sample.address));
        samples.sort_by_key(|sample| sample.time_ns);
        Some((samples, memory, decoder.lost.iter().map(|loss| loss.count).sum()))
    }

    #[test]
    fn each_access_has_its_address_thread_and_time_although_rings_wrap() {
        let before = monotonic_ns();
        let Some((samples, memory, lost)) = faults(64 << 10, 100) else { return };
        // Other tests of this process may fill the ring at the same time.
        assert!(samples.len() as u64 + lost > PAGES && samples.len() as u64 > PAGES / 2, "{} {lost}", samples.len());
        for sample in &samples {
            assert_eq!((sample.pid, sample.tid), (Pid(std::process::id()), own_thread()));
            assert!((before..monotonic_ns()).contains(&sample.time_ns));
        }
        let addresses = samples.iter().map(|sample| sample.address);
        let first = memory.range().start;
        assert!(addresses.clone().is_sorted() && addresses.clone().all(|address| (address - first) % 4096 == 0));
    }

    /// The kernel accepts the layout of the ring and the area, and then reports that the event has no AUX area.
    #[test]
    fn what_writes_no_data_of_its_own_has_no_aux_area() {
        let target = Target::Pids(vec![Pid(std::process::id())]);
        let wanted = Wanted { aux: true, ..Wanted::new(Builder::new(Software::PAGE_FAULTS)) };
        match Rings::open(&target, &[wanted], LEAST_BYTES).err().unwrap() {
            Refusal::Ring(LEAST_BYTES, error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => {}
            refusal => {
                let error = LiveError::refused("observe page faults", &refusal, Scope::Own).to_string();
                test_tools::skipped(&error);
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
