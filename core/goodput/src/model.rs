//! What is known of one job's goodput: its specification, and what its reports taught. It knows no other job, and answers for
//! any class and configuration; the search over configurations is in `choice`.

use std::sync::Arc;

use headway_types::spec::{BatchPolicy, BatchRange, LayoutLimits, NoiseKind, Precision, Training, Work};
use headway_types::{
    Configuration, GpuCount, GpuType, ModelShape, NodeClass, NodeCount, Prediction, Seconds, Sequences, StepReport,
    Tokens,
};
use serde::{Deserialize, Serialize};

use crate::batches::Wanted;
use crate::catalog::{self, Device};
use crate::checks::indivisible;
use crate::correction::{Corrected, Correction, Factors};
use crate::efficiency::{Worth, learning_rate_factor};
use crate::fitting::Fitting;
use crate::infeasible::Infeasible;
use crate::memory::MemoryUse;
use crate::noise::{IgnoredReports, NoNoiseScale, NoiseEstimator};
use crate::peaks::{Learned, MemoryCorrection, Needed};
use crate::peers::{Kind, Lesson, Lessons, Taught};
use crate::ratio::Interval;
use crate::step_time::{PriorTimes, Spread, StepTime};

/// Standard error of ln φ before anything is measured: how much a measured φ must overcome.
const PRIOR_LOG_ERROR: f64 = 1.0;

/// One job's goodput model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobModel {
    pub training: Training,
    noise: NoiseEstimator,
    pub(crate) correction: Correction,
    #[serde(default)]
    memory: MemoryCorrection,
    /// What jobs alike have shown, for GPU types that it has shown nothing on.
    #[serde(default, skip_serializing_if = "no_lesson")]
    taught: Arc<Taught>,
    /// Of a user's curve: tokens per second that one unit of it has turned out to be.
    pub(crate) curve_scale: Option<f64>,
    /// The largest batch it has come to, which the norm test never goes back from.
    #[serde(default)]
    held_batch: Sequences,
}

/// See [`JobModel::unlearned`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unlearned {
    shape: ModelShape,
    precision: Precision,
    reference_batch: Sequences,
    batch: BatchRange,
    layouts: LayoutLimits,
    taught: Arc<Taught>,
}

/// A learnt lead is believed in steps of its logarithm, so that not every report makes it another.
const LEAD_STEP: f64 = 0.05;

/// Beyond this no configuration is believed.
const MOST_GPUS: u32 = 1 << 20;

impl JobModel {
    #[must_use]
    pub fn new(training: Training) -> Self {
        Self {
            training,
            noise: NoiseEstimator::default(),
            correction: Correction::default(),
            memory: MemoryCorrection::default(),
            taught: Arc::default(),
            curve_scale: None,
            held_batch: Sequences(0),
        }
    }

    /// Folds a report of the job on `nodes` nodes of `class`.
    pub fn observe(&mut self, class: &NodeClass, nodes: NodeCount, report: &StepReport) {
        let configuration = &report.configuration;
        if (self.training.batch.min..=self.training.batch.max).contains(&configuration.global_batch) {
            self.hold_batch(configuration.global_batch);
        }
        let samples = Sequences(configuration.global_batch.0.saturating_mul(u64::from(report.steps)));
        let (ours, other) = match self.training.noise {
            NoiseKind::Raw => (report.noise, report.preconditioned),
            NoiseKind::Adam => (report.preconditioned, report.noise),
        };
        match ours {
            Some(sample) => self.noise.observe(&sample, samples, self.training.reference_batch),
            None => {
                self.noise.skip(samples);
                if other.is_some() {
                    self.noise.ignore_other_kind();
                }
            }
        }
        let gpus = configuration.layout.gpus();
        match &self.training.work {
            Work::Model(_) => {
                if let Ok(prior) = self.prior_step_time(class, gpus, nodes, configuration) {
                    let observed = Seconds(report.duration.0 / f64::from(report.steps));
                    self.correction.observe(&class.gpu_type, nodes, configuration, &prior, observed);
                }
                if let Some((peak, (predicted, _))) =
                    report.memory_peak.zip(self.predicted_memory(class, configuration))
                {
                    self.memory.observe(&class.gpu_type, configuration, &predicted, peak);
                }
            }
            Work::Curve { .. } => self.observe_rate(gpus, (report.tokens / report.duration).0),
        }
    }

    /// The job trains at this batch, or was told to.
    pub fn hold_batch(&mut self, batch: Sequences) {
        self.held_batch = self.held_batch.max(batch);
    }

    /// Whether its norm test wants a larger batch than this.
    #[must_use]
    pub fn wants_more_than(&self, batch: Sequences) -> bool {
        self.wanted_batch().is_some_and(|wanted| wanted.exceeds(batch))
    }

    /// The batch that the norm test wants; `None` where goodput chooses.
    pub(crate) fn wanted_batch(&self) -> Option<Wanted> {
        let Training { batch_policy, reference_batch, batch, .. } = self.training;
        let BatchPolicy::NormTest { eta } = batch_policy else { return None };
        // What is asked for is never taken back, so φ counts less its error: its scatter must not drive the batch up.
        let phi = self.noise_scale().map(|(phi, error)| phi / (1.0 + error) / f64::from(self.training.work.seq_len()));
        Some(Wanted::by_norm_test(eta, phi, reference_batch, self.held_batch, batch))
    }

    /// The same while the layout stays: never below the batch it has come to.
    pub(crate) fn wanted_batch_of_a_layout(&self) -> Option<Wanted> {
        Some(self.wanted_batch()?.at_least(self.held_batch, self.training.batch))
    }

    /// Measured φ in tokens and its relative error; `None` until it is worth believing.
    #[must_use]
    pub fn noise_scale(&self) -> Option<(f64, f64)> {
        let measured = self.noise.noise_scale(self.training.work.seq_len())?;
        Some((measured.phi.0, measured.relative_error))
    }

    /// Within what φ lies at 95 %, in tokens, also where noise drowns the gradient: then without an upper end.
    #[must_use]
    pub fn noise_interval(&self) -> Option<Interval> {
        let tokens = f64::from(self.training.work.seq_len());
        let Interval { low, high } = self.noise.interval()?;
        Some(Interval { low: tokens * low, high: high.map(|high| tokens * high) })
    }

    /// Noise reports that φ is estimated without, by reason.
    #[must_use]
    pub fn ignored_reports(&self) -> IgnoredReports {
        self.noise.ignored()
    }

    /// Why there is no φ at a configuration; `None` where there is one. Of a single gradient per step none can come, however many
    /// reports.
    #[must_use]
    pub fn no_noise_scale(&self, configuration: Option<&Configuration>) -> Option<NoNoiseScale> {
        let why = self.noise.explained(self.training.work.seq_len()).err()?;
        let gradients = configuration.and_then(|at| Some(at.layout.micro_batches() * at.cycles()?));
        Some(if gradients == Some(1) { NoNoiseScale::SingleGradient } else { why })
    }

    /// Factor on the learning rate that the recipe's rule gives a batch.
    #[must_use]
    pub fn learning_rate_factor(&self, batch: Sequences) -> f64 {
        let batch = batch.tokens(self.training.work.seq_len());
        learning_rate_factor(self.training.lr_scaling, self.critical_batch(), self.reference_tokens(), batch)
    }

    /// φκ, the batch above which returns diminish. Before any measurement it is assumed to be the reference batch (the recipe
    /// was tuned to sit there); a measurement takes over as its error shrinks, in the logarithm.
    #[must_use]
    pub fn critical_batch(&self) -> Tokens {
        let assumed = self.reference_tokens();
        let Some((phi, error)) = self.noise_scale() else { return assumed };
        let trust = PRIOR_LOG_ERROR * PRIOR_LOG_ERROR / (PRIOR_LOG_ERROR * PRIOR_LOG_ERROR + error * error);
        let ratio = phi * self.training.kappa / assumed.0;
        Tokens(assumed.0 * libm::exp(trust * libm::log(ratio)))
    }

    /// What a token at this batch counts as, in reference tokens: E(B), at most 1 where the target counts tokens or there is none. A
    /// user's curve already holds it: 1.
    #[must_use]
    pub fn efficiency(&self, batch: Sequences) -> f64 {
        match &self.training.work {
            Work::Curve { .. } => 1.0,
            Work::Model(_) => self.worth().at(batch.0 as f64),
        }
    }

    /// What tokens count as at each batch.
    pub(crate) fn worth(&self) -> Worth {
        let critical = self.critical_batch().0 / f64::from(self.training.work.seq_len());
        Worth::new(critical, self.training.reference_batch, self.training.takes_credit())
    }

    /// What a configuration brings on an allocation, or why it cannot run there; what is only unlikely to fit can. `speed_up` is left 0 for the planner.
    pub fn predict(
        &self,
        class: &NodeClass,
        gpus: GpuCount,
        nodes: NodeCount,
        configuration: &Configuration,
    ) -> Result<Prediction, Infeasible> {
        if self.shape().is_none() {
            return self.measured(gpus);
        }
        let micro_batches = self.check_batch(configuration)?;
        let prior = self.prior_step_time(class, gpus, nodes, configuration)?;
        if let Some(fitting) = self.fitting(class, &catalog::device(class)?) {
            fitting.tolerating(self.tolerance(class)).check(&class.gpu_type, configuration, micro_batches)?;
        }
        Ok(self.corrected_prediction(class, nodes, configuration, &prior))
    }

    /// How the job's memory is checked on a class; `None` for a curve of the user's.
    pub(crate) fn fitting(&self, class: &NodeClass, device: &Device) -> Option<Fitting<'_>> {
        let learned = self.memory.of(&class.gpu_type);
        self.shape().map(|shape| Fitting::new(shape, self.training.precision, device, learned))
    }

    /// Memory per GPU of a configuration with what reports taught; `None` where it is not modelled.
    #[must_use]
    pub fn memory(&self, class: &NodeClass, configuration: &Configuration) -> Option<Needed> {
        let (predicted, _) = self.predicted_memory(class, configuration)?;
        let unlearned = || Learned::default().needed(&predicted);
        Some(self.memory.of(&class.gpu_type).map_or_else(unlearned, |learned| learned.needed(&predicted)))
    }

    /// Folds that the job ran out of device memory in a configuration on the class.
    pub fn exhausted(&mut self, class: &NodeClass, configuration: &Configuration) {
        if let Some((predicted, capacity)) = self.predicted_memory(class, configuration) {
            self.memory.exhausted(&class.gpu_type, configuration, &predicted, capacity);
        }
    }

    /// Whether a configuration, or one that needs no more, has run out of device memory on the class.
    #[must_use]
    pub fn is_exhausted(&self, class: &NodeClass, configuration: &Configuration) -> bool {
        let learned = self.memory.of(&class.gpu_type);
        let predicted = learned.and_then(|_| self.predicted_memory(class, configuration));
        learned.zip(predicted).is_some_and(|(learned, (predicted, _))| learned.exhausted_by(&predicted).is_some())
    }

    /// What the memory model says without reports, and the device's bytes.
    fn predicted_memory(&self, class: &NodeClass, configuration: &Configuration) -> Option<(MemoryUse, f64)> {
        // A worker's word: it may name any degrees.
        let (layout, execution) = (configuration.layout, configuration.layout.execution);
        let sound = execution.ep > 0 && execution.vpp > 0 && (1..=MOST_GPUS).contains(&layout.gpus().0);
        let device = sound.then(|| catalog::device(class).ok())??;
        let fitting = self.fitting(class, &device)?;
        Some((fitting.predicted(configuration, configuration.cycles()?)?, fitting.capacity()?))
    }

    /// The same of a configuration that is known to fit, whose prior step time is known.
    pub(crate) fn corrected_prediction(
        &self,
        class: &NodeClass,
        nodes: NodeCount,
        configuration: &Configuration,
        prior: &StepTime,
    ) -> Prediction {
        let slowdown = self.correction.slowdown(&class.gpu_type, nodes, configuration);
        let time = self.corrected(&class.gpu_type, prior).time * slowdown;
        self.prediction(configuration.global_batch, time)
    }

    /// What a search depends on of a model that no report has taught anything, so that jobs alike may share it; `None` of any other.
    #[must_use]
    pub fn unlearned(&self) -> Option<Unlearned> {
        let Training { precision, reference_batch, batch, batch_policy, layouts, .. } = &self.training;
        let shape = *self.shape()?;
        let learned = self.noise_scale().is_some() || !self.correction.is_empty() || !self.memory.is_empty();
        (!learned && *batch_policy == BatchPolicy::Goodput).then(|| Unlearned {
            shape,
            precision: *precision,
            reference_batch: *reference_batch,
            batch: *batch,
            layouts: layouts.clone(),
            taught: Arc::clone(&self.taught),
        })
    }

    /// What reported peaks taught of a class.
    pub(crate) fn learned_peaks(&self, class: &NodeClass) -> Option<&Learned> {
        self.memory.of(&class.gpu_type)
    }

    /// What a batch at a step time brings.
    pub(crate) fn prediction(&self, batch: Sequences, step_time: Seconds) -> Prediction {
        let throughput = batch.tokens(self.training.work.seq_len()) / step_time;
        let efficiency = self.efficiency(batch);
        Prediction { step_time, throughput, efficiency, goodput: throughput * efficiency, speed_up: 0.0 }
    }

    /// Corrected step time of a configuration and its relative error, whether or not its batch is allowed and its memory fits.
    pub fn step_time(
        &self,
        class: &NodeClass,
        gpus: GpuCount,
        nodes: NodeCount,
        configuration: &Configuration,
    ) -> Result<Corrected, Infeasible> {
        let prior = self.prior_step_time(class, gpus, nodes, configuration)?;
        let corrected = self.corrected(&class.gpu_type, &prior);
        // No report makes it less sure than held-out measurements of unknown software are.
        let prior = self.prior_deviation(class, configuration).map_or(corrected.relative_error, |one| one.time);
        let time = corrected.time * self.correction.slowdown(&class.gpu_type, nodes, configuration);
        Ok(Corrected { time, relative_error: corrected.relative_error.min(prior) })
    }

    /// The prior's terms, for explanation.
    pub fn prior_step_time(
        &self,
        class: &NodeClass,
        gpus: GpuCount,
        nodes: NodeCount,
        configuration: &Configuration,
    ) -> Result<StepTime, Infeasible> {
        self.check_allocation(class, gpus, nodes)?;
        if configuration.layout.gpus() != gpus {
            return Err(Infeasible::WrongSize { configuration: *configuration, gpus });
        }
        self.check_layout(class, gpus, nodes, configuration.layout)?;
        let cycles = configuration.cycles().ok_or_else(|| indivisible(configuration))?;
        Ok(self.prior_times(class)?.step_time(Spread { gpus, nodes }, configuration, cycles))
    }

    /// What layers take on a class before anything is learnt, but for how much faster the faster nodes of a gang over two classes are.
    pub(crate) fn prior_times(&self, class: &NodeClass) -> Result<PriorTimes, Infeasible> {
        let shape = self.shape().ok_or(Infeasible::Opaque)?;
        let prior = PriorTimes::new(shape, self.training.precision, catalog::device(class)?);
        let Some(ahead) = &class.ahead else { return Ok(prior) };
        Ok(prior.with_ahead(catalog::device(&ahead.class)?, self.lead_learnt(class)))
    }

    /// By what a micro-batch on the faster nodes of a gang over two classes is off the prior, over what one on the slower is; 1 unless steps of even
    /// shares, which say so of one type alone, taught it of both. What is common to both, as software is, cancels out.
    pub(crate) fn lead_learnt(&self, class: &NodeClass) -> f64 {
        let known = |of: &GpuType| {
            let own = self.correction.learned().find(|(gpu_type, _)| *gpu_type == of).map(|(_, factors)| factors);
            own.or_else(|| self.taught.get(of).map(|lesson| lesson.factors()))
        };
        let faster = class.ahead.as_ref().and_then(|ahead| known(&ahead.class.gpu_type));
        let Some((slower, faster)) = known(&class.gpu_type).zip(faster) else { return 1.0 };
        let steps = (libm::log(faster.micro / slower.micro) / LEAD_STEP).round();
        if steps.is_finite() { libm::exp(LEAD_STEP * steps) } else { 1.0 }
    }

    /// What reports taught of the GPU type, its own or those of jobs alike.
    pub(crate) fn factors(&self, gpu_type: &GpuType) -> Factors {
        let taught = || self.taught.get(gpu_type).map(|lesson| lesson.factors());
        self.correction.factors(gpu_type).or_else(taught).unwrap_or(Factors::NONE)
    }

    fn corrected(&self, gpu_type: &GpuType, prior: &StepTime) -> Corrected {
        let taught = || self.taught.get(gpu_type).map(|lesson| lesson.apply(prior));
        let own = self.correction.apply(gpu_type, prior);
        own.or_else(taught).unwrap_or_else(|| Correction::uncorrected(prior))
    }

    /// Whose lessons it may learn, and who may learn of it.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        self.shape().map(|shape| Kind::new(*shape, self.training.precision))
    }

    /// What its own reports have to teach.
    pub fn lessons(&self) -> impl Iterator<Item = (Kind, &GpuType, Lesson)> {
        let kind = self.kind();
        self.correction.learned().filter_map(move |(of, factors)| Some((kind.clone()?, of, Lesson::of(factors)?)))
    }

    /// What lessons say of it that it does not know: of a GPU type that it has shown nothing on itself.
    #[must_use]
    pub fn news<'l>(&self, lessons: &'l Lessons) -> Option<&'l Arc<Taught>> {
        let taught = lessons.of(&self.kind()?)?;
        let new = |(of, lesson): (&GpuType, &Lesson)| {
            let shown = self.correction.learned().any(|(own, _)| own == of);
            !shown && self.taught.get(of) != Some(lesson)
        };
        taught.iter().any(new).then_some(taught)
    }

    /// Takes over what jobs of its kind have shown.
    pub fn learn(&mut self, lessons: &Lessons) {
        if let Some(taught) = self.news(lessons) {
            self.taught = Arc::clone(taught);
        }
    }

    pub(crate) fn shape(&self) -> Option<&ModelShape> {
        match &self.training.work {
            Work::Model(shape) => Some(shape),
            Work::Curve { .. } => None,
        }
    }

    fn reference_tokens(&self) -> Tokens {
        self.training.reference_batch.tokens(self.training.work.seq_len())
    }
}

fn no_lesson(taught: &Arc<Taught>) -> bool {
    taught.is_empty()
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
