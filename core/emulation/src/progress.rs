//! What training has really come to. The scheduler has an opinion of it; this is the truth.

use headway_types::Sequences;

use crate::nature::Nature;
use crate::noise::GradientNoise;
use crate::random::{Random, Seed};

/// Tokens a job has trained, and what they were worth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    pub tokens: f64,
    /// In tokens at the reference batch.
    pub reference: f64,
    /// The same where a token below the reference batch is worth no more than one at it.
    pub uncredited: f64,
}

/// What a token is really worth to a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worth {
    noise: GradientNoise,
    /// Critical batch over noise scale.
    kappa: f64,
    reference_batch: f64,
}

impl Worth {
    #[must_use]
    pub fn hidden(job: Seed, nature: &Nature, noise: GradientNoise, reference_batch: Sequences) -> Self {
        let kappa = Random::new(job.about(b"kappa")).around(1.0, nature.kappa);
        Self { noise, kappa, reference_batch: reference_batch.0.max(1) as f64 }
    }

    /// E(B) = (φκ + B₀)/(φκ + B), as the scheduler has it (`headway_goodput::efficiency`), of the true φ and κ.
    #[must_use]
    pub fn efficiency(&self, samples: Sequences, batch: Sequences) -> f64 {
        let critical = self.noise.noise_scale(samples) * self.kappa;
        (critical + self.reference_batch) / (critical + batch.0 as f64)
    }

    /// Progress after so many more sequences of a batch, counted at where they end.
    #[must_use]
    pub fn after(&self, before: Progress, samples: Sequences, batch: Sequences, tokens: f64) -> Progress {
        let efficiency = self.efficiency(samples, batch);
        Progress {
            tokens: before.tokens + tokens,
            reference: before.reference + tokens * efficiency,
            uncredited: before.uncredited + tokens * efficiency.min(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_batch_earns_credit_that_is_counted_apart() {
        let noise = GradientNoise { start: 100.0, growth: 0.0, half: 1.0 };
        let worth = Worth::hidden(Seed(1), &Nature::GENTLE, noise, Sequences(100));
        let small = worth.after(Progress::default(), Sequences(0), Sequences(50), 1000.0);
        assert!((small.reference - 1000.0 * 200.0 / 150.0).abs() < 1e-9 && small.uncredited == 1000.0);
        let large = worth.after(Progress::default(), Sequences(0), Sequences(300), 1000.0);
        assert_eq!((large.reference, large.uncredited), (500.0, 500.0));
    }

    #[test]
    fn a_harsh_world_has_another_critical_batch_than_its_gradients_show() {
        let noise = GradientNoise { start: 100.0, growth: 0.0, half: 1.0 };
        let worths: Vec<f64> = (0..50)
            .map(|job| {
                Worth::hidden(Seed(job), &Nature::HARSH, noise, Sequences(100)).efficiency(Sequences(0), Sequences(400))
            })
            .collect();
        let spread = |bound: fn(f64, f64) -> f64| worths.iter().copied().reduce(bound).unwrap_or_default();
        assert!(spread(f64::min) < 0.36 && spread(f64::max) > 0.44, "{worths:?}");
    }
}
