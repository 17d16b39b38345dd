//! Host time, in the units of published costs.

use linux::tsc_and_monotonic_ns;
use rustix::time::{ClockId, clock_gettime};
use std::thread::sleep;
use std::time::Duration;

/// Long enough that reading two clocks twice is negligible.
const COMPARED: Duration = Duration::from_millis(100);

/// Cycles of this host's time stamp counter, which runs at the processor's nominal frequency.
#[derive(Clone, Copy, Debug)]
pub struct Cycles {
    per_ns: f64,
}

impl Cycles {
    /// Measures this host's.
    pub fn of_host() -> Self {
        let (ticks, ns) = tsc_and_monotonic_ns();
        sleep(COMPARED);
        let (later_ticks, later_ns) = tsc_and_monotonic_ns();
        Self { per_ns: later_ticks.wrapping_sub(ticks) as f64 / later_ns.saturating_sub(ns) as f64 }
    }

    /// Converts a duration to cycles.
    pub fn of_ns(self, ns: f64) -> f64 {
        ns * self.per_ns
    }
}

/// CPU time of this process.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
