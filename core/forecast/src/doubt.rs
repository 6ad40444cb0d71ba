//! How sure it is how long a job's work takes: what its model doubts itself, and what no model knows.

use std::collections::BTreeMap;

use headway_planner::{PlanInput, PlanJob};
use headway_types::{Configuration, GpuCount, JobId, NodeClass, NodeCount, NodeId, NodeSlice, Plan};

/// Of a job whose noise has not been reported: its efficiency at another batch than the reference is assumed.
const NOISE_UNKNOWN: f64 = 0.3;
/// Above this a model says nothing.
const MOST: f64 = 1.0;

/// Spread (σ of the logarithm) of the time each job's work takes, beyond `spread`, which all have.
pub(crate) fn doubts(input: &PlanInput, plan: &Plan, spread: f64) -> BTreeMap<JobId, f64> {
    let classes: BTreeMap<NodeId, &NodeClass> = input.nodes.iter().map(|node| (node.node, &node.class)).collect();
    let doubt = |job: &PlanJob| {
        let own = own(&classes, input, plan, job).unwrap_or(0.0).min(MOST);
        (job.job, libm::sqrt(spread * spread + own * own))
    };
    input.jobs.iter().map(doubt).collect()
}

/// What the model says of its own error, where it has or would have the job.
fn own(classes: &BTreeMap<NodeId, &NodeClass>, input: &PlanInput, plan: &Plan, job: &PlanJob) -> Option<f64> {
    let model = job.work.model()?;
    let (class, gpus, nodes, configuration): (NodeClass, GpuCount, NodeCount, Configuration) =
        match plan.assignments.get(&job.job) {
            Some(at) => {
                let class = |slice: &NodeSlice| Some((*classes.get(&slice.node)?, NodeCount(1)));
                let of_nodes: Vec<_> = at.placement.slices().iter().map(class).collect::<Option<_>>()?;
                (headway_goodput::of_gang(of_nodes)?, at.placement.gpus(), at.placement.nodes(), at.configuration?)
            }
            None => {
                let accepts = |class: &&NodeClass| job.range.accepts(&class.gpu_type);
                let class = input.nodes.iter().map(|node| &node.class).find(accepts)?.clone();
                let gpus = job.range.min.max(GpuCount(1));
                let nodes = NodeCount(gpus.0.div_ceil(class.gpus_per_node.0.max(1)));
                (class.clone(), gpus, nodes, model.best(&class, gpus, nodes).ok()?.configuration?)
            }
        };
    let error = model.step_time(&class, gpus, nodes, &configuration).ok()?.relative_error;
    let assumed = model.noise_scale().is_none() && configuration.global_batch != model.training.reference_batch;
    let noise = if assumed { NOISE_UNKNOWN } else { 0.0 };
    Some(libm::sqrt(error * error + noise * noise))
}
