//! What moves of `predict` are judged by, and rounds that are only tried out.

use crate::predict::{BYTES, all, observation, policy};
use machine::{MemoryPolicy, NodeId};
use placement::*;

/// What was moved is not there any more, its owner has placed it since, or there is more traffic than before.
#[test]
fn moves_are_not_judged_by_other_memory_or_other_loads() {
    let slower = |change: &dyn Fn(&mut Observation)| {
        let mut policy = policy();
        policy.decide(&observation(1, 80.0, all));
        policy.learn(&Outcome { round: 1, moving_s: 0.05, bytes_moved: BYTES, ..Outcome::default() });
        policy.decide(&observation(2, 80.0, all));
        let mut seen = Observation { latency_mean_ns: Some(1500.0), ..observation(3, 80.0, all) };
        change(&mut seen);
        let decision = policy.decide(&seen);
        let is_moved_back = matches!(decision.steps[0].action, Action::MoveRanges { .. });
        (decision.steps[0].reason.rule, is_moved_back)
    };
    assert_eq!(slower(&|_| ()), (Rule::MadeWorse, true));
    let freed = slower(&|seen| {
        for range in &mut seen.ranges {
            (range.start, range.end) = (range.start + BYTES, range.end + BYTES);
        }
    });
    assert_ne!(freed.0, Rule::MadeWorse);
    let owned = slower(&|seen| seen.ranges[0].memory_policy = Some(MemoryPolicy::bind(NodeId(1))));
    assert_eq!(owned, (Rule::MadeWorse, false));
    let busier = slower(&|seen| seen.traffic.iter_mut().for_each(|pair| pair.accesses *= 10.0));
    assert_ne!(busier.0, Rule::MadeWorse);
}

/// Rounds in which nothing would be done are remembered: moves come when they are paid for.
#[test]
fn what_is_only_tried_out_is_shown_when_it_would_be_done() {
    let short = |round| Observation { length_s: 0.01, ..observation(round, 0.8, all) };
    let rounds = |decide: &dyn Fn(&mut Policy, &Observation) -> Decision| {
        let mut policy = policy();
        (1..200).find(|&round| matches!(decide(&mut policy, &short(round)).steps[0].action, Action::DealRanges { .. }))
    };
    let first = rounds(&|policy, seen| policy.decide(seen));
    assert!(first.is_some_and(|first| first > 2), "{first:?}");
    assert_eq!(rounds(&|policy, seen| policy.try_out(seen)), first);
    let mut policy = policy();
    let seen = observation(1, 80.0, all);
    assert_eq!(policy.try_out(&seen), policy.try_out(&seen), "what would be done is not remembered");
}
