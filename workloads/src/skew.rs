//! Skewed random choices, as of vertices by edges and of keys by requests.

use crate::arithmetic::mix;
use machine::Random;

/// One of two to the power of `bits`: each bit of its rank is set in three of eight cases, and the ranks are spread
/// over all positions. R-MAT's recursive graphs are made like that (Chakrabarti, Zhan, Faloutsos: R-MAT, 2004). Of 2^18
/// the most frequent twentieth gets three tenths of all choices.
pub fn skewed(random: &mut Random, bits: u32) -> usize {
    let rank = random.bits() & (random.bits() | random.bits());
    let mask = (1 << bits) - 1;
    // An odd factor gives each rank its own position, and keeps frequent ones apart.
    (rank & mask).wrapping_mul(mix(1, 1) | 1) as usize & mask as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_much_more_frequent() {
        let (mut counts, mut random) = (vec![0_u32; 1 << 18], Random(1));
        (0..1 << 20).for_each(|_| counts[skewed(&mut random, 18)] += 1);
        counts.sort_unstable();
        let frequent: u32 = counts[counts.len() * 19 / 20..].iter().sum();
        let part = f64::from(frequent) / f64::from(1 << 20);
        assert!((0.27..0.31).contains(&part), "the most frequent twentieth has {part}");
        assert_eq!(skewed(&mut random, 0), 0);
    }
}
