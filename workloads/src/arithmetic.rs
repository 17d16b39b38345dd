//! Arithmetic between memory accesses. While a core waits for a line it executes some dozens of instructions ahead;
//! programs that do more work for each line have only one line in flight at a time, and are bound by its latency.

/// Any odd number with mixed bits will do.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Executes `steps` steps of four instructions each. Each step depends on the previous one, so that compilers cannot
/// vectorize them.
#[inline]
pub fn mix(word: u64, steps: usize) -> u64 {
    (0..steps).fold(word, |word, _| (word ^ (word >> 29)).wrapping_mul(FACTOR))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_words_become_one() {
        let mixed: std::collections::HashSet<u64> = (0..10_000).map(|word| mix(word, 3)).collect();
        assert_eq!(mixed.len(), 10_000);
        assert_eq!(mix(7, 0), 7);
        assert_eq!(mix(mix(7, 2), 3), mix(7, 5));
    }
}
