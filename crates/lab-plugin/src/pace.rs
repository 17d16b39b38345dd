//! Keeps virtual CPUs together in simulated time: [`Times`] decides, and here threads wait and are woken.

use crate::clock::Clock;
use crate::host::WakeUp;
use crate::times::{Idle, Lead, Times, Wakes};
use model::Model;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The pace of all CPUs.
pub(crate) struct Pace {
    times: Mutex<Times>,
    /// What CPUs wait for, that are halted or too far ahead.
    go: Vec<Condvar>,
    /// What threads that work on files wait for when they have nothing to do.
    requests: Condvar,
    /// What threads wait for whose file is being moved by the simulated disk.
    moved: Condvar,
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
            main_loop: WakeUp::new()?,
            clock,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Times> {
        // Nothing below panics half-way through a change, so a poisoned lock still guards whole values.
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What QEMU's main loop has to wait for beside its own events.
    pub(crate) fn main_loop_wake_up(&self) -> &WakeUp {
        &self.main_loop
    }

    /// Simulated time begins at 0 for every CPU.
    pub(crate) fn start(&self) {
        let mut times = self.lock();
        times.start();
        self.clock.stand();
        self.main_loop.wake();
    }

    /// Simulated time ends at a CPU's own time, ps; the guest's clock goes on with the host's.
    pub(crate) fn stop(&self, time_ps: u64) {
        let mut times = self.lock();
        times.stop(time_ps);
        self.clock.set_ps(times.now_ps());
        self.clock.run_with_host();
        // It waits for no timer, or for one that is due by simulated time.
        self.main_loop.wake();
        self.let_go(&times);
    }

    /// A CPU says how far it is, ps, and waits until the slowest is near. Returns how long it may run until it reports
    /// again, ps.
    pub(crate) fn report(&self, cpu: usize, time_ps: u64, lead: Lead, model: &Model) -> u64 {
        let mut times = self.lock();
        times.report(cpu, time_ps);
        self.advance(&mut times, model);
        let releases = times.releases();
        let mut again = false;
        while !times.may_go_on(cpu, lead, again) && times.releases() == releases {
            again = true;
            times = self.go[cpu].wait(times).unwrap_or_else(PoisonError::into_inner);
        }
        times.report_ps(cpu)
    }

    /// A CPU halts at a time of its own, and waits until it is woken. `unlocked` runs when it can be. Returns its time
    /// then, ps.
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

    /// A CPU is woken at a time, ps, if it is halted.
    pub(crate) fn wake(&self, cpu: usize, time_ps: u64, by: Option<usize>, model: &Model) {
        let mut times = self.lock();
        if times.wake(cpu, time_ps, by) {
            // Queues follow the clock, before a CPU that slept uses them.
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

    /// There is work for QEMU's main loop, which a CPU asked for at a time of its own, ps, or another thread did.
    pub(crate) fn call_main_loop(&self, asked_ps: Option<u64>) {
        let mut times = self.lock();
        let asked_ps = asked_ps.unwrap_or(times.now_ps());
        if times.measuring() && times.call_main_loop(asked_ps) {
            self.main_loop.wake();
        }
    }

    /// QEMU's main loop is at work, after so many ns of the host in which no CPU ran.
    pub(crate) fn main_loop_works(&self, idle_ns: u64) {
        let mut times = self.lock();
        times.main_loop_works();
        times.pass(idle_ns);
        if idle_ns > 0 {
            self.clock.set_ps(times.now_ps());
        }
    }

    /// A change of what the clock depends on, beside CPUs and QEMU's main loop.
    pub(crate) fn change(&self, model: &Model, change: impl FnOnce(&mut Times)) {
        let mut times = self.lock();
        change(&mut times);
        self.advance(&mut times, model);
    }

    /// A thread that works on files waits until there is a request. `unlocked` runs when it can be called.
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

    /// There is a request for a thread that works on files, if one waits.
    pub(crate) fn call_worker(&self) {
        self.lock().call_worker();
        self.requests.notify_one();
    }

    /// Waits until the simulated disk has moved a worker's bytes.
    pub(crate) fn transfer(&self, worker: u32, bytes: u64, model: &Model) {
        let mut times = self.lock();
        times.transfer(worker, bytes);
        self.advance(&mut times, model);
        while times.is_transferring(worker) {
            times = self.moved.wait(times).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A thread waits inside QEMU, from `true` until `false`, for CPUs to leave the code that they execute: they cannot
    /// while they are held here.
    pub(crate) fn wait_inside(&self, begins: bool) {
        let mut times = self.lock();
        times.wait_inside(begins);
        if begins {
            self.let_go(&times);
        }
    }

    /// Lets every CPU that waits take one more step, where the clock stands and nothing that is known moves it.
    pub(crate) fn release(&self) {
        let mut times = self.lock();
        times.release();
        self.let_go(&times);
    }

    /// What is asked of the times.
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
