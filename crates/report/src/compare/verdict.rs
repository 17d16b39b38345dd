//! The fastest policy, and why, as far as it is statistically significant.

use super::{Estimate, PolicyRuns, PolicySummary};
use machine::number::percent;
use serde::Serialize;

/// Smallest change of a share that explains a difference.
const NOTABLE: f64 = 0.1;
/// Smallest factor of latency that explains a difference.
const NOTABLE_LATENCY: f64 = 1.1;

/// The fastest policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The policy that is faster than every other, if there is one, at 95 %.
    pub winner: Option<String>,
    /// One or two sentences.
    pub text: String,
}

/// A policy that ran, with its summary.
type Ran<'a> = (&'a PolicyRuns, &'a PolicySummary);

impl Verdict {
    pub(super) fn new(policies: &[PolicyRuns], summaries: &[PolicySummary], baseline: Option<&str>) -> Self {
        let undecided = |text: String| Self { winner: None, text };
        let has_run = |(policy, summary): &Ran| summary.seconds.is_some() && policy.failed.is_none();
        let mut ran: Vec<Ran> = policies.iter().zip(summaries).filter(has_run).collect();
        ran.sort_by(|(_, a), (_, b)| mean(a).total_cmp(&mean(b)));
        let Some((best, others)) = ran.split_first() else {
            return undecided("No policy completed a run: there is nothing to compare.".to_owned());
        };
        if others.is_empty() {
            return undecided(format!("Only {} ran: there is nothing to compare it with.", best.0.policy));
        }
        if ran.iter().any(|(policy, _)| policy.runs.len() < 2) {
            return undecided(format!(
                "{} was the fastest, but not every policy has two runs, so no difference is significant: \
                 each needs at least two, as with --repeat 3.",
                best.0.policy
            ));
        }
        // Time of another policy relative to the best.
        let longer = |other: &Ran| Estimate::ratio(&other.0.seconds(), &best.0.seconds());
        let is_slower = |other: &&Ran| longer(other).is_some_and(|ratio| ratio.is_above(1.0)) && is_apart(other, best);
        let as_good: Vec<&str> =
            others.iter().filter(|other| !is_slower(other)).map(|(policy, _)| policy.policy.as_str()).collect();
        let against = ran.iter().find(|(policy, _)| Some(policy.policy.as_str()) == baseline);
        let is_baseline = |name: &str| Some(name) == baseline;
        let all_alike = as_good.len() == others.len();
        if all_alike && is_baseline(&best.0.policy) {
            return undecided(format!(
                "No significant difference: {} had the shortest mean, and {} does not differ significantly.",
                best.0.policy,
                as_good.join(", ")
            ));
        }
        if let Some((against, ratio)) = against.and_then(|against| Some((against, longer(against)?)))
            && all_alike
        {
            let (best, speedup, of) = (&best.0.policy, times(&ratio), &against.0.policy);
            return undecided(format!("No significant difference: the best, {best}, was {speedup} as fast as {of}."));
        }
        let beaten = against.filter(|(policy, _)| !as_good.contains(&policy.policy.as_str()));
        let reason = beaten.map_or(String::new(), |against| why(against.1, best.1));
        let against = against.filter(|(policy, _)| policy.policy != best.0.policy);
        let faster = against.and_then(|against| Some((longer(against)?, &against.0.policy)));
        let faster = faster.map_or(String::new(), |(ratio, of)| format!("{} as fast as {of}", times(&ratio)));
        if as_good.is_empty() {
            let next = others.first().filter(|(policy, _)| !is_baseline(&policy.policy));
            let next =
                next.and_then(|next| Some(format!("{} as fast as {}, the next", times(&longer(next)?), next.0.policy)));
            let parts: Vec<String> =
                [Some(faster).filter(|text| !text.is_empty()), next].into_iter().flatten().collect();
            let name = &best.0.policy;
            let text = match parts.as_slice() {
                [] => format!("{name} is the fastest of all.{reason}"),
                parts => format!("{name} is the fastest: {}.{reason}", parts.join(", ")),
            };
            return Self { winner: Some(name.clone()), text };
        }
        let names = [&[best.0.policy.as_str()], as_good.as_slice()].concat().join(", ");
        let faster = if faster.is_empty() { faster } else { format!(": {faster}") };
        let is_listed = |name: &&str| !as_good.contains(name) && !is_baseline(name);
        let slower: Vec<&str> = others.iter().map(|(policy, _)| policy.policy.as_str()).filter(is_listed).collect();
        let slower = if slower.is_empty() { String::new() } else { format!(" Slower: {}.", slower.join(", ")) };
        undecided(format!(
            "The fastest are {names}, without a significant difference between them{faster}.{slower}{reason}"
        ))
    }
}

/// Whether the intervals of the two times confirm that they differ. Two runs are too few for that of their ratio alone:
/// it may exclude 1 while that of a time is as wide as the time.
fn is_apart(long: &Ran, short: &Ran) -> bool {
    let interval = |ran: &Ran| ran.1.seconds.and_then(|seconds| seconds.interval);
    let few = long.0.runs.len().min(short.0.runs.len()) < 3;
    !few || interval(long).zip(interval(short)).is_some_and(|((low, _), (_, high))| low > high)
}

fn mean(summary: &PolicySummary) -> f64 {
    summary.seconds.map_or(f64::INFINITY, |seconds| seconds.mean)
}

/// `1.72 times (1.68 to 1.76)`.
fn times(ratio: &Estimate) -> String {
    format!("{:.2} times{}", ratio.mean, ratio.interval_text())
}

/// Changes of memory accesses that may explain a difference: a sentence with a leading space, or nothing.
fn why(before: &PolicySummary, after: &PolicySummary) -> String {
    let mut reasons = Vec::new();
    let pair = |of: fn(&PolicySummary) -> Option<f64>| of(before).zip(of(after));
    if let Some((was, is)) = pair(|summary| summary.local_access_ratio).filter(|(was, is)| (was - is).abs() >= NOTABLE)
    {
        reasons.push(format!("{} of the accesses to memory are local instead of {}", percent(is), percent(was)));
    }
    if let Some((was, is)) = pair(|summary| summary.busiest_share).filter(|(was, is)| (was - is).abs() >= NOTABLE) {
        reasons.push(format!(
            "the busiest node serves {} of the accesses to memory instead of {}",
            percent(is),
            percent(was)
        ));
    }
    let is_notable = |(was, is): &(f64, f64)| was.max(*is) >= NOTABLE_LATENCY * was.min(*is);
    if let Some((was, is)) = pair(|summary| summary.latency_mean_ns).filter(is_notable) {
        reasons.push(format!("each takes {is:.0} ns instead of {was:.0}"));
    }
    let mut sentence = match reasons.as_slice() {
        [] => return String::new(),
        [one] => one.clone(),
        [some @ .., last] => format!("{}, and {last}", some.join(", ")),
    };
    sentence.get_mut(..1).into_iter().for_each(str::make_ascii_uppercase);
    format!(" {sentence}.")
}
