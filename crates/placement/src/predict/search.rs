//! The search for a placement: some for all segments first, then one segment after the other.

use super::forecast::{Choice, Effect, Forecast, moved_bytes};
use super::segments::Segment;
use crate::costs::Costs;
use machine::Pid;
use std::collections::BTreeSet;

/// Segments that are placed one by one, those with the most accesses.
const SINGLE: usize = 12;
/// Least relative improvement of a change to one segment.
const STEP: f64 = 0.005;
/// Fewest samples of a segment that is placed on one node.
const FEWEST: f64 = 32.0;
/// Least share of that node's accesses.
const OWNED: f64 = 0.6;

/// A placement of all segments.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// By segment.
    pub choices: Vec<Choice>,
    /// What it would change.
    pub effect: Effect,
    /// Bytes that it moves.
    pub bytes: f64,
    /// The largest speedup of those that were tried.
    peak: f64,
}

impl Plan {
    fn new(choices: Vec<Choice>, forecast: &Forecast) -> Self {
        let moved = forecast.segments.iter().zip(&choices);
        let bytes = moved.map(|(segment, choice)| moved_bytes(segment, *choice)).sum();
        let effect = forecast.effect(&choices);
        Self { choices, effect, bytes, peak: effect.speedup }
    }

    /// The part of it that is of these processes.
    pub fn of(&self, pids: &BTreeSet<Pid>, forecast: &Forecast) -> Self {
        let choices = self.choices.iter().zip(&forecast.segments);
        let choice = |(choice, segment): (&Choice, &Segment)| {
            if pids.contains(&segment.pid) { *choice } else { Choice::Leave }
        };
        Self::new(choices.map(choice).collect(), forecast)
    }

    /// The best of those that were tried.
    pub fn search(forecast: &Forecast) -> Self {
        let users: Vec<Option<Choice>> =
            forecast.segments.iter().map(|segment| users(segment, forecast.costs)).collect();
        let all = |choice: &dyn Fn(Option<Choice>) -> Choice| {
            Self::new(users.iter().map(|user| choice(*user)).collect(), forecast)
        };
        let mut best = all(&|_| Choice::Leave);
        best.offer(all(&|_| Choice::Deal));
        best.offer(all(&|user| user.unwrap_or(Choice::Leave)));
        best.offer(all(&|user| user.unwrap_or(Choice::Deal)));
        let mut order: Vec<usize> = (0..users.len()).collect();
        let samples = |&at: &usize| forecast.segments[at].uses.all();
        order.sort_by(|a, b| samples(b).total_cmp(&samples(a)).then(a.cmp(b)));
        for at in order.into_iter().take(SINGLE) {
            let options = [Some(Choice::Leave), Some(Choice::Deal), users[at]];
            for option in options.into_iter().flatten() {
                let mut choices = best.choices.clone();
                if std::mem::replace(&mut choices[at], option) != option {
                    best.offer(Self::new(choices, forecast));
                }
            }
        }
        best
    }

    /// Takes another plan if it is faster, or as fast with less to move.
    fn offer(&mut self, other: Self) {
        let (speedup, other_speedup) = (self.effect.speedup, other.effect.speedup);
        let peak = self.peak.max(other_speedup);
        let is_cheaper = other.bytes < self.bytes && other_speedup > peak * (1.0 - STEP);
        if other_speedup > speedup * (1.0 + STEP) || is_cheaper {
            *self = other;
        }
        self.peak = peak;
    }
}

/// Near where most accesses come from, if they clearly do.
fn users(segment: &Segment, costs: &Costs) -> Option<Choice> {
    let by_node = segment.uses.by_row();
    let all: f64 = by_node.iter().sum();
    let (node, most) = by_node.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
    // The share at three standard errors below the observed one.
    let share = most / all;
    let low = share - 3.0 * (share * (1.0 - share) / all).sqrt();
    let is_clear = all >= FEWEST && low >= OWNED;
    nearest(node, segment, costs).filter(|_| is_clear).map(Choice::Local)
}

/// The node itself, or the nearest one that may have the segment, as a node may be without memory for it.
fn nearest(node: usize, segment: &Segment, costs: &Costs) -> Option<usize> {
    let nodes = costs.nodes();
    let far = |index: &usize| costs.remoteness(nodes[node].id, nodes[*index].id);
    let allowed = (0..nodes.len()).filter(|&index| segment.dealt[index] > 0.0);
    let is_allowed = segment.dealt[node] > 0.0;
    if is_allowed { Some(node) } else { allowed.min_by(|a, b| far(a).total_cmp(&far(b))) }
}
