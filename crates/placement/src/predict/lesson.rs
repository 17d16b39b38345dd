//! What a run teaches about a later run of the same program: how its memory is to be placed from the start.

use super::forecast::{Choice, moved_bytes};
use super::search::Plan;
use super::segments::Segment;
use serde::{Deserialize, Serialize};

/// Least predicted speedup that teaches anything: above what is acted on in the same run, because a later run may differ.
const LEAST_SPEEDUP: f64 = 1.1;
/// Least part of the bytes of a plan that is placed alike.
const ALIKE: f64 = 0.9;

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

    /// What a plan teaches, if it places nearly all that it moves alike.
    pub(super) fn of(plan: &Plan, segments: &[Segment], speedup: f64) -> Option<Self> {
        if speedup < LEAST_SPEEDUP {
            return None;
        }
        let (mut dealt, mut all) = (0.0, 0.0);
        for (segment, &choice) in segments.iter().zip(&plan.choices) {
            let bytes = moved_bytes(segment, choice);
            all += bytes;
            dealt += if choice == Choice::Deal { bytes } else { 0.0 };
        }
        if dealt >= ALIKE * all {
            Some(Self::Spread)
        } else {
            (dealt <= (1.0 - ALIKE) * all).then_some(Self::FirstTouch)
        }
    }
}
