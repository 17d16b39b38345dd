//! The result of `nearside hugepages cure`.

use crate::count;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// What was found and done. Serialised, it is the JSON form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CureReport {
    /// The verdict of the recording.
    pub verdict: String,
    /// Whether nothing was to be done.
    pub dry_run: bool,
    /// Whether the program had ended before it could be cured.
    pub ended: bool,
    /// Huge pages whose cure is worthwhile.
    pub chosen: u64,
    /// Falsely shared huge pages whose cure takes more than it saves within the time of the recording.
    pub not_worth_it: u64,
    /// Huge pages beyond the budget.
    pub over_budget: u64,
    /// Misplaced small pages of the chosen ones.
    pub misplaced_pages: u64,
    /// Huge pages that were split.
    pub split: u64,
    /// Huge pages that the kernel does not join again.
    pub kept_small: u64,
    /// Small pages that were moved.
    pub pages_moved: u64,
    /// Small pages that could not be moved.
    pub pages_stayed: u64,
    /// Failures by cause.
    pub failed: BTreeMap<String, u64>,
}

impl fmt::Display for CureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "nearside: {}", self.verdict)?;
        let misplaced = count(self.misplaced_pages);
        match (self.chosen, self.dry_run, self.ended) {
            (0, _, _) => {}
            (chosen, true, _) => writeln!(f, "  would split {chosen}, with {misplaced} misplaced small pages")?,
            (_, _, true) => writeln!(f, "  the program had ended before it could be cured")?,
            _ => {
                let (moved, stayed) = (count(self.pages_moved), count(self.pages_stayed));
                writeln!(f, "  split {} and kept {} small; moved {moved} small pages", self.split, self.kept_small)?;
                if self.pages_stayed > 0 {
                    writeln!(f, "  {stayed} small pages could not be moved")?;
                }
            }
        }
        if self.not_worth_it > 0 {
            writeln!(f, "  left {} whose cure takes more than it saves in the time recorded", self.not_worth_it)?;
        }
        if self.over_budget > 0 {
            writeln!(f, "  left {} beyond the budget", self.over_budget)?;
        }
        self.failed.iter().try_for_each(|(why, number)| writeln!(f, "  {number}: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_and_what_not_is_told() {
        let mut report = CureReport {
            verdict: "3 of 11 huge pages are falsely shared".to_owned(),
            chosen: 3,
            misplaced_pages: 768,
            ..CureReport::default()
        };
        report.dry_run = true;
        assert!(report.to_string().ends_with("shared\n  would split 3, with 768 misplaced small pages\n"), "{report}");
        let failed = BTreeMap::from([("the kernel did not split it".to_owned(), 1)]);
        report = CureReport { dry_run: false, split: 2, kept_small: 2, pages_moved: 512, failed, ..report };
        let done = "  split 2 and kept 2 small; moved 512 small pages\n  1: the kernel did not split it\n";
        assert!(report.to_string().ends_with(done), "{report}");
    }
}
