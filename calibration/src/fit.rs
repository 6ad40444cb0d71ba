//! Constants from measurements: the maximum a posteriori of all logarithms together, with a robust loss on the errors of step time
//! and memory, by Levenberg–Marquardt. What may move, and how far, is `prior`'s business; which stack has which factor, the
//! parameter file's.

use std::collections::BTreeMap;

use headway_goodput::catalog::Catalog;
use headway_goodput::estimate::step_time_of;
use headway_goodput::memory::memory_of;
use headway_goodput::physics::{FamilyFactors, Parameters, Physics};
use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use nalgebra::storage::Owned;
use nalgebra::{DMatrix, DVector, Dyn};

use crate::measurement::Measurement;
use crate::prior::{Prior, USUAL_FULL_ROWS, USUAL_MEMORY_NOISE, USUAL_NOISE};
use crate::score::hardware_of;

/// Standardised error above which a row pulls with constant force (soft L1).
const ROBUST: f64 = 1.5;
/// Step of the numerical derivative, in logarithms.
const DERIVATIVE: f64 = 1e-5;

/// Relative change at which a fit ends: small enough that the published digits no longer depend on where it started near the optimum.
const TOLERANCE: f64 = 1e-9;

/// What a fit may change.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Shared(String),
    Family(String, &'static str),
    Stack(String, String),
}

/// One unknown: where it stands and what is believed of its logarithm.
#[derive(Clone, Debug)]
struct Unknown {
    place: Place,
    mean: f64,
    sigma: f64,
}

/// How a fit ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    pub parameters: Parameters,
    /// Half the sum of squares at the end.
    pub objective: f64,
    pub evaluations: usize,
    pub converged: bool,
}

/// Why no fit is possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    #[error("no measured row to fit")]
    Nothing,
    #[error("the prior knows no {0}")]
    NoBelief(String),
}

/// Fits the constants of `start`, whose stacks and their factors stay what they are, to clean rows.
pub fn fit(
    measurements: &[Measurement],
    start: &Parameters,
    prior: &Prior,
    patience: usize,
) -> Result<Fitted, FitError> {
    let used: Vec<&Measurement> = measurements.iter().filter(|row| row.clean).collect();
    if used.is_empty() {
        return Err(FitError::Nothing);
    }
    let problem = Problem::new(&used, start, prior)?;
    let (problem, report) = LevenbergMarquardt::new().with_patience(patience).with_tol(TOLERANCE).minimize(problem);
    Ok(Fitted {
        parameters: problem.parameters(&problem.point),
        objective: report.objective_function,
        evaluations: report.number_of_evaluations,
        converged: report.termination.was_successful(),
    })
}

struct Problem<'a> {
    rows: Vec<Weighted<'a>>,
    structure: &'a Parameters,
    unknowns: Vec<Unknown>,
    point: DVector<f64>,
}

struct Weighted<'a> {
    row: &'a Measurement,
    stack: Option<String>,
    family: Option<&'static str>,
    /// One over the deviation of the logarithm of its step time and of its memory.
    time: f64,
    memory: f64,
}

/// Which predictions of a row count.
#[derive(Clone, Copy)]
struct Touch {
    time: bool,
    memory: bool,
}

impl Touch {
    const BOTH: Self = Self { time: true, memory: true };
}

impl<'a> Problem<'a> {
    fn new(rows: &[&'a Measurement], start: &'a Parameters, prior: &Prior) -> Result<Self, FitError> {
        let unknowns = unknowns(start, prior)?;
        let count = |source: &str| rows.iter().filter(|row| row.source == source).count() as f64;
        let weighted = rows
            .iter()
            .map(|row| {
                let full = prior.full_rows.get(&row.source).copied().unwrap_or(USUAL_FULL_ROWS);
                let thinned = (full / count(&row.source)).min(1.0).sqrt();
                let noise = prior.noise.get(&row.source).copied().unwrap_or(USUAL_NOISE);
                let memory_noise = prior.memory_noise.get(&row.source).copied().unwrap_or(USUAL_MEMORY_NOISE);
                Weighted {
                    row,
                    stack: start.stack_of(&row.source, &row.framework).map(str::to_owned),
                    family: Catalog::built_in().family(&row.gpu_type),
                    time: thinned / noise,
                    memory: thinned / memory_noise,
                }
            })
            .collect();
        let mut problem = Self { rows: weighted, structure: start, unknowns, point: DVector::zeros(0) };
        let values: Vec<f64> = problem.unknowns.iter().map(|unknown| value_at(start, &unknown.place).ln()).collect();
        problem.point = DVector::from_vec(values);
        Ok(problem)
    }

    fn parameters(&self, point: &DVector<f64>) -> Parameters {
        let mut parameters = self.structure.clone();
        for (unknown, logarithm) in self.unknowns.iter().zip(point.iter()) {
            set(&mut parameters, &unknown.place, logarithm.exp());
        }
        parameters
    }

    /// Two residuals per row, of step time and of memory (0 where not measured), then one per unknown.
    fn residuals_at(&self, point: &DVector<f64>) -> DVector<f64> {
        let rows = 2 * self.rows.len();
        let mut residuals = DVector::zeros(rows + self.unknowns.len());
        self.measure(&self.parameters(point), |_| Touch::BOTH, |place, residual| residuals[place] = residual);
        for (index, (unknown, logarithm)) in self.unknowns.iter().zip(point.iter()).enumerate() {
            residuals[rows + index] = (logarithm - unknown.mean) / unknown.sigma;
        }
        residuals
    }

    /// The residuals of the rows' measurements that `touched` names.
    fn measure(
        &self,
        parameters: &Parameters,
        touched: impl Fn(&Weighted) -> Touch,
        mut found: impl FnMut(usize, f64),
    ) {
        let mut profiles = BTreeMap::new();
        for (index, weighted) in self.rows.iter().enumerate() {
            let (row, touch) = (weighted.row, touched(weighted));
            let time = row.step_time.filter(|_| touch.time);
            let memory = row.memory.filter(|_| touch.memory);
            if time.is_none() && memory.is_none() {
                continue;
            }
            let profile =
                *profiles.entry(&weighted.stack).or_insert_with(|| parameters.profile(weighted.stack.as_deref()));
            let hardware = hardware_of(row, parameters);
            let cluster = row.cluster(&hardware, &profile);
            if let Some(truth) = time {
                let guess = step_time_of(&row.architecture, &row.strategy, &cluster).total().0;
                found(2 * index, robust(weighted.time * (guess / truth).ln()));
            }
            if let Some(truth) = memory {
                let guess = memory_of(&row.architecture, &row.strategy, &cluster).total();
                found(2 * index + 1, robust(weighted.memory * (guess / truth).ln()));
            }
        }
    }

    /// Which of a row's predictions an unknown can change.
    fn touch(&self, place: &Place, weighted: &Weighted) -> Touch {
        let (concerned, name) = match place {
            Place::Shared(name) => (true, name.as_str()),
            Place::Family(family, name) => (weighted.family == Some(family.as_str()), *name),
            Place::Stack(stack, name) => (self.runs_on(weighted, stack), name.as_str()),
        };
        let memory = Physics::is_of_memory(name);
        Touch { time: concerned && !memory, memory: concerned && memory }
    }

    /// Whether a row's software is a stack or descends from it.
    fn runs_on(&self, weighted: &Weighted, stack: &str) -> bool {
        weighted.stack.as_deref().is_some_and(|own| self.structure.lineage(own).any(|(ancestor, _)| ancestor == stack))
    }
}

impl LeastSquaresProblem<f64, Dyn, Dyn> for Problem<'_> {
    type ResidualStorage = Owned<f64, Dyn>;
    type JacobianStorage = Owned<f64, Dyn, Dyn>;
    type ParameterStorage = Owned<f64, Dyn>;

    fn set_params(&mut self, point: &DVector<f64>) {
        self.point.copy_from(point);
    }

    fn params(&self) -> DVector<f64> {
        self.point.clone()
    }

    fn residuals(&self) -> Option<DVector<f64>> {
        Some(self.residuals_at(&self.point))
    }

    fn jacobian(&self) -> Option<DMatrix<f64>> {
        let here = self.residuals_at(&self.point);
        let mut jacobian = DMatrix::zeros(here.len(), self.point.len());
        for (index, unknown) in self.unknowns.iter().enumerate() {
            let mut near = self.point.clone();
            near[index] += DERIVATIVE;
            let touched = |weighted: &Weighted| self.touch(&unknown.place, weighted);
            self.measure(&self.parameters(&near), touched, |place, residual| {
                jacobian[(place, index)] = (residual - here[place]) / DERIVATIVE;
            });
            jacobian[(2 * self.rows.len() + index, index)] = 1.0 / unknown.sigma;
        }
        Some(jacobian)
    }
}

/// A residual whose square is the soft-L1 loss: quadratic near 0, linear far out.
fn robust(residual: f64) -> f64 {
    let ratio = residual / ROBUST;
    let loss = 2.0 * ROBUST * ROBUST * ((1.0 + ratio * ratio).sqrt() - 1.0);
    residual.signum() * loss.sqrt()
}

const FAMILY: [&str; 3] = ["matmul_share", "fused_attention_share", "link_share"];

fn unknowns(start: &Parameters, prior: &Prior) -> Result<Vec<Unknown>, FitError> {
    let mut unknowns = Vec::new();
    for (name, belief) in &prior.shared {
        unknowns.push(Unknown { place: Place::Shared(name.clone()), mean: belief.value.ln(), sigma: belief.sigma });
    }
    for family in start.family.keys() {
        for name in FAMILY {
            let sigma = *prior.family.get(name).ok_or_else(|| FitError::NoBelief(name.to_owned()))?;
            unknowns.push(Unknown { place: Place::Family(family.clone(), name), mean: 0.0, sigma });
        }
    }
    for (stack, definition) in &start.stack {
        for name in definition.factors.keys() {
            let sigma = *prior.stack.get(name).ok_or_else(|| FitError::NoBelief(name.clone()))?;
            unknowns.push(Unknown { place: Place::Stack(stack.clone(), name.clone()), mean: 0.0, sigma });
        }
    }
    Ok(unknowns)
}

fn family_factor<'f>(factors: &'f mut FamilyFactors, name: &str) -> &'f mut f64 {
    match name {
        "matmul_share" => &mut factors.matmul_share,
        "fused_attention_share" => &mut factors.fused_attention_share,
        _ => &mut factors.link_share,
    }
}

fn slot<'p>(parameters: &'p mut Parameters, place: &Place) -> Option<&'p mut f64> {
    match place {
        Place::Shared(name) => parameters.shared.get_mut(name),
        Place::Family(family, name) => parameters.family.get_mut(family).map(|factors| family_factor(factors, name)),
        Place::Stack(stack, name) => parameters.stack.get_mut(stack)?.factors.get_mut(name),
    }
}

fn value_at(parameters: &Parameters, place: &Place) -> f64 {
    slot(&mut parameters.clone(), place).map_or(1.0, |value| *value)
}

fn set(parameters: &mut Parameters, place: &Place, value: f64) {
    if let Some(slot) = slot(parameters, place) {
        *slot = value;
    }
}

#[cfg(test)]
#[path = "fit_tests.rs"]
mod tests;
