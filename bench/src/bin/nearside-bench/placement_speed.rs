//! Duration of one decision of `carrefour`, on the same round as `cargo bench -p nearside-placement`.

#[path = "../../../../crates/placement/benches/round/mod.rs"]
mod round;

use crate::target::{Row, Target, median};
use bench::Error;
use placement::Action;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

const RUNS: usize = 15;

/// Times decisions about few and about many pages, as CPU time, since a decision waits for nothing.
pub fn measure() -> Result<Vec<Row>, Error> {
    [(30_000, 3.0), (1_000_000, 150.0)].into_iter().map(|(pages, most_ms)| row(pages, most_ms)).collect()
}

fn row(pages: u64, most_ms: f64) -> Result<Row, Error> {
    let observation = round::observation(pages);
    let decide = |_| {
        let mut policy = round::policy(pages).map_err(|error| none(machine::chain(error.as_ref())))?;
        let started = processor_time();
        let decision = policy.decide(&observation);
        let taken = processor_time().saturating_sub(started);
        let bytes: u64 = decision.steps.iter().map(|step| Action::bytes(&step.action)).sum();
        if bytes == 0 { Err(none("nothing moves".to_owned())) } else { Ok(taken.as_secs_f64() * 1e3) }
    };
    let times: Result<Vec<f64>, Error> = (0..RUNS).map(decide).collect();
    Ok(Row {
        what: format!("placement: one decision, {pages} pages, 8 nodes"),
        target: Target::AtMost(most_ms),
        measured: median(times?),
        unit: "ms",
        command: "nearside-bench --only placement".to_owned(),
    })
}

fn none(said: String) -> Error {
    Error::NoFigure { command: "placement::Policy::decide".into(), figure: "decision that moves pages".into(), said }
}

/// CPU time of this thread.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
