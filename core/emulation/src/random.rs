//! Draws that are the same on every processor and in every version.

use headway_types::random::SplitMix64;

/// Names one world: all draws of a fleet follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seed(pub u64);

/// A stream of draws.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Seed {
    /// The seed that belongs to a name (FNV-1a, 64 bits).
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self(0xcbf2_9ce4_8422_2325).about(name.as_bytes())
    }

    /// The seed of one thing in this world, told by its key.
    #[must_use]
    pub fn about(self, key: &[u8]) -> Self {
        let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        // The length keeps ("ab", "c") apart from ("a", "bc").
        let length = (key.len() as u64).to_le_bytes();
        Self(length.iter().chain(key).fold(self.0, fold))
    }
}

impl Random {
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self(SplitMix64(seed.0))
    }

    /// From 0 up to, not including, 1.
    pub fn uniform(&mut self) -> f64 {
        self.0.uniform()
    }

    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// A whole number below `count`; 0 where there is none.
    pub fn below(&mut self, count: usize) -> usize {
        ((self.uniform() * count as f64) as usize).min(count.saturating_sub(1))
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// Mean 0, deviation 1, never beyond 6: the sum of twelve uniforms is near enough to a normal distribution.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    /// A factor around `median`; `spread` is the deviation of its logarithm.
    pub fn around(&mut self, median: f64, spread: f64) -> f64 {
        median * libm::exp(spread * self.normal())
    }

    /// Time to the next of independent events.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(1.0 - self.uniform())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_moments_they_promise() {
        let mut random = Random::new(Seed::of("moments"));
        let count = 20_000;
        let normal: Vec<f64> = (0..count).map(|_| random.normal()).collect();
        let mean = normal.iter().sum::<f64>() / f64::from(count);
        let variance = normal.iter().map(|value| value * value).sum::<f64>() / f64::from(count);
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        let waits = (0..count).map(|_| random.exponential(5.0)).sum::<f64>() / f64::from(count);
        assert!((waits / 5.0 - 1.0).abs() < 0.05, "{waits}");
    }

    #[test]
    fn every_thing_has_draws_of_its_own() {
        let world = Seed::of("fleet");
        assert_eq!(world.about(b"a"), Seed::of("fleet").about(b"a"));
        assert_ne!(world.about(b"a"), world.about(b"b"));
        assert_ne!(world.about(b"ab").about(b"c"), world.about(b"a").about(b"bc"));
    }
}
