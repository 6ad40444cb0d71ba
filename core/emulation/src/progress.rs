//! What training has really come to. The scheduler has an opinion of it; this is the truth.

use headway_types::Sequences;

use crate::nature::Nature;
use crate::noise::{NoiseCourse, NoiseTrack};
use crate::random::{Random, Seed};

/// Tokens a job has trained, and what they were worth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    pub tokens: f64,
    /// In tokens at the reference batch.
    pub reference: f64,
    /// The same where a token below the reference batch is worth no more than one at it.
    pub uncredited: f64,
    /// In steps of a batch without noise: one of batch B is worth B/(φκ + B) of them (McCandlish et al. 2018, eq. 2.7).
    pub steps: f64,
}

/// Steps of one batch between two reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    pub batch: Sequences,
    /// Sequences that they consumed.
    pub consumed: Sequences,
    /// Sequences of the job at their end.
    pub samples: Sequences,
    /// Tokens per sequence.
    pub seq_len: f64,
}

/// What a token is really worth to a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worth {
    noise: NoiseCourse,
    /// Critical batch over noise scale.
    kappa: f64,
    reference_batch: f64,
}

impl Worth {
    #[must_use]
    pub fn hidden(job: Seed, nature: &Nature, noise: impl Into<NoiseCourse>, reference_batch: Sequences) -> Self {
        let kappa = Random::new(job.about(b"kappa")).around(1.0, nature.kappa);
        Self { noise: noise.into(), kappa, reference_batch: reference_batch.0.max(1) as f64 }
    }

    /// E(B) = (φκ + B₀)/(φκ + B), as the scheduler has it (`headway_goodput::efficiency`), of the true φ and κ.
    #[must_use]
    pub fn efficiency(&self, samples: Sequences, progress: Progress, batch: Sequences) -> f64 {
        self.at(self.noise.noise_scale(samples, progress.steps) * self.kappa, batch)
    }

    fn at(&self, critical: f64, batch: Sequences) -> f64 {
        (critical + self.reference_batch) / (critical + batch.0 as f64)
    }

    /// Returns the progress after a stretch. Noise that goes by sequences counts at its end, noise along a track part by part.
    #[must_use]
    pub fn after(&self, before: Progress, stretch: Stretch) -> Progress {
        match self.noise {
            NoiseCourse::Along(track) => self.after_parts(before, stretch, track),
            NoiseCourse::Rising(noise) => {
                let critical = noise.noise_scale(stretch.samples) * self.kappa;
                self.advance(before, stretch, critical, stretch.consumed.0 as f64)
            }
        }
    }

    fn after_parts(&self, before: Progress, stretch: Stretch, track: NoiseTrack) -> Progress {
        let (mut progress, mut left) = (before, stretch.consumed.0 as f64);
        while left > 0.0 {
            let (phi, end) = track.part(progress.steps);
            let critical = phi * self.kappa;
            let until = (end - progress.steps) * (critical + stretch.batch.0 as f64);
            let taken = until.min(left);
            progress = self.advance(progress, stretch, critical, taken);
            left -= taken;
            if left > 0.0 {
                // Rounding must not leave it before the end of the part.
                progress.steps = progress.steps.max(end);
            }
        }
        progress
    }

    /// So many sequences at one critical batch.
    fn advance(&self, before: Progress, stretch: Stretch, critical: f64, sequences: f64) -> Progress {
        let (tokens, efficiency) = (sequences * stretch.seq_len, self.at(critical, stretch.batch));
        Progress {
            tokens: before.tokens + tokens,
            reference: before.reference + tokens * efficiency,
            uncredited: before.uncredited + tokens * efficiency.min(1.0),
            steps: before.steps + sequences / (critical + stretch.batch.0 as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::GradientNoise;

    const FLAT: GradientNoise = GradientNoise { start: 100.0, growth: 0.0, half: 1.0 };

    fn stretch(batch: u64, consumed: u64) -> Stretch {
        let consumed = Sequences(consumed);
        Stretch { batch: Sequences(batch), consumed, samples: consumed, seq_len: 10.0 }
    }

    #[test]
    fn a_small_batch_earns_credit_that_is_counted_apart() {
        let worth = Worth::hidden(Seed(1), &Nature::GENTLE, FLAT, Sequences(100));
        let small = worth.after(Progress::default(), stretch(50, 100));
        assert!((small.reference - 1000.0 * 200.0 / 150.0).abs() < 1e-9 && small.uncredited == 1000.0);
        let large = worth.after(Progress::default(), stretch(300, 100));
        assert_eq!((large.reference, large.uncredited), (500.0, 500.0));
    }

    #[test]
    fn a_step_is_worth_what_its_noise_leaves_of_it() {
        let worth = Worth::hidden(Seed(1), &Nature::GENTLE, FLAT, Sequences(100));
        let ten = worth.after(Progress::default(), stretch(50, 500));
        assert!((ten.steps - 10.0 * 50.0 / 150.0).abs() < 1e-9, "{ten:?}");
    }

    #[test]
    fn progress_along_a_track_does_not_depend_on_how_often_it_is_reported() {
        let track = NoiseTrack { parts: &[(0.1, 1.0), (0.5, 4.0), (1.0, 9.0)], scale: 10.0, steps: 20.0 };
        let worth = Worth::hidden(Seed(1), &Nature::GENTLE, NoiseCourse::Along(track), Sequences(16));
        let once = worth.after(Progress::default(), stretch(16, 1_600));
        let often = (0..100).fold(Progress::default(), |before, _| worth.after(before, stretch(16, 16)));
        assert!((once.steps / often.steps - 1.0).abs() < 1e-9 && (once.reference / often.reference - 1.0).abs() < 1e-9);
        // Two steps at 26 sequences each, eight at 56, the rest at 106.
        let expected = 10.0 + (1_600.0 - 2.0 * 26.0 - 8.0 * 56.0) / 106.0;
        assert!((once.steps - expected).abs() < 1e-9, "{once:?}");
    }

    #[test]
    fn a_harsh_world_has_another_critical_batch_than_its_gradients_show() {
        let worths: Vec<f64> = (0..50)
            .map(|job| {
                let worth = Worth::hidden(Seed(job), &Nature::HARSH, FLAT, Sequences(100));
                worth.efficiency(Sequences(0), Progress::default(), Sequences(400))
            })
            .collect();
        let spread = |bound: fn(f64, f64) -> f64| worths.iter().copied().reduce(bound).unwrap_or_default();
        assert!(spread(f64::min) < 0.36 && spread(f64::max) > 0.44, "{worths:?}");
    }
}
