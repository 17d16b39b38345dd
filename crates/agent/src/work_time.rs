//! The time that the agent spends working.

use linux::monotonic_ns;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The time that the agent spends working. Includes both CPU time and waits: CPU time alone is unreliable, because
/// where the kernel accounts by ticks, as in the lab, it comes in whole ticks, and rounds are synchronised with ticks.
#[derive(Debug)]
pub(crate) struct WorkTime {
    began_ns: u64,
    cpu_time_before: Duration,
    /// Since the program began.
    busy: Duration,
    /// The part spent observing and deciding since samples were last paid for.
    observing: Duration,
}

impl WorkTime {
    pub fn begin() -> Self {
        let began_ns = monotonic_ns();
        Self { began_ns, cpu_time_before: own_cpu_time(), busy: Duration::ZERO, observing: Duration::ZERO }
    }

    /// The program begins now: work before it does not count.
    pub fn restart(&mut self) {
        *self = Self { began_ns: self.began_ns, ..Self::begin() };
    }

    /// Accounts for a call of the agent, and for the time that its helper threads spent.
    pub fn add_work(&mut self, began_ns: u64, helped: Duration) {
        self.busy += since(began_ns) + helped;
    }

    /// Accounts for observing and deciding.
    pub fn add_observing(&mut self, began_ns: u64) {
        self.observing += since(began_ns);
    }

    pub fn take_observing(&mut self) -> Duration {
        std::mem::take(&mut self.observing)
    }

    /// CPU time of the agent since the program began; never more than its working time.
    pub fn cpu_time(&self) -> Duration {
        own_cpu_time().saturating_sub(self.cpu_time_before).min(self.busy)
    }

    /// Time since the agent began.
    pub fn time(&self) -> Duration {
        since(self.began_ns)
    }
}

/// Time since this reading of the monotonic clock.
pub(crate) fn since(time_ns: u64) -> Duration {
    Duration::from_nanos(monotonic_ns().saturating_sub(time_ns))
}

/// CPU time of all threads of this process.
fn own_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
