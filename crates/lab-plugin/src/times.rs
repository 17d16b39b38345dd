//! Simulated time and its rules: pure, without locks and threads.
//!
//! Each CPU has its own time. The clock shows the time of the slowest running CPU, and is held back by events outside
//! the CPUs: the next timer, files, and work of the host for the guest, which takes no simulated time. While no CPU
//! runs, it jumps to the next event.

/// How far a CPU may be ahead of the slowest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lead {
    /// The limit when it reports, ps.
    ahead_ps: u64,
    /// The limit at which it continues after a wait, ps: well below the other for a working CPU, or it would wait again
    /// at its next report.
    near_ps: u64,
}

impl Lead {
    /// For a working CPU. It reports every [`REPORT_PS`], so it is never further ahead than the sum of both: less than
    /// two of the model's windows, as the model requires.
    pub(crate) const WORKING: Self = Self { ahead_ps: 50_000_000, near_ps: 10_000_000 };
    /// For a CPU that has lately woken another one or been woken: their next steps depend on each other, as in the
    /// scheduler's locks.
    const WAKING: Self = Self { ahead_ps: 400_000, near_ps: 100_000 };
    /// For a CPU that has read the clock: no other may read an earlier time afterwards.
    pub(crate) const READING_CLOCK: Self = Self { ahead_ps: 0, near_ps: 0 };
}

/// How far the clock may be from where a CPU may go on, ps, for its thread to wait awake.
const SOON_PS: u64 = 1_000_000;

impl Lead {
    /// For a CPU that has spun for this time, ps, on memory that another one writes: what it sees may be that much older.
    /// A part of the wait, so that short ones, such as for a lock, are right, and long ones seldom stop the host's thread.
    pub(crate) fn spinning(spun_ps: u64) -> Self {
        Self { ahead_ps: (spun_ps / 16).clamp(100_000, 1_000_000), near_ps: 0 }
    }
}

/// Reporting interval of a CPU, ps of its own time; and for a CPU that has woken another one, or has been woken, for
/// how long it reports at which interval.
pub(crate) const REPORT_PS: u64 = 8_000_000;
const WAKING_PS: u64 = 20_000_000;
const WAKING_REPORT_PS: u64 = 100_000;

#[derive(Clone, Copy, Debug)]
struct Cpu {
    /// The time in its last report.
    time_ps: u64,
    /// It runs, or will as soon as the host schedules it.
    active: bool,
    /// It waits until the clock is this near, ps.
    held: Option<u64>,
    /// Until when it counts as waking or being woken, ps.
    waking_until_ps: u64,
}

impl Cpu {
    fn is_waking(&self) -> bool {
        self.time_ps < self.waking_until_ps
    }
}

/// State of QEMU's main loop: timers, devices, and streams of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MainLoop {
    /// It is working, or has work.
    Busy,
    /// It waits for work, or for its next timer, ps.
    Waits { timer_ps: Option<u64> },
}

/// QEMU's file worker threads.
#[derive(Clone, Copy, Debug, Default)]
struct Workers {
    all: usize,
    /// Those that wait for requests.
    idle: usize,
    /// Those that wait and have a request.
    called: usize,
}

/// Pending streams of the host.
#[derive(Clone, Copy, Debug, Default)]
struct Streams {
    /// The guest waits for input that is on its way from the host.
    input: bool,
    /// The guest's output waits for its reader on the host.
    output: bool,
}

/// A transfer of the simulated disk.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    worker: u32,
    done_ps: u64,
}

/// A simulated disk: a transfer takes the latency, and the time of its bytes, one transfer after another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disk {
    pub(crate) latency_ps: u64,
    pub(crate) ps_per_byte: f64,
}

impl From<&machine::Disk> for Disk {
    fn from(disk: &machine::Disk) -> Self {
        Self { latency_ps: (disk.latency_ns * 1000.0).round() as u64, ps_per_byte: 1e12 / disk.bandwidth_bytes_per_s }
    }
}

/// Waiters that may continue because the clock has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wakes {
    Cpu(usize),
    MainLoop,
    Workers,
}

/// The next step of QEMU's main loop when it has no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Check timers: one is due.
    Over,
    /// Check for work: it was called since the last check.
    Called,
    /// Wait for work.
    Wait,
    /// Wait for work, and until a timer that is due after this many ns of host time.
    WithHost(u64),
}

/// The times of all CPUs, and the other conditions of the clock.
#[derive(Debug)]
pub(crate) struct Times {
    now_ps: u64,
    measuring: bool,
    cpus: Vec<Cpu>,
    main_loop: MainLoop,
    /// Number of times that QEMU's main loop had work.
    calls: u64,
    workers: Workers,
    transfers: Vec<Transfer>,
    disk: Disk,
    /// When the disk has finished all requested transfers, ps.
    disk_free_ps: u64,
    /// The time of the last request to a device, ps: it may be ahead of the clock.
    asked_ps: u64,
    streams: Streams,
    /// Number of threads that wait inside QEMU for CPUs to leave the code that they execute.
    inside: usize,
    /// While no CPU runs, whether time passes as on the host.
    idles_with_host: bool,
    /// Number of times that CPUs were released although the clock had not moved.
    releases: u64,
}

impl Times {
    pub(crate) fn new(cpus: usize, disk: Disk, idles_with_host: bool) -> Self {
        Self {
            now_ps: 0,
            measuring: false,
            cpus: vec![Cpu { time_ps: 0, active: true, held: None, waking_until_ps: 0 }; cpus],
            main_loop: MainLoop::Busy,
            calls: 0,
            workers: Workers::default(),
            transfers: Vec::new(),
            disk,
            disk_free_ps: 0,
            asked_ps: 0,
            streams: Streams::default(),
            inside: 0,
            idles_with_host,
            releases: 0,
        }
    }

    /// Begins simulated time, at 0 for every CPU; QEMU's main loop must check its timers by the new clock.
    pub(crate) fn start(&mut self) {
        (self.now_ps, self.measuring, self.releases) = (0, true, 0);
        (self.disk_free_ps, self.asked_ps, self.streams) = (0, 0, Streams::default());
        self.main_loop = MainLoop::Busy;
        for cpu in &mut self.cpus {
            (cpu.time_ps, cpu.held, cpu.waking_until_ps) = (0, None, 0);
        }
    }

    /// Ends simulated time, at a CPU's own time.
    pub(crate) fn stop(&mut self, time_ps: u64) {
        self.now_ps = self.now_ps.max(time_ps);
        self.measuring = false;
        // Pending disk transfers complete at once.
        self.transfers.clear();
    }

    pub(crate) fn now_ps(&self) -> u64 {
        self.now_ps
    }

    pub(crate) fn measuring(&self) -> bool {
        self.measuring
    }

    pub(crate) fn releases(&self) -> u64 {
        self.releases
    }

    pub(crate) fn is_active(&self, cpu: usize) -> bool {
        self.cpus[cpu].active
    }

    pub(crate) fn time_of(&self, cpu: usize) -> u64 {
        self.cpus[cpu].time_ps
    }

    /// Sets a CPU's own time.
    pub(crate) fn report(&mut self, cpu: usize, time_ps: u64) {
        self.cpus[cpu].time_ps = time_ps;
    }

    /// Whether a CPU that has reported may continue. `again` says that it has waited already.
    pub(crate) fn may_go_on(&mut self, cpu: usize, lead: Lead, again: bool) -> bool {
        let lead = if lead == Lead::WORKING && self.cpus[cpu].is_waking() { Lead::WAKING } else { lead };
        let lead_ps = if again { lead.near_ps } else { lead.ahead_ps };
        let goes = !self.measuring || self.inside > 0 || self.cpus[cpu].time_ps <= self.now_ps + lead_ps;
        self.cpus[cpu].held = (!goes).then_some(lead.near_ps);
        goes
    }

    /// When a CPU that may not go on yet may do so, ps, if that is soon: it needs no wake-up until it asks again.
    pub(crate) fn soon(&mut self, cpu: usize) -> Option<u64> {
        let Cpu { time_ps, held, .. } = self.cpus[cpu];
        let until_ps = time_ps.saturating_sub(held?);
        (until_ps <= self.now_ps + SOON_PS).then(|| {
            self.cpus[cpu].held = None;
            until_ps
        })
    }

    /// A CPU halts at its own time.
    pub(crate) fn halt(&mut self, cpu: usize, time_ps: u64) {
        self.cpus[cpu] = Cpu { time_ps, active: false, held: None, ..self.cpus[cpu] };
    }

    /// A halted CPU has been woken at a time, by another CPU or a device: it runs from then on, no matter when the host
    /// schedules it. Returns whether it was halted.
    pub(crate) fn wake(&mut self, cpu: usize, time_ps: u64, by: Option<usize>) -> bool {
        let Cpu { time_ps: own_ps, active, .. } = self.cpus[cpu];
        if active {
            return false;
        }
        let time_ps = own_ps.max(time_ps).max(self.now_ps);
        let waking_until_ps = time_ps + WAKING_PS;
        self.cpus[cpu] = Cpu { time_ps, active: true, held: None, waking_until_ps };
        if let Some(by) = by {
            self.cpus[by].waking_until_ps = waking_until_ps;
        }
        true
    }

    /// How long a CPU may run until its next report, ps.
    pub(crate) fn report_ps(&self, cpu: usize) -> u64 {
        if self.cpus[cpu].is_waking() { WAKING_REPORT_PS } else { REPORT_PS }
    }

    /// Number of times that QEMU's main loop had work.
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    /// QEMU's main loop has no work until a timer is due, as of its last check, when there had been this many calls.
    pub(crate) fn main_loop_waits(&mut self, timer_ps: Option<u64>, calls: u64) -> Idle {
        if calls != self.calls {
            return Idle::Called;
        }
        if timer_ps.is_some_and(|timer_ps| timer_ps <= self.now_ps) {
            return Idle::Over;
        }
        if self.passes_with_host() {
            return timer_ps.map_or(Idle::Wait, |timer_ps| Idle::WithHost((timer_ps - self.now_ps).div_ceil(1000)));
        }
        self.main_loop = MainLoop::Waits { timer_ps };
        Idle::Wait
    }

    /// QEMU's main loop has work, requested at a time. Returns whether it was waiting.
    pub(crate) fn call_main_loop(&mut self, asked_ps: u64) -> bool {
        self.calls += 1;
        self.asked_ps = self.asked_ps.max(asked_ps);
        std::mem::replace(&mut self.main_loop, MainLoop::Busy) != MainLoop::Busy
    }

    /// QEMU's main loop is working.
    pub(crate) fn main_loop_works(&mut self) {
        self.main_loop = MainLoop::Busy;
    }

    /// Time passed on the host while no CPU ran, ns.
    pub(crate) fn pass(&mut self, host_ns: u64) {
        if self.measuring && self.passes_with_host() {
            self.now_ps += host_ns * 1000;
        }
    }

    /// A new file worker thread.
    pub(crate) fn add_worker(&mut self) {
        self.workers.all += 1;
    }

    /// A file worker thread waits for a request.
    pub(crate) fn worker_rests(&mut self) {
        self.workers.idle += 1;
    }

    /// Hands a request to a file worker thread, if one waits.
    pub(crate) fn call_worker(&mut self) {
        self.workers.called = (self.workers.called + 1).min(self.workers.idle);
    }

    /// A waiting file worker thread takes a request. Returns whether there was one.
    pub(crate) fn worker_works(&mut self) -> bool {
        let called = self.workers.called > 0;
        if called {
            self.workers.called -= 1;
            self.workers.idle -= 1;
        }
        called
    }

    /// A worker has transferred bytes of a file: its request ends when the simulated disk would have finished.
    pub(crate) fn transfer(&mut self, worker: u32, bytes: u64) {
        if !self.measuring {
            return;
        }
        let begins_ps = self.disk_free_ps.max(self.asked_ps).max(self.now_ps);
        self.disk_free_ps = begins_ps + (bytes as f64 * self.disk.ps_per_byte).round() as u64;
        self.transfers.push(Transfer { worker, done_ps: self.disk_free_ps + self.disk.latency_ps });
    }

    pub(crate) fn is_transferring(&self, worker: u32) -> bool {
        self.transfers.iter().any(|transfer| transfer.worker == worker)
    }

    /// Whether the guest waits for input that is on its way from the host.
    pub(crate) fn set_input(&mut self, on_its_way: bool) {
        self.streams.input = on_its_way;
    }

    pub(crate) fn waits_for_input(&self) -> bool {
        self.streams.input
    }

    /// Whether the guest's output waits for its reader on the host.
    pub(crate) fn set_output(&mut self, waits: bool) {
        self.streams.output = waits;
    }

    /// A thread starts or stops waiting inside QEMU for CPUs to leave the code that they execute. No CPU may be held
    /// during that.
    pub(crate) fn wait_inside(&mut self, begins: bool) {
        self.inside = if begins { self.inside + 1 } else { self.inside.saturating_sub(1) };
    }

    /// Releases CPUs although the clock has not moved.
    pub(crate) fn release(&mut self) {
        self.releases += 1;
    }

    /// Whether the host works on files, on input for the guest or on its output, which may take any time.
    pub(crate) fn host_works(&self) -> bool {
        let Workers { all, idle, called } = self.workers;
        self.streams.input || self.streams.output || all - idle + called > self.transfers.len()
    }

    /// Whether time passes as on the host, driven by QEMU's main loop.
    fn passes_with_host(&self) -> bool {
        self.idles_with_host
            && !self.host_works()
            && self.transfers.is_empty()
            && self.cpus.iter().all(|cpu| !cpu.active)
    }

    /// How far the clock may move, ps; `None` while the host works for the guest, which takes no simulated time.
    fn next_ps(&self) -> Option<u64> {
        let MainLoop::Waits { timer_ps } = self.main_loop else { return None };
        if !self.measuring || self.host_works() {
            return None;
        }
        let slowest_ps = self.cpus.iter().filter(|cpu| cpu.active).map(|cpu| cpu.time_ps).min();
        let transfer_ps = self.transfers.iter().map(|transfer| transfer.done_ps).min();
        [slowest_ps, timer_ps, transfer_ps].into_iter().flatten().min()
    }

    /// Moves the clock as far as it may go, and calls `wake` for each waiter that may continue. Returns whether it has
    /// moved.
    pub(crate) fn advance(&mut self, mut wake: impl FnMut(Wakes)) -> bool {
        let Some(next_ps) = self.next_ps() else { return false };
        if self.passes_with_host() {
            self.main_loop = MainLoop::Busy;
            wake(Wakes::MainLoop);
            return false;
        }
        let moved = next_ps > self.now_ps;
        self.now_ps = self.now_ps.max(next_ps);
        let now_ps = self.now_ps;
        if matches!(self.main_loop, MainLoop::Waits { timer_ps: Some(timer_ps) } if timer_ps <= now_ps) {
            self.main_loop = MainLoop::Busy;
            wake(Wakes::MainLoop);
        }
        let transfers = self.transfers.len();
        self.transfers.retain(|transfer| transfer.done_ps > now_ps);
        if self.transfers.len() < transfers {
            wake(Wakes::Workers);
        }
        if moved {
            let near = |cpu: &Cpu| cpu.held.is_some_and(|near_ps| cpu.time_ps <= now_ps + near_ps);
            let near = self.cpus.iter().enumerate().filter(|(_, cpu)| near(cpu));
            near.for_each(|(index, _)| wake(Wakes::Cpu(index)));
        }
        moved
    }
}

#[cfg(test)]
mod tests;
