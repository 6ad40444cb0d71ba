//! The true gradient noise scale over a training run, and what a worker measures of it.

use core::str::FromStr;

use headway_types::{Configuration, Layout, NoiseSample, Sequences};

use crate::random::{Random, Seed};

/// Relative error of one step's measured squared norm.
const MEASUREMENT_ERROR: f64 = 0.02;
/// Where a drawn noise scale starts and how far it rises, in reference batches, and after how many of them half of the
/// rise is done: noise grows over training (McCandlish et al. 2018), by how much is our choice.
const START: (f64, f64) = (0.3, 0.8);
const GROWTH: (f64, f64) = (1.0, 4.0);
const HALF: (f64, f64) = (1_000.0, 10_000.0);

/// φ(s) = φ0 + φmax · s / (s + s0), all in sequences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradientNoise {
    pub start: f64,
    pub growth: f64,
    pub half: f64,
}

/// φ by how far training has come, whichever batches it took to get there: measured, or drawn by a formula.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoiseTrack {
    /// Shares of the run at which a part of it ends, ascending, and φ during it in any unit. The last holds beyond its end.
    pub parts: &'static [(f64, f64)],
    /// Sequences in one unit of φ.
    pub scale: f64,
    /// Length of the run in noise-free steps ([`crate::Progress::steps`]).
    pub steps: f64,
}

impl NoiseTrack {
    /// Returns φ in sequences after so many noise-free steps, and the step at which it changes.
    #[must_use]
    pub fn part(&self, steps: f64) -> (f64, f64) {
        let next = self.parts.partition_point(|(end, _)| end * self.steps <= steps);
        match (self.parts.get(next), self.parts.last()) {
            (Some((end, phi)), _) => (phi * self.scale, end * self.steps),
            (None, Some((_, phi))) => (phi * self.scale, f64::INFINITY),
            (None, None) => (0.0, f64::INFINITY),
        }
    }
}

/// How a job's noise scale goes over its training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NoiseCourse {
    /// By the sequences seen.
    Rising(GradientNoise),
    /// By what they were worth.
    Along(NoiseTrack),
}

impl From<GradientNoise> for NoiseCourse {
    fn from(noise: GradientNoise) -> Self {
        Self::Rising(noise)
    }
}

impl NoiseCourse {
    /// Noise scale in sequences after this many samples and noise-free steps.
    #[must_use]
    pub fn noise_scale(&self, samples: Sequences, steps: f64) -> f64 {
        match self {
            Self::Rising(noise) => noise.noise_scale(samples),
            Self::Along(track) => track.part(steps).0,
        }
    }

    /// Returns the course with another scale of φ.
    pub(crate) fn times(self, factor: f64) -> Self {
        match self {
            Self::Rising(GradientNoise { start, growth, half }) => {
                Self::Rising(GradientNoise { start: start * factor, growth: growth * factor, half })
            }
            Self::Along(track) => Self::Along(NoiseTrack { scale: track.scale * factor, ..track }),
        }
    }
}

/// Why a text is no noise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not phi0,phimax,s0")]
pub struct NoiseError {
    pub text: String,
}

impl GradientNoise {
    /// The hidden noise of a job, around the batch its recipe was validated at.
    #[must_use]
    pub fn hidden(seed: Seed, reference_batch: Sequences) -> Self {
        let mut random = Random::new(seed.about(b"noise"));
        let reference = reference_batch.0.max(1) as f64;
        Self {
            start: reference * random.between(START.0, START.1),
            growth: reference * random.between(GROWTH.0, GROWTH.1),
            half: reference * random.between(HALF.0, HALF.1),
        }
    }

    /// Noise scale in sequences after this many samples.
    #[must_use]
    pub fn noise_scale(&self, samples: Sequences) -> f64 {
        let samples = samples.0 as f64;
        self.start + self.growth * samples / (samples + self.half)
    }

    /// Returns what a worker measures after this many samples.
    pub fn measure(
        &self,
        random: &mut Random,
        configuration: &Configuration,
        samples: Sequences,
        steps: u32,
    ) -> Option<NoiseSample> {
        measure(self.noise_scale(samples), random, configuration, steps)
    }
}

/// Mean raw squares over `steps` steps with unit true gradient: |G_b|² = 1 + φ/b (McCandlish et al. 2018, eq. A.2).
/// `None` where a step is one small batch.
pub fn measure(phi: f64, random: &mut Random, configuration: &Configuration, steps: u32) -> Option<NoiseSample> {
    let big_batch = configuration.global_batch.0 as f64;
    let Layout { dp: replicas, execution, .. } = configuration.layout;
    let by_replica = replicas > 1 && execution.shares.are_even();
    let small_batch = if by_replica { big_batch / f64::from(replicas) } else { configuration.micro_batch.0 as f64 };
    if small_batch >= big_batch {
        return None;
    }
    // Small batches of one step are averaged over replicas, steps over the report.
    let spread = MEASUREMENT_ERROR / f64::from(steps.max(1)).sqrt();
    let mut error = || 1.0 + spread * random.normal();
    Some(NoiseSample {
        small_sqr: (1.0 + phi / small_batch) * error(),
        big_sqr: (1.0 + phi / big_batch) * error(),
        small_batch,
        big_batch,
    })
}

impl FromStr for GradientNoise {
    type Err = NoiseError;

    fn from_str(text: &str) -> Result<Self, NoiseError> {
        let error = || NoiseError { text: text.to_owned() };
        let numbers: Vec<f64> =
            text.split(',').map(|part| part.trim().parse()).collect::<Result<_, _>>().map_err(|_| error())?;
        match numbers.as_slice() {
            [start, growth, half] if *start > 0.0 && *growth >= 0.0 && *half > 0.0 => {
                Ok(Self { start: *start, growth: *growth, half: *half })
            }
            _ => Err(error()),
        }
    }
}

/// Loss after this many samples: a power law over a floor, as scaling laws have it; the numbers are our choice.
#[must_use]
pub fn loss(samples: Sequences) -> f64 {
    2.0 + 8.0 / (1.0 + samples.0 as f64 / 1000.0).sqrt()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use headway_goodput::noise::NoiseEstimator;
    use headway_types::Shares;

    fn configuration(dp: u32, micro: u64, global: u64) -> Configuration {
        let layout = Layout { dp, tp: 1, pp: 1, ..Layout::single() };
        Configuration { layout, micro_batch: Sequences(micro), global_batch: Sequences(global) }
    }

    #[test]
    fn the_schedulers_estimate_of_it_is_unbiased() {
        let noise: GradientNoise = "300,500,100000".parse().unwrap();
        let mut uneven = configuration(4, 2, 72);
        uneven.layout.execution.shares = Shares { slower: 1, faster: 2, of_faster: 2 };
        let others = [(configuration(64, 1, 512), 5), (configuration(1, 2, 64), 1), (uneven, 1)];
        for (at, steps) in [(configuration(8, 4, 512), 1)].into_iter().chain(others) {
            let estimates: Vec<f64> = (0..200)
                .map(|world| {
                    let mut random = Random::new(Seed(world));
                    let mut estimator = NoiseEstimator::default();
                    for _ in 0..50 {
                        let sample = noise.measure(&mut random, &at, Sequences(100_000), steps).unwrap();
                        estimator.observe(&sample, at.global_batch, Sequences(512));
                    }
                    estimator.noise_scale(1).unwrap().phi.0
                })
                .collect();
            let mean = estimates.iter().sum::<f64>() / 200.0;
            let truth = noise.noise_scale(Sequences(100_000));
            assert!((mean / truth - 1.0).abs() < 0.03, "{at}: {mean} for {truth}");
        }
    }

    #[test]
    fn noise_rises_over_training() {
        let noise = GradientNoise::hidden(Seed::of("job"), Sequences(1024));
        let scales: Vec<f64> = (0..20).map(|at| noise.noise_scale(Sequences(at * 500_000))).collect();
        assert!(scales.is_sorted() && scales[19] > 1.5 * scales[0], "{scales:?}");
        assert!(loss(Sequences(1_000_000)) < loss(Sequences(1_000)));
    }

    #[test]
    fn noise_along_a_track_follows_what_training_is_worth() {
        let track = NoiseTrack { parts: &[(0.25, 1.0), (1.0, 3.0)], scale: 10.0, steps: 400.0 };
        assert_eq!(
            (track.part(0.0), track.part(99.0), track.part(100.0)),
            ((10.0, 100.0), (10.0, 100.0), (30.0, 400.0))
        );
        assert_eq!(track.part(500.0), (30.0, f64::INFINITY));
        let course = NoiseCourse::Along(track).times(2.0);
        assert_eq!(course.noise_scale(Sequences(7), 0.0), 20.0);
        assert_eq!(
            NoiseCourse::from(GradientNoise { start: 5.0, growth: 0.0, half: 1.0 }).noise_scale(Sequences(7), 9.0),
            5.0
        );
    }

    #[test]
    fn one_small_batch_tells_nothing() {
        let noise = GradientNoise::hidden(Seed(1), Sequences(8));
        assert!(noise.measure(&mut Random::new(Seed(1)), &configuration(1, 1, 1), Sequences(0), 1).is_none());
        assert!("1,2".parse::<GradientNoise>().is_err() && "0,1,1".parse::<GradientNoise>().is_err());
    }
}
