//! What each job could get this round: nothing, what it has, and the best configuration per shape. A candidate's
//! value already holds the cost of getting there, so that the integer program stays linear.

use std::sync::Arc;

use headway_goodput::JobModel;
use headway_types::report::Flexibility;
use headway_types::{Configuration, GpuCount, NodeCount, Prediction, Seconds, Tier, TokensPerSecond};

use crate::cluster::{Cluster, Shape};
use crate::curves::{self, CurveCache, Offer, Refusal};
use crate::input::{Freedom, PlanInput, PlanJob};
use crate::obstacle::{self, Obstacle};
use crate::resource::{self, Use};
use crate::value::{self, Quanta};

/// What an opaque job is assumed to lose per node beyond the first.
const SPREAD_LOSS: f64 = 0.01;
/// A modelled job knows what communication costs it; each further node is still one more that can fail.
const MODELLED_SPREAD_LOSS: f64 = 0.001;

/// One choice for one job.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub gpus: GpuCount,
    /// Where it would be placed; `None`: nothing, or exactly where the job is.
    pub shape: Option<Shape>,
    pub configuration: Option<Configuration>,
    pub prediction: Prediction,
    /// Keeps GPUs and layout.
    pub stays: bool,
    /// Standstill including work redone.
    pub cost: Seconds,
    pub uses: Vec<Use>,
    pub value: Quanta,
}

/// A live change that was worth making, or was too small.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchChange {
    pub to: Configuration,
    /// Relative gain of goodput.
    pub gain: f64,
    pub taken: bool,
}

/// One job with everything it could get.
pub(crate) struct Options<'a> {
    pub job: &'a PlanJob,
    pub model: Option<Arc<JobModel>>,
    /// Never empty. Of a job that may be without GPUs the first is "nothing".
    pub candidates: Vec<Candidate>,
    /// What staying as it is means: always placeable together with all other jobs' incumbents.
    pub incumbent: usize,
    pub batch_change: Option<BatchChange>,
    pub obstacle: Option<Obstacle>,
    /// What the job does now, where it holds GPUs.
    pub present: Option<Prediction>,
    /// Speed-up per shape before any limit on reconfiguring it now, ascending by GPUs: what sizes would bring.
    pub sizes: Vec<(GpuCount, f64)>,
}

pub(crate) fn options<'a>(
    input: &'a PlanInput,
    cluster: &Cluster<'_>,
    job: &'a PlanJob,
    curves: &mut CurveCache,
) -> Options<'a> {
    let model = job.work.model().map(|model| effective_model(job, model));
    let offers: Vec<(Shape, Offer)> = shapes(cluster, job, |class, gpus| cluster.shapes(class, gpus))
        .into_iter()
        .filter_map(|shape| Some((shape, offer(cluster, job, model.as_ref(), shape, curves).ok()?)))
        .collect();
    let reference = reference_goodput(input, cluster, job, &offers);
    let maker = Maker::new(input, cluster, job, reference, model.as_ref());
    let obstacle = offers.is_empty().then(|| {
        let nominal = shapes(cluster, job, |class, gpus| cluster.nominal_shapes(class, gpus));
        let refusals = nominal.into_iter().map(|shape| offer(cluster, job, model.as_ref(), shape, curves).err());
        obstacle::obstacle(cluster, job, refusals.collect())
    });

    let mut candidates = Vec::new();
    let fixed = matches!(job.freedom, Freedom::Fixed { .. });
    let stay = maker.stay(model.as_ref());
    if !fixed || stay.is_none() {
        candidates.push(maker.nothing());
    }
    let mut incumbent = 0;
    let mut batch_change = None;
    if let Some((candidate, change)) = stay {
        incumbent = candidates.len();
        candidates.push(candidate);
        batch_change = change;
    }
    let sizes = sizes(&maker, &offers);
    if !fixed {
        candidates.extend(offers.into_iter().filter_map(|(shape, offer)| maker.place(shape, offer)));
    }
    Options { job, model, candidates, incumbent, batch_change, obstacle, present: maker.present, sizes }
}

/// The model with its batch pinned where the script cannot change it.
fn effective_model(job: &PlanJob, model: &Arc<JobModel>) -> Arc<JobModel> {
    if job.capabilities.batch != Flexibility::Never {
        return Arc::clone(model);
    }
    let now = job.current.as_ref().and_then(|current| current.configuration).map(|at| at.global_batch);
    curves::with_batch(model, now.unwrap_or(model.training.reference_batch))
}

/// Every shape of every size the job accepts. Rigid jobs have one size.
fn shapes(cluster: &Cluster<'_>, job: &PlanJob, shapes_of: impl Fn(usize, GpuCount) -> Vec<Shape>) -> Vec<Shape> {
    let smallest = if !job.work.is_opaque() { job.range.min } else { job.range.max };
    (0..cluster.classes.len())
        .filter(|&class| job.range.accepts(&cluster.classes[class].gpu_type))
        .flat_map(|class| {
            let largest = job.range.max.min(cluster.nominal(class));
            (smallest.0.max(1)..=largest.0)
                .map(GpuCount)
                .filter(|gpus| job.range.allows(*gpus))
                .flat_map(|gpus| shapes_of(class, gpus))
                .collect::<Vec<_>>()
        })
        .collect()
}

fn offer(
    cluster: &Cluster<'_>,
    job: &PlanJob,
    model: Option<&Arc<JobModel>>,
    shape: Shape,
    curves: &mut CurveCache,
) -> Result<Offer, Refusal> {
    match model {
        None => Ok(Offer { configuration: None, prediction: unmeasured() }),
        Some(model) => curves.best(job.job, model, cluster.classes[shape.class], shape.gpus, shape.nodes),
    }
}

/// An opaque job's prediction: no rate is modelled, and its speed-up is 1 by definition.
fn unmeasured() -> Prediction {
    Prediction {
        step_time: Seconds(0.0),
        throughput: TokensPerSecond(0.0),
        efficiency: 0.0,
        goodput: TokensPerSecond(0.0),
        speed_up: 1.0,
    }
}

/// Goodput of the fair share: an equal split of the usable GPUs among the jobs, but at least the job's minimum,
/// rounded down to a size that is feasible for it (up, where none is small enough), on its best class.
fn reference_goodput(
    input: &PlanInput,
    cluster: &Cluster<'_>,
    job: &PlanJob,
    offers: &[(Shape, Offer)],
) -> TokensPerSecond {
    let usable: u32 = (0..cluster.classes.len()).map(|class| cluster.open(class).0).sum();
    let share = GpuCount(usable / (input.jobs.len() as u32).max(1)).max(job.range.min);
    let sizes = || offers.iter().map(|(shape, _)| shape.gpus);
    let Some(size) = sizes().filter(|gpus| *gpus <= share).max().or_else(|| sizes().min()) else {
        return TokensPerSecond(0.0);
    };
    let best = offers
        .iter()
        .filter(|(shape, _)| shape.gpus == size)
        .map(|(_, offer)| offer.prediction.goodput.0)
        .fold(0.0, f64::max);
    TokensPerSecond(best)
}

fn sizes(maker: &Maker<'_, '_>, offers: &[(Shape, Offer)]) -> Vec<(GpuCount, f64)> {
    let mut best = std::collections::BTreeMap::new();
    for (shape, offer) in offers {
        let speed_up = maker.with_speed_up(offer.prediction).speed_up;
        let entry = best.entry(shape.gpus).or_insert(speed_up);
        *entry = entry.max(speed_up);
    }
    best.into_iter().collect()
}

/// Makes one job's candidates.
struct Maker<'a, 'c> {
    input: &'a PlanInput,
    cluster: &'c Cluster<'c>,
    job: &'a PlanJob,
    reference: TokensPerSecond,
    /// What the job does now.
    present: Option<Prediction>,
    /// The hysteresis: what a move of a job that holds GPUs must gain beyond its cost.
    move_penalty: f64,
}

impl<'a, 'c> Maker<'a, 'c> {
    fn new(
        input: &'a PlanInput,
        cluster: &'c Cluster<'c>,
        job: &'a PlanJob,
        reference: TokensPerSecond,
        model: Option<&Arc<JobModel>>,
    ) -> Self {
        let mut maker = Self { input, cluster, job, reference, present: None, move_penalty: 0.0 };
        maker.present = maker.predict_present(model);
        maker.move_penalty = maker
            .present
            .map_or(0.0, |present| input.policy.min_gain * maker.worth(&present, Seconds(0.0), held_nodes(job)));
        maker
    }

    fn nothing(&self) -> Candidate {
        let prediction = Prediction { speed_up: 0.0, ..unmeasured() };
        Candidate {
            gpus: GpuCount(0),
            shape: None,
            configuration: None,
            prediction,
            stays: false,
            cost: Seconds(0.0),
            uses: Vec::new(),
            value: Quanta::of(-self.move_penalty),
        }
    }

    /// Staying on the present GPUs, at the best live batch where that gains enough. `None` for a job that holds nothing,
    /// whose GPUs are gone, or that has to leave a draining node.
    fn stay(&self, model: Option<&Arc<JobModel>>) -> Option<(Candidate, Option<BatchChange>)> {
        let current = self.job.current.as_ref()?;
        let fixed = matches!(self.job.freedom, Freedom::Fixed { .. });
        let usable = self.cluster.slots(&current.placement).is_some();
        if !fixed && (!usable || self.cluster.touches_draining(&current.placement)) {
            return None;
        }
        let present = self.present?;
        let mut chosen = (current.configuration, present, Seconds(0.0));
        let mut change = None;
        if let Some((to, prediction)) = self.best_live_batch(model) {
            let from = current.configuration?;
            let gain = prediction.goodput.0 / present.goodput.0.max(f64::MIN_POSITIVE) - 1.0;
            let cost = self.cost_of(from.tier_to(&to));
            let taken = gain >= self.input.policy.min_batch_gain
                && self.worth(&prediction, cost, held_nodes(self.job))
                    > self.worth(&present, Seconds(0.0), held_nodes(self.job));
            if taken {
                chosen = (Some(to), prediction, cost);
            }
            change = Some(BatchChange { to, gain, taken });
        }
        let (configuration, prediction, cost) = chosen;
        let candidate = Candidate {
            gpus: current.placement.gpus(),
            shape: None,
            configuration,
            prediction,
            stays: true,
            cost,
            uses: resource::of_placement(self.cluster, &current.placement),
            value: Quanta::of(self.worth(&prediction, cost, held_nodes(self.job))),
        };
        Some((candidate, change))
    }

    /// What the job does now by today's model; the recorded prediction where the model refuses what in fact runs.
    fn predict_present(&self, model: Option<&Arc<JobModel>>) -> Option<Prediction> {
        let current = self.job.current.as_ref()?;
        let Some(model) = model else { return Some(unmeasured()) };
        let predicted = self.cluster.class_of_placement(&current.placement).and_then(|class| {
            let (gpus, nodes) = (current.placement.gpus(), current.placement.nodes());
            curves::predict(model, self.cluster.classes[class], gpus, nodes, current.configuration.as_ref()).ok()
        });
        Some(self.with_speed_up(predicted.unwrap_or(current.predicted)))
    }

    fn best_live_batch(&self, model: Option<&Arc<JobModel>>) -> Option<(Configuration, Prediction)> {
        let (model, current) = (model?, self.job.current.as_ref()?);
        let from = current.configuration?;
        if self.job.capabilities.batch != Flexibility::Live {
            return None;
        }
        let class = self.cluster.classes[self.cluster.class_of_placement(&current.placement)?];
        let (gpus, nodes) = (current.placement.gpus(), current.placement.nodes());
        let (to, prediction) = curves::best_batch(model, class, gpus, nodes, from.layout)?;
        (to != from).then(|| (to, self.with_speed_up(prediction)))
    }

    /// Starting or moving onto a shape; `None` where the script cannot follow.
    fn place(&self, shape: Shape, offer: Offer) -> Option<Candidate> {
        if let Some(current) = &self.job.current {
            let same_gpus = self.cluster.class_of_placement(&current.placement) == Some(shape.class)
                && current.placement.gpus() == shape.gpus
                && current.placement.nodes() == shape.nodes;
            let same_layout = match (&current.configuration, &offer.configuration) {
                (Some(from), Some(to)) => from.layout == to.layout,
                _ => current.placement.gpus() == shape.gpus,
            };
            if self.job.capabilities.layout == Flexibility::Never && !same_layout {
                return None;
            }
            // A job that can stay stays rather than restart for a batch alone.
            let can_stay =
                self.cluster.slots(&current.placement).is_some() && !self.cluster.touches_draining(&current.placement);
            if same_gpus && same_layout && can_stay {
                return self.relocate(shape);
            }
        }
        Some(self.placed(shape, offer.configuration, self.with_speed_up(offer.prediction)))
    }

    /// The present configuration on other GPUs of the same shape: never better than staying, but it makes room.
    fn relocate(&self, shape: Shape) -> Option<Candidate> {
        let current = self.job.current.as_ref()?;
        Some(self.placed(shape, current.configuration, self.present?))
    }

    fn placed(&self, shape: Shape, configuration: Option<Configuration>, prediction: Prediction) -> Candidate {
        let cost = self.job.downtime.restart + self.job.rework;
        Candidate {
            gpus: shape.gpus,
            shape: Some(shape),
            configuration,
            prediction,
            stays: false,
            cost,
            uses: resource::of_shape(self.cluster, shape),
            value: Quanta::of(self.worth(&prediction, cost, shape.nodes) - self.move_penalty),
        }
    }

    fn worth(&self, prediction: &Prediction, cost: Seconds, nodes: NodeCount) -> f64 {
        let policy = &self.input.policy;
        let loss = if !self.job.work.is_opaque() { MODELLED_SPREAD_LOSS } else { SPREAD_LOSS };
        let spread = (1.0 - loss * f64::from(nodes.0.saturating_sub(1))).max(0.5);
        let remaining = self.job.remaining.filter(|_| !self.job.work.is_opaque());
        let share = value::useful_share(policy, cost, remaining, prediction.goodput);
        value::value(policy, self.job, self.input.now, prediction.speed_up * spread, share)
    }

    fn cost_of(&self, tier: Option<Tier>) -> Seconds {
        match tier {
            None => Seconds(0.0),
            Some(Tier::Batch) => self.job.downtime.batch,
            Some(Tier::MicroBatch) => self.job.downtime.micro_batch,
            Some(Tier::Layout | Tier::Migration) => self.job.downtime.restart + self.job.rework,
        }
    }

    fn with_speed_up(&self, prediction: Prediction) -> Prediction {
        if self.job.work.is_opaque() {
            return unmeasured();
        }
        // Without a reference (no shape is open now) what the job does is its own measure.
        let speed_up = if self.reference.0 > 0.0 { prediction.goodput.0 / self.reference.0 } else { 1.0 };
        Prediction { speed_up, ..prediction }
    }
}

fn held_nodes(job: &PlanJob) -> NodeCount {
    job.current.as_ref().map_or(NodeCount(0), |current| current.placement.nodes())
}
