//! Moves that are not judged yet: what accesses cost before them, and what would take them back.

use super::forecast::Effect;
use super::waiting::{Shape, known_by};
use crate::action::{Action, AddressRange};
use crate::metrics::{AccessCost, Metrics};
use crate::observation::{Observation, Range};
use crate::settings::Settings;
use machine::Pid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Rounds after moves until accesses are compared: the first is disturbed by the moves.
const SETTLING_ROUNDS: u64 = 2;
/// More traffic than this many times as much as was forecast makes accesses slower whatever was moved.
const SAME_TRAFFIC: f64 = 1.1;
/// The part of the moved ranges that must still be mapped for the moves to be judged.
const STILL_MAPPED: f64 = 0.5;

/// Moves, what was predicted of them, and what would take them back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Trial {
    pub round: u64,
    pub pids: BTreeSet<Pid>,
    /// The speedup that was acted on: that of the forecast, as far as forecasts are trusted.
    pub predicted: f64,
    /// The forecast. None in logs of earlier versions.
    #[serde(default)]
    pub forecast: Option<Effect>,
    pub before: Option<AccessCost>,
    /// Traffic then.
    #[serde(default)]
    pub accesses_per_us: Option<f64>,
    /// What was moved. None in logs of earlier versions.
    #[serde(default)]
    pub moved: Vec<(Pid, AddressRange)>,
    /// Whose accesses there were.
    #[serde(default)]
    pub users: Shape,
    pub bytes: f64,
    pub back: Vec<Action>,
}

impl Trial {
    /// The round in which they are judged.
    pub fn due(&self) -> u64 {
        self.round.saturating_add(SETTLING_ROUNDS)
    }

    pub fn is_due(&self, round: u64) -> bool {
        round >= self.due()
    }

    /// What an access took before the moves and takes now; none if they cannot be compared.
    pub fn costs(&self, observation: &Observation, now: &Metrics) -> Option<(AccessCost, AccessCost)> {
        // Other threads' accesses say nothing about the moves: a serial beginning has ended, or a phase.
        let is_of_others = self.users.is_elsewhere(&Shape::of_users(observation), known_by(observation));
        let (before, after) = self.before.zip(now.access_cost())?;
        // There is more to wait for than the moves account for.
        let waits_more = || after.access_ns > before.access_ns && self.has_more_traffic(now);
        let are_alike = !is_of_others && !self.is_freed(observation) && before.is_like(after) && !waits_more();
        are_alike.then_some((before, after))
    }

    /// Whether there is more traffic than the gain, if it is as large as was forecast, accounts for.
    fn has_more_traffic(&self, now: &Metrics) -> bool {
        let most = |before: f64| before * self.forecast.map_or(1.0, |effect| effect.speedup.max(1.0)) * SAME_TRAFFIC;
        self.accesses_per_us.zip(now.accesses_per_us).is_some_and(|(before, now)| now > most(before))
    }

    /// Whether most of what was moved is not there any more, so that what accesses cost says nothing about it.
    fn is_freed(&self, observation: &Observation) -> bool {
        let read: BTreeSet<Pid> = observation.ranges.iter().map(|range| range.pid).collect();
        let (mut all, mut left) = (0.0, 0.0);
        for (pid, moved) in self.moved.iter().filter(|(pid, _)| read.contains(pid)) {
            let of_process = observation.ranges.iter().filter(|range| range.pid == *pid);
            let overlap = |range: &Range| range.end.min(moved.end).saturating_sub(range.start.max(moved.start)) as f64;
            all += moved.end.saturating_sub(moved.start) as f64;
            left += of_process.map(overlap).sum::<f64>();
        }
        left < STILL_MAPPED * all
    }
}

/// The ranges that an action moves.
pub(super) fn ranges_of(action: &Action) -> Vec<(Pid, AddressRange)> {
    match action {
        Action::MoveRanges { pid, ranges, .. } | Action::DealRanges { pid, ranges, .. } => {
            ranges.iter().map(|range| (*pid, *range)).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether memory may be taken back: it is mapped as it was, and its owner has not placed it since.
pub(super) fn is_unchanged(back: &Action, observation: &Observation, settings: &Settings) -> bool {
    let overlap =
        |range: &Range, moved: AddressRange| range.end.min(moved.end).saturating_sub(range.start.max(moved.start));
    ranges_of(back).into_iter().all(|(pid, moved)| {
        let parts = observation.ranges.iter().filter(|range| range.pid == pid && overlap(range, moved) > 0);
        let is_owners = parts.clone().any(|range| range.memory_policy.is_some() && settings.respect_owner);
        let mapped = parts.fold(0, |sum: u64, range| sum.saturating_add(overlap(range, moved)));
        let is_read = observation.ranges.iter().any(|range| range.pid == pid);
        !is_read || !is_owners && mapped >= moved.end.saturating_sub(moved.start)
    })
}
