//! Work between accesses to memory. A core runs on for some dozens of instructions while it waits for a line; programs
//! that do more than that with each line have one under way at a time, and take its latency.

/// Any odd number does whose bits are mixed.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// So many steps of four instructions, each of which needs the one before: no compiler does several at once.
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
