//! What reports teach of step time: three factors per GPU type over the prior's terms, found by maximum a posteriori, so that one
//! report already corrects and hundreds pin down. Layouts not yet seen inherit the factors. It never looks at φ.

use std::collections::BTreeMap;

use headway_types::{Configuration, GpuType, NodeCount, Seconds};
use serde::{Deserialize, Serialize};

use crate::band::NINTH_DECILE;
use crate::ground::{Contradiction, Degrees, Ground, Ratio, Spot};
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
/// Of situations that contradicted what was expected so many are kept before others; beyond, they go first.
const MOST_CONTRADICTED: usize = 12;
/// So many of even shares are kept for what they say of the type alone.
const EVEN_KEPT: usize = 4;
const RECENT: usize = 7;
/// Reports after which a situation's first steps are held against what was expected: the first one may hold what a change itself takes.
const JUDGED: u64 = 2;
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

    /// The same of all GPU types that it was reported on in even shares.
    pub(crate) fn learned(&self) -> impl Iterator<Item = (&GpuType, Factors)> {
        let even = self.types.iter().filter(|(_, learned)| learned.has_even_shares());
        even.map(|(gpu_type, learned)| (gpu_type, learned.as_factors()))
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
        let Some(cycles) = configuration.cycles() else { return };
        let unit = UNIT_SHARE * terms.micro / cycles as f64;
        let learned = self.types.entry(gpu_type.clone()).or_insert_with(|| TypeCorrection::new(unit));
        learned.record(nodes, configuration, terms, libm::log(observed.0));
        learned.fit();
    }

    /// The prior, corrected by what this GPU type has shown; `None` without a report on it.
    #[must_use]
    pub fn apply(&self, gpu_type: &GpuType, prior: &StepTime) -> Option<Corrected> {
        self.types.get(gpu_type).map(|learned| learned.apply(Terms::of(prior)))
    }

    /// Where steps were measured on a GPU type, and how they turned out.
    pub(crate) fn ground(&self, gpu_type: &GpuType) -> Ground {
        Ground::new(self.types.get(gpu_type).into_iter().flat_map(TypeCorrection::spots).collect())
    }

    /// How many times as long as the factors say steps of a configuration take, where some were measured that contradicted them.
    pub(crate) fn slowdown(&self, gpu_type: &GpuType, nodes: NodeCount, configuration: &Configuration) -> f64 {
        let Some(learned) = self.types.get(gpu_type).filter(|learned| learned.is_contradicted()) else { return 1.0 };
        let ground = Ground::new(learned.spots().collect());
        let Configuration { layout, micro_batch, .. } = *configuration;
        configuration.cycles().map_or(1.0, |count| ground.slowdown(layout, nodes, micro_batch, count))
    }

    /// Configurations whose first steps contradicted what was expected of them, least recently reported first.
    pub(crate) fn contradictions(&self, gpu_type: &GpuType) -> impl Iterator<Item = Contradiction> {
        self.types.get(gpu_type).into_iter().flat_map(|learned| &learned.cells).filter_map(Cell::contradiction)
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
    /// What was expected before the first report, where steps of the same degrees had been measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expected: Option<Expected>,
    /// Its first steps took longer than that allows, and no later one has been as fast.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    contradicted: bool,
}

/// A natural logarithm of seconds, and its deviation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Expected {
    logarithm: f64,
    deviation: f64,
}

impl Expected {
    /// The slow edge of the band that a report lies in.
    fn slowest(self) -> f64 {
        self.logarithm + NINTH_DECILE * libm::hypot(self.deviation, REPORT_ERROR)
    }
}

impl Cell {
    fn degrees(&self) -> Degrees {
        Degrees::of(self.configuration.layout)
    }

    fn ratio(&self) -> Ratio {
        Ratio::of(self.configuration.layout)
    }

    fn fastest(&self) -> f64 {
        self.recent.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Holds what was reported so far against what was expected.
    fn judge(&mut self) {
        let Some(expected) = self.expected else { return };
        let slow = self.fastest() > expected.slowest();
        self.contradicted = slow && (self.contradicted || self.reports == JUDGED);
    }

    fn contradiction(&self) -> Option<Contradiction> {
        let expected = self.expected.filter(|_| self.contradicted)?;
        Some(Contradiction {
            configuration: self.configuration,
            nodes: self.nodes,
            expected: Seconds(libm::exp(expected.logarithm)),
            slowest: Seconds(libm::exp(expected.slowest())),
            measured: Seconds(libm::exp(self.fastest())),
        })
    }

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
        let here = |cell: &Cell| cell.nodes == nodes && cell.configuration == *configuration;
        let even = Ratio::of(configuration.layout).is_even();
        let mut cell = match self.cells.iter().position(|cell| here(cell) && (cell.terms == terms || !even)) {
            Some(index) if self.cells[index].terms == terms => self.cells.remove(index),
            // What is known of how much faster the faster nodes are has changed, and with it what was expected.
            Some(index) => Cell { terms, expected: None, contradicted: false, ..self.cells.remove(index) },
            None => {
                let (reports, recent, contradicted) = (0, Vec::new(), false);
                let expected = self.expected(configuration, terms);
                Cell { nodes, configuration: *configuration, terms, recent, reports, expected, contradicted }
            }
        };
        if cell.recent.len() == RECENT {
            cell.recent.remove(0);
        }
        cell.recent.push(log_time);
        cell.reports += 1;
        cell.judge();
        self.cells.push(cell);
        if self.cells.len() > CELLS {
            // What must not be tried again is kept longest, but not at the price of what comes.
            let before = &self.cells[..CELLS];
            let contradicted = before.iter().filter(|cell| cell.contradicted).count();
            let is_due = |cell: &Cell| cell.contradicted == (contradicted > MOST_CONTRADICTED);
            // Nor what says of the type alone how fast it is.
            let even = before.iter().rev().filter(|cell| cell.ratio().is_even() && !cell.contradicted);
            let kept: Vec<&Cell> = even.take(EVEN_KEPT).collect();
            let is_kept = |cell: &Cell| kept.iter().any(|kept| core::ptr::eq(*kept, cell));
            let oldest = before.iter().position(|cell| is_due(cell) && !is_kept(cell)).unwrap_or(0);
            self.cells.remove(oldest);
        }
    }

    /// What the factors say of a situation that was never reported, where they rest on steps of the same degrees.
    fn expected(&self, configuration: &Configuration, terms: Terms) -> Option<Expected> {
        let degrees = Degrees::of(configuration.layout);
        let measured = self.cells.iter().any(|cell| cell.degrees() == degrees && !cell.contradicted);
        measured.then(|| {
            let Corrected { time, relative_error } = self.apply(terms);
            let ground = Ground::new(self.spots().collect());
            let unmeasured = ground.unmeasured(configuration.layout, configuration.micro_batch, None);
            Expected { logarithm: libm::log(time.0), deviation: libm::hypot(relative_error, unmeasured) }
        })
    }

    fn is_contradicted(&self) -> bool {
        self.cells.iter().any(|cell| cell.contradicted)
    }

    fn spots(&self) -> impl Iterator<Item = Spot> {
        self.cells.iter().filter_map(|cell| {
            let by_factors = Self::evaluate(self.unit, &self.factors, cell.terms).0;
            Some(Spot {
                degrees: cell.degrees(),
                ratio: cell.ratio(),
                nodes: cell.nodes,
                micro_batch: cell.configuration.micro_batch,
                cycles: cell.configuration.cycles()?,
                slowdown: cell.contradicted.then(|| (libm::exp(cell.fastest()) / by_factors).max(1.0)),
            })
        })
    }

    /// How a step depends on the micro-batch is no factor: what contradicts them at a micro-batch that nothing else confirms teaches them nothing.
    fn teaches(&self, cell: &Cell) -> bool {
        let confirms = |other: &Cell| {
            !other.contradicted
                && other.degrees() == cell.degrees()
                && other.ratio() == cell.ratio()
                && other.configuration.micro_batch == cell.configuration.micro_batch
        };
        !cell.contradicted || self.cells.iter().any(confirms)
    }

    /// Whether steps of even shares were measured. Those of uneven ones may be as long as they are because of the faster nodes, so they teach of a type only what
    /// nothing else does.
    fn has_even_shares(&self) -> bool {
        self.cells.iter().any(|cell| cell.ratio().is_even() && self.teaches(cell))
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
        let mut cells: Vec<&Cell> = self.cells.iter().filter(|cell| self.teaches(cell)).collect();
        if self.has_even_shares() {
            cells.retain(|cell| cell.ratio().is_even());
        }
        let observations: Vec<Observation> = cells.iter().copied().map(observe).collect();
        let found = posterior(prior, self.factors, HUBER, &observations, |index, factors| {
            Self::evaluate(self.unit, factors, cells[index].terms)
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
#[path = "correction_tests.rs"]
mod tests;
