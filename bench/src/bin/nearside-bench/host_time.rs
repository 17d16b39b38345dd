//! Host time, in the units that published costs are in.

use linux::tsc_and_monotonic_ns;
use rustix::time::{ClockId, clock_gettime};
use std::thread::sleep;
use std::time::Duration;

/// Long enough that two looks at two clocks do not count.
const COMPARED: Duration = Duration::from_millis(100);

/// Cycles of this host's time stamp counter, which goes at the processor's nominal rate.
#[derive(Clone, Copy, Debug)]
pub struct Cycles {
    per_ns: f64,
}

impl Cycles {
    /// Of this host.
    pub fn of_host() -> Self {
        let (ticks, ns) = tsc_and_monotonic_ns();
        sleep(COMPARED);
        let (later_ticks, later_ns) = tsc_and_monotonic_ns();
        Self { per_ns: later_ticks.wrapping_sub(ticks) as f64 / later_ns.saturating_sub(ns) as f64 }
    }

    /// So long in cycles.
    pub fn of_ns(self, ns: f64) -> f64 {
        ns * self.per_ns
    }
}

/// What this process has had of processors.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
