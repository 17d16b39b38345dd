//! What moves of `predict` are judged by, and rounds that are only tried out.

use crate::predict::{BYTES, NODES, all, observation, policy, quarters, rule};
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

/// A budget that allows a hundredth of the memory, or no time for more: the gain of all of it cannot be seen yet.
#[test]
fn a_part_of_the_moves_is_not_judged_by_the_forecast_of_all() {
    let cut = |round| Observation { budget_bytes: Some(BYTES / 100), ..observation(round, 80.0, all) };
    let mut by_budget = policy();
    let rules = [1, 2, 3, 4].map(|round| rule(&by_budget.decide(&cut(round))));
    assert_eq!(rules, [Rule::FasterDealt, Rule::MovesSettle, Rule::MovesCompared, Rule::FasterDealt]);
    let mut by_time = policy();
    by_time.decide(&observation(1, 80.0, all));
    let outcome = Outcome { round: 1, moving_s: 0.05, bytes_moved: BYTES / 3, out_of_time: true, ..Outcome::default() };
    by_time.learn(&outcome);
    by_time.decide(&observation(2, 80.0, all));
    let slower = Observation { latency_mean_ns: Some(1500.0), ..observation(3, 80.0, all) };
    let decision = by_time.decide(&slower);
    assert!(matches!(decision.steps[0].action, Action::MoveRanges { node: NodeId(0), .. }), "{decision:?}");
    assert_eq!(rule(&decision), Rule::MadeWorse, "a part that made accesses slower is taken back, too");
}

/// Accesses take more than twice as long as without load, which a quarter of the bandwidth does not explain: the model has
/// no reason to see full controllers, where distance would not matter.
#[test]
fn memory_that_was_spread_is_taken_back_by_spreading_it() {
    let nodes = || (0..NODES).map(NodeId);
    let spread = |round, latency_ns| {
        let mut seen = Observation { latency_mean_ns: Some(latency_ns), ..observation(round, 80.0, quarters) };
        seen.pages.iter_mut().zip(0..).for_each(|(page, number)| page.node = NodeId(number % NODES));
        seen.ranges[0].bytes = nodes().map(|node| NodeBytes { node, bytes: BYTES / 4 }).collect();
        let pair = |from, to| Traffic { from, to, accesses: 80e6 / f64::from(NODES * NODES) };
        seen.traffic = nodes().flat_map(|from| nodes().map(move |to| pair(from, to))).collect();
        seen
    };
    let mut policy = policy();
    let decision = policy.decide(&spread(1, 300.0));
    assert_eq!(rule(&decision), Rule::FasterAtUsers, "{decision:?}");
    policy.decide(&spread(2, 300.0));
    let decision = policy.decide(&spread(3, 600.0));
    let dealt = |step: &Step| matches!(&step.action, Action::DealRanges { weights, .. } if weights.len() == 4);
    assert!(rule(&decision) == Rule::MadeWorse && decision.steps.iter().all(dealt), "{decision:?}");
}

/// The traffic is elsewhere whenever moves are judged, as where threads do not stay.
#[test]
fn moves_that_cannot_be_judged_do_not_go_on_without_end() {
    let mut policy = policy();
    let from = |round: u64| move |pair: &Traffic| pair.from == NodeId((round / 2 % 2) as u32);
    let rules: Vec<Rule> = (1..8)
        .map(|round| {
            let mut seen = observation(round, 80.0, all);
            seen.traffic.retain(from(round));
            rule(&policy.decide(&seen))
        })
        .collect();
    assert!(rules.contains(&Rule::GainUnknown), "{rules:?}");
}
