//! The result of a replay.

use machine::number::counted;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Most steps of one kind listed per side; further ones are counted.
const MOST_STEPS: usize = 20;

/// The output of `nearside replay`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// The policy in the log.
    pub logged_policy: String,
    /// The policy of the replay.
    pub policy: String,
    /// Rounds in the log.
    pub rounds: u64,
    /// New processes and threads in the log.
    pub starts: u64,
    /// Different decisions.
    pub differences: Vec<ReplayDifference>,
    /// Whether the log ends in the middle of a line: its writer was killed, or the disk was full.
    pub cut_off: bool,
}

/// A round, or a new thread, with a different decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayDifference {
    /// `round 12`, or `thread 8 of process 7`.
    pub at: String,
    /// Steps that are in the log only, each with its reason.
    pub logged: Vec<String>,
    /// Steps that are in the replay only.
    pub now: Vec<String>,
}

impl ReplayDifference {
    /// The steps that only one side has, formatted by `tell`; none if there is no difference.
    pub fn between<T: PartialEq>(at: String, logged: &[T], now: &[T], tell: impl Fn(&T) -> String) -> Option<Self> {
        let without = |steps: &[T], others: &[T]| {
            steps.iter().filter(|step| !others.contains(step)).map(&tell).collect::<Vec<_>>()
        };
        (logged != now).then(|| Self { at, logged: without(logged, now), now: without(now, logged) })
    }
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { logged_policy, policy, rounds, starts, differences, cut_off } = self;
        for ReplayDifference { at, logged, now } in differences {
            writeln!(f, "{at}")?;
            for (side, steps) in [("then", logged), ("now", now)] {
                for step in steps.iter().take(MOST_STEPS) {
                    writeln!(f, "  {side:4}  {step}")?;
                }
                if steps.len() > MOST_STEPS {
                    writeln!(f, "  {side:4}  and {} more", steps.len() - MOST_STEPS)?;
                }
            }
            if logged.is_empty() && now.is_empty() {
                writeln!(f, "  the same steps in another order")?;
            }
        }
        let of = if logged_policy == policy { policy.clone() } else { format!("{policy} instead of {logged_policy}") };
        let all = format!("{} and {}", counted(*rounds, "round"), counted(*starts, "start"));
        match differences.len() {
            0 => writeln!(f, "{of}: {all}, all decided the same")?,
            different => writeln!(f, "{of}: {all}, {different} decided differently")?,
        }
        if *cut_off {
            writeln!(f, "The log ends in the middle of a line: what came last is missing.")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_only_one_side_are_listed() {
        let told = |text: &&str| (*text).to_owned();
        let at = || "round 2".to_owned();
        assert_eq!(ReplayDifference::between(at(), &["a"], &["a"], told), None);
        let different = ReplayDifference::between(at(), &["a", "b"], &["b", "c"], told).unwrap();
        let turned = ReplayDifference::between("round 3".to_owned(), &["a", "b"], &["b", "a"], told).unwrap();
        let mut report = ReplayReport {
            logged_policy: "carrefour".to_owned(),
            policy: "interleave".to_owned(),
            rounds: 3,
            starts: 1,
            differences: vec![different, turned],
            cut_off: false,
        };
        assert_eq!(
            report.to_string(),
            "round 2\n  then  a\n  now   c\nround 3\n  the same steps in another order\n\
             interleave instead of carrefour: 3 rounds and 1 start, 2 decided differently\n"
        );
        report.differences.clear();
        report.policy.clone_from(&report.logged_policy);
        assert_eq!(report.to_string(), "carrefour: 3 rounds and 1 start, all decided the same\n");
        report.cut_off = true;
        assert!(
            report
                .to_string()
                .ends_with("all decided the same\nThe log ends in the middle of a line: what came last is missing.\n")
        );
    }
}
