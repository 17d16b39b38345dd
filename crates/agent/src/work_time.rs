//! The time that the agent spends working.

use crate::place_report::WorkShares;
use linux::monotonic_ns;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The time that the agent spends working. Includes both CPU time and waits: CPU time alone is unreliable, because
/// where the kernel accounts by ticks, as in the lab, it comes in whole ticks, and rounds are synchronised with ticks.
#[derive(Debug)]
pub(crate) struct WorkTime {
    began_ns: u64,
    cpu_time_before: Duration,
    /// When the call in progress began.
    call_began_ns: Option<u64>,
    /// Of calls that ended since the program began: all of it, and the parts of it that were not spent observing.
    busy: Duration,
    deciding: Duration,
    moving: Duration,
    /// The part spent observing and deciding since samples were last paid for.
    observing: Duration,
}

impl WorkTime {
    pub fn begin() -> Self {
        let began_ns = monotonic_ns();
        let [busy, deciding, moving, observing] = [Duration::ZERO; 4];
        Self { began_ns, cpu_time_before: own_cpu_time(), call_began_ns: None, busy, deciding, moving, observing }
    }

    /// The program begins now: work before it does not count.
    pub fn restart(&mut self) {
        *self = Self { began_ns: self.began_ns, ..Self::begin() };
    }

    /// Accounts for a call of the agent from now on, until [`end_call`](Self::end_call).
    pub fn begin_call(&mut self) {
        self.call_began_ns = Some(monotonic_ns());
    }

    /// The call has ended.
    pub fn end_call(&mut self) {
        self.busy += self.call_began_ns.take().map(since).unwrap_or_default();
    }

    /// The working time so far, with the call in progress.
    fn busy(&self) -> Duration {
        self.busy + self.call_began_ns.map(since).unwrap_or_default()
    }

    /// Accounts for observing and deciding.
    pub fn add_observing(&mut self, began_ns: u64) {
        self.observing += since(began_ns);
    }

    /// Accounts for a decision, which is also part of a call of the agent.
    pub fn add_deciding(&mut self, began_ns: u64) {
        self.deciding += since(began_ns);
    }

    /// Accounts for carrying out a decision, likewise, with the time of helper threads.
    pub fn add_moving(&mut self, began_ns: u64, helped: Duration) {
        self.moving += since(began_ns) + helped;
        self.busy += helped;
    }

    /// The shares of the working time that were spent observing, deciding and moving.
    pub fn shares(&self) -> WorkShares {
        let busy_s = self.busy().as_secs_f64().max(1e-9);
        let deciding = (self.deciding.as_secs_f64() / busy_s).min(1.0);
        let moving = (self.moving.as_secs_f64() / busy_s).min(1.0 - deciding);
        WorkShares { observing: 1.0 - deciding - moving, deciding, moving }
    }

    pub fn take_observing(&mut self) -> Duration {
        std::mem::take(&mut self.observing)
    }

    /// CPU time of the agent since the program began; never more than its working time.
    pub fn cpu_time(&self) -> Duration {
        own_cpu_time().saturating_sub(self.cpu_time_before).min(self.busy())
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
