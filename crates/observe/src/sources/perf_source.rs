//! Memory accesses sampled by the processor: AMD's instruction-based sampling, Intel's loads by latency and stores,
//! Arm's statistical profiling extension.

use super::memory_event::{Kind, MemoryEvent};
use super::memory_events::memory_events;
use super::perf_rings::{Rings, Wanted};
use super::permission::{Refusal, Scope, with_remedy};
use super::pmu::DEVICES;
use super::spe_clock::LiveClock;
use super::system_features::features;
use super::{LiveError, Target, spe_events};
use linux::{Pid, tsc_and_monotonic_ns};
use perf_data::attribute as has;
use perf_data::spe::{Buffer, Held};
use perf_data::{Attribute, Bytes};
use rustix::io::Errno;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;
use trace::perf::{Decoder, LOST_BY_KERNEL, note};
use trace::{Event, Loss, Sample, SourceNote, Stacks};

const MOST_RATE: &str = "/proc/sys/kernel/perf_event_max_sample_rate";
/// Periods of AMD's counters are multiples of this, and at least nine times this.
const IBS_UNIT: u64 = 16;
const SAMPLE_TYPE: u64 =
    has::IDENTIFIER | has::IP | has::TID | has::TIME | has::ADDR | has::CPU | has::PERIOD | has::WEIGHT | has::DATA_SRC;

/// How to sample accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfOptions {
    /// The processes to observe.
    pub target: Target,
    /// Sampling period or rate.
    pub pace: Pace,
    /// Exclude the kernel's own accesses.
    pub user_only: bool,
    /// Record the call chain of each sample, by frame pointers.
    pub stacks: bool,
    /// Size of the ring of each CPU, in bytes, which bounds how far the recorder may lag. A sample takes 100 bytes,
    /// plus 8 for each address of its call chain. Users other than root get smaller rings if they may not lock that
    /// much memory.
    pub ring_bytes: usize,
}

/// Sampling period or rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// One of every N: micro-operations on AMD's processors, slow loads and stores each on Intel's, operations on
    /// Arm's.
    Period(u64),
    /// Samples per second on each busy CPU: the kernel adapts the period. On Arm's processors it does not, and the
    /// period is chosen once.
    Rate(u64),
}

impl Default for PerfOptions {
    /// The program to be started, 1,000 samples per second, a ring of 1 MiB, no call chains.
    fn default() -> Self {
        Self { target: Target::Program, pace: Pace::Rate(1000), user_only: false, stacks: false, ring_bytes: 1 << 20 }
    }
}

/// A live source of sampled accesses.
pub struct PerfSource {
    rings: Rings,
    events: Vec<MemoryEvent>,
    decoder: Decoder,
    /// The clock of the data of Arm's SPE.
    spe_clock: Option<LiveClock>,
    user_only: bool,
    /// This process, to be left out unless it is observed itself.
    not: Option<Pid>,
    notes: Vec<SourceNote>,
}

/// What to request if permitted; less is requested otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reach {
    kernel: bool,
    physical: bool,
}

impl PerfSource {
    /// Opens the best event of the processor. Needs `kernel.perf_event_paranoid` at 2 or less for the user-space
    /// accesses of one's own processes (1 on AMD before Linux 6.14), at 0 for the system, or `CAP_PERFMON`. Physical
    /// addresses, which give the node of each access, need `CAP_PERFMON`. AMD's events need Linux 3.2, and 6.2 for
    /// single programs; Intel's need 3.10; Arm's need 4.16.
    pub fn open(options: &PerfOptions) -> Result<Self, LiveError> {
        let what = "sample accesses to memory (perf)";
        let events = memory_events(Path::new(DEVICES)).map_err(|why| LiveError::new(what, why))?;
        Self::open_events(&events, options)
    }

    fn open_events(events: &[MemoryEvent], options: &PerfOptions) -> Result<Self, LiveError> {
        let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
        let what = format!("sample accesses to memory (perf, {})", names.join(" and "));
        check_rate(options.pace).map_err(|why| LiveError::new(&*what, why))?;
        let mut first = None;
        for reach in Reach::all(options.user_only) {
            let wanted = events.iter().map(|event| wanted(event, options, reach));
            let wanted: Option<Vec<Wanted>> = wanted.collect();
            let Some(mut wanted) = wanted else { continue };
            wanted.extend(spe_events::switches(events));
            match Rings::open(&options.target, &wanted, options.ring_bytes) {
                Ok(rings) => {
                    let source = Self::reading(rings, events, &wanted, options, reach);
                    return source.map_err(|refusal| LiveError::refused(what, &refusal, Scope::new(&options.target)));
                }
                Err(refusal) => {
                    first.get_or_insert((reach, refusal));
                }
            }
        }
        // Report the first refusal: the last attempt needs the fewest rights, and may fail because the event does not
        // support it.
        let (reach, refusal) = first.unwrap_or((Reach { kernel: false, physical: false }, unsupported()));
        let only_whole =
            matches!(&refusal, Refusal::Event(_, error) if Errno::from_io_error(error) == Some(Errno::INVAL));
        if only_whole && options.target != Target::System && events.iter().any(MemoryEvent::is_ibs) {
            let why = "on this kernel, AMD's ibs_op samples whole CPUs only, as before Linux 6.2";
            return Err(LiveError::new(what, with_remedy(why, "observe the whole system, as root")));
        }
        let cannot_leave_out = events.iter().any(|event| event.kind == Kind::Ibs(None));
        let scope = match Scope::new(&options.target) {
            Scope::Own if reach.kernel && cannot_leave_out => Scope::Kernel,
            scope => scope,
        };
        Err(LiveError::refused(what, &refusal, scope))
    }

    fn reading(
        mut rings: Rings,
        events: &[MemoryEvent],
        wanted: &[Wanted],
        options: &PerfOptions,
        reach: Reach,
    ) -> Result<Self, Refusal> {
        let mut decoder = Decoder::default();
        decoder.session.features = features(Path::new("/sys"));
        if events.iter().any(MemoryEvent::is_spe) {
            decoder.session.features.cores = spe_events::cores().map_err(|error| Refusal::Event(None, error))?;
            decoder.spe = Some(spe_events::queues());
        } else {
            decoder.session.features.cycles_per_ns = Some(cycles_per_ns());
        }
        let mut notes = Vec::new();
        for ((event, wanted), ids) in events.iter().zip(wanted).zip(&rings.ids) {
            let period = event.period(options.pace).unwrap_or(0);
            let sample_type = wanted.builder.attrs().sample_type;
            let attribute = Attribute::live(&event.name, sample_type, period, ids.clone());
            notes.push(if event.is_spe() { spe_events::note(event, options) } else { note(&attribute) });
            decoder.session.add_attribute(attribute);
        }
        // The context switch events.
        for (wanted, ids) in wanted.iter().zip(&rings.ids).skip(events.len()) {
            let sample_type = wanted.builder.attrs().sample_type;
            decoder.session.add_attribute(Attribute::live("dummy", sample_type, 1, ids.clone()));
        }
        if let Some(first) = notes.first_mut() {
            if !reach.kernel {
                first.cannot_see.push("The kernel's own accesses are not sampled.".to_owned());
            }
            if !reach.physical {
                first.cannot_see.push(
                    "Without CAP_PERFMON there are no physical addresses: with more than two nodes, it is unknown \
                     which one served a remote access."
                        .to_owned(),
                );
            }
        }
        rings.enable(&options.target)?;
        let not = (options.target == Target::Program).then(|| Pid(std::process::id()));
        let events = events.to_vec();
        let spe_clock = decoder.spe.is_some().then(LiveClock::new);
        Ok(Self { rings, events, decoder, spe_clock, user_only: options.user_only, not, notes })
    }

    /// The events, and what each cannot see.
    pub fn notes(&self) -> Vec<SourceNote> {
        self.notes.clone()
    }

    /// Returns the samples since the last call, in time order. Data of Arm's SPE come in portions, each when a CPU
    /// has enough of them, so some samples are later than other events. Never blocks.
    pub fn drain(&mut self, stacks: &mut Stacks, samples: &mut Vec<Sample>, _events: &mut Vec<Event>) {
        std::mem::swap(stacks, &mut self.decoder.stacks);
        self.rings.drain(|kind, misc, body| {
            self.decoder.take(kind, misc, Bytes(body));
        });
        std::mem::swap(stacks, &mut self.decoder.stacks);
        if let Some(spe) = &mut self.decoder.spe {
            let lost = self.rings.drain_aux(|cpu, offset, data| {
                spe.add(cpu, Buffer { offset, held: Held::InMemory(data.to_vec()) });
            });
            self.decoder.lose("overwritten bytes of Arm's SPE data", lost);
        }
        if let Some(clock) = &mut self.spe_clock {
            clock.look();
            self.decoder.take_live_spe(|ticks| clock.ns(ticks));
        }
        let (mut taken, _) = self.decoder.finish();
        taken.sort_by_key(|sample| sample.time_ns);
        let unwanted = |sample: &Sample| self.user_only && sample.kernel || self.not == Some(sample.pid);
        samples.extend(taken.into_iter().filter(|sample| !unwanted(sample)));
    }

    /// Ends sampling, and returns the remaining samples.
    pub fn finish(&mut self, stacks: &mut Stacks, samples: &mut Vec<Sample>, events: &mut Vec<Event>) {
        if self.rings.disable().is_err() {
            self.decoder.lose("failures to stop sampling", 1);
        }
        self.drain(stacks, samples, events);
        let lost = self.rings.take_losses();
        self.decoder.lose(LOST_BY_KERNEL, lost);
    }

    /// From now on, takes `hz` samples per second on each CPU, if the source was opened with a rate.
    pub fn set_rate(&mut self, hz: u64) {
        let Self { rings, events, .. } = self;
        rings.set_periods(|index| events.get(index).map(|event| event.period(Pace::Rate(hz)).unwrap_or(hz)));
    }

    /// Pauses sampling until [`go_on`](Self::go_on).
    pub fn rest(&mut self) {
        if self.rings.disable().is_err() {
            self.decoder.lose("failures to pause sampling", 1);
        }
    }

    /// Resumes sampling.
    pub fn go_on(&mut self) {
        if self.rings.enable_now().is_err() {
            self.decoder.lose("failures to resume sampling", 1);
        }
    }

    /// Losses so far, and how often the kernel throttled sampling because it took too long.
    pub fn lost(&self) -> Vec<Loss> {
        self.decoder.lost.clone()
    }
}

impl Reach {
    /// From the most to the least.
    fn all(user_only: bool) -> Vec<Self> {
        let all = [(true, true), (true, false), (false, true), (false, false)];
        let all = all.map(|(kernel, physical)| Self { kernel, physical });
        // Where the event cannot exclude the kernel, its samples are discarded.
        if user_only { [&all[2..], &all[..2]].concat() } else { all.to_vec() }
    }
}

impl MemoryEvent {
    fn is_ibs(&self) -> bool {
        matches!(self.kind, Kind::Ibs(_))
    }

    pub(super) fn is_spe(&self) -> bool {
        matches!(self.kind, Kind::Spe(..))
    }

    /// The event's period; `None` if the kernel adapts it.
    pub(super) fn period(&self, pace: Pace) -> Option<u64> {
        match (self.kind, pace) {
            (Kind::Spe(_, shortest), _) => Some(spe_events::period(pace, shortest)),
            (Kind::Ibs(_), Pace::Period(period)) => Some(period.div_ceil(IBS_UNIT).max(9).saturating_mul(IBS_UNIT)),
            (Kind::Counter, Pace::Period(period)) => Some(period.max(1)),
            (_, Pace::Rate(_)) => None,
        }
    }
}

/// The event to open; `None` if it cannot be opened with this reach.
fn wanted(event: &MemoryEvent, options: &PerfOptions, reach: Reach) -> Option<Wanted> {
    let config = match (event.kind, reach.kernel) {
        (Kind::Ibs(without_kernel), false) => without_kernel?,
        (Kind::Spe(with_physical, _), _) if reach.physical => with_physical,
        _ => event.config,
    };
    let mut builder = config.builder();
    builder.exclude_kernel(!reach.kernel).exclude_callchain_kernel(true);
    match (event.period(options.pace), options.pace) {
        (Some(period), _) | (None, Pace::Period(period)) => builder.sample_period(period),
        (None, Pace::Rate(rate)) => builder.sample_frequency(rate),
    };
    if event.is_spe() {
        return Some(spe_events::wanted(builder, event.cpus.clone()));
    }
    // AMD's processors have no hypervisor mode to exclude.
    builder.exclude_hv(!event.is_ibs());
    let mut sample_type = SAMPLE_TYPE;
    for (wanted, field) in
        [(reach.physical, has::PHYS_ADDR), (options.stacks, has::CALLCHAIN), (event.is_ibs(), has::RAW)]
    {
        sample_type |= if wanted { field } else { 0 };
    }
    let attributes = builder.attrs_mut();
    attributes.set_precise_ip(event.precise.into());
    attributes.sample_type = sample_type;
    let leader = event.leader.map(|leader| {
        let mut leader = leader.builder();
        leader.exclude_kernel(!reach.kernel);
        leader
    });
    Some(Wanted { leader, cpus: event.cpus.clone(), ..Wanted::new(builder) })
}

fn unsupported() -> Refusal {
    Refusal::Event(None, Errno::OPNOTSUPP.into())
}

/// The most samples per second that the kernel allows.
pub(super) fn most_rate() -> Option<u64> {
    fs::read_to_string(MOST_RATE).ok()?.trim().parse().ok()
}

fn check_rate(pace: Pace) -> Result<(), linux::Diagnosis> {
    match (pace, most_rate()) {
        (Pace::Rate(rate), Some(most)) if rate > most => Err(with_remedy(
            format!("{rate} samples per second exceed the {most} that kernel.perf_event_max_sample_rate allows"),
            format!("sudo sysctl kernel.perf_event_max_sample_rate={rate}"),
        )),
        _ => Ok(()),
    }
}

/// Frequency of the time stamp counter, in which processors count latencies, as measured over a few ms.
fn cycles_per_ns() -> f64 {
    let (ticks, ns) = tsc_and_monotonic_ns();
    sleep(Duration::from_millis(4));
    let (later_ticks, later_ns) = tsc_and_monotonic_ns();
    later_ticks.wrapping_sub(ticks) as f64 / later_ns.saturating_sub(ns).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::pmu::Config;
    use super::*;
    use linux::{Pid, monotonic_ns};
    use std::process::Command;
    use trace::{AccessKind, Source};

    /// A software event in place of a processor's: page faults have addresses as well.
    fn page_faults(name: &str, number: u64) -> MemoryEvent {
        const SOFTWARE: u32 = 1;
        let config = Config { pmu: SOFTWARE, words: [number, 0, 0, 0] };
        MemoryEvent { name: name.to_owned(), config, leader: None, precise: 0, cpus: None, kind: Kind::Counter }
    }

    fn opened(events: &[MemoryEvent], options: &PerfOptions) -> Option<PerfSource> {
        let opened = PerfSource::open_events(events, options);
        let reasons = ["perf_event_paranoid", "seccomp", "perf_event_mlock_kb"];
        opened
            .inspect_err(|error| {
                test_tools::skipped(error);
                assert!(reasons.iter().any(|reason| error.to_string().contains(reason)), "{error}");
            })
            .ok()
    }

    #[test]
    fn a_program_is_sampled_from_its_first_instruction_by_several_events() {
        let events = [page_faults("page-faults", 2), page_faults("cpu/mem-loads/", 5)];
        let options = PerfOptions { pace: Pace::Period(1), stacks: true, user_only: true, ..PerfOptions::default() };
        let Some(mut source) = opened(&events, &options) else { return };
        let began = monotonic_ns();
        let mut child = Command::new("true").spawn().unwrap();
        let pid = Pid(child.id());
        child.wait().unwrap();
        let (mut stacks, mut samples) = (Stacks::new(), Vec::new());
        source.drain(&mut stacks, &mut samples, &mut Vec::new());
        let ended = monotonic_ns();
        assert!(source.lost().is_empty(), "{:?}", source.lost());
        assert!(samples.is_sorted_by_key(|sample| sample.time_ns) && !samples.is_empty());
        for sample in &samples {
            assert_eq!((sample.pid, sample.kernel, sample.kind), (pid, false, AccessKind::Unknown));
            assert!((began..ended).contains(&sample.time_ns) && sample.weight <= 1.0 && sample.address > 0);
        }
        // Faults that need no input count for both events; each sample names its event.
        let of = |source| samples.iter().filter(move |sample| sample.source == source).map(|sample| sample.address);
        assert!(of(Source::Perf).count() >= of(Source::Pebs).count() && of(Source::Pebs).count() > 10);
        assert!(of(Source::Pebs).all(|address| of(Source::Perf).any(|other| other == address)));
        let sources: Vec<Source> = source.notes().iter().map(|note| note.source).collect();
        assert_eq!(sources, [Source::Perf, Source::Pebs]);
    }

    #[test]
    fn it_rests_and_goes_on_and_changes_its_rate() {
        let options = PerfOptions {
            target: Target::Pids(vec![Pid(std::process::id())]),
            pace: Pace::Period(1),
            user_only: true,
            ..PerfOptions::default()
        };
        let Some(mut source) = opened(&[page_faults("page-faults", 2)], &options) else { return };
        source.not = None;
        let seen = |source: &mut PerfSource| {
            let mut memory = linux::Pages::reserve(8 << 20).unwrap();
            memory.advise_huge(false).unwrap();
            let range = memory.range();
            let words = memory.fill(|word| word as u64);
            assert!(!words.is_empty());
            let mut samples = Vec::new();
            source.drain(&mut Stacks::new(), &mut samples, &mut Vec::new());
            samples.iter().filter(|sample| range.contains(&sample.address)).count()
        };
        assert!(seen(&mut source) > 1000);
        source.rest();
        seen(&mut source);
        assert_eq!(seen(&mut source), 0);
        source.go_on();
        assert!(seen(&mut source) > 1000);
        source.set_rate(50);
        assert!(seen(&mut source) > 0);
        assert!(source.lost().is_empty(), "{:?}", source.lost());
    }

    #[test]
    fn what_cannot_be_opened_is_reported() {
        let odd = page_faults("odd", 1 << 40);
        let error = PerfSource::open_events(&[odd], &PerfOptions::default()).err().unwrap().to_string();
        assert!(error.starts_with("cannot sample accesses to memory (perf, odd): "), "{error}");
        let options = PerfOptions { pace: Pace::Rate(u64::MAX), ..PerfOptions::default() };
        let error = PerfSource::open_events(&[page_faults("fast", 2)], &options).err().unwrap().to_string();
        assert!(error.contains("perf_event_max_sample_rate"), "{error}");
    }

    #[test]
    fn each_event_is_opened_as_it_can_be() {
        let without_kernel = Config { pmu: 9, words: [1 << 19, 0, 1, 0] };
        let ibs = |without| MemoryEvent { kind: Kind::Ibs(without), ..page_faults("ibs_op/cnt_ctl=1/", 1 << 19) };
        let options = PerfOptions { pace: Pace::Period(1001), ..PerfOptions::default() };
        let user = Reach { kernel: false, physical: true };
        let opened = |event: &MemoryEvent, reach| wanted(event, &options, reach).map(|wanted| *wanted.builder.attrs());
        assert!(opened(&ibs(None), user).is_none());
        let event = opened(&ibs(Some(without_kernel)), user).unwrap();
        assert_eq!((event.type_, event.config, event.config2, event.exclude_kernel()), (9, 1 << 19, 1, 1));
        assert_eq!((event.sample_period, event.exclude_hv()), (1008, 0));
        assert_eq!(event.sample_type & (has::RAW | has::PHYS_ADDR | has::CALLCHAIN), has::RAW | has::PHYS_ADDR);
        let all = Reach { kernel: true, physical: false };
        let event = opened(&MemoryEvent { precise: 2, ..page_faults("cpu/mem-stores/", 0x82d0) }, all).unwrap();
        assert_eq!((event.sample_period, event.precise_ip(), event.exclude_kernel()), (1001, 2, 0));
        assert_eq!(event.sample_type, SAMPLE_TYPE);
        // With `user_only`, the attempts that exclude the kernel come first.
        let order = Reach::all(true).iter().map(|reach| reach.kernel).collect::<Vec<_>>();
        assert_eq!(
            (order, Reach::all(false)[0]),
            (vec![false, false, true, true], Reach { kernel: true, physical: true })
        );
    }

    /// The measured frequency is one that processors have.
    #[test]
    fn cycles_are_those_of_a_processor() {
        let speed = cycles_per_ns();
        assert!((0.1..10.0).contains(&speed), "{speed} GHz");
    }
}
