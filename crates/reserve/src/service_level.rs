//! The closed loop of a service level: a grant's holder says how it does, and the rest of the machine has less while it
//! does worse than it wants. The steps are those of the controllers that Heracles has for memory bandwidth (Lo et al.,
//! "Heracles: improving resource efficiency at scale", ISCA 2015): down at once, up slowly.

use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// What the rest keeps of its limit after a period in which the target was missed.
const CUT: f64 = 0.7;
/// What it has more after [`PERIODS_UNTIL_RELAXED`] periods in a row with slack.
const RAISE: f64 = 1.1;
/// Part of the target up to which there is slack.
const SLACK: f64 = 0.8;
/// Periods with slack in a row before the rest gets more.
const PERIODS_UNTIL_RELAXED: u32 = 10;
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

/// What the loop did in its last period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::EnumIter)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Course {
    /// The rest keeps what it has.
    Holding,
    /// The target was missed: the rest has less.
    Tightening,
    /// There is slack, or silence: the rest gets more by and by.
    Relaxing,
    /// The target was missed, and the rest has the least already.
    AtLimit,
}

/// What a holder lets the rest of the machine have, as it is shown and kept when its agent is started again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceLevel {
    /// What the holder said last.
    #[serde(flatten)]
    said: Service,
    /// When, seconds since 1970.
    said_s: u64,
    /// What followed.
    course: Course,
    /// Part of what the forecast leaves to the rest.
    part: f64,
    /// Periods with slack in a row.
    slack: u32,
    /// When the last period ended, and when it is over without a word. None for a loop that another process has.
    #[serde(skip)]
    periods: Option<(Instant, Instant)>,
}

impl ServiceLevel {
    /// What follows where a holder has said this, perhaps for the first time.
    #[must_use]
    pub fn after(before: Option<Self>, said: Service, now: Instant, now_s: u64) -> Self {
        let first = Self { said, said_s: now_s, course: Course::Holding, part: 1.0, slack: 0, periods: None };
        let mut level = before.unwrap_or(first);
        level.hear(said, now, now_s);
        level
    }

    /// The loop of an agent that was killed, which goes on: the time without an agent does not count as silence.
    #[must_use]
    pub fn taken_up(self, now: Instant) -> Self {
        Self { part: self.part.clamp(LEAST, 1.0), periods: Some((now, now + SILENCE)), ..self }
    }

    /// What the holder said last.
    pub fn said(&self) -> Service {
        self.said
    }

    /// When it said so, seconds since 1970.
    pub fn said_s(&self) -> u64 {
        self.said_s
    }

    /// What the loop did in its last period.
    pub fn course(&self) -> Course {
        self.course
    }

    /// Part of what the forecast leaves to the rest, that it has: above 0, and 1 at most.
    pub fn part(&self) -> f64 {
        self.part
    }

    /// Whether the rest has as much as before. Where its holder had said nothing, that was all.
    pub fn has_same_part(&self, before: Option<Self>) -> bool {
        before.map_or(1.0, |before| before.part).total_cmp(&self.part).is_eq()
    }

    /// Whether what is shown of it is old: at most a second where nothing follows.
    pub fn is_news(&self, before: Option<Self>) -> bool {
        let shown = |level: Self| (level.said_s, level.course);
        !self.has_same_part(before) || before.map(shown) != Some(shown(*self))
    }

    /// When a period of silence is over. None while silence changes nothing.
    pub fn next(&self) -> Option<Instant> {
        self.periods.filter(|_| self.part < 1.0).map(|(_, next)| next)
    }

    /// A period has passed, in which the holder did this.
    fn hear(&mut self, said: Service, now: Instant, now_s: u64) {
        if self.periods.is_some_and(|(last, _)| now < last + SHORTEST) {
            return;
        }
        self.periods = Some((now, now + SILENCE));
        (self.said, self.said_s) = (said, now_s);
        if said.latency_ms > said.target_ms {
            self.slack = 0;
            self.course = if self.part > LEAST { Course::Tightening } else { Course::AtLimit };
            self.part = (self.part * CUT).max(LEAST);
        } else if said.latency_ms <= SLACK * said.target_ms {
            self.has_slack();
        } else {
            self.slack = 0;
            self.course = Course::Holding;
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
        if self.slack >= PERIODS_UNTIL_RELAXED {
            self.slack = 0;
            self.part = (self.part * RAISE).min(1.0);
        }
        self.course = if self.part < 1.0 { Course::Relaxing } else { Course::Holding };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A loop in which nothing has happened.
    fn unused() -> ServiceLevel {
        let said = Service { latency_ms: 0.0, target_ms: 1.0 };
        ServiceLevel { said, said_s: 0, course: Course::Holding, part: 1.0, slack: 0, periods: None }
    }

    /// A server whose latency grows with what the rest draws: what it wants, or its limit.
    struct Server {
        level: ServiceLevel,
        now: Instant,
    }

    impl Server {
        fn new() -> Self {
            Self { level: unused(), now: Instant::now() }
        }

        /// Its latencies.
        fn run(&mut self, wants: f64, latency: impl Fn(f64) -> f64, periods: usize) -> Vec<f64> {
            let mut period = || {
                let latency_ms = latency(wants.min(self.level.part()));
                self.now += SHORTEST;
                self.level.hear(Service { latency_ms, target_ms: 1.0 }, self.now, 0);
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
        level.hear(Service { latency_ms: 0.1, target_ms: 1.0 }, now, 0);
        assert_eq!(level, server.level);
        // A holder that falls silent gives everything back, and not at once.
        assert_eq!(level.next(), Some(now + SILENCE));
        level.wait(now + SILENCE / 2);
        assert_eq!(level, server.level);
        for second in 0..49 * PERIODS_UNTIL_RELAXED {
            assert!(level.part() < 1.0);
            level.wait(now + SILENCE + SILENT_PERIOD * second);
        }
        assert_eq!((level.part(), level.next()), (1.0, None));
    }

    #[test]
    fn what_the_loop_does_is_shown_and_goes_on_in_another_process() {
        let (mut server, began) = (Server::new(), Instant::now());
        let mut course = |latency: f64, periods| {
            server.run(1.0, |_| latency, periods);
            server.level.course()
        };
        assert_eq!([course(0.1, 1), course(2.0, 1)], [Course::Holding, Course::Tightening]);
        assert_eq!([course(0.9, 1), course(0.1, 1)], [Course::Holding, Course::Relaxing]);
        assert_eq!([course(2.0, 12), course(2.0, 1)], [Course::Tightening, Course::AtLimit]);
        // A second later there is news even if nothing has changed, and silence counts from when it is taken up.
        let first = server.level;
        let again = |now_s| ServiceLevel::after(Some(first), first.said(), server.now + SHORTEST, now_s);
        assert!(!again(0).is_news(Some(first)) && again(1).is_news(Some(first)) && first.is_news(None));
        let text = serde_json::to_string(&first).unwrap();
        let read: ServiceLevel = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (read.part(), read.course(), read.said(), read.next()),
            (LEAST, Course::AtLimit, first.said(), None)
        );
        let now = began + SILENCE;
        assert_eq!(read.taken_up(now), ServiceLevel { periods: Some((now, now + SILENCE)), ..first });
        // No text makes more or less of it than there is.
        for (part, clamped) in [("-1.0", LEAST), ("7e9", 1.0)] {
            let text = text.replace("0.01", part);
            let read: ServiceLevel = serde_json::from_str(&text).unwrap();
            assert!(read.taken_up(now).part().total_cmp(&clamped).is_eq(), "{text}");
        }
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
            let (mut level, mut now) = (unused(), Instant::now());
            for said in said {
                now += SILENCE;
                match said {
                    Some((latency_ms, target_ms)) => level.hear(Service { latency_ms, target_ms }, now, 0),
                    None => level.wait(now),
                }
                prop_assert!((LEAST..=1.0).contains(&level.part()));
            }
        }
    }
}
