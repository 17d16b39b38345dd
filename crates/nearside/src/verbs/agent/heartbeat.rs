//! Tells systemd's watchdog that rounds are finished: a service that hangs is restarted, and the next one restores.

use agent::Status;
use sd_notify::NotifyState;
use std::time::Duration;

/// Rounds after which a missing one means that the agent hangs: twice as many as it observes as one.
const ROUNDS: u32 = 2 * agent::MOST_ROUNDS;

/// Beats once.
pub fn beat() {
    // Without a service manager there is no socket to notify.
    let _ = sd_notify::notify(&[NotifyState::Watchdog]);
}

/// Beats once for each finished round, while memory moves, and while the agent rests.
#[derive(Debug)]
pub struct Heartbeat {
    /// The longest time between two beats; none without a watchdog.
    most: Option<Duration>,
    /// Rounds at the last beat.
    rounds: u64,
}

impl Heartbeat {
    /// Reads the watchdog's limit, and raises it where rounds take longer.
    pub fn begin(round: Duration) -> Self {
        let asked = sd_notify::watchdog_enabled();
        let most = asked.map(|asked| asked.max(round * ROUNDS));
        if let Some(most) = most.filter(|_| most != asked) {
            // The library's own form has 32 bits: 71 minutes.
            let _ = sd_notify::notify(&[NotifyState::Custom(&format!("WATCHDOG_USEC={}", most.as_micros()))]);
        }
        Self { most, rounds: 0 }
    }

    /// Beats if a round was finished since the last call, or if none is due.
    pub fn follow(&mut self, status: &Status) {
        if self.is_due(status) {
            beat();
        }
    }

    fn is_due(&mut self, status: &Status) -> bool {
        let has_finished = std::mem::replace(&mut self.rounds, status.rounds) != status.rounds;
        self.most.is_some() && (has_finished || status.paused || status.sleeps)
    }

    /// How long the agent may sleep, where nothing else wakes it.
    pub fn until_next(&self) -> Option<Duration> {
        self.most.map(|most| most / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_beats_once_a_round_and_at_rest() {
        let mut heartbeat = Heartbeat { most: Some(Duration::from_secs(60)), rounds: 0 };
        let status = |rounds, paused, sleeps| Status { rounds, paused, sleeps, ..Status::default() };
        let all = [(0, false, false), (1, false, false), (1, false, false), (1, true, false), (2, false, false)];
        let due = all.map(|(rounds, paused, sleeps)| heartbeat.is_due(&status(rounds, paused, sleeps)));
        assert_eq!(due, [false, true, false, true, true]);
        assert!(heartbeat.is_due(&status(2, false, true)));
        let mut none = Heartbeat { most: None, rounds: 0 };
        assert!(!none.is_due(&status(1, true, true)));
    }
}
