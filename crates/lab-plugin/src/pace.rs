//! Keeps virtual CPUs together in simulated time: [`Times`] decides; here threads wait and are woken.

use crate::clock::Clock;
use crate::host::WakeUp;
use crate::times::{Idle, Lead, Times, Wakes};
use model::Model;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Number of times that a thread that waits awake looks at the clock: some 10 us of a host's CPU, about what sleeping
/// and waking up takes.
const LOOKS_AWAKE: u32 = 300;

/// The pace of all CPUs.
pub(crate) struct Pace {
    times: Mutex<Times>,
    /// Where halted CPUs and CPUs that are too far ahead wait.
    go: Vec<Condvar>,
    /// Where idle file worker threads wait.
    requests: Condvar,
    /// Where threads wait for the simulated disk.
    moved: Condvar,
    /// The clock, for threads that wait awake, ps.
    now_ps: AtomicU64,
    /// How many threads wait awake, and how many may: one CPU of the host stays free for the slowest.
    awake: AtomicUsize,
    may_be_awake: usize,
    /// Wakes QEMU's main loop.
    main_loop: WakeUp,
    clock: &'static Clock,
}

impl Pace {
    pub(crate) fn new(cpus: usize, times: Times, clock: &'static Clock) -> std::io::Result<Self> {
        let go = (0..cpus).map(|_| Condvar::new()).collect();
        Ok(Self {
            times: Mutex::new(times),
            go,
            requests: Condvar::new(),
            moved: Condvar::new(),
            now_ps: AtomicU64::new(0),
            awake: AtomicUsize::new(0),
            may_be_awake: std::thread::available_parallelism().map_or(0, |cpus: NonZero<usize>| cpus.get() - 1),
            main_loop: WakeUp::new()?,
            clock,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Times> {
        // No code below panics during a change, so a poisoned lock still guards consistent values.
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What QEMU's main loop has to wait for besides its own events.
    pub(crate) fn main_loop_wake_up(&self) -> &WakeUp {
        &self.main_loop
    }

    /// Begins simulated time, at 0 for every CPU.
    pub(crate) fn start(&self) {
        let mut times = self.lock();
        times.start();
        self.now_ps.store(0, Relaxed);
        self.clock.stand();
        self.main_loop.wake();
    }

    /// Ends simulated time at a CPU's own time, ps; the guest's clock then follows the host's.
    pub(crate) fn stop(&self, time_ps: u64) {
        let mut times = self.lock();
        times.stop(time_ps);
        self.clock.set_ps(times.now_ps());
        self.clock.run_with_host();
        // The main loop waits for no timer, or for one that is due by simulated time.
        self.main_loop.wake();
        self.let_go(&times);
    }

    /// A CPU reports its time, ps, and waits until the slowest is near. Returns how long it may run until its next
    /// report, ps.
    pub(crate) fn report(&self, cpu: usize, time_ps: u64, lead: Lead, model: &Model) -> u64 {
        let mut times = self.lock();
        times.report(cpu, time_ps);
        self.advance(&mut times, model);
        let releases = times.releases();
        let mut again = false;
        if !times.may_go_on(cpu, lead, again)
            && let Some(until_ps) = times.soon(cpu)
        {
            drop(times);
            self.wait_awake(until_ps);
            times = self.lock();
            again = true;
        }
        while !times.may_go_on(cpu, lead, again) && times.releases() == releases {
            again = true;
            times = self.go[cpu].wait(times).unwrap_or_else(PoisonError::into_inner);
        }
        times.report_ps(cpu)
    }

    /// Waits for the clock without sleeping, for a short while.
    fn wait_awake(&self, until_ps: u64) {
        if self.awake.fetch_add(1, Relaxed) < self.may_be_awake {
            let looks = (0..LOOKS_AWAKE).take_while(|_| self.now_ps.load(Relaxed) < until_ps);
            looks.for_each(|_| std::hint::spin_loop());
        }
        self.awake.fetch_sub(1, Relaxed);
    }

    /// A CPU halts at its own time, and waits until it is woken. `unlocked` runs once it can be woken. Returns its time
    /// at wake-up, ps.
    pub(crate) fn halt(&self, cpu: usize, time_ps: u64, model: &Model, unlocked: impl FnOnce()) -> u64 {
        let mut times = self.lock();
        times.halt(cpu, time_ps);
        self.advance(&mut times, model);
        unlocked();
        while !times.is_active(cpu) {
            times = self.go[cpu].wait(times).unwrap_or_else(PoisonError::into_inner);
        }
        times.time_of(cpu)
    }

    /// Wakes a CPU at a time, ps, if it is halted.
    pub(crate) fn wake(&self, cpu: usize, time_ps: u64, by: Option<usize>, model: &Model) {
        let mut times = self.lock();
        if times.wake(cpu, time_ps, by) {
            // Queues must follow the clock before a CPU that slept uses them.
            model.advance(times.now_ps());
            self.go[cpu].notify_one();
        }
    }

    /// QEMU's main loop has no work until a timer is due: see [`Times::main_loop_waits`].
    pub(crate) fn main_loop_waits(&self, timer_ps: Option<u64>, calls: u64, model: &Model) -> Idle {
        let mut times = self.lock();
        let idle = times.main_loop_waits(timer_ps, calls);
        self.advance(&mut times, model);
        idle
    }

    /// QEMU's main loop has work, requested by a CPU at its own time, ps, or by another thread.
    pub(crate) fn call_main_loop(&self, asked_ps: Option<u64>) {
        let mut times = self.lock();
        let asked_ps = asked_ps.unwrap_or(times.now_ps());
        if times.measuring() && times.call_main_loop(asked_ps) {
            self.main_loop.wake();
        }
    }

    /// QEMU's main loop is at work, after this many ns of host time in which no CPU ran.
    pub(crate) fn main_loop_works(&self, idle_ns: u64) {
        let mut times = self.lock();
        times.main_loop_works();
        times.pass(idle_ns);
        if idle_ns > 0 {
            self.clock.set_ps(times.now_ps());
        }
    }

    /// Changes a condition that the clock depends on, other than CPUs and QEMU's main loop.
    pub(crate) fn change(&self, model: &Model, change: impl FnOnce(&mut Times)) {
        let mut times = self.lock();
        change(&mut times);
        self.advance(&mut times, model);
    }

    /// A file worker thread waits for a request. `unlocked` runs once it can be called.
    pub(crate) fn rest_worker(&self, is_new: bool, model: &Model, unlocked: impl FnOnce()) {
        let mut times = self.lock();
        if is_new {
            times.add_worker();
        }
        times.worker_rests();
        self.advance(&mut times, model);
        unlocked();
        while !times.worker_works() {
            times = self.requests.wait(times).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Hands a request to a file worker thread, if one waits.
    pub(crate) fn call_worker(&self) {
        self.lock().call_worker();
        self.requests.notify_one();
    }

    /// Waits until the simulated disk has transferred a worker's bytes.
    pub(crate) fn transfer(&self, worker: u32, bytes: u64, model: &Model) {
        let mut times = self.lock();
        times.transfer(worker, bytes);
        self.advance(&mut times, model);
        while times.is_transferring(worker) {
            times = self.moved.wait(times).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A thread waits inside QEMU, from `true` to `false`, for CPUs to leave the code that they execute: they cannot
    /// while they are held here.
    pub(crate) fn wait_inside(&self, begins: bool) {
        let mut times = self.lock();
        times.wait_inside(begins);
        if begins {
            self.let_go(&times);
        }
    }

    /// Lets every waiting CPU take one more step, when the clock stands still and no known event moves it.
    pub(crate) fn release(&self) {
        let mut times = self.lock();
        times.release();
        self.let_go(&times);
    }

    /// Queries the times.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Times) -> T) -> T {
        look(&self.lock())
    }

    fn advance(&self, times: &mut Times, model: &Model) {
        let mut main_loop = false;
        let moved = times.advance(|wakes| match wakes {
            Wakes::Cpu(cpu) => self.go[cpu].notify_one(),
            Wakes::Workers => self.moved.notify_all(),
            Wakes::MainLoop => main_loop = true,
        });
        if moved {
            self.now_ps.store(times.now_ps(), Relaxed);
            self.clock.set_ps(times.now_ps());
            model.advance(times.now_ps());
        }
        if main_loop {
            self.main_loop.wake();
        }
    }

    fn let_go(&self, _: &Times) {
        self.go.iter().for_each(Condvar::notify_one);
        self.moved.notify_all();
    }
}
