//! What reported memory peaks and out-of-memory ends teach: two factors per GPU type over the memory model, on states and on what passes
//! through (activations and logits), found by maximum a posteriori. Layouts not yet seen inherit them by their make-up. It never looks
//! at time.

use std::collections::BTreeMap;

use headway_types::{Bytes, Configuration, GpuType};
use serde::{Deserialize, Serialize};

use crate::band::NINTH_DECILE;
use crate::memory::MemoryUse;
use crate::posterior::{Observation, Prior, posterior, variance};

/// Prior standard deviation of the logarithm of each factor: about what the memory model gets wrong (docs/goodput.md).
const PRIOR_SIGMA: f64 = 0.1;
/// What the form of the model gets wrong at best, and the scatter of one peak; relative.
const MODEL_ERROR: f64 = 0.02;
const PEAK_ERROR: f64 = 0.01;
/// A peak below this share of the device's memory had room to spare.
const ROOMY: f64 = 0.8;
/// Configurations kept per GPU type.
const CELLS: usize = 24;

/// Learned factors per GPU type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemoryCorrection {
    types: BTreeMap<GpuType, Learned>,
}

/// A memory estimate with what reports taught.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Needed {
    /// Bytes, expected.
    pub bytes: f64,
    pub relative_error: f64,
}

impl MemoryCorrection {
    /// Whether nothing has been learnt.
    pub(crate) fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// Folds the peak of a configuration whose memory is predicted. Nonsense is skipped.
    pub(crate) fn observe(&mut self, gpu_type: &GpuType, at: &Configuration, predicted: &MemoryUse, peak: Bytes) {
        let parts = Parts::of(predicted);
        if peak.0 == 0 || !parts.are_sound() {
            return;
        }
        let learned = self.types.entry(gpu_type.clone()).or_default();
        learned.record(at, parts, libm::log(peak.0 as f64));
        learned.fit();
    }

    /// Folds that a configuration ran out of `capacity` bytes. Nonsense is skipped.
    pub(crate) fn exhausted(&mut self, gpu_type: &GpuType, at: &Configuration, predicted: &MemoryUse, capacity: f64) {
        let parts = Parts::of(predicted);
        if !(capacity.is_finite() && capacity > 0.0 && parts.are_sound()) {
            return;
        }
        let (learned, log_capacity) = (self.types.entry(gpu_type.clone()).or_default(), libm::log(capacity));
        if !learned.forgives(at, parts, log_capacity) {
            learned.exhaust(at, parts, log_capacity);
            learned.fit();
        }
    }

    pub(crate) fn of(&self, gpu_type: &GpuType) -> Option<&Learned> {
        self.types.get(gpu_type)
    }
}

/// A prediction grouped as it is corrected.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Parts {
    states: f64,
    passing: f64,
    reserve: f64,
}

impl Parts {
    fn of(predicted: &MemoryUse) -> Self {
        let MemoryUse { states, activations, logits, reserve, .. } = *predicted;
        Self { states, passing: activations + logits, reserve }
    }

    fn are_sound(&self) -> bool {
        let parts = [self.states, self.passing, self.reserve];
        parts.iter().all(|part| part.is_finite() && *part >= 0.0) && self.states > 0.0
    }
}

/// The highest peak of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Peak {
    configuration: Configuration,
    parts: Parts,
    /// Natural logarithm of bytes.
    highest: f64,
    reports: u64,
    /// It ran out of memory once although it had had room.
    #[serde(default)]
    forgiven: bool,
}

/// A configuration that ran out of memory, and what it is believed to have needed: the prediction of that time, given that it was above
/// the device's memory (the moments of a normal distribution's tail).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Exhaustion {
    configuration: Configuration,
    parts: Parts,
    /// Natural logarithm of bytes, and its variance.
    needed: f64,
    variance: f64,
}

/// What is known of one GPU type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Learned {
    /// Least recently reported first.
    peaks: Vec<Peak>,
    exhaustions: Vec<Exhaustion>,
    /// Logarithms of the factors on states and on what passes through.
    factors: [f64; 2],
    covariance: [[f64; 2]; 2],
}

impl Default for Learned {
    fn default() -> Self {
        let variance = PRIOR_SIGMA * PRIOR_SIGMA;
        let covariance = [[variance, 0.0], [0.0, variance]];
        Self { peaks: Vec::new(), exhaustions: Vec::new(), factors: [0.0; 2], covariance }
    }
}

impl Learned {
    fn record(&mut self, at: &Configuration, parts: Parts, log_bytes: f64) {
        let known = self.peaks.iter().position(|peak| peak.configuration == *at && peak.parts == parts);
        let mut peak = match known {
            Some(index) => self.peaks.remove(index),
            None => Peak { configuration: *at, parts, highest: log_bytes, reports: 0, forgiven: false },
        };
        peak.highest = peak.highest.max(log_bytes);
        peak.reports += 1;
        self.peaks.push(peak);
        if self.peaks.len() > CELLS {
            self.peaks.remove(0);
        }
    }

    /// What has run with room to spare does not run out by itself: once that is taken for others' leftovers. The second
    /// time it is a lesson, or the job would run out for ever.
    fn forgives(&mut self, at: &Configuration, parts: Parts, log_capacity: f64) -> bool {
        let known = self.peaks.iter_mut().find(|peak| peak.configuration == *at && peak.parts == parts);
        known.is_some_and(|peak| {
            !std::mem::replace(&mut peak.forgiven, true) && peak.highest < log_capacity + libm::log(ROOMY)
        })
    }

    fn exhaust(&mut self, at: &Configuration, parts: Parts, log_capacity: f64) {
        if self.exhaustions.iter().any(|known| known.configuration == *at && known.parts == parts) {
            return;
        }
        let (bytes, gradient) = Self::evaluate(&self.factors, parts);
        let variance = variance(&self.covariance, &gradient) / (bytes * bytes) + MODEL_ERROR * MODEL_ERROR;
        let (mean, sigma) = (libm::log(bytes), variance.sqrt());
        let (shift, share) = tail((log_capacity - mean) / sigma);
        let (needed, variance) = (mean + sigma * shift, (variance * share).max(MODEL_ERROR * MODEL_ERROR));
        self.exhaustions.push(Exhaustion { configuration: *at, parts, needed, variance });
        if self.exhaustions.len() > CELLS {
            self.exhaustions.remove(0);
        }
    }

    /// Bytes and their gradient by the factors.
    fn evaluate(factors: &[f64; 2], parts: Parts) -> (f64, [f64; 2]) {
        let gradient = [libm::exp(factors[0]) * parts.states, libm::exp(factors[1]) * parts.passing];
        (gradient[0] + gradient[1] + parts.reserve, gradient)
    }

    fn fit(&mut self) {
        let peaks = self.peaks.iter().map(|peak| {
            let variance = MODEL_ERROR * MODEL_ERROR + PEAK_ERROR * PEAK_ERROR / peak.reports as f64;
            (peak.parts, Observation { logarithm: peak.highest, variance })
        });
        let exhaustions = self.exhaustions.iter().map(|one| {
            let Exhaustion { parts, needed, variance, .. } = *one;
            (parts, Observation { logarithm: needed, variance })
        });
        let (parts, observations): (Vec<Parts>, Vec<Observation>) = peaks.chain(exhaustions).unzip();
        // Peaks are exact: none is an outlier.
        let prior = Prior { sigma: [PRIOR_SIGMA; 2], least: [f64::NEG_INFINITY; 2] };
        let found = posterior(prior, self.factors, f64::INFINITY, &observations, |index, factors| {
            Self::evaluate(factors, parts[index])
        });
        (self.factors, self.covariance) = (found.factors, found.covariance);
    }

    pub(crate) fn needed(&self, predicted: &MemoryUse) -> Needed {
        let (bytes, gradient) = Self::evaluate(&self.factors, Parts::of(predicted));
        let variance = variance(&self.covariance, &gradient) / (bytes * bytes) + MODEL_ERROR * MODEL_ERROR;
        Needed { bytes, relative_error: variance.sqrt() }
    }

    /// Bytes to plan with: what is expected, or its ninth decile once memory has run out.
    pub(crate) fn planned(&self, predicted: &MemoryUse) -> f64 {
        let Needed { bytes, relative_error } = self.needed(predicted);
        let cautious = !self.exhaustions.is_empty();
        // What must fit once memory has run out where it should not have.
        if cautious { bytes * libm::exp(NINTH_DECILE * relative_error) } else { bytes }
    }

    /// A configuration that ran out of memory though it is expected to need no more than this.
    pub(crate) fn exhausted_by(&self, predicted: &MemoryUse) -> Option<Configuration> {
        let bytes = Self::evaluate(&self.factors, Parts::of(predicted)).0;
        let smaller = self.exhaustions.iter().find(|one| Self::evaluate(&self.factors, one.parts).0 <= bytes);
        smaller.map(|one| one.configuration)
    }
}

/// What rounding does to a sum of bytes.
const ROUNDING: f64 = 1e-9;

/// Bounds of what peaks teach of one GPU type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PeakBounds {
    low: [f64; 2],
    high: [f64; 2],
}

impl PeakBounds {
    /// The factors' logarithms may move by `slack`; `None` once memory has run out: then what is planned with depends on more than them.
    pub(crate) fn around(learned: Option<&Learned>, slack: f64) -> Option<Self> {
        let factors = factors_of(learned)?;
        Some(Self { low: factors.map(|it| it - slack), high: factors.map(|it| it + slack) })
    }

    pub(crate) fn hold(&self, learned: Option<&Learned>) -> bool {
        let within = |(at, (low, high)): (&f64, (&f64, &f64))| (low..=high).contains(&at);
        factors_of(learned).is_some_and(|at| at.iter().zip(self.low.iter().zip(&self.high)).all(within))
    }

    /// Bytes that are planned with at least.
    pub(crate) fn least(&self, predicted: &MemoryUse) -> f64 {
        Learned::evaluate(&self.low, Parts::of(predicted)).0 * (1.0 - ROUNDING)
    }

    /// Bytes that are planned with at most.
    pub(crate) fn most(&self, predicted: &MemoryUse) -> f64 {
        Learned::evaluate(&self.high, Parts::of(predicted)).0 * (1.0 + ROUNDING)
    }
}

fn factors_of(learned: Option<&Learned>) -> Option<[f64; 2]> {
    let Some(learned) = learned else { return Some([0.0; 2]) };
    learned.exhaustions.is_empty().then_some(learned.factors)
}

/// Mean of the part of a standard normal distribution above a threshold, and its variance.
fn tail(threshold: f64) -> (f64, f64) {
    // The inverse Mills ratio; far out it is its expansion, where both densities vanish.
    let mean = if threshold > 8.0 {
        threshold + 1.0 / threshold
    } else {
        let density =
            libm::exp(-0.5 * threshold * threshold) * core::f64::consts::FRAC_2_SQRT_PI / core::f64::consts::SQRT_2;
        density / libm::erfc(threshold / core::f64::consts::SQRT_2)
    };
    (mean, (1.0 + threshold * mean - mean * mean).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headway_types::{Layout, Sequences};

    const GIB: f64 = (1u64 << 30) as f64;

    fn at(global_batch: u64) -> Configuration {
        Configuration { layout: Layout::single(), micro_batch: Sequences(1), global_batch: Sequences(global_batch) }
    }

    fn use_of(states: f64, activations: f64) -> MemoryUse {
        MemoryUse { states: states * GIB, activations: activations * GIB, reserve: GIB, ..MemoryUse::default() }
    }

    fn gpu() -> GpuType {
        GpuType("H100-80G".into())
    }

    fn peak(gib: f64) -> Bytes {
        Bytes((gib * GIB) as u64)
    }

    fn needed(correction: &MemoryCorrection, predicted: &MemoryUse) -> Needed {
        correction.of(&gpu()).map_or_else(|| Learned::default().needed(predicted), |learned| learned.needed(predicted))
    }

    #[test]
    fn one_peak_corrects_and_layouts_not_seen_inherit_by_their_make_up() {
        let mut correction = MemoryCorrection::default();
        let (states, passing) = (use_of(40.0, 2.0), use_of(5.0, 40.0));
        correction.observe(&gpu(), &at(1), &states, peak(1.3 * 43.0));
        assert!((needed(&correction, &states).bytes / (1.3 * 43.0 * GIB) - 1.0).abs() < 0.06);
        let unseen = needed(&correction, &passing).bytes / (46.0 * GIB);
        assert!((1.0..1.1).contains(&unseen), "{unseen}: states say little of activations");
        correction.observe(&gpu(), &at(2), &passing, peak(1.2 * 46.0));
        let both = needed(&correction, &use_of(20.0, 20.0)).bytes / (41.0 * GIB);
        assert!((1.15..1.32).contains(&both), "{both}");
    }

    #[test]
    fn a_twofold_surprise_is_learnt_at_once() {
        for factor in [0.5, 2.0] {
            let mut correction = MemoryCorrection::default();
            correction.observe(&gpu(), &at(1), &use_of(20.0, 15.0), peak(factor * 36.0));
            let learnt = needed(&correction, &use_of(20.0, 15.0)).bytes / (factor * 36.0 * GIB);
            assert!((learnt - 1.0).abs() < 0.12, "{factor}: {learnt}");
        }
    }

    #[test]
    fn uncertainty_shrinks_with_peaks() {
        let mut correction = MemoryCorrection::default();
        let at_first = needed(&correction, &use_of(20.0, 20.0)).relative_error;
        correction.observe(&gpu(), &at(1), &use_of(20.0, 20.0), peak(42.0));
        let after_one = needed(&correction, &use_of(20.0, 20.0)).relative_error;
        for _ in 0..20 {
            correction.observe(&gpu(), &at(1), &use_of(20.0, 20.0), peak(42.0));
        }
        let after_many = needed(&correction, &use_of(20.0, 20.0)).relative_error;
        assert!(at_first > after_one && after_one > after_many, "{at_first} {after_one} {after_many}");
    }

    #[test]
    fn running_out_excludes_all_that_needs_as_much_and_asks_for_more_room() {
        let mut correction = MemoryCorrection::default();
        let oom = use_of(60.0, 13.0);
        correction.exhausted(&gpu(), &at(1), &oom, 80.0 * GIB);
        let learned = correction.of(&gpu()).cloned().unwrap_or_default();
        assert!(learned.needed(&oom).bytes > 79.0 * GIB);
        assert_eq!(learned.exhausted_by(&oom), Some(at(1)));
        assert_eq!(learned.exhausted_by(&use_of(62.0, 13.0)), Some(at(1)));
        assert_eq!(learned.exhausted_by(&use_of(40.0, 13.0)), None);
        assert!(learned.planned(&use_of(40.0, 13.0)) > 1.1 * 54.0 * GIB);
    }

    #[test]
    fn what_has_run_with_room_is_excluded_by_running_out_twice() {
        let mut correction = MemoryCorrection::default();
        correction.observe(&gpu(), &at(1), &use_of(40.0, 20.0), peak(62.0));
        correction.observe(&gpu(), &at(2), &use_of(40.0, 26.0), peak(68.0));
        let mut runs_out = |number: u64, predicted: &MemoryUse| {
            correction.exhausted(&gpu(), &at(number), predicted, 80.0 * GIB);
            correction.of(&gpu()).and_then(|learned| learned.exhausted_by(predicted))
        };
        assert_eq!(runs_out(1, &use_of(40.0, 20.0)), None);
        assert_eq!(runs_out(1, &use_of(40.0, 20.0)), Some(at(1)));
        assert_eq!(runs_out(2, &use_of(40.0, 26.0)), Some(at(1)), "it needs more");
        assert_eq!(runs_out(3, &use_of(40.0, 30.0)), Some(at(1)));
    }

    #[test]
    fn what_lies_above_a_threshold_is_the_tail_of_a_normal_distribution() {
        let (mean, variance) = tail(0.0);
        assert!(
            (mean - 0.797_884_560_8).abs() < 1e-9 && (variance - 0.363_380_227_6).abs() < 1e-9,
            "{mean} {variance}"
        );
        assert!((tail(7.999).0 - tail(8.001).0).abs() < 0.01);
        assert!(tail(-9.0).0.abs() < 1e-9);
    }

    #[test]
    fn nonsense_is_skipped() {
        let mut correction = MemoryCorrection::default();
        correction.observe(&gpu(), &at(1), &use_of(20.0, 20.0), Bytes(0));
        correction.observe(&gpu(), &at(1), &use_of(f64::NAN, 20.0), peak(3.0));
        correction.exhausted(&gpu(), &at(1), &use_of(20.0, 20.0), f64::INFINITY);
        assert_eq!(correction, MemoryCorrection::default());
    }
}
