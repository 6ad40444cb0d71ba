//! The planner's only door to the goodput model, and the cache of what came through it. The cache holds nothing that
//! the input does not imply: a round with an empty one decides the same, only later.

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use headway_goodput::Offer;
use headway_goodput::{Infeasible, JobModel};
use headway_types::spec::BatchRange;
use headway_types::{Configuration, GpuCount, JobId, Layout, NodeClass, NodeCount, Prediction, Sequences};

use crate::input::PlanInput;

/// Why a shape has no feasible configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub memory: bool,
    pub detail: String,
}

/// By class, GPUs, nodes, and the layout where only one will do.
type Shapes = BTreeMap<(NodeClass, GpuCount, NodeCount, Option<Layout>), Result<Offer, Refusal>>;

/// Best configurations already computed, per job and content of its model.
#[derive(Clone, Debug, Default)]
pub struct CurveCache {
    jobs: BTreeMap<JobId, (Arc<JobModel>, Shapes)>,
}

impl CurveCache {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the jobs that are not in the round.
    pub(crate) fn begin(&mut self, input: &PlanInput) {
        self.jobs.retain(|id, _| input.jobs.binary_search_by_key(id, |job| job.job).is_ok());
    }

    pub(crate) fn best(
        &mut self,
        job: JobId,
        model: &Arc<JobModel>,
        class: &NodeClass,
        gpus: GpuCount,
        nodes: NodeCount,
        only: Option<Layout>,
    ) -> Result<Offer, Refusal> {
        let entry = self.jobs.entry(job).or_insert_with(|| (Arc::clone(model), Shapes::new()));
        if !Arc::ptr_eq(&entry.0, model) && entry.0 != *model {
            *entry = (Arc::clone(model), Shapes::new());
        }
        let compute = || match only {
            None => best(model, class, gpus, nodes),
            Some(layout) => best_of_layout(model, class, gpus, nodes, layout),
        };
        let key = (class.clone(), gpus, nodes, only);
        entry.1.entry(key).or_insert_with(compute).clone()
    }
}

/// The model of a script that cannot leave this batch.
pub(crate) fn with_batch(model: &Arc<JobModel>, batch: Sequences) -> Arc<JobModel> {
    let mut pinned = JobModel::clone(model);
    pinned.training.batch = BatchRange { min: batch, max: batch };
    Arc::new(pinned)
}

/// The model of a job that runs at this batch.
pub(crate) fn holding(model: &Arc<JobModel>, batch: Sequences) -> Arc<JobModel> {
    let mut holding = JobModel::clone(model);
    holding.hold_batch(batch);
    Arc::new(holding)
}

fn best(model: &JobModel, class: &NodeClass, gpus: GpuCount, nodes: NodeCount) -> Result<Offer, Refusal> {
    model.best(class, gpus, nodes).map_err(Refusal::from)
}

fn best_of_layout(
    model: &JobModel,
    class: &NodeClass,
    gpus: GpuCount,
    nodes: NodeCount,
    layout: Layout,
) -> Result<Offer, Refusal> {
    let (configuration, prediction) = model.best_batch(class, gpus, nodes, layout)?;
    Ok(Offer { configuration: Some(configuration), prediction })
}

/// Measured GNS φ in tokens.
pub(crate) fn noise_scale(model: &JobModel) -> Option<f64> {
    model.noise_scale().map(|(tokens, _)| tokens)
}

/// The best batch and micro-batch of a layout that stays.
pub(crate) fn best_batch(
    model: &JobModel,
    class: &NodeClass,
    gpus: GpuCount,
    nodes: NodeCount,
    layout: Layout,
) -> Option<(Configuration, Prediction)> {
    model.best_batch(class, gpus, nodes, layout).ok()
}

/// What a configuration brings; without one, what the user measured for the size.
pub(crate) fn predict(
    model: &JobModel,
    class: &NodeClass,
    gpus: GpuCount,
    nodes: NodeCount,
    configuration: Option<&Configuration>,
) -> Result<Prediction, Refusal> {
    match configuration {
        Some(configuration) => model.predict(class, gpus, nodes, configuration).map_err(Refusal::from),
        None => best(model, class, gpus, nodes).map(|offer| offer.prediction),
    }
}

impl From<Infeasible> for Refusal {
    fn from(why: Infeasible) -> Self {
        Self { memory: why.is_memory(), detail: why.to_string() }
    }
}
