//! The one generator of this project's own draws: the same on every processor and in every version.

use serde::{Deserialize, Serialize};

/// SplitMix64 (Steele, Lea, Flood 2014): small, of full period, good enough for names, worlds and futures, and for
/// nothing that must not be guessed. What draws are made of its bits (which uniform, which normal distribution) is
/// for who asks to say: stored forecasts and emulated worlds depend on each of them to the last bit.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to, not including, 1: the upper 53 bits.
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_draws_what_its_authors_published() {
        let mut random = SplitMix64(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| random.bits()).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }
}
