//! Random numbers that are the same on every machine and with every library version, so that results are comparable:
//! `SplitMix64` (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).

/// Added to the state for each number: 2^64 over the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A generator; its state is its seed. As a hash of its seed, the first number is as random as the later ones: each
/// bit of the seed changes half of its bits.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The number that has this index in the sequence of seed 0, from 0.
    pub fn nth(index: u64) -> u64 {
        Self(index.wrapping_mul(STEP)).bits()
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 if the bound is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_published_sequence() {
        let mut random = Random(1_234_567);
        assert_eq!([random.bits(), random.bits()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn any_number_of_a_sequence_is_found_without_those_before() {
        let mut random = Random(0);
        assert!((0..1000).all(|index| random.bits() == Random::nth(index)));
    }

    #[test]
    fn stays_below_its_bound() {
        let mut random = Random(1);
        assert!((1..1000).all(|bound| random.below(bound) < bound));
    }
}
