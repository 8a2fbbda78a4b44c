//! Random numbers from a seed, by the generator SplitMix64 (Steele, Lea and Flood 2014). The generator is implemented here, so
//! that a new release of another crate cannot change the numbers that follow from a seed.
//!
//! Each part of a world has its own generator, whose state is computed from the seed and the number of the part. So the numbers
//! that one part draws do not change those of another. The numbers are predictable, so they must not be used as secrets.

/// A probability in millionths. It is an integer, so that decisions are the same on every machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Ppm(u32);

impl Ppm {
    /// Probability 0: the event never happens.
    pub const NEVER: Self = Self(0);
    /// Probability 1: the event always happens.
    pub const ALWAYS: Self = Self(1_000_000);

    /// Creates a probability of `millionths` in a million. A value above a million is the same as [`Ppm::ALWAYS`].
    pub const fn new(millionths: u32) -> Self {
        if millionths > 1_000_000 { Self::ALWAYS } else { Self(millionths) }
    }

    /// Creates a probability of `percent` in a hundred.
    pub const fn percent(percent: u32) -> Self {
        Self::new(percent.saturating_mul(10_000))
    }

    /// Returns the probability in millionths.
    pub const fn millionths(self) -> u32 {
        self.0
    }
}

/// A random number generator.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the output of SplitMix64 for a state. Every bit of the state affects every bit of the output.
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// Creates the generator for the part of the world with the number `part`.
    pub const fn new(seed: u64, part: u64) -> Self {
        Self { state: mix(seed.wrapping_add(STEP)) ^ mix(part.wrapping_mul(STEP).wrapping_add(1)) }
    }

    /// Returns 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// Returns a random number below `end`, or 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        let wide = u128::from(self.bits()) * u128::from(end);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// Returns a random number from `low` to `high`, including both. Returns `low` if `high` is less than `low`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// Returns a random index into a slice of length `end`, or 0 if `end` is 0.
    pub fn index(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX);
        usize::try_from(self.below(end)).unwrap_or(0)
    }

    /// Returns true with this probability. If the probability is 0, draws no random number.
    pub fn chance(&mut self, probability: Ppm) -> bool {
        probability > Ppm::NEVER && self.below(1_000_000) < u64::from(probability.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_the_same_numbers_for_ever() {
        // The published first outputs of SplitMix64 from state 0.
        let mut rng = Rng { state: 0 };
        assert_eq!([rng.bits(), rng.bits()], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }

    #[test]
    fn parts_of_a_world_have_numbers_of_their_own() {
        let mut drawn = Vec::new();
        for (seed, part) in (0..20).flat_map(|seed| (0..20).map(move |part| (seed, part))) {
            let mut rng = Rng::new(seed, part);
            drawn.extend([rng.bits(), rng.bits(), rng.bits()]);
        }
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 1_200, "none is another's, later on");
    }

    #[test]
    fn numbers_stay_in_their_range_and_reach_its_ends() {
        let mut rng = Rng::new(1, 1);
        let drawn: Vec<u64> = (0..1_000).map(|_| rng.between(3, 7)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&7)));
        assert_eq!(rng.between(5, 5), 5);
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn a_probability_is_met() {
        let mut rng = Rng::new(2, 1);
        let hits = (0..100_000).filter(|_| rng.chance(Ppm::percent(30))).count();
        assert!((29_000..31_000).contains(&hits), "{hits}");
        assert!((0..1_000).all(|_| rng.chance(Ppm::ALWAYS)));
        assert!(!(0..1_000).any(|_| rng.chance(Ppm::NEVER)));
        assert_eq!(Ppm::new(u32::MAX), Ppm::ALWAYS);
    }
}
