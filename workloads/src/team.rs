//! The threads of a workload: their CPUs and their times.

use crate::barrier::Barrier;
use crate::error::Error;
use crate::team_options::parse_count;
use crate::team_options::{Options, RivalsOptions};
use machine::{CpuId, CpuSet, Places};
use rustix::thread::{CpuSet as Affinity, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize, Serializer};
use std::sync::OnceLock;
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

/// Number of threads and their CPUs.
#[derive(Debug, Serialize)]
pub struct Team {
    /// How many threads.
    pub threads: usize,
    /// Thread `i` runs on the `i`-th of these; without them, anywhere.
    #[serde(serialize_with = "as_list")]
    pin: Option<Places>,
    /// The CPU that fills memory; without it, any.
    touch_cpu: Option<CpuId>,
    /// The CPUs that threads may be bound to.
    #[serde(skip)]
    cpus: CpuSet,
    #[serde(skip)]
    allowed: CpuSet,
}

/// Ascending CPUs as a set, `0-3`, and others as OpenMP's places.
#[allow(clippy::ref_option, reason = "serde passes it so")]
fn as_list<S: Serializer>(pin: &Option<Places>, serializer: S) -> Result<S::Ok, S::Error> {
    let text = pin.as_ref().map(|places| {
        let all = union(places);
        let is_ascending = places.0.iter().map(CpuSet::len).sum::<usize>() == all.len()
            && places.0.iter().all(|place| place.len() == 1)
            && places.0.is_sorted_by_key(CpuSet::first);
        if is_ascending { all.to_string() } else { places.to_string() }
    });
    text.serialize(serializer)
}

fn union(places: &Places) -> CpuSet {
    places.0.iter().flat_map(CpuSet::iter).collect()
}

/// What OpenMP programs read from the environment.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    places: Option<Places>,
    threads: Option<usize>,
}

impl Environment {
    /// From `OMP_PLACES` and `OMP_NUM_THREADS`.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let places = variable("OMP_PLACES").map(|text| text.parse().map_err(Error::Places)).transpose()?;
        let threads = variable("OMP_NUM_THREADS");
        let threads = threads.map(|text| parse_count(&text).map_err(|_| Error::Threads(text))).transpose()?;
        Ok(Self { places, threads })
    }
}

/// One round of work by all threads.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// When the first thread started.
    pub start: Instant,
    /// When the last thread finished.
    pub end: Instant,
    /// Sum of the threads' times.
    pub busy: Duration,
}

impl Round {
    /// Duration of the round, seconds.
    pub fn seconds(&self) -> f64 {
        (self.end - self.start).as_secs_f64()
    }

    fn join(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end), busy: self.busy + other.busy }
    }
}

/// Time and duration of the rounds that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// When the first round began, `CLOCK_MONOTONIC`, ns.
    pub began_ns: u64,
    /// From then to the end of the last, s.
    pub seconds: f64,
}

impl Span {
    /// Of all of these rounds; `None` if there are none.
    pub fn from_rounds(rounds: &[Round]) -> Self {
        let ends = rounds.first().zip(rounds.last());
        ends.map_or(Self::default(), |(first, last)| Self::between(first.start, last.end))
    }

    /// From one time to another.
    pub fn between(start: Instant, end: Instant) -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        let began = Duration::new(now.tv_sec as u64, now.tv_nsec as u32).saturating_sub(start.elapsed());
        Self { began_ns: began.as_nanos() as u64, seconds: (end - start).as_secs_f64() }
    }

    /// From the earlier start to the later end.
    pub fn join(self, other: Self) -> Self {
        let began_ns = self.began_ns.min(other.began_ns);
        let until = |span: Self| (span.began_ns - began_ns) as f64 / 1e9 + span.seconds;
        Self { began_ns, seconds: until(self).max(until(other)) }
    }
}

/// Duration from the start of the first round to the end of the last, seconds.
pub fn seconds(rounds: &[Round]) -> f64 {
    Span::from_rounds(rounds).seconds
}

/// The CPUs that this process may run on, of the first 1,024: rustix's sets end there.
pub fn allowed_cpus() -> Result<CpuSet, Error> {
    let affinity = sched_getaffinity(None).map_err(Error::Affinity)?;
    Ok((0..Affinity::MAX_CPU).filter(|&cpu| affinity.is_set(cpu)).map(|cpu| CpuId(cpu as u32)).collect())
}

impl Team {
    /// The team for these options, in a process that may run on `allowed`. `default_threads` is for verbs that do not
    /// use every CPU by default. Options have precedence over the environment.
    pub fn new(
        options: &Options,
        environment: &Environment,
        default_threads: Option<usize>,
        allowed: CpuSet,
    ) -> Result<Self, Error> {
        let pin = options.pin.as_ref().or(environment.places.as_ref());
        if let Some(pins) = pin {
            let option = if options.pin.is_some() { "--pin" } else { "OMP_PLACES" };
            check(option, union(pins), &allowed)?;
        }
        if let Some(cpu) = options.touch_cpu {
            check("--touch-cpu", [cpu].into_iter().collect(), &allowed)?;
        }
        let cpus = pin.map_or_else(|| allowed.clone(), union);
        let of_environment = environment.threads.filter(|_| options.pin.is_none());
        let all = pin.map_or(allowed.len(), Places::cpus);
        let threads = options.threads.or(default_threads).or(of_environment).unwrap_or(all);
        if let Some(pins) = options.pin.as_ref().filter(|pins| pins.cpus() < threads) {
            return Err(Error::FewerPins { threads, pins: pins.clone() });
        }
        let least = threads as u64 * machine::SMALL_PAGE;
        if options.size < least {
            return Err(Error::SmallerThanThreads { bytes: options.size, threads, least });
        }
        let touch_cpu = options.touch_cpu.or_else(|| options.pin.as_ref()?.0.first()?.first());
        Ok(Self { threads, pin: pin.cloned(), touch_cpu, cpus, allowed })
    }

    /// The team of the rivals, one for each CPU in the options; `None` if there are none.
    pub fn of_rivals(options: &RivalsOptions, allowed: CpuSet) -> Result<Option<Self>, Error> {
        let Some(pins) = options.rivals.clone().filter(|pins| !pins.is_empty()) else { return Ok(None) };
        check("--rivals", pins.clone(), &allowed)?;
        if let Some(cpu) = options.rivals_touch_cpu {
            check("--rivals-touch-cpu", [cpu].into_iter().collect(), &allowed)?;
        }
        let places = Places(pins.iter().map(|cpu| CpuSet::from_iter([cpu])).collect());
        let touch_cpu = options.rivals_touch_cpu;
        Ok(Some(Self { threads: pins.len(), pin: Some(places), touch_cpu, cpus: pins, allowed }))
    }

    /// Runs `fill` on the CPU that should touch memory first.
    pub fn touch<T>(&self, fill: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        self.touch_on(self.touch_cpu, fill)
    }

    /// Runs `fill` for each thread, on the CPU that should touch memory first, if one was given, and otherwise on the
    /// thread's own.
    pub fn touch_each<T>(&self, fill: impl Fn() -> Result<T, Error>) -> Result<Vec<T>, Error> {
        let touch_cpu = self.touch_cpu.map(|cpu| CpuSet::from_iter([cpu]));
        let touch = |thread| self.touch_in(touch_cpu.as_ref().or_else(|| self.place(thread)), &fill);
        (0..self.threads).map(touch).collect()
    }

    /// Where a thread runs; `None` for anywhere.
    fn place(&self, thread: usize) -> Option<&CpuSet> {
        self.pin.as_ref()?.of_thread(thread, self.threads)
    }

    /// The CPUs that threads are bound to, thread by thread; the first of each place.
    pub fn pins(&self) -> impl Iterator<Item = CpuId> {
        (0..self.threads).filter_map(|thread| self.place(thread)?.first())
    }

    /// The CPUs that threads may be bound to: those of `--pin`, or all that are allowed.
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// The CPUs that this process may run on.
    pub fn allowed(&self) -> &CpuSet {
        &self.allowed
    }

    /// Runs `fill` on a CPU, or on any.
    pub fn touch_on<T>(&self, cpu: Option<CpuId>, fill: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        self.touch_in(cpu.map(|cpu| CpuSet::from_iter([cpu])).as_ref(), fill)
    }

    /// In this thread, which has none beside it yet: so do programs that read their data first and make threads then.
    fn touch_in<T>(&self, cpus: Option<&CpuSet>, fill: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        self.move_to(cpus)?;
        let filled = fill();
        self.move_to(None)?;
        filled
    }

    /// Gives each thread one part and runs `work` on it `rounds` times. Every round starts at a barrier. `work` gets
    /// the round's number, from 0.
    ///
    /// # Panics
    /// If `work` panics.
    pub fn rounds<P: Send>(
        &self,
        parts: Vec<P>,
        rounds: usize,
        work: impl Fn(&mut P, usize) + Sync,
    ) -> Result<Vec<Round>, Error> {
        let barrier = std::sync::Barrier::new(parts.len());
        self.meeting(parts, rounds, work, || _ = barrier.wait())
    }

    /// The same, with threads that wait for each other as those of OpenMP programs do.
    ///
    /// # Panics
    /// If `work` panics.
    pub fn parallel_rounds<P: Send>(
        &self,
        parts: Vec<P>,
        rounds: usize,
        work: impl Fn(&mut P, usize) + Sync,
    ) -> Result<Vec<Round>, Error> {
        let barrier = Barrier::new(parts.len());
        self.meeting(parts, rounds, work, || barrier.wait())
    }

    /// Rounds of threads that call `meet` before each.
    fn meeting<P: Send>(
        &self,
        parts: Vec<P>,
        rounds: usize,
        work: impl Fn(&mut P, usize) + Sync,
        meet: impl Fn() + Sync,
    ) -> Result<Vec<Round>, Error> {
        let threads = parts.len();
        let timed = |mut part: P| {
            let round = |round| {
                meet();
                let start = Instant::now();
                work(&mut part, round);
                let end = Instant::now();
                Round { start, end, busy: end - start }
            };
            (0..rounds).map(round).collect::<Vec<_>>()
        };
        // Threads wait here until all of them exist: at the barrier they would wait for ever if one cannot be started.
        let all_started = OnceLock::new();
        let worker = |part| if *all_started.wait() { timed(part) } else { Vec::new() };
        thread::scope(|scope| {
            let start = |(thread, part)| {
                self.move_to(self.place(thread))?;
                let worker = &worker;
                Builder::new().spawn_scoped(scope, move || worker(part)).map_err(|error| Error::Thread {
                    thread,
                    threads,
                    error,
                })
            };
            let workers: Result<Vec<_>, _> = parts.into_iter().enumerate().map(start).collect();
            all_started.get_or_init(|| workers.is_ok());
            let of_threads = workers?.into_iter().map(|worker| match worker.join() {
                Ok(rounds) => rounds,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            let join = |all: Vec<Round>, one: Vec<Round>| all.into_iter().zip(one).map(|(a, b)| a.join(b)).collect();
            Ok(of_threads.reduce(join).unwrap_or_default())
        })
    }

    /// Binds this thread, and so the threads that it starts from now on, to some CPUs or to all that are allowed.
    fn move_to(&self, cpus: Option<&CpuSet>) -> Result<(), Error> {
        let mut affinity = Affinity::new();
        cpus.unwrap_or(&self.allowed).iter().for_each(|cpu| affinity.set(cpu.0 as usize));
        sched_setaffinity(None, &affinity).map_err(|error| match cpus {
            Some(cpus) => Error::Pin { cpus: cpus.clone(), error },
            None => Error::Unpin(error),
        })
    }
}

/// Rejects CPUs that this process may not run on.
fn check(option: &'static str, wanted: CpuSet, allowed: &CpuSet) -> Result<(), Error> {
    let refused: CpuSet = wanted.iter().filter(|&cpu| !allowed.contains(cpu)).collect();
    if refused.is_empty() {
        Ok(())
    } else {
        Err(Error::NotAllowed { option, wanted, refused, allowed: allowed.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    fn options(pin: Option<&str>, threads: Option<usize>, touch_cpu: Option<u32>) -> Options {
        let pin = pin.map(|pin| pin.parse().unwrap());
        Options { size: 1 << 20, threads, repeat: 1, pin, touch_cpu: touch_cpu.map(CpuId), json: false }
    }

    fn team(pin: Option<&str>, threads: Option<usize>, touch_cpu: Option<u32>) -> Result<Team, Error> {
        Team::new(&options(pin, threads, touch_cpu), &Environment::default(), None, "0-5,8".parse().unwrap())
    }

    #[test]
    fn threads_come_from_what_is_said_or_the_pins_or_the_allowed_cpus() {
        assert_eq!(team(None, None, None).unwrap().threads, 7);
        assert_eq!(team(Some("1,8"), None, None).unwrap().threads, 2);
        assert_eq!(team(Some("1-5"), Some(3), None).unwrap().threads, 3);
        assert_eq!(team(None, Some(100), None).unwrap().threads, 100);
        let one = |pin| {
            Team::new(&options(pin, None, None), &Environment::default(), Some(1), "0-3".parse().unwrap())
                .unwrap()
                .threads
        };
        assert_eq!((one(None), one(Some("2-3"))), (1, 1));
    }

    #[test]
    fn threads_follow_the_order_of_pins_and_of_openmps_places() {
        let with = |variables: &[(&str, &str)], pin| {
            let of =
                |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            Team::new(&options(pin, None, None), &Environment::read(of)?, None, "0-7".parse().unwrap())
        };
        let pins = |team: Team| team.pins().map(|cpu| cpu.0).collect::<Vec<_>>();
        assert_eq!(pins(with(&[], Some("4,0,5,1")).unwrap()), [4, 0, 5, 1]);
        let places = ("OMP_PLACES", "{0},{4},{1},{5}");
        assert_eq!(pins(with(&[places], None).unwrap()), [0, 4, 1, 5]);
        assert_eq!(pins(with(&[places], Some("3,2")).unwrap()), [3, 2]);
        assert_eq!(pins(with(&[places, ("OMP_NUM_THREADS", "2")], None).unwrap()), [0, 4]);
        let nodes = with(&[("OMP_PLACES", "{0-3},{4-7}")], None).unwrap();
        assert_eq!(nodes.place(3).unwrap().to_string(), "0-3");
        assert_eq!(
            (pins(nodes).as_slice(), with(&[("OMP_NUM_THREADS", "3")], None).unwrap().threads),
            (&[0, 0, 0, 0, 4, 4, 4, 4][..], 3)
        );
        for wrong in [("OMP_PLACES", "cores"), ("OMP_NUM_THREADS", "0"), ("OMP_PLACES", "{9}")] {
            assert!(with(&[wrong], None).is_err(), "{wrong:?}");
        }
        let pin = |pin: &'static str| serde_json::to_value(with(&[], Some(pin)).unwrap()).unwrap()["pin"].clone();
        assert_eq!((pin("0-3"), pin("1,0")), ("0-3".into(), "{1},{0}".into()));
    }

    #[test]
    fn memory_is_touched_on_the_first_threads_cpu_unless_said_otherwise() {
        assert_eq!(team(Some("2-4"), None, None).unwrap().touch_cpu, Some(CpuId(2)));
        assert_eq!(team(Some("2-4"), None, Some(8)).unwrap().touch_cpu, Some(CpuId(8)));
        assert_eq!(team(None, None, None).unwrap().touch_cpu, None);
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        assert!(matches!(team(Some("5-8"), None, None), Err(Error::NotAllowed { refused, .. }) if refused.len() == 2));
        assert!(matches!(team(None, None, Some(6)), Err(Error::NotAllowed { option: "--touch-cpu", .. })));
        assert!(matches!(team(Some("0-2"), Some(4), None), Err(Error::FewerPins { threads: 4, .. })));
        assert!(matches!(team(None, Some(257), None), Err(Error::SmallerThanThreads { least: 1_052_672, .. })));
    }

    #[test]
    fn rounds_do_not_overlap_and_everyone_works_in_each() {
        let team =
            Team::new(&options(None, Some(4), None), &Environment::default(), None, allowed_cpus().unwrap()).unwrap();
        let done = AtomicUsize::new(0);
        let rounds = team
            .rounds(vec![1, 10, 100, 1000], 50, |part, round| {
                // Others may already have finished this round, but not the next.
                assert!((4 * round..4 * (round + 1)).contains(&done.load(SeqCst)));
                *part += 1;
                done.fetch_add(1, SeqCst);
            })
            .unwrap();
        assert_eq!((rounds.len(), done.into_inner()), (50, 200));
        assert!(rounds.windows(2).all(|pair| pair[0].end <= pair[1].start));
        assert!(rounds.iter().all(|round| round.busy.as_secs_f64() <= 4.0 * round.seconds()));
    }

    #[test]
    fn threads_run_where_they_are_pinned() {
        let allowed = allowed_cpus().unwrap();
        let pins = allowed.to_string();
        let last = allowed.iter().next_back().unwrap();
        let options = options(Some(&pins), None, Some(last.0));
        let team = Team::new(&options, &Environment::default(), None, allowed.clone()).unwrap();
        let here = || allowed_cpus().unwrap().to_string();
        assert_eq!(team.touch(|| Ok(here())).unwrap(), last.to_string());
        let seen: Vec<_> = allowed.iter().map(|cpu| (cpu, OnceLock::new())).collect();
        team.rounds(seen.iter().collect(), 1, |(_, seen), _| seen.set(here()).unwrap()).unwrap();
        assert!(seen.iter().all(|(cpu, seen)| seen.get() == Some(&cpu.to_string())));
    }
}
