//! The closed loop of a service level: a grant's holder says how it does, and the rest of the machine has less while it
//! does worse than it wants. The steps are those of the controllers that Heracles has for memory bandwidth (Lo et al.,
//! "Heracles: improving resource efficiency at scale", ISCA 2015): down at once, up slowly.

use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// What the rest keeps of its limit after a period in which the target was missed.
const CUT: f64 = 0.7;
/// What it has more after [`PATIENCE`] periods in a row with slack.
const RAISE: f64 = 1.1;
/// Part of the target up to which there is slack.
const SLACK: f64 = 0.8;
/// Periods with slack in a row before the rest gets more.
const PATIENCE: u32 = 10;
/// The least part of its limit that the rest has: programs that get nothing hold locks for ever.
const LEAST: f64 = 0.01;
/// Shortest period: what is said sooner counts as the same one.
const SHORTEST: Duration = Duration::from_millis(10);
/// A holder that says nothing for so long has fallen silent.
const SILENCE: Duration = Duration::from_secs(5);
/// The period of a silent holder, who does not need what it does not ask for.
const SILENT_PERIOD: Duration = Duration::from_secs(1);
/// The largest figure, ms: more than a day.
const MOST_MS: f64 = 1e8;

/// How a holder does in a period, by its own figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// What it has, such as the 99th percentile of its answers' times.
    pub latency_ms: f64,
    /// What it wants at most.
    pub target_ms: f64,
}

/// Why a figure says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a latency is a number from 0 to {MOST_MS} ms, and its target above 0")]
pub struct NoService;

impl Service {
    /// Whether it says something.
    pub fn check(self) -> Result<Self, NoService> {
        let is_figure = |ms: f64| (0.0..=MOST_MS).contains(&ms);
        if is_figure(self.latency_ms) && is_figure(self.target_ms) && self.target_ms > 0.0 {
            Ok(self)
        } else {
            Err(NoService)
        }
    }
}

/// What a holder lets the rest of the machine have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServiceLevel {
    /// Part of what the forecast leaves to the rest.
    part: f64,
    /// Periods with slack in a row.
    slack: u32,
    /// When the last period ended, and when it is over without a word.
    periods: Option<(Instant, Instant)>,
}

impl Default for ServiceLevel {
    fn default() -> Self {
        Self { part: 1.0, slack: 0, periods: None }
    }
}

impl ServiceLevel {
    /// Part of what the forecast leaves to the rest, that it has: above 0, and 1 at most.
    pub fn part(&self) -> f64 {
        self.part
    }

    /// When a period of silence is over. None while silence changes nothing.
    pub fn next(&self) -> Option<Instant> {
        self.periods.filter(|_| self.part < 1.0).map(|(_, next)| next)
    }

    /// A period has passed, in which the holder did this.
    pub fn hear(&mut self, service: Service, now: Instant) {
        if self.periods.is_some_and(|(last, _)| now < last + SHORTEST) {
            return;
        }
        self.periods = Some((now, now + SILENCE));
        if service.latency_ms > service.target_ms {
            self.slack = 0;
            self.part = (self.part * CUT).max(LEAST);
        } else if service.latency_ms <= SLACK * service.target_ms {
            self.has_slack();
        } else {
            self.slack = 0;
        }
    }

    /// Counts periods of silence as periods with slack.
    pub fn wait(&mut self, now: Instant) {
        if let Some(next) = self.next().filter(|next| *next <= now) {
            self.periods = Some((next, now + SILENT_PERIOD));
            self.has_slack();
        }
    }

    fn has_slack(&mut self) {
        self.slack += 1;
        if self.slack >= PATIENCE {
            self.slack = 0;
            self.part = (self.part * RAISE).min(1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A server whose latency grows with what the rest draws: what it wants, or its limit.
    struct Server {
        level: ServiceLevel,
        now: Instant,
    }

    impl Server {
        fn new() -> Self {
            Self { level: ServiceLevel::default(), now: Instant::now() }
        }

        /// Its latencies.
        fn run(&mut self, wants: f64, latency: impl Fn(f64) -> f64, periods: usize) -> Vec<f64> {
            let mut period = || {
                let latency_ms = latency(wants.min(self.level.part()));
                self.now += SHORTEST;
                self.level.hear(Service { latency_ms, target_ms: 1.0 }, self.now);
                latency_ms
            };
            (0..periods).map(|_| period()).collect()
        }
    }

    fn is_part(server: &Server, part: f64) -> bool {
        server.level.part().total_cmp(&part).is_eq()
    }

    fn missed(latencies: &[f64]) -> usize {
        latencies.iter().filter(|&&latency| latency > 1.0).count()
    }

    #[test]
    fn the_target_is_held_while_a_batch_comes_and_goes() {
        // As at a controller near its capacity: 0.5 alone, 1 at half of the limit, 5 at the whole.
        let latency = |drawn: f64| 0.5 / (1.0 - 0.9 * drawn).max(0.1);
        let mut server = Server::new();
        assert_eq!(missed(&server.run(0.1, latency, 100)), 0);
        assert_eq!((server.level.part(), server.level.next()), (1.0, None));
        // The batch comes: three periods of violation, and one in 30 at most from then on.
        let comes = server.run(1.0, latency, 600);
        assert!(comes[0] > 1.0 && missed(&comes[..10]) <= 3, "{comes:?}");
        assert!(missed(&comes[10..]) <= 590 / 30, "{}", missed(&comes[10..]));
        assert!((0.3..0.7).contains(&server.level.part()), "{:?}", server.level);
        // It goes: the rest gets everything again, slowly.
        server.run(0.0, latency, 5);
        assert!(server.level.part() < 0.8);
        server.run(0.0, latency, 150);
        assert!(is_part(&server, 1.0));
    }

    #[test]
    fn a_server_that_is_slow_by_itself_takes_all_but_the_least() {
        let mut server = Server::new();
        server.run(1.0, |_| 9.0, 100);
        assert!(is_part(&server, LEAST));
        // Where it is just good enough, nothing changes.
        server.run(1.0, |_| 0.9, 100);
        assert!(is_part(&server, LEAST));
        // What is said again at once is of the same period.
        let Server { mut level, now } = server;
        level.hear(Service { latency_ms: 0.1, target_ms: 1.0 }, now);
        assert_eq!(level, server.level);
        // A holder that falls silent gives everything back, and not at once.
        assert_eq!(level.next(), Some(now + SILENCE));
        level.wait(now + SILENCE / 2);
        assert_eq!(level, server.level);
        for second in 0..49 * PATIENCE {
            assert!(level.part() < 1.0);
            level.wait(now + SILENCE + SILENT_PERIOD * second);
        }
        assert_eq!((level.part(), level.next()), (1.0, None));
    }

    #[test]
    fn nonsense_is_no_figure() {
        let check = |latency_ms, target_ms| Service { latency_ms, target_ms }.check();
        assert!(check(0.0, 1.0).is_ok() && check(1e8, 1e8).is_ok());
        for (latency_ms, target_ms) in
            [(f64::NAN, 1.0), (1.0, f64::NAN), (-1.0, 1.0), (1.0, 0.0), (f64::INFINITY, 1.0), (1e9, 1.0), (1.0, -1.0)]
        {
            assert_eq!(check(latency_ms, target_ms), Err(NoService), "{latency_ms} {target_ms}");
        }
    }

    proptest! {
        #[test]
        fn the_part_stays_a_part(said in prop::collection::vec(prop::option::of((0.0..1e8, 1e-9..1e8)), 0..300)) {
            let (mut level, mut now) = (ServiceLevel::default(), Instant::now());
            for said in said {
                now += SILENCE;
                match said {
                    Some((latency_ms, target_ms)) => level.hear(Service { latency_ms, target_ms }, now),
                    None => level.wait(now),
                }
                prop_assert!((LEAST..=1.0).contains(&level.part()));
            }
        }
    }
}
