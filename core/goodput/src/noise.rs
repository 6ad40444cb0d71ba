//! The gradient noise scale φ from raw squared norms, with its own error. It never sees layouts: the same numbers mean the same
//! in every one.

use headway_types::{NoiseSample, Sequences, Tokens};
use serde::{Deserialize, Serialize};

use crate::ratio::{Interval, Means};

/// Share of a past sample's weight that is left after one reference batch.
const DECAY_PER_REFERENCE_BATCH: f64 = 0.995;
/// Reference batches that one report counts for at most: however many it was made of, it is one sample of its scatter, and an interval needs several.
const MOST_PER_REPORT: f64 = 20.0;
/// Reports before φ is believed: an error needs two, and one odd report must not carry it.
const ENOUGH: u64 = 3;
/// Reports from which on it is the noise, and not their number, that leaves φ without an upper bound.
const SETTLED: u64 = 5;
/// Reports before one can be called an outlier, and how far out it must lie, in standard deviations.
const SPREAD_KNOWN: u64 = 10;
const OUTLIER: f64 = 8.0;
/// Outliers in a row that are a new regime instead.
const NEW_REGIME: u32 = 4;

/// The noise scale and how well it is known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoiseScale {
    pub phi: Tokens,
    /// Standard error of ln φ: the 95 % interval's width there over 2 · 1.96. It grows without end as the noise drowns the gradient.
    pub relative_error: f64,
}

/// Why there is no noise scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum NoNoiseScale {
    #[error("one micro-batch on one replica is a single gradient: there is nothing to compare it with")]
    SingleGradient,
    #[error("no report with gradient norms yet")]
    NoReport,
    #[error("no report of the gradients that the job goes by (training.noise), though there are some of others")]
    OtherKind,
    #[error("too few reports yet, or they scatter too much for their number")]
    TooFewReports,
    #[error("noise drowns the gradient: |G|² is not clear of zero, so φ has no upper bound")]
    Drowned,
}

/// Reports that φ is estimated without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IgnoredReports {
    /// What cannot be: not finite, negative, too large to square, or of a full batch no larger than the small one.
    pub impossible: u64,
    /// Far from those before.
    pub outlying: u64,
    /// Of other gradients than the job goes by.
    pub other_kind: u64,
}

/// Decayed sums, kept apart for |G|² and tr Σ: a ratio of means has less bias than a mean of ratios, and one step's
/// |G|² may be negative.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NoiseEstimator {
    reports: u64,
    outliers_in_row: u32,
    #[serde(default)]
    ignored: IgnoredReports,
    /// Trained on since the newest report that counts, without a measurement.
    #[serde(default)]
    unmeasured: Sequences,
    /// Σw and Σw²: the bias correction of the moving averages, and the number of reports they are worth.
    weight: f64,
    weight_sqr: f64,
    /// Σw·|G|², Σw·tr Σ and their second moments.
    signal: f64,
    noise: f64,
    signal_sqr: f64,
    noise_sqr: f64,
    cross: f64,
}

impl NoiseEstimator {
    /// So many sequences were trained on without a measurement. The next report stands for them too, or the estimate would look back the
    /// further the more seldom a script measures.
    pub fn skip(&mut self, samples: Sequences) {
        self.unmeasured = Sequences(self.unmeasured.0.saturating_add(samples.0));
    }

    /// A report of other gradients than those the job goes by.
    pub fn ignore_other_kind(&mut self) {
        self.ignored.other_kind += 1;
    }

    /// Reports left out so far, by reason.
    #[must_use]
    pub fn ignored(&self) -> IgnoredReports {
        self.ignored
    }

    /// Folds one report over `samples` sequences. Nonsense and outliers are counted and skipped.
    pub fn observe(&mut self, sample: &NoiseSample, samples: Sequences, reference_batch: Sequences) {
        let Some((signal, noise)) = unbiased(sample) else {
            self.ignored.impossible += 1;
            return self.skip(samples);
        };
        if self.is_outlier(signal, noise) {
            self.outliers_in_row += 1;
            self.ignored.outlying += 1;
            if self.outliers_in_row < NEW_REGIME {
                return self.skip(samples);
            }
            *self = Self { ignored: self.ignored, ..Self::default() };
            // The one that settles it counts.
            self.ignored.outlying -= 1;
        }
        self.outliers_in_row = 0;
        let stands_for = samples.0.saturating_add(core::mem::take(&mut self.unmeasured).0);
        let reference_batches = (stands_for as f64 / reference_batch.0.max(1) as f64).min(MOST_PER_REPORT);
        let keep = libm::pow(DECAY_PER_REFERENCE_BATCH, reference_batches);
        let weight = 1.0 - keep;
        if weight <= 0.0 {
            return;
        }
        let fold = |sum: &mut f64, value: f64| *sum = keep * *sum + weight * value;
        fold(&mut self.weight, 1.0);
        self.weight_sqr = keep * keep * self.weight_sqr + weight * weight;
        fold(&mut self.signal, signal);
        fold(&mut self.noise, noise);
        fold(&mut self.signal_sqr, signal * signal);
        fold(&mut self.noise_sqr, noise * noise);
        fold(&mut self.cross, signal * noise);
        self.reports += 1;
    }

    /// φ in tokens, once there are enough reports and |G|² stands clear of zero.
    #[must_use]
    pub fn noise_scale(&self, seq_len: u32) -> Option<NoiseScale> {
        self.explained(seq_len).ok()
    }

    /// φ, or why there is none.
    pub fn explained(&self, seq_len: u32) -> Result<NoiseScale, NoNoiseScale> {
        if self.reports == 0 {
            let others = self.ignored.other_kind > 0;
            return Err(if others { NoNoiseScale::OtherKind } else { NoNoiseScale::NoReport });
        }
        if self.reports < ENOUGH {
            return Err(NoNoiseScale::TooFewReports);
        }
        let unbounded = if self.reports < SETTLED { NoNoiseScale::TooFewReports } else { NoNoiseScale::Drowned };
        let interval = self.interval().filter(|interval| interval.high.is_some()).ok_or(unbounded)?;
        let phi = self.noise / self.signal;
        // Sums that were stored may be anything: what is no number, or beyond all numbers, is no φ either.
        if !(phi > 0.0 && phi.is_finite()) {
            return Err(NoNoiseScale::Drowned);
        }
        Ok(NoiseScale { phi: Tokens(f64::from(seq_len) * phi), relative_error: interval.log_error() })
    }

    /// Within what φ lies at 95 %, in sequences, also where noise drowns the gradient: then without an upper end. `None` from fewer than
    /// two reports, and where |G|² is below zero by more than its error.
    #[must_use]
    pub fn interval(&self) -> Option<Interval> {
        // Share of the newest reports in all: the variance of a weighted mean over that of one report.
        let share = self.weight_sqr / (self.weight * self.weight);
        if share.is_nan() || share >= 1.0 {
            return None;
        }
        let (signal, noise) = (self.signal / self.weight, self.noise / self.weight);
        let of_mean = |second: f64, product: f64| (second / self.weight - product) * share / (1.0 - share);
        let means = Means {
            numerator: noise,
            denominator: signal,
            numerator_variance: of_mean(self.noise_sqr, noise * noise).max(0.0),
            denominator_variance: of_mean(self.signal_sqr, signal * signal).max(0.0),
            covariance: of_mean(self.cross, signal * noise),
            degrees_of_freedom: 1.0 / share - 1.0,
        };
        means.interval()
    }

    fn is_outlier(&self, signal: f64, noise: f64) -> bool {
        let far = |value: f64, sum: f64, sum_sqr: f64| {
            let mean = sum / self.weight;
            let variance = (sum_sqr / self.weight - mean * mean).max(0.0);
            (value - mean) * (value - mean) > OUTLIER * OUTLIER * variance.max(1e-4 * mean * mean)
        };
        self.reports >= SPREAD_KNOWN
            && (far(signal, self.signal, self.signal_sqr) || far(noise, self.noise, self.noise_sqr))
    }
}

/// Unbiased |G|² and tr Σ per sequence (McCandlish et al. 2018, appendix A.1); `None` for what cannot be.
fn unbiased(sample: &NoiseSample) -> Option<(f64, f64)> {
    let NoiseSample { small_sqr, big_sqr, small_batch, big_batch } = *sample;
    let finite = [small_sqr, big_sqr, small_batch, big_batch].iter().all(|value| value.is_finite());
    if !finite || small_sqr < 0.0 || big_sqr < 0.0 || small_batch <= 0.0 || big_batch <= small_batch {
        return None;
    }
    let signal = (big_batch * big_sqr - small_batch * small_sqr) / (big_batch - small_batch);
    let noise = (small_sqr - big_sqr) / (1.0 / small_batch - 1.0 / big_batch);
    // The squares are what is kept; an infinite one would be stored and could not be read back.
    let kept = [signal * signal, noise * noise, signal * noise];
    kept.iter().all(|value| value.is_finite()).then_some((signal, noise))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_cannot_be_stored_is_not_kept() {
        let hostile = NoiseSample { small_sqr: 2e160, big_sqr: 1e160, small_batch: 8.0, big_batch: 64.0 };
        assert_eq!(unbiased(&hostile), None);
    }
    use headway_types::random::SplitMix64;
    use proptest::prelude::*;

    /// Draws in [−1, 1): the truth is synthetic but the same in every run.
    struct Draws(SplitMix64);

    impl Draws {
        fn next(&mut self) -> f64 {
            2.0 * self.0.uniform() - 1.0
        }
    }

    /// What a worker reports where |G|² = `signal` and tr Σ = `noise`, with relative scatter.
    fn report(signal: f64, noise: f64, small: f64, big: f64, scatter: f64, draws: &mut Draws) -> NoiseSample {
        let near = |value: f64, draw: f64| value * (1.0 + scatter * draw);
        NoiseSample {
            small_sqr: near(signal + noise / small, draws.next()),
            big_sqr: near(signal + noise / big, draws.next()),
            small_batch: small,
            big_batch: big,
        }
    }

    fn fed(signal: f64, noise: f64, small: f64, big: f64, scatter: f64, reports: u32) -> NoiseEstimator {
        let (mut estimator, mut draws) = (NoiseEstimator::default(), Draws(SplitMix64(7)));
        for _ in 0..reports {
            let sample = report(signal, noise, small, big, scatter, &mut draws);
            estimator.observe(&sample, Sequences(big as u64), Sequences(16));
        }
        estimator
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_estimator_recovers_a_synthetic_noise_scale(
            signal in 0.01..100.0f64, phi in 4.0..256.0f64, small in 1u32..8, accumulation in 4u32..32,
        ) {
            let big = f64::from(small * accumulation);
            let scale = fed(signal, signal * phi, f64::from(small), big, 0.02, 300).noise_scale(64);
            let scale = scale.expect("enough reports");
            prop_assert!((scale.phi.0 / (phi * 64.0) - 1.0).abs() < 0.15 + 4.0 * scale.relative_error, "{scale:?}");
        }
    }

    #[test]
    fn the_same_truth_reads_the_same_in_every_layout() {
        let few = fed(1.0, 40.0, 4.0, 16.0, 0.0, 20).noise_scale(64).unwrap().phi.0;
        let many = fed(1.0, 40.0, 2.0, 128.0, 0.0, 20).noise_scale(64).unwrap().phi.0;
        assert!((few / many - 1.0).abs() < 1e-9);
    }

    #[test]
    fn it_says_nothing_before_it_has_seen_enough() {
        assert_eq!(fed(1.0, 40.0, 4.0, 16.0, 0.01, 0).explained(64), Err(NoNoiseScale::NoReport));
        assert_eq!(fed(1.0, 40.0, 4.0, 16.0, 0.01, 2).explained(64), Err(NoNoiseScale::TooFewReports));
    }

    #[test]
    fn three_reports_that_agree_are_enough_and_four_that_scatter_are_not() {
        let three = fed(1.0, 40.0, 4.0, 64.0, 0.005, 3).noise_scale(64).unwrap();
        assert!((three.phi.0 / 2560.0 - 1.0).abs() < 0.1 && three.relative_error < 0.1, "{three:?}");
        assert_eq!(fed(1.0, 40.0, 4.0, 16.0, 0.4, 4).noise_scale(64), None);
    }

    /// Scatter of 5 %, evenly spread, of the two squared norms (11 and 1.625) makes a standard error of ln φ of 0.0778 for one
    /// report: by the delta method, with the covariance of |G|² and tr Σ.
    #[test]
    fn the_error_shrinks_with_the_root_of_the_number_of_reports() {
        const OF_ONE_REPORT: f64 = 0.0778;
        for reports in [50_u32, 200, 800] {
            let (mut estimator, mut draws) = (NoiseEstimator::default(), Draws(SplitMix64(7)));
            for _ in 0..reports {
                // So small a share of a reference batch that no report is forgotten.
                let sample = report(1.0, 40.0, 4.0, 64.0, 0.05, &mut draws);
                estimator.observe(&sample, Sequences(64), Sequences(1 << 30));
            }
            let error = estimator.noise_scale(64).unwrap().relative_error;
            let expected = OF_ONE_REPORT / f64::from(reports).sqrt();
            assert!((error / expected - 1.0).abs() < 0.2, "{reports} reports: {error}, not {expected}");
        }
    }

    #[test]
    fn reports_that_are_forgotten_leave_the_error_where_it_is() {
        let error = |reports| fed(1.0, 40.0, 4.0, 64.0, 0.05, reports).noise_scale(64).unwrap().relative_error;
        // A report counts for four reference batches, so that about a hundred reports are remembered.
        assert!((error(1_600) / error(800) - 1.0).abs() < 0.25, "{} and {}", error(800), error(1_600));
    }

    #[test]
    fn a_signal_drowned_in_noise_gives_no_scale() {
        let mut estimator = NoiseEstimator::default();
        for _ in 0..50 {
            // The big batch's square is below what noise alone explains: |G|² comes out negative.
            let sample = NoiseSample { small_sqr: 10.0, big_sqr: 0.5, small_batch: 1.0, big_batch: 16.0 };
            estimator.observe(&sample, Sequences(16), Sequences(16));
        }
        assert_eq!(estimator.explained(64), Err(NoNoiseScale::Drowned));
    }

    /// The same five steps, and the same ends in the worker's `tests/test_noise.py`.
    #[test]
    fn the_interval_is_the_workers() {
        let mut estimator = NoiseEstimator::default();
        for (noise, signal) in [(30.0, 2.0), (33.0, 1.7), (27.0, 2.2), (31.0, 2.1), (29.0, 1.9)] {
            let of = |batch: f64| signal + noise / batch;
            let sample = NoiseSample { small_sqr: of(2.0), big_sqr: of(8.0), small_batch: 2.0, big_batch: 8.0 };
            estimator.observe(&sample, Sequences(8), Sequences(1 << 30));
        }
        let Some(Interval { low, high: Some(high) }) = estimator.interval() else { panic!("{estimator:?}") };
        assert!((low / 12.4324 - 1.0).abs() < 2e-4 && (high / 18.5778 - 1.0).abs() < 2e-4, "{low} to {high}");
    }

    #[test]
    fn nonsense_and_one_outlier_change_nothing() {
        let before = fed(1.0, 40.0, 4.0, 16.0, 0.02, 50);
        let mut after = before.clone();
        let mut draws = Draws(SplitMix64(1));
        let good = report(1.0, 40.0, 4.0, 16.0, 0.0, &mut draws);
        for nonsense in [
            NoiseSample { small_sqr: f64::NAN, ..good },
            NoiseSample { big_sqr: f64::INFINITY, ..good },
            NoiseSample { small_sqr: -1.0, ..good },
            NoiseSample { big_batch: 4.0, ..good },
            NoiseSample { small_sqr: 1e6, ..good },
        ] {
            after.observe(&nonsense, Sequences(16), Sequences(16));
        }
        assert_eq!(before.noise_scale(64), after.noise_scale(64));
        assert_eq!(after.ignored(), IgnoredReports { impossible: 4, outlying: 1, other_kind: 0 });
    }

    #[test]
    fn sums_beyond_all_numbers_give_no_scale() {
        let sane = fed(1.0, 40.0, 4.0, 16.0, 0.02, 50);
        for hostile in [
            NoiseEstimator { weight: 1e-308, noise: 1e10, ..sane.clone() },
            NoiseEstimator { weight: f64::NAN, ..sane.clone() },
            NoiseEstimator { signal_sqr: 1e308, noise_sqr: 1e308, cross: 1e308, weight: 1e-3, ..sane.clone() },
        ] {
            assert_eq!(hostile.noise_scale(64), None, "{hostile:?}");
        }
    }

    #[test]
    fn measuring_seldom_looks_back_over_as_many_sequences() {
        let (mut often, mut seldom) = (NoiseEstimator::default(), NoiseEstimator::default());
        let mut draws = Draws(SplitMix64(7));
        for step in 0..2000 {
            let sample = report(1.0, 40.0 + 0.04 * f64::from(step), 4.0, 16.0, 0.0, &mut draws);
            often.observe(&sample, Sequences(16), Sequences(16));
            if step % 4 == 3 {
                seldom.observe(&sample, Sequences(16), Sequences(16));
            } else {
                seldom.skip(Sequences(16));
            }
        }
        let [often, seldom] = [often, seldom].map(|estimator| estimator.noise_scale(1).unwrap().phi.0);
        assert!((seldom / often - 1.0).abs() < 0.01, "{seldom} against {often}");
        assert!((often / 112.0 - 1.0).abs() < 0.02, "200 steps behind a truth of 120: {often}");
    }

    #[test]
    fn a_lasting_change_is_followed() {
        let mut estimator = fed(1.0, 40.0, 4.0, 16.0, 0.02, 50);
        let mut draws = Draws(SplitMix64(3));
        for _ in 0..200 {
            let sample = report(1.0, 4000.0, 4.0, 16.0, 0.02, &mut draws);
            estimator.observe(&sample, Sequences(16), Sequences(16));
        }
        let phi = estimator.noise_scale(1).unwrap().phi.0;
        assert!(phi > 2000.0, "{phi}");
    }
}
