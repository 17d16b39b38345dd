//! What is left to run.

use super::cell::Cell;
use super::file::Campaign;
use super::read::Runs;
use super::results::{Outcome, Results, SECONDS, Unit};
use crate::statistics::Estimate;
use machine::Random;

/// Decides which runs are left: a pure function of the results so far, so that an interrupted campaign continues as if
/// it had not been interrupted.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The campaign.
    pub campaign: &'a Campaign,
}

impl<'a> Progress<'a> {
    /// Whether a cell needs no more runs: it has failed, has all runs, or its interval is narrow enough.
    pub fn is_over(&self, results: &Results, cell: &Cell) -> bool {
        next_round(self.campaign.runs, results.units(&cell.id)).is_none()
    }

    /// The cells that run in a round, in its order: those that need this round and have the rounds before. Other rounds
    /// than the next one of a cell are none of its.
    pub fn round(&self, results: &Results, cells: &[&'a Cell], round: u32) -> Vec<&'a Cell> {
        let is_next = |cell: &&&Cell| next_round(self.campaign.runs, results.units(&cell.id)) == Some(round);
        let mut left: Vec<&Cell> = cells.iter().filter(is_next).copied().collect();
        if let Some(seed) = self.campaign.seed {
            // By a hash of seed, round and cell: the order of two cells does not depend on which others are left.
            let key = |cell: &&Cell| {
                let id = u64::from_str_radix(&cell.id, 16).unwrap_or(0);
                (Random(seed ^ Random(u64::from(round) ^ Random(id).bits()).bits()).bits(), id)
            };
            left.sort_by_cached_key(key);
        }
        left
    }

    /// The first round in which a cell has a run left; `None` if all are over.
    pub fn next_round(&self, results: &Results, cells: &[&Cell]) -> Option<u32> {
        cells.iter().filter_map(|cell| next_round(self.campaign.runs, results.units(&cell.id))).min()
    }

    /// Runs left of all cells: at least, and at most.
    pub fn left(&self, results: &Results, cells: &[&Cell]) -> (usize, usize) {
        let Runs { min, max, .. } = self.campaign.runs;
        let left = cells.iter().filter_map(|cell| next_round(self.campaign.runs, results.units(&cell.id)));
        let left = left.map(|next| (min.saturating_sub(next).max(1) as usize, max.saturating_sub(next) as usize));
        left.fold((0, 0), |sum, cell| (sum.0 + cell.0, sum.1 + cell.1))
    }
}

/// The next round of a cell with these results: the first that it lacks. What follows a gap does not count.
fn next_round(runs: Runs, units: &[Unit]) -> Option<u32> {
    let known = units.iter().zip(0..).take_while(|(unit, round)| unit.round == *round);
    let known: Vec<&Unit> = known.map(|(unit, _)| unit).collect();
    let mut seconds = Vec::new();
    for unit in &known {
        match &unit.outcome {
            Outcome::Failed { .. } => return None,
            Outcome::Measured(measured) => seconds.extend(measured.metric(SECONDS)),
        }
    }
    let count = u32::try_from(known.len()).unwrap_or(u32::MAX);
    if count >= runs.max {
        return None;
    }
    let spread = || Estimate::from_values(&seconds)?.spread();
    let is_narrow = || runs.until.is_none_or(|until| spread().is_some_and(|spread| spread <= until));
    (count < runs.min || !is_narrow()).then_some(count)
}
