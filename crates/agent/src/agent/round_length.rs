//! How long a round is: longer where there is nothing to decide, so that observing costs little.

use placement::OWN_SHARE;
use std::time::Duration;

/// Most rounds that are observed as one: a change of the program is noticed after them.
pub const MOST_ROUNDS: u32 = 4;

/// The number of rounds to observe as one, after a round of which observing and deciding took `cost`. Nothing will be
/// decided in the next `idle` ones.
pub(super) fn rounds_in_one(cost: Duration, round: Duration, idle: u64) -> u64 {
    let wanted = cost.as_secs_f64() / OWN_SHARE / round.as_secs_f64();
    (wanted.ceil() as u64).min(MOST_ROUNDS.into()).min(idle).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_joined_as_far_as_they_cost_too_much_and_nothing_is_decided() {
        let of =
            |micros, millis, idle| rounds_in_one(Duration::from_micros(micros), Duration::from_millis(millis), idle);
        assert_eq!([of(700, 1000, 30), of(4000, 1000, 30), of(6000, 1000, 30)], [1, 1, 2]);
        assert_eq!([of(700, 100, 30), of(700, 20, 30), of(700, 20, 2), of(700, 20, 0)], [2, 4, 2, 1]);
        assert_eq!([of(0, 20, 9), of(700, 0, 9)], [1, 4]);
    }
}
