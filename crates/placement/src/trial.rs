//! Whether moves did harm: the cost of an access before and after, and reverting them.

use crate::batches::{Candidate, Operation};
use crate::metrics::{AccessCost, Metrics};
use crate::outcome::PageOf;
use crate::reason::{Quantity, Reason, Rule};
use crate::thresholds::Thresholds;
use machine::{NodeId, Pid};
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Moves are judged by this many rounds after them; older ones are accepted.
const ROUNDS: u64 = 4;
/// Consecutive slower rounds before moves are reverted: moving itself slows down the first one.
const WORSE_ROUNDS: u64 = 2;
/// Traffic that grew by more than this factor makes accesses slower whatever was moved.
const SAME_TRAFFIC: f64 = 1.05;

/// Moves that are not accepted yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Trial {
    rounds: Vec<TriedRound>,
    /// Number of consecutive slower rounds.
    worse: u64,
    /// Nothing moves until this round.
    rests_until: u64,
    /// Length of the next pause, in rounds.
    rest: u64,
    /// Pages still to be moved back, because not all fit into a round.
    owed: Vec<TriedMove>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TriedRound {
    round: u64,
    cost: Option<AccessCost>,
    accesses_per_us: Option<f64>,
    moves: Vec<TriedMove>,
    /// Moves of pages that are to be copied: made only if copying fails, which the outcome says.
    #[serde(default)]
    fallbacks: Vec<TriedMove>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TriedMove {
    page: PageOf,
    bytes: u64,
    from: NodeId,
    to: NodeId,
}

/// The verdict on the last moves.
pub(crate) enum Verdict {
    /// Moving may continue.
    GoOn,
    /// They did harm: move these back.
    Worse(Vec<Candidate>, Reason),
    /// They did harm, and no others may move yet.
    Rest(Reason),
}

impl Trial {
    /// Judges a round, before anything is moved in it.
    pub fn judge(&mut self, round: u64, now: &Metrics, thresholds: &Thresholds) -> Verdict {
        if round < self.rests_until {
            if !self.owed.is_empty() {
                let back = std::mem::take(&mut self.owed).into_iter().map(TriedMove::back).collect();
                return Verdict::Worse(back, Reason::new(Rule::MadeWorse));
            }
            let left = (self.rests_until - round) as f64;
            return Verdict::Rest(Reason::new(Rule::Resting).with(Quantity::Rounds, left));
        }
        self.owed.clear();
        self.rounds.retain(|tried| !tried.moves.is_empty());
        let proven = self.rounds.iter().take_while(|tried| tried.round.saturating_add(ROUNDS) < round).count();
        if proven > 0 {
            self.rounds.drain(..proven);
            self.rest = 0;
        }
        let Some((before, now)) = self.compare(now) else {
            self.worse = 0;
            return Verdict::GoOn;
        };
        let is_worse =
            now.0.above_ns(thresholds.worse_cost_min, before.0).is_some() && now.1 <= SAME_TRAFFIC * before.1;
        self.worse = if is_worse { self.worse + 1 } else { 0 };
        if self.worse < WORSE_ROUNDS {
            return Verdict::GoOn;
        }
        let reason = Reason::new(Rule::MadeWorse)
            .against(Quantity::AccessNs, now.0.access_ns, thresholds.worse_cost_min * before.0.access_ns)
            .with(Quantity::AccessNsBefore, before.0.access_ns);
        self.rest = self
            .rest
            .saturating_mul(2)
            .clamp(thresholds.rest_rounds, thresholds.rest_rounds_max.max(thresholds.rest_rounds));
        self.rests_until = round.saturating_add(self.rest).saturating_add(1);
        self.worse = 0;
        // A page that moved twice goes back to its first node.
        let mut gone = BTreeSet::new();
        let moves = self.rounds.drain(..).flat_map(|tried| tried.moves);
        let back = moves.filter(|tried| gone.insert(tried.page)).map(TriedMove::back).collect();
        Verdict::Worse(back, reason)
    }

    /// Cost and traffic before the oldest of the moves, and now.
    fn compare(&self, now: &Metrics) -> Option<((AccessCost, f64), (AccessCost, f64))> {
        let first = self.rounds.first()?;
        Some(((first.cost?, first.accesses_per_us?), (now.access_cost()?, now.accesses_per_us?)))
    }

    /// Records the moves of this round, and those that are made where copying fails.
    pub fn add(&mut self, round: u64, before: &Metrics, candidates: &[Candidate]) {
        let with_target = candidates.iter().filter(|page| page.to.is_some());
        let (fallbacks, moves): (Vec<_>, Vec<_>) = with_target.partition(|page| page.is_copied());
        if !(moves.is_empty() && fallbacks.is_empty()) {
            let tried = |pages: Vec<&Candidate>| pages.into_iter().filter_map(TriedMove::from_candidate).collect();
            let (moves, fallbacks) = (tried(moves), tried(fallbacks));
            let (cost, accesses_per_us) = (before.access_cost(), before.accesses_per_us);
            self.rounds.push(TriedRound { round, cost, accesses_per_us, moves, fallbacks });
        }
    }

    /// Records which pages of a round were moved because copying failed. Returns these moves.
    pub fn settle(&mut self, round: u64, moved_instead: &[PageOf]) -> Vec<Candidate> {
        let Some(tried) = self.rounds.iter_mut().find(|tried| tried.round == round) else { return Vec::new() };
        let pages: FxHashSet<PageOf> = moved_instead.iter().copied().collect();
        let mut made = std::mem::take(&mut tried.fallbacks);
        made.retain(|tried| pages.contains(&tried.page));
        tried.moves.extend(&made);
        made.into_iter().map(TriedMove::candidate).collect()
    }

    /// Keeps pages that could not be moved back yet. They are retried in the next rounds, until the pause ends.
    pub fn owe(&mut self, back: impl Iterator<Item = Candidate>) {
        let moved =
            |page: Candidate| Some(TriedMove { page: page.id(), bytes: page.bytes, from: page.to?, to: page.from });
        self.owed.extend(back.filter_map(moved));
    }

    /// Drops the moves of a process.
    pub fn forget_process(&mut self, pid: Pid) {
        for tried in &mut self.rounds {
            tried.moves.retain(|tried| tried.page.pid != pid);
            tried.fallbacks.retain(|tried| tried.page.pid != pid);
        }
        self.owed.retain(|tried| tried.page.pid != pid);
    }

    /// Drops moves that were not made.
    pub fn leave_out(&mut self, round: u64, refused: &[PageOf]) {
        let refused: FxHashSet<PageOf> = refused.iter().copied().collect();
        for tried in self.rounds.iter_mut().filter(|tried| tried.round == round && !refused.is_empty()) {
            tried.moves.retain(|tried| !refused.contains(&tried.page));
        }
    }
}

impl TriedMove {
    fn from_candidate(page: &Candidate) -> Option<Self> {
        Some(Self { page: page.id(), bytes: page.bytes, from: page.from, to: page.to? })
    }

    fn candidate(self) -> Candidate {
        let Self { page: PageOf { pid, address }, bytes, from, to } = self;
        Candidate { pid, address, bytes, from, to: Some(to), samples: 0, operation: Operation::Move }
    }

    fn back(self) -> Candidate {
        Self { from: self.to, to: self.from, ..self }.candidate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(access_ns: f64, accesses_per_us: f64) -> Metrics {
        Metrics { access_ns: Some(access_ns), accesses_per_us: Some(accesses_per_us), ..Metrics::default() }
    }

    fn candidate(address: u64, from: u32, to: u32) -> Candidate {
        let (from, to) = (NodeId(from), Some(NodeId(to)));
        Candidate { pid: Pid(7), address, bytes: 4096, from, to, samples: 2, operation: Operation::Move }
    }

    fn is_worse(verdict: &Verdict) -> bool {
        matches!(verdict, Verdict::Worse(..))
    }

    #[test]
    fn moves_go_back_after_two_worse_rounds_and_nothing_moves_for_longer_each_time() {
        let thresholds = Thresholds::default();
        let mut trial = Trial::default();
        let mut round = 1;
        for rest in [4, 8, 16] {
            trial.add(round, &metrics(100.0, 50.0), &[candidate(0, 0, 1), candidate(4096, 0, 2)]);
            trial.add(round + 1, &metrics(130.0, 50.0), &[candidate(0, 1, 3)]);
            trial.leave_out(round, &[PageOf { pid: Pid(7), address: 4096 }]);
            assert!(!is_worse(&trial.judge(round + 1, &metrics(130.0, 50.0), &thresholds)));
            let Verdict::Worse(back, reason) = trial.judge(round + 2, &metrics(130.0, 50.0), &thresholds) else {
                panic!("two rounds were worse")
            };
            assert_eq!(back.iter().map(|page| (page.address, page.to)).collect::<Vec<_>>(), [(0, Some(NodeId(0)))]);
            assert_eq!(reason.value(Quantity::AccessNsBefore), Some(100.0));
            for resting in 1..=rest {
                let verdict = trial.judge(round + 2 + resting, &metrics(100.0, 50.0), &thresholds);
                assert!(matches!(verdict, Verdict::Rest(_)), "{resting} of {rest}");
            }
            round += 3 + rest;
            assert!(matches!(trial.judge(round, &metrics(100.0, 50.0), &thresholds), Verdict::GoOn));
        }
    }

    #[test]
    fn a_worse_round_before_other_moves_does_not_count_for_them() {
        let thresholds = Thresholds::default();
        let mut trial = Trial::default();
        trial.add(1, &metrics(100.0, 50.0), &[candidate(0, 0, 1)]);
        assert!(!is_worse(&trial.judge(5, &metrics(130.0, 50.0), &thresholds)));
        assert!(!is_worse(&trial.judge(6, &metrics(100.0, 50.0), &thresholds)), "the first moves are proven");
        trial.add(6, &metrics(100.0, 50.0), &[candidate(4096, 0, 1)]);
        assert!(!is_worse(&trial.judge(7, &metrics(130.0, 50.0), &thresholds)), "moving itself made it slower");
    }

    #[test]
    fn what_few_samples_leave_open_stays() {
        let thresholds = Thresholds::default();
        let judge = |ns, errors: [Option<f64>; 2]| {
            let with = |ns, access_error_ns| Metrics { access_error_ns, ..metrics(ns, 50.0) };
            let mut trial = Trial::default();
            trial.add(1, &with(100.0, errors[0]), &[candidate(0, 0, 1)]);
            (2..4).any(|round| is_worse(&trial.judge(round, &with(ns, errors[1]), &thresholds)))
        };
        assert!(!judge(130.0, [Some(10.0); 2]), "100 samples");
        assert!(judge(130.0, [Some(2.0); 2]), "2,500 samples");
        assert!(judge(200.0, [Some(10.0); 2]), "a large difference needs few samples");
        assert!(!judge(130.0, [None, Some(1.0)]) && !judge(130.0, [Some(1.0), None]), "estimated and measured");
    }

    #[test]
    fn what_is_slower_for_other_reasons_stays() {
        let thresholds = Thresholds::default();
        let judge = |rounds: &[(f64, f64)]| {
            let mut trial = Trial::default();
            trial.add(1, &metrics(100.0, 50.0), &[candidate(0, 0, 1)]);
            let numbered = rounds.iter().zip(2..);
            numbered
                .map(|((ns, per_us), round)| trial.judge(round, &metrics(*ns, *per_us), &thresholds))
                .any(|v| is_worse(&v))
        };
        assert!(judge(&[(120.0, 50.0), (120.0, 50.0)]));
        assert!(!judge(&[(114.0, 50.0), (114.0, 50.0)]), "a little slower");
        assert!(!judge(&[(120.0, 50.0), (100.0, 50.0), (120.0, 50.0)]), "not in a row");
        assert!(!judge(&[(150.0, 60.0), (150.0, 60.0)]), "more traffic");
        assert!(!judge(&[(100.0, 50.0); 5].iter().chain(&[(150.0, 50.0); 3]).copied().collect::<Vec<_>>()), "later");
    }
}
