//! The result of `nearside hugepages cure`.

use machine::number::count;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// What was found and done. Serialised, it is the JSON form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CureReport {
    /// The verdict of the recording, of several the last one's.
    pub verdict: String,
    /// Recordings.
    pub rounds: u32,
    /// Sampled accesses of all recordings. Without any, nothing is known of the program's huge pages.
    pub samples: u64,
    /// Whether nothing was to be done.
    pub dry_run: bool,
    /// Whether the program had ended before it could be cured.
    pub ended: bool,
    /// Huge pages that are falsely shared, or that only another node uses.
    pub misplaced: u64,
    /// Huge pages whose cure is worthwhile; with [`ended`](Self::ended), those that the last recording found were not cured.
    pub chosen: u64,
    /// Falsely shared huge pages whose cure takes more than it saves within as much time as the program was watched.
    pub not_worth_it: u64,
    /// Huge pages beyond the budget.
    pub over_budget: u64,
    /// Huge pages whose marks would add too many mappings to their process.
    pub too_many_mappings: u64,
    /// Of these, pages that one node uses: they move as a whole.
    pub chosen_whole: u64,
    /// Misplaced small pages of the others.
    pub misplaced_pages: u64,
    /// Huge pages that were split.
    pub split: u64,
    /// Huge pages that the kernel does not join again.
    pub kept_small: u64,
    /// Blocks whose small pages were joined again.
    pub joined: u64,
    /// Huge pages that were moved as a whole.
    pub moved_whole: u64,
    /// Small pages that were moved.
    pub pages_moved: u64,
    /// Small pages that could not be moved.
    pub pages_stayed: u64,
    /// Failures by cause.
    pub failed: BTreeMap<String, u64>,
}

impl CureReport {
    /// Number of things that were changed.
    pub fn changes(&self) -> u64 {
        self.split + self.kept_small + self.joined + self.moved_whole + self.pages_moved
    }

    /// Adds the next round.
    pub fn add(&mut self, next: Self) {
        self.verdict = next.verdict;
        (self.dry_run, self.ended, self.misplaced) = (next.dry_run, next.ended, next.misplaced);
        // What was left is judged anew in each round.
        self.not_worth_it = next.not_worth_it;
        self.over_budget = next.over_budget;
        self.too_many_mappings = next.too_many_mappings;
        self.rounds += next.rounds;
        self.samples += next.samples;
        // Where nothing is done, each round finds the same pages.
        if next.dry_run {
            (self.chosen, self.chosen_whole, self.misplaced_pages) = (0, 0, 0);
        }
        self.chosen += next.chosen;
        self.chosen_whole += next.chosen_whole;
        self.misplaced_pages += next.misplaced_pages;
        self.split += next.split;
        self.kept_small += next.kept_small;
        self.joined += next.joined;
        self.moved_whole += next.moved_whole;
        self.pages_moved += next.pages_moved;
        self.pages_stayed += next.pages_stayed;
        for (why, number) in next.failed {
            *self.failed.entry(why).or_default() += number;
        }
    }
}

impl fmt::Display for CureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "nearside: {}", self.verdict)?;
        let misplaced = count(self.misplaced_pages);
        match (self.chosen, self.dry_run, self.ended) {
            (0, dry_run, ended) if dry_run || !ended || self.misplaced == 0 => {}
            (chosen, true, _) => {
                let (split, whole) = (chosen - self.chosen_whole, self.chosen_whole);
                writeln!(
                    f,
                    "  would split {split}, with {misplaced} misplaced small pages, and move {whole} as a whole"
                )?;
            }
            (_, _, true) => {
                writeln!(
                    f,
                    "  nothing was cured, as the program had ended before: record it for less time (--duration)"
                )?;
            }
            _ => {
                let (moved, stayed) = (count(self.pages_moved), count(self.pages_stayed));
                let Self { split, kept_small, moved_whole, .. } = self;
                writeln!(
                    f,
                    "  split {split} and kept {kept_small} small; moved {moved} small pages, and {moved_whole} huge ones as a whole"
                )?;
                if self.pages_stayed > 0 {
                    writeln!(f, "  {stayed} small pages could not be moved")?;
                }
            }
        }
        if self.joined > 0 {
            writeln!(f, "  joined {} again", self.joined)?;
        }
        if self.not_worth_it > 0 {
            writeln!(
                f,
                "  left {} whose cure takes more than it saves in as much time as was watched",
                self.not_worth_it
            )?;
        }
        if self.over_budget > 0 {
            writeln!(f, "  left {} beyond the budget", self.over_budget)?;
        }
        if self.too_many_mappings > 0 {
            writeln!(f, "  left {} that would need too many mappings", self.too_many_mappings)?;
        }
        self.failed.iter().try_for_each(|(why, number)| writeln!(f, "  {number}: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_and_what_not_is_reported() {
        let mut report = CureReport {
            verdict: "3 of 11 huge pages are falsely shared".to_owned(),
            chosen: 4,
            chosen_whole: 1,
            misplaced_pages: 768,
            ..CureReport::default()
        };
        report.dry_run = true;
        assert!(
            report
                .to_string()
                .ends_with("shared\n  would split 3, with 768 misplaced small pages, and move 1 as a whole\n"),
            "{report}"
        );
        let failed = BTreeMap::from([("the kernel did not split it".to_owned(), 1)]);
        let late = CureReport { dry_run: false, ended: true, ..report.clone() }.to_string();
        assert!(late.contains("\n  nothing was cured, as the program had ended before"), "{late}");
        report =
            CureReport { dry_run: false, split: 2, kept_small: 2, moved_whole: 1, pages_moved: 512, failed, ..report };
        let done = "  split 2 and kept 2 small; moved 512 small pages, and 1 huge ones as a whole\n  1: the kernel did not split it\n";
        assert!(report.to_string().ends_with(done), "{report}");
        let second = CureReport { verdict: "none".to_owned(), rounds: 1, split: 1, ..report.clone() };
        report.add(second);
        assert_eq!((report.split, report.kept_small, report.failed.values().sum()), (3, 4, 2_u64));
        assert_eq!((report.verdict.as_str(), report.rounds), ("none", 1));
    }
}
