//! Duration of one decision of `carrefour` and of `predict`, on the same rounds as `cargo bench -p nearside-placement`.

#[path = "../../../../crates/placement/benches/round/mod.rs"]
mod round;
#[path = "../../../../crates/placement/benches/round/sixteen_nodes.rs"]
mod sixteen_nodes;

use crate::target::{Row, Target, median};
use bench::Error;
use placement::{Action, Observation, Policy};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

const RUNS: usize = 15;

/// Most CPU time of a choice of `predict`, ms.
const MOST_CHOICE_MS: f64 = 20.0;

/// Times decisions as CPU time, since a decision waits for nothing.
pub fn measure() -> Result<Vec<Row>, Error> {
    let of_carrefour = |(pages, most_ms)| {
        let what = format!("placement: one decision, {pages} pages, 8 nodes");
        row(what, most_ms, &round::policy(pages).map_err(|error| failed(error.as_ref()))?, &round::observation(pages))
    };
    let mut rows = [(30_000, 3.0), (1_000_000, 150.0)].into_iter().map(of_carrefour).collect::<Result<Vec<_>, _>>()?;
    let (mappings, pages) = (sixteen_nodes::SEGMENTS, sixteen_nodes::PAGES);
    let what = format!("placement: one choice of `predict`, {mappings} mappings of {pages} pages, 16 nodes");
    let policy = sixteen_nodes::policy().map_err(|error| failed(error.as_ref()))?;
    let in_turns = format!("{what}, used in turns");
    rows.push(row(what, MOST_CHOICE_MS, &policy, &sixteen_nodes::observation())?);
    rows.push(row(in_turns, MOST_CHOICE_MS, &policy, &sixteen_nodes::observation_in_turns())?);
    Ok(rows)
}

fn row(what: String, most_ms: f64, policy: &Policy, observation: &Observation) -> Result<Row, Error> {
    let decide = |_| {
        let mut policy = policy.clone();
        let started = processor_time();
        let decision = policy.decide(observation);
        let taken = processor_time().saturating_sub(started);
        let bytes: u64 = decision.steps.iter().map(|step| Action::bytes(&step.action)).sum();
        if bytes == 0 { Err(none("nothing moves".to_owned())) } else { Ok(taken.as_secs_f64() * 1e3) }
    };
    let times: Result<Vec<f64>, Error> = (0..RUNS).map(decide).collect();
    Ok(Row {
        what,
        target: Target::AtMost(most_ms),
        measured: median(times?),
        unit: "ms",
        command: "nearside-bench --only placement".to_owned(),
    })
}

fn failed(error: &(dyn std::error::Error + 'static)) -> Error {
    none(machine::chain(error))
}

fn none(said: String) -> Error {
    Error::NoFigure { command: "placement::Policy::decide".into(), figure: "decision that moves pages".into(), said }
}

/// CPU time of this thread.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
