//! How much the agent may still move.

use machine::SMALL_PAGE;

/// Bytes that may still be moved in this round, by the policy, requests and named ranges together; `None` without a limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Budget(Option<u64>);

impl Budget {
    /// Nothing may be moved before the first round has passed, unless there is no limit.
    pub(super) fn new(bytes_per_s: Option<u64>) -> Self {
        Self(bytes_per_s.map(|_| 0))
    }

    /// A round of this length has passed. At most a page of what was left is kept: what no page fitted into adds up, and
    /// what was not used does not.
    pub(super) fn add_round(&mut self, bytes_per_s: Option<u64>, length_s: f64) {
        let kept = self.0.unwrap_or_default().min(SMALL_PAGE);
        self.0 = bytes_per_s.map(|bytes| kept.saturating_add((bytes as f64 * length_s) as u64));
    }

    pub(super) fn left(&self) -> Option<u64> {
        self.0
    }

    pub(super) fn spend(&mut self, bytes: u64) {
        self.0 = self.0.map(|left| left.saturating_sub(bytes));
    }

    /// What is left moves no page.
    pub(super) fn is_used_up(&self) -> bool {
        self.0.is_some_and(|left| left < SMALL_PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_rounds_move_as_much_as_long_ones() {
        let mut budget = Budget::new(Some(1 << 20));
        let mut moved = 0;
        for _ in 0..1_000 {
            budget.add_round(Some(1 << 20), 0.001);
            let pages = budget.left().unwrap() / SMALL_PAGE;
            assert!(pages <= 1 && budget.is_used_up() == (pages == 0), "{budget:?}");
            budget.spend(pages * SMALL_PAGE);
            moved += pages * SMALL_PAGE;
        }
        assert!(moved <= 1 << 20 && moved + 2 * SMALL_PAGE > 1 << 20, "{moved}");
    }

    #[test]
    fn what_is_not_needed_does_not_add_up() {
        let mut budget = Budget::new(Some(8 * SMALL_PAGE));
        assert_eq!(budget.left(), Some(0));
        budget.add_round(Some(8 * SMALL_PAGE), 1.0);
        budget.add_round(Some(8 * SMALL_PAGE), 1.0);
        assert_eq!(budget.left(), Some(9 * SMALL_PAGE));
        budget.add_round(None, 1.0);
        assert!(budget.left().is_none() && !budget.is_used_up());
    }
}
