//! How far a comparison is, and about how long the rest takes.

use report::PolicyRuns;
use std::time::Duration;

/// Runs that have ended, and all that are planned: those of policies that are left out or have failed are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Runs that have ended.
    pub ended: usize,
    /// These, and those to come.
    pub all: usize,
}

/// A shorter rest is not worth a line.
const SHORTEST: Duration = Duration::from_secs(2);

impl Progress {
    /// From the results so far, of comparisons with `repeat` runs under each policy.
    pub fn of(policies: &[PolicyRuns], repeat: usize) -> Self {
        let is_in = |policy: &&PolicyRuns| policy.left_out.is_none() && policy.failed.is_none();
        let ended = policies.iter().map(|policy| policy.runs.len()).sum();
        let left: usize = policies.iter().filter(is_in).map(|policy| repeat.saturating_sub(policy.runs.len())).sum();
        Self { ended, all: ended + left }
    }

    /// `run 4 of 9, about 3 min left`, if `timed` of the ended runs took `elapsed`. None if there is next to nothing left,
    /// or no way to know.
    pub fn text(self, timed: usize, elapsed: Duration) -> Option<String> {
        let left = u32::try_from(self.all.saturating_sub(self.ended)).unwrap_or(u32::MAX);
        let each = elapsed.checked_div(u32::try_from(timed).unwrap_or(u32::MAX))?;
        let rest = each.saturating_mul(left);
        (rest >= SHORTEST).then(|| format!("run {} of {}, about {} left", self.ended, self.all, rounded(rest)))
    }
}

/// Seconds up to a minute and a half, then minutes, then hours.
fn rounded(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..90.0 => format!("{seconds:.0} s"),
        ..5400.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::{FailedRun, OneRun};

    #[test]
    fn runs_that_will_not_be_are_not_counted() {
        let run = OneRun {
            index: 1,
            seconds: 1.0,
            wall_seconds: 1.0,
            memory: None,
            pages_moved: None,
            policy_cpu_seconds: None,
        };
        let runs = |ended: usize| PolicyRuns { runs: vec![run.clone(); ended], ..PolicyRuns::default() };
        let failed = Some(FailedRun { index: 2, why: "exit status 1".to_owned(), output: String::new() });
        let failed = PolicyRuns { failed, ..runs(1) };
        let left_out = PolicyRuns { left_out: Some("no numad".to_owned()), ..runs(0) };
        let policies = [runs(2), runs(1), failed, left_out];
        assert_eq!(Progress::of(&policies, 3), Progress { ended: 4, all: 7 });
    }

    #[test]
    fn the_rest_takes_as_long_as_the_runs_so_far() {
        let text = |ended, all, timed, seconds| Progress { ended, all }.text(timed, Duration::from_secs(seconds));
        assert_eq!(text(4, 9, 4, 144).as_deref(), Some("run 4 of 9, about 3 min left"));
        assert_eq!(text(2, 9, 1, 3).as_deref(), Some("run 2 of 9, about 21 s left"));
        assert_eq!(text(1, 1001, 1, 10).as_deref(), Some("run 1 of 1001, about 2.8 h left"));
        // Nothing is timed, nothing is left, or hardly anything.
        assert_eq!((text(1, 9, 0, 0), text(9, 9, 9, 90), text(1, 2, 1, 1)), (None, None, None));
    }
}
