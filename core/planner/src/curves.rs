//! The planner's only door to the goodput model, and the cache of what came through it. The cache holds nothing that
//! the input does not imply: a round with an empty one decides the same, only later.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_goodput::JobModel;
use headway_types::spec::BatchRange;
use headway_types::{
    Configuration, GpuCount, JobId, Layout, NodeClass, NodeCount, Prediction, Seconds, Sequences, TokensPerSecond,
};

use crate::input::PlanInput;

/// The best configuration of a shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Offer {
    /// `None` where the goodput was measured and the script chooses.
    pub configuration: Option<Configuration>,
    pub prediction: Prediction,
}

/// Why a shape has no feasible configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub memory: bool,
    pub detail: String,
}

type Shapes = BTreeMap<(NodeClass, GpuCount, NodeCount), Result<Offer, Refusal>>;

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
    ) -> Result<Offer, Refusal> {
        let entry = self.jobs.entry(job).or_insert_with(|| (Arc::clone(model), Shapes::new()));
        if !Arc::ptr_eq(&entry.0, model) && entry.0 != *model {
            *entry = (Arc::clone(model), Shapes::new());
        }
        let key = (class.clone(), gpus, nodes);
        entry.1.entry(key).or_insert_with(|| best(model, class, gpus, nodes)).clone()
    }
}

/// The model of a script that cannot leave this batch.
pub(crate) fn with_batch(model: &Arc<JobModel>, batch: Sequences) -> Arc<JobModel> {
    let mut pinned = JobModel::clone(model);
    pinned.training.batch = BatchRange { min: batch, max: batch };
    Arc::new(pinned)
}

// STANDIN
fn best(model: &JobModel, class: &NodeClass, gpus: GpuCount, nodes: NodeCount) -> Result<Offer, Refusal> {
    best_batch(model, class, gpus, nodes, Layout::data_parallel(gpus))
        .map(|(c, prediction)| Offer { configuration: Some(c), prediction })
        .ok_or(Refusal { memory: false, detail: "no batch".into() })
}

pub(crate) fn noise_scale(_model: &JobModel) -> Option<f64> {
    Some(21_000.0)
}

pub(crate) fn best_batch(
    model: &JobModel,
    class: &NodeClass,
    gpus: GpuCount,
    nodes: NodeCount,
    layout: Layout,
) -> Option<(Configuration, Prediction)> {
    let range = model.training.batch;
    (0..12u32)
        .map(|k| range.min.0 << k)
        .filter(|b| *b <= range.max.0)
        .filter_map(|b| {
            let c = Configuration { layout, micro_batch: Sequences(1), global_batch: Sequences(b) };
            predict(model, class, gpus, nodes, Some(&c)).ok().map(|p| (c, p))
        })
        .max_by(|a, b| a.1.goodput.0.total_cmp(&b.1.goodput.0))
}

pub(crate) fn predict(
    model: &JobModel,
    _class: &NodeClass,
    gpus: GpuCount,
    nodes: NodeCount,
    configuration: Option<&Configuration>,
) -> Result<Prediction, Refusal> {
    let c = configuration.ok_or(Refusal { memory: false, detail: "none".into() })?;
    let a = c.accumulation().ok_or(Refusal { memory: false, detail: "does not divide".into() })?;
    let step = a as f64 + 0.1 * (f64::from(gpus.0)).sqrt() + 0.2 * f64::from(nodes.0);
    let throughput = c.global_batch.0 as f64 * 100.0 / step;
    let b0 = model.training.reference_batch.0 as f64;
    let efficiency = (64.0 + b0) / (64.0 + c.global_batch.0 as f64);
    Ok(Prediction {
        step_time: Seconds(step),
        throughput: TokensPerSecond(throughput),
        efficiency,
        goodput: TokensPerSecond(throughput * efficiency),
        speed_up: 0.0,
    })
}
