//! The ground truth an emulated worker follows: how long a step takes on the stated device, and how noisy gradients
//! are. Seeded: the same job and generation see the same numbers.

use headway_types::{Configuration, Sequences};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

/// Bytes of gradient per parameter that data-parallel replicas exchange.
const GRADIENT_BYTES: f64 = 4.0;
/// Relative error of one measured squared norm.
const MEASUREMENT_ERROR: f64 = 0.02;

pub(super) struct Truth {
    pub(super) seq_len: f64,
    flops_per_token: f64,
    parameters: f64,
    device_flops: f64,
    link_bytes_per_second: f64,
    /// Noise scale in sequences: φ(s) = φ0 + φmax · s / (s + s0).
    noise: [f64; 3],
    random: StdRng,
}

impl Truth {
    pub(super) fn new(
        seed: u64,
        seq_len: f64,
        flops_per_token: f64,
        parameters: f64,
        device_flops: f64,
        link_bytes_per_second: f64,
        noise: &str,
    ) -> Result<Self, String> {
        let parts: Vec<f64> = noise.split(',').filter_map(|part| part.trim().parse().ok()).collect();
        let noise = parts.try_into().map_err(|_| format!("HEADWAY_EMULATED_NOISE is not phi0,phimax,s0: {noise}"))?;
        let random = StdRng::seed_from_u64(seed);
        Ok(Self { seq_len, flops_per_token, parameters, device_flops, link_bytes_per_second, noise, random })
    }

    /// Device seconds of one optimizer step: compute of all micro-batches, then a ring all-reduce.
    pub(super) fn step_time(&self, configuration: &Configuration) -> f64 {
        let layout = configuration.layout;
        let shards = f64::from(layout.tp * layout.pp);
        let replicas = f64::from(layout.dp);
        let sequences = configuration.global_batch.0 as f64 / replicas;
        let compute = sequences * self.seq_len * self.flops_per_token / shards / self.device_flops;
        let bytes = self.parameters * GRADIENT_BYTES / shards;
        compute + 2.0 * (replicas - 1.0) / replicas * bytes / self.link_bytes_per_second
    }

    /// Noise scale in sequences after this many samples.
    pub(super) fn noise_scale(&self, samples: Sequences) -> f64 {
        let [start, growth, half] = self.noise;
        let samples = samples.0 as f64;
        start + growth * samples / (samples + half)
    }

    pub(super) fn loss(&self, samples: Sequences) -> f64 {
        2.0 + 8.0 / (1.0 + samples.0 as f64 / 1000.0).sqrt()
    }

    /// Squared gradient norms of one step, with unit true gradient: |G_b|² = 1 + φ/b (McCandlish et al. 2018, eq. A.2).
    /// `None` where a step is one small batch.
    pub(super) fn squares(&mut self, configuration: &Configuration, samples: Sequences) -> Option<Squares> {
        let big_batch = configuration.global_batch.0 as f64;
        let replicas = configuration.layout.dp;
        let small_batch =
            if replicas > 1 { big_batch / f64::from(replicas) } else { configuration.micro_batch.0 as f64 };
        if small_batch >= big_batch {
            return None;
        }
        let phi = self.noise_scale(samples);
        Some(Squares {
            small_sqr: (1.0 + phi / small_batch) * self.error(),
            big_sqr: (1.0 + phi / big_batch) * self.error(),
            small_batch,
            big_batch,
        })
    }

    /// A factor around 1: the sum of uniforms is near enough to a normal distribution.
    fn error(&mut self) -> f64 {
        let sum: f64 = (0..12).map(|_| self.random.random::<f64>()).sum();
        1.0 + MEASUREMENT_ERROR * (sum - 6.0)
    }
}

/// Sums of raw squares over steps of one configuration.
#[derive(Clone, Copy)]
pub(super) struct Squares {
    small_sqr: f64,
    big_sqr: f64,
    small_batch: f64,
    big_batch: f64,
}

impl Squares {
    pub(super) fn plus(self, other: Self) -> Self {
        Self { small_sqr: self.small_sqr + other.small_sqr, big_sqr: self.big_sqr + other.big_sqr, ..self }
    }

    /// The message's `noise`.
    pub(super) fn mean(self, steps: f64) -> serde_json::Value {
        json!({
            "small_sqr": self.small_sqr / steps,
            "big_sqr": self.big_sqr / steps,
            "small_batch": self.small_batch,
            "big_batch": self.big_batch,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use headway_types::Layout;

    use super::*;

    fn truth() -> Truth {
        Truth::new(7, 64.0, 1e6, 1e6, 1e9, 1e8, "8,64,1000").unwrap()
    }

    fn configuration(dp: u32, global: u64) -> Configuration {
        let layout = Layout { dp, tp: 1, pp: 1 };
        Configuration { layout, micro_batch: Sequences(1), global_batch: Sequences(global) }
    }

    #[test]
    fn a_step_is_compute_plus_all_reduce() {
        assert!((truth().step_time(&configuration(1, 16)) - 16.0 * 0.064).abs() < 1e-12);
        assert!((truth().step_time(&configuration(4, 16)) - (4.0 * 0.064 + 1.5 * 0.04)).abs() < 1e-12);
    }

    #[test]
    fn the_reported_squares_hold_the_true_noise_scale() {
        let mut truth = truth();
        let (mut sum, steps) = (None::<Squares>, 4000);
        for _ in 0..steps {
            let one = truth.squares(&configuration(4, 16), Sequences(1000)).unwrap();
            sum = Some(sum.map_or(one, |sum| sum.plus(one)));
        }
        let sum = sum.unwrap();
        let (small, big) = (sum.small_sqr / f64::from(steps), sum.big_sqr / f64::from(steps));
        let gradient = (16.0 * big - 4.0 * small) / 12.0;
        let phi = (small - big) / (1.0 / 4.0 - 1.0 / 16.0) / gradient;
        assert!((phi / truth.noise_scale(Sequences(1000)) - 1.0).abs() < 0.1, "{phi}");
        assert!(truth.squares(&configuration(1, 1), Sequences(0)).is_none());
    }
}
