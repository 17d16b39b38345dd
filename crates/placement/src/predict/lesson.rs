//! What a run teaches about a later run of the same program: how its memory is to be placed from the start.

use super::forecast::{Choice, Effect, Forecast};
use super::search::Plan;
use serde::{Deserialize, Serialize};

/// Least predicted speedup that teaches anything: above what is acted on in the same run, because a later run may differ.
const LEAST_SPEEDUP: f64 = 1.1;
/// The part of a plan's gain, or of all accesses, from which on it counts as all.
const NEARLY_ALL: f64 = 0.9;

/// How memory of a program is to be placed from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lesson {
    /// Spread over the nodes with memory, by bandwidth.
    Spread,
    /// On the node of the CPU that touches it first, as without a lesson.
    FirstTouch,
    /// The same, because the program made no threads.
    NoThreads,
    /// The same, because its first thread did nearly all the work.
    WorksAlone,
}

impl Lesson {
    /// Whether it comes from a program in which one thread works. Each run has to show that anew.
    pub fn is_of_one_thread(self) -> bool {
        matches!(self, Self::NoThreads | Self::WorksAlone)
    }

    /// What a forecast and its best plan teach: to begin spread where that is nearly as good as the plan, or as without a
    /// lesson where nearly all accesses would be to the memory of their own node. `trusted` is a speedup as far as
    /// forecasts are trusted.
    pub(super) fn of(forecast: &Forecast, plan: &Plan, trusted: impl Fn(Effect) -> f64) -> Option<Self> {
        let speedup = trusted(plan.effect);
        if speedup < LEAST_SPEEDUP {
            return None;
        }
        let spread = trusted(forecast.effect(&vec![Choice::Deal; forecast.segments.len()]));
        if spread >= LEAST_SPEEDUP && spread - 1.0 >= NEARLY_ALL * (speedup - 1.0) {
            return Some(Self::Spread);
        }
        let (mut near, mut all) = (0.0, 0.0);
        for (segment, &choice) in forecast.segments.iter().zip(&plan.choices) {
            let uses = segment.uses.all();
            all += uses;
            near += match choice {
                Choice::Local(node) => segment.uses.by_row()[node],
                Choice::Leave => segment.uses.local(),
                Choice::Deal => 0.0,
            };
        }
        (near >= NEARLY_ALL * all).then_some(Self::FirstTouch)
    }
}
