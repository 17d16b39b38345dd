//! Keeps virtual CPUs together in simulated time. Each has a time of its own; one that runs ahead of the slowest active
//! one waits. The guest's clock shows the slowest active one's time. Halted ones do not count, and while all are halted
//! time passes as on the host.

use crate::clock::Clock;
use model::Model;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How far a CPU may be ahead of the slowest when it reports, ps. A report is due every [`REPORT_PS`], so that no CPU
/// is further ahead than the sum: less than two of the model's windows, as it asks.
const AHEAD_PS: u64 = 50_000_000;
/// How near the slowest must have come before one that waits goes on, ps: well below [`AHEAD_PS`], or it would wait
/// again at its next report.
const NEAR_PS: u64 = 10_000_000;
/// How often a CPU reports, ps of its own time.
pub(crate) const REPORT_PS: u64 = 8_000_000;

struct Times {
    /// Simulated time since the measured command began, ps.
    now_ps: u64,
    /// What the guest's clock showed then, ns.
    epoch_ns: u64,
    measuring: bool,
    cpus: Vec<Cpu>,
    /// Counts the rounds in which waiting CPUs were let go although the slowest had not moved.
    released: u64,
}

#[derive(Clone)]
struct Cpu {
    reported_ps: u64,
    active: bool,
    waiting: bool,
}

/// The pace of all CPUs.
pub(crate) struct Pace {
    times: Mutex<Times>,
    go: Vec<Condvar>,
    clock: &'static Clock,
}

impl Pace {
    pub(crate) fn new(cpus: usize, clock: &'static Clock) -> Self {
        let cpu = Cpu { reported_ps: 0, active: false, waiting: false };
        let times = Times { now_ps: 0, epoch_ns: 0, measuring: false, cpus: vec![cpu; cpus], released: 0 };
        Self { times: Mutex::new(times), go: (0..cpus).map(|_| Condvar::new()).collect(), clock }
    }

    fn lock(&self) -> MutexGuard<'_, Times> {
        // Nothing below panics half-way through a change, so a poisoned lock still guards whole values.
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Simulated time begins at 0 for every CPU. This one runs; of others it will be seen.
    pub(crate) fn start(&self, running: usize) {
        let mut times = self.lock();
        times.epoch_ns = self.clock.now_ns();
        times.now_ps = 0;
        times.measuring = true;
        for (index, cpu) in times.cpus.iter_mut().enumerate() {
            *cpu = Cpu { reported_ps: 0, active: index == running, waiting: false };
        }
        self.set_clock(&times);
    }

    /// Simulated time ends; the guest's clock goes on with the host's. Returns how long it was, ps.
    pub(crate) fn stop(&self) -> u64 {
        let mut times = self.lock();
        self.catch_up(&mut times);
        times.measuring = false;
        self.clock.run_with_host();
        for go in &self.go {
            go.notify_one();
        }
        times.now_ps
    }

    /// A CPU says how far it is, and waits until the slowest is near. Returns its time, ps, which is later than it said
    /// only where nobody knew that it runs.
    pub(crate) fn report(&self, cpu: usize, time_ps: u64, model: &Model) -> u64 {
        let mut times = self.lock();
        if !times.measuring {
            return time_ps;
        }
        let time_ps = if times.cpus[cpu].active { time_ps } else { self.activate(&mut times, cpu, time_ps, model) };
        times.cpus[cpu].reported_ps = time_ps;
        self.advance(&mut times, model);
        let released = times.released;
        let mut lead_ps = AHEAD_PS;
        while times.measuring && time_ps > times.now_ps + lead_ps && times.released == released {
            lead_ps = NEAR_PS;
            times.cpus[cpu].waiting = true;
            times = self.go[cpu].wait(times).unwrap_or_else(PoisonError::into_inner);
        }
        times.cpus[cpu].waiting = false;
        time_ps
    }

    /// Lets every waiting CPU take one more step. Called now and then while nothing moves: the slowest CPU may itself
    /// be waiting inside QEMU until the others leave the code they run, which they cannot while they wait here.
    pub(crate) fn release(&self) {
        let mut times = self.lock();
        times.released += 1;
        for (cpu, go) in times.cpus.iter().zip(&self.go) {
            if cpu.waiting {
                go.notify_one();
            }
        }
    }

    /// The CPU that the others wait for.
    pub(crate) fn slowest(&self) -> Option<usize> {
        let times = self.lock();
        let active = times.cpus.iter().enumerate().filter(|(_, cpu)| cpu.active);
        active.min_by_key(|(_, cpu)| cpu.reported_ps).map(|(index, _)| index)
    }

    /// A CPU halts at a time.
    pub(crate) fn idle(&self, cpu: usize, time_ps: u64, model: &Model) {
        let mut times = self.lock();
        times.cpus[cpu].active = false;
        if !times.measuring {
            return;
        }
        if times.cpus.iter().any(|cpu| cpu.active) {
            self.advance(&mut times, model);
        } else {
            times.now_ps = times.now_ps.max(time_ps);
            self.set_clock(&times);
            self.clock.run_with_host();
        }
    }

    /// A CPU goes on after a halt. Returns its time, ps, which is not before what it had.
    pub(crate) fn resume(&self, cpu: usize, time_ps: u64, model: &Model) -> u64 {
        self.activate(&mut self.lock(), cpu, time_ps, model)
    }

    fn activate(&self, times: &mut Times, cpu: usize, time_ps: u64, model: &Model) -> u64 {
        self.catch_up(times);
        model.advance(times.now_ps);
        let time_ps = time_ps.max(times.now_ps);
        times.cpus[cpu] = Cpu { reported_ps: time_ps, active: true, waiting: false };
        if times.measuring {
            self.set_clock(times);
        }
        time_ps
    }

    /// Simulated time since the start, ps.
    pub(crate) fn now_ps(&self) -> u64 {
        let mut times = self.lock();
        self.catch_up(&mut times);
        times.now_ps
    }

    /// While all CPUs are halted the clock runs with the host: take its time over.
    fn catch_up(&self, times: &mut Times) {
        if times.measuring && times.cpus.iter().all(|cpu| !cpu.active) {
            times.now_ps = times.now_ps.max(self.clock.now_ns().saturating_sub(times.epoch_ns) * 1000);
        }
    }

    fn advance(&self, times: &mut Times, model: &Model) {
        let slowest = times.cpus.iter().filter(|cpu| cpu.active).map(|cpu| cpu.reported_ps).min();
        let Some(slowest) = slowest.filter(|&slowest| slowest > times.now_ps) else { return };
        times.now_ps = slowest;
        self.set_clock(times);
        model.advance(slowest);
        for (cpu, go) in times.cpus.iter().zip(&self.go) {
            if cpu.waiting && cpu.reported_ps <= slowest + NEAR_PS {
                go.notify_one();
            }
        }
    }

    fn set_clock(&self, times: &Times) {
        self.clock.stand_at(times.epoch_ns + times.now_ps / 1000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::presets;
    use model::{Mechanisms, MemoryRange};
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use std::thread;

    const CPUS: usize = 4;

    fn model() -> Model {
        let memory = [0, 1].map(|node| MemoryRange { start: node << 30, end: (node + 1) << 30, node: node as usize });
        Model::new(&presets::find("small-2x2").unwrap(), &memory, &Mechanisms::full()).unwrap()
    }

    /// A pace of CPUs that all run, and its clock.
    fn started(model: &Model) -> (Pace, &'static Clock) {
        let clock: &Clock = Box::leak(Box::new(Clock::new()));
        let pace = Pace::new(CPUS, clock);
        pace.start(0);
        for cpu in 0..CPUS {
            pace.resume(cpu, 0, model);
        }
        (pace, clock)
    }

    #[test]
    fn no_cpu_goes_on_further_ahead_than_allowed() {
        let model = model();
        let (pace, _) = started(&model);
        let times: [AtomicU64; CPUS] = std::array::from_fn(|_| AtomicU64::new(0));
        thread::scope(|scope| {
            for cpu in 0..CPUS {
                let (pace, model, times) = (&pace, &model, &times);
                scope.spawn(move || {
                    let mut time_ps = 0;
                    for step in 0..2000 {
                        // Each has a speed of its own, and they take turns at being fast.
                        let fast = (step / 100) % CPUS == cpu;
                        time_ps += if fast { REPORT_PS } else { REPORT_PS / (2 + cpu as u64) };
                        times[cpu].store(time_ps, SeqCst);
                        pace.report(cpu, time_ps, model);
                        let slowest = times.iter().map(|time| time.load(SeqCst)).min().unwrap();
                        assert!(time_ps <= slowest + AHEAD_PS, "{time_ps} {slowest}");
                    }
                    times[cpu].store(u64::MAX, SeqCst);
                    pace.idle(cpu, time_ps, model);
                });
            }
        });
    }

    #[test]
    fn the_clock_shows_the_slowest_that_runs() {
        let model = model();
        let (pace, clock) = started(&model);
        let epoch_ns = clock.now_ns();
        let times_ps = [9, 7, 8, 30].map(|us| us * 1_000_000);
        for (cpu, &time_ps) in times_ps.iter().enumerate() {
            pace.report(cpu, time_ps, &model);
        }
        assert_eq!((pace.now_ps(), clock.now_ns()), (7_000_000, epoch_ns + 7_000));
        pace.idle(1, times_ps[1], &model);
        assert_eq!((pace.now_ps(), clock.now_ns()), (8_000_000, epoch_ns + 8_000));
        // One that wakes has not slept in the past.
        assert_eq!(pace.resume(1, times_ps[1], &model), 8_000_000);
        assert_eq!(pace.resume(1, 20_000_000, &model), 20_000_000);
        assert_eq!(pace.now_ps(), 8_000_000);
    }

    #[test]
    fn while_all_sleep_time_passes_as_on_the_host() {
        let model = model();
        let (pace, clock) = started(&model);
        let epoch_ns = clock.now_ns();
        for cpu in 0..CPUS {
            pace.idle(cpu, 5_000_000, &model);
        }
        let slept_from_ns = clock.now_ns();
        assert!(slept_from_ns >= epoch_ns + 5_000);
        while clock.now_ns() < slept_from_ns + 1_000_000 {
            thread::yield_now();
        }
        let woken_ps = pace.resume(2, 5_000_000, &model);
        assert!(woken_ps >= 1_005_000_000);
        assert_eq!(clock.now_ns(), epoch_ns + woken_ps / 1000, "it stands again");
        assert_eq!(pace.stop(), woken_ps);
    }

    #[test]
    fn a_cpu_that_waits_goes_on_when_released_or_stopped() {
        let model = model();
        let (pace, _) = started(&model);
        let waits = |cpu: usize| {
            while !pace.lock().cpus[cpu].waiting {
                thread::yield_now();
            }
        };
        thread::scope(|scope| {
            let ahead = scope.spawn(|| pace.report(0, 10 * AHEAD_PS, &model));
            waits(0);
            pace.release();
            ahead.join().unwrap();
            let ahead = scope.spawn(|| pace.report(0, 10 * AHEAD_PS, &model));
            waits(0);
            pace.stop();
            ahead.join().unwrap();
        });
        // Nobody waits for anybody after the end.
        pace.report(0, 20 * AHEAD_PS, &model);
    }
}
