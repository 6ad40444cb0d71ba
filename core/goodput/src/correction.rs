//! What reports teach of step time: three factors per GPU type over the prior's terms, found by maximum a posteriori, so that one
//! report already corrects and hundreds pin down. Layouts not yet seen inherit the factors. It never looks at φ.

use std::collections::BTreeMap;

use headway_types::{Configuration, GpuType, NodeCount, Seconds};
use serde::{Deserialize, Serialize};

use crate::posterior::{Observation, Prior, posterior, variance};
use crate::step_time::StepTime;

/// Prior standard deviations: of ln(micro factor), ln(step factor), and of the extra cost per step in units of `unit`.
const PRIOR_SIGMA: [f64; 3] = [0.5, 0.7, 1.0];
/// The extra cost's unit, as a share of the first seen micro-batch's prior time.
const UNIT_SHARE: f64 = 0.3;
/// What the form of the model gets wrong at best, and the scatter of one report; relative.
const MODEL_ERROR: f64 = 0.02;
const REPORT_ERROR: f64 = 0.1;
/// Situations kept per GPU type, and newest reports kept of each: their median shrugs off outliers and follows drift.
const CELLS: usize = 24;
const RECENT: usize = 7;
/// Standardised residual above which a situation pulls with constant force (Huber 1964).
const HUBER: f64 = 2.0;

/// Learned corrections per GPU type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Correction {
    types: BTreeMap<GpuType, TypeCorrection>,
}

/// A corrected step time with its relative standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Corrected {
    pub time: Seconds,
    pub relative_error: f64,
}

/// What the correction makes of the prior's groups of terms: factors, and seconds more per step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Factors {
    pub micro: f64,
    pub step: f64,
    pub extra: f64,
}

impl Factors {
    /// The prior as it stands.
    pub const NONE: Self = Self { micro: 1.0, step: 1.0, extra: 0.0 };
}

impl Correction {
    /// Whether nothing has been learnt.
    pub(crate) fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// What reports on a GPU type have shown; `None` without any.
    pub(crate) fn factors(&self, gpu_type: &GpuType) -> Option<Factors> {
        self.types.get(gpu_type).map(TypeCorrection::as_factors)
    }

    /// The same of all GPU types that it was reported on.
    pub(crate) fn learned(&self) -> impl Iterator<Item = (&GpuType, Factors)> {
        self.types.iter().map(|(gpu_type, learned)| (gpu_type, learned.as_factors()))
    }

    /// Folds one observed step time of a configuration whose prior is known. Nonsense is skipped.
    pub fn observe(
        &mut self,
        gpu_type: &GpuType,
        nodes: NodeCount,
        configuration: &Configuration,
        prior: &StepTime,
        observed: Seconds,
    ) {
        let terms = Terms::of(prior);
        if !(observed.0.is_finite() && observed.0 > 0.0 && terms.micro.is_finite() && terms.micro > 0.0) {
            return;
        }
        let Some(micro_batches) = configuration.accumulation() else { return };
        let unit = UNIT_SHARE * terms.micro / micro_batches as f64;
        let learned = self.types.entry(gpu_type.clone()).or_insert_with(|| TypeCorrection::new(unit));
        learned.record(nodes, configuration, terms, libm::log(observed.0));
        learned.fit();
    }

    /// The prior, corrected by what this GPU type has shown; `None` without a report on it.
    #[must_use]
    pub fn apply(&self, gpu_type: &GpuType, prior: &StepTime) -> Option<Corrected> {
        self.types.get(gpu_type).map(|learned| learned.apply(Terms::of(prior)))
    }

    /// The prior as it stands: its time exactly, its full uncertainty.
    #[must_use]
    pub fn uncorrected(prior: &StepTime) -> Corrected {
        let terms = Terms::of(prior);
        let time = Seconds(terms.micro + terms.step + terms.fixed);
        Corrected { time, ..TypeCorrection::new(UNIT_SHARE * terms.micro).apply(terms) }
    }
}

/// The prior's terms, grouped as they scale.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Terms {
    micro: f64,
    step: f64,
    fixed: f64,
}

impl Terms {
    fn of(prior: &StepTime) -> Self {
        Self { micro: prior.micro().0, step: prior.step().0, fixed: prior.overhead.0 }
    }
}

/// One situation and its newest step times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Cell {
    nodes: NodeCount,
    configuration: Configuration,
    terms: Terms,
    /// Natural logarithms of seconds, oldest first.
    recent: Vec<f64>,
    reports: u64,
}

impl Cell {
    fn median(&self) -> f64 {
        let mut sorted = self.recent.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] }
    }

    fn variance(&self) -> f64 {
        MODEL_ERROR * MODEL_ERROR + REPORT_ERROR * REPORT_ERROR / self.reports as f64
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct TypeCorrection {
    /// Least recently reported first.
    cells: Vec<Cell>,
    /// Seconds of one unit of extra cost.
    unit: f64,
    /// ln(micro factor), ln(step factor), extra cost per step in units.
    factors: [f64; 3],
    covariance: [[f64; 3]; 3],
}

impl TypeCorrection {
    fn new(unit: f64) -> Self {
        let mut covariance = [[0.0; 3]; 3];
        for (index, sigma) in PRIOR_SIGMA.iter().enumerate() {
            covariance[index][index] = sigma * sigma;
        }
        Self { cells: Vec::new(), unit, factors: [0.0; 3], covariance }
    }

    fn record(&mut self, nodes: NodeCount, configuration: &Configuration, terms: Terms, log_time: f64) {
        let same = |cell: &Cell| cell.nodes == nodes && cell.configuration == *configuration && cell.terms == terms;
        let mut cell = match self.cells.iter().position(same) {
            Some(index) => self.cells.remove(index),
            None => Cell { nodes, configuration: *configuration, terms, recent: Vec::new(), reports: 0 },
        };
        if cell.recent.len() == RECENT {
            cell.recent.remove(0);
        }
        cell.recent.push(log_time);
        cell.reports += 1;
        self.cells.push(cell);
        if self.cells.len() > CELLS {
            self.cells.remove(0);
        }
    }

    /// Seconds and their gradient by the factors.
    fn evaluate(unit: f64, factors: &[f64; 3], terms: Terms) -> (f64, [f64; 3]) {
        let parts =
            [libm::exp(factors[0]) * terms.micro, libm::exp(factors[1]) * terms.step, terms.fixed + factors[2] * unit];
        (parts.iter().sum(), [parts[0], parts[1], unit])
    }

    fn fit(&mut self) {
        // No step costs less than its terms.
        let prior = Prior { sigma: PRIOR_SIGMA, least: [f64::NEG_INFINITY, f64::NEG_INFINITY, 0.0] };
        let observe = |cell: &Cell| Observation { logarithm: cell.median(), variance: cell.variance() };
        let observations: Vec<Observation> = self.cells.iter().map(observe).collect();
        let found = posterior(prior, self.factors, HUBER, &observations, |index, factors| {
            Self::evaluate(self.unit, factors, self.cells[index].terms)
        });
        (self.factors, self.covariance) = (found.factors, found.covariance);
    }

    fn apply(&self, terms: Terms) -> Corrected {
        let (time, gradient) = Self::evaluate(self.unit, &self.factors, terms);
        let variance = variance(&self.covariance, &gradient) / (time * time);
        Corrected { time: Seconds(time), relative_error: (variance + MODEL_ERROR * MODEL_ERROR).sqrt() }
    }

    fn as_factors(&self) -> Factors {
        let [micro, step, extra] = self.factors;
        Factors { micro: libm::exp(micro), step: libm::exp(step), extra: extra * self.unit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headway_types::random::SplitMix64;
    use headway_types::{Layout, Sequences};
    use proptest::prelude::*;

    const MICRO: f64 = 0.2;
    const REDUCE: f64 = 0.15;

    fn at(dp: u32, accumulation: u64) -> (Configuration, StepTime) {
        let layout = Layout { dp, tp: 1, pp: 1, ..Layout::single() };
        let configuration = Configuration {
            layout,
            micro_batch: Sequences(2),
            global_batch: Sequences(2 * u64::from(dp) * accumulation),
        };
        let ring = 2.0 * f64::from(dp - 1) / f64::from(dp);
        let prior = StepTime {
            compute: Seconds(MICRO * accumulation as f64),
            data_collectives: Seconds(REDUCE * ring),
            ..StepTime::default()
        };
        (configuration, prior)
    }

    fn gpu() -> GpuType {
        GpuType("emulated".into())
    }

    fn predicted(correction: &Correction, dp: u32, accumulation: u64) -> Corrected {
        let prior = at(dp, accumulation).1;
        correction.apply(&gpu(), &prior).unwrap_or_else(|| Correction::uncorrected(&prior))
    }

    fn teach(correction: &mut Correction, dp: u32, accumulation: u64, seconds: f64) {
        let (configuration, prior) = at(dp, accumulation);
        correction.observe(&gpu(), NodeCount(1), &configuration, &prior, Seconds(seconds));
    }

    #[test]
    fn without_reports_the_prior_stands_with_its_full_uncertainty() {
        let before = predicted(&Correction::default(), 4, 4);
        assert_eq!(before.time, at(4, 4).1.total());
        assert!(before.relative_error > 0.3);
    }

    #[test]
    fn one_report_already_corrects_and_unseen_layouts_inherit() {
        let mut correction = Correction::default();
        let slow = 1.8 * at(4, 4).1.total().0;
        teach(&mut correction, 4, 4, slow);
        assert!((predicted(&correction, 4, 4).time.0 / slow - 1.0).abs() < 0.1);
        assert!(predicted(&correction, 2, 8).time.0 > 1.3 * at(2, 8).1.total().0);
        assert!(predicted(&correction, 4, 4).relative_error < 0.15);
    }

    #[test]
    fn a_twofold_surprise_is_learnt_from_one_report() {
        for factor in [0.5, 2.0] {
            let mut correction = Correction::default();
            let seconds = factor * at(4, 4).1.total().0;
            teach(&mut correction, 4, 4, seconds);
            assert!((predicted(&correction, 4, 4).time.0 / seconds - 1.0).abs() < 0.12, "{factor}");
        }
    }

    #[test]
    fn uncertainty_shrinks_with_reports_and_is_larger_where_nothing_was_seen() {
        let mut correction = Correction::default();
        teach(&mut correction, 4, 4, 1.4);
        let after_one = predicted(&correction, 4, 4).relative_error;
        for _ in 0..30 {
            teach(&mut correction, 4, 4, 1.4);
        }
        let after_many = predicted(&correction, 4, 4).relative_error;
        assert!(after_many < after_one);
        assert!(predicted(&correction, 4, 64).relative_error > after_many);
    }

    #[test]
    fn one_outlier_hardly_moves_it() {
        let mut correction = Correction::default();
        for number in 0..10 {
            teach(&mut correction, 4, 2 + number % 3, 1.1 * at(4, 2 + number % 3).1.total().0);
        }
        let before = predicted(&correction, 4, 4).time.0;
        teach(&mut correction, 4, 4, 60.0);
        teach(&mut correction, 2, 9, 60.0);
        assert!((predicted(&correction, 4, 4).time.0 / before - 1.0).abs() < 0.1);
    }

    #[test]
    fn nonsense_is_skipped() {
        let mut correction = Correction::default();
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            teach(&mut correction, 4, 4, seconds);
        }
        assert_eq!(correction, Correction::default());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn it_converges_to_a_synthetic_truth(
            micro in 0.6..3.0f64, reduce in 0.5..3.0f64, extra in 0.0..0.12f64, seed in 0u64..1000,
        ) {
            let truth = |dp: u32, accumulation: u64| {
                let prior = at(dp, accumulation).1;
                micro * prior.micro().0 + reduce * prior.step().0 + extra
            };
            let mut correction = Correction::default();
            let mut random = SplitMix64(seed);
            for number in 0..120u64 {
                let scatter = 1.0 + 0.03 * (2.0 * random.uniform() - 1.0);
                let (dp, accumulation) = ([1, 2, 4][(number % 3) as usize], [1, 2, 4, 8][(number / 3 % 4) as usize]);
                teach(&mut correction, dp, accumulation, scatter * truth(dp, accumulation));
            }
            for (dp, accumulation) in [(4, 1), (2, 4), (8, 2), (4, 16), (1, 8)] {
                let predicted = predicted(&correction, dp, accumulation);
                let error = predicted.time.0 / truth(dp, accumulation) - 1.0;
                prop_assert!(error.abs() < 0.06, "dp {dp} × {accumulation}: {error}, {predicted:?}");
            }
        }
    }
}
