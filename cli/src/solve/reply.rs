//! From the planner's plan to the reply: ids become names again.

use std::collections::BTreeMap;

use headway_api::solve::{Allocation, Decided, Held, Prediction, Reply, Step, Unmoved, VERSION};
use headway_planner::{PlanInput, PlanJob, PlanNode};
use headway_types::plan;
use headway_types::{Assignment, GpuType, GpuUuid, JobId, JobVerdict, Move, NodeId, Plan};
use serde_json::Value;

use super::nodes;

/// The reply to the round that `input` was.
pub fn reply(round: Option<Value>, input: &PlanInput, plan: &Plan) -> Reply {
    let nodes: BTreeMap<NodeId, &PlanNode> = input.nodes.iter().map(|node| (node.node, node)).collect();
    let names: BTreeMap<JobId, &str> = input.jobs.iter().map(|job| (job.job, job.name.as_str())).collect();
    let report = &plan.report;
    Reply {
        version: VERSION,
        planner: concat!("headway ", env!("CARGO_PKG_VERSION")).into(),
        round,
        policy: input.policy.objective,
        objective: report.objective,
        objective_before: report.objective_before,
        bound: report.bound,
        gap: report.gap,
        candidates: report.candidates,
        solver: report.solver.as_ref().map(Into::into),
        shadow_prices: report.shadow_prices.iter().map(|(gpu_type, price)| (gpu_type.0.clone(), *price)).collect(),
        scarce: report.scarce.iter().map(Into::into).collect(),
        relaxed: report.relaxed.iter().map(Into::into).collect(),
        jobs: input
            .jobs
            .iter()
            .map(|job| decided(job, plan.assignments.get(&job.job), report.jobs.get(&job.job), &nodes))
            .collect(),
        moves: report.moves.iter().map(|step| moved(step, &names)).collect(),
        unmoved: report.unmoved.iter().map(|one| unmoved(one, &names)).collect(),
    }
}

fn decided(
    job: &PlanJob,
    assignment: Option<&Assignment>,
    verdict: Option<&JobVerdict>,
    nodes: &BTreeMap<NodeId, &PlanNode>,
) -> Decided {
    let predicted = assignment.map(|assignment| assignment.predicted);
    let modelled = predicted.filter(|_| job.work.model().is_some());
    Decided {
        name: job.name.clone(),
        allocation: assignment.map(|assignment| allocation(assignment, nodes)),
        speed_up: predicted.map_or(0.0, |predicted| predicted.speed_up),
        prediction: modelled.map(|predicted| Prediction {
            step_time_seconds: predicted.step_time.0,
            throughput_tokens_per_second: predicted.throughput.0,
            efficiency: predicted.efficiency,
        }),
        headline: verdict.map(|verdict| verdict.headline.clone()).unwrap_or_default(),
        reasons: verdict.iter().flat_map(|verdict| &verdict.reasons).map(Into::into).collect(),
        runner_up: verdict.and_then(|verdict| verdict.runner_up.as_ref()).map(Into::into),
        limits: verdict.iter().flat_map(|verdict| &verdict.limits).map(Into::into).collect(),
        marginal_speed_up: verdict.and_then(|verdict| verdict.marginal_speed_up),
    }
}

fn allocation(assignment: &Assignment, nodes: &BTreeMap<NodeId, &PlanNode>) -> Allocation {
    let placement = &assignment.placement;
    let slices = placement.slices().iter().filter_map(|slice| Some((nodes.get(&slice.node)?, &slice.gpus)));
    let types = placement.slices().iter().filter_map(|slice| Some(nodes.get(&slice.node)?.class.gpu_type.clone()));
    Allocation {
        nodes: slices.map(|(node, gpus)| (node.name.clone(), held(node, gpus))).collect(),
        gpu_type: GpuType::joined(types).map(|of| of.0),
        gpus: Some(placement.gpus().0),
        label: assignment.label.clone(),
        configuration: assignment.configuration.as_ref().map(Into::into),
        goodput: Some(assignment.predicted.goodput.0),
    }
}

/// By index on the node; of a stored round, whose GPUs have other identities, by position.
fn held(node: &PlanNode, gpus: &[GpuUuid]) -> Held {
    let index = |gpu: &GpuUuid| {
        nodes::index(gpu).or_else(|| node.gpus.iter().position(|one| one == gpu).map(|position| position as u32))
    };
    Held::Indices(gpus.iter().filter_map(index).collect())
}

fn moved(step: &Move, names: &BTreeMap<JobId, &str>) -> Step {
    Step {
        job: names.get(&step.job).map(|name| (*name).to_owned()).unwrap_or_default(),
        kind: step.kind.name().into(),
        from_gpus: step.from_gpus.0,
        to_gpus: step.to_gpus.0,
        from_configuration: step.from_configuration.as_ref().map(Into::into),
        to_configuration: step.to_configuration.as_ref().map(Into::into),
        goodput_before: step.goodput_before.0,
        goodput_after: step.goodput_after.0,
        downtime_seconds: step.downtime.0,
        pays_back_after_seconds: step.pays_back_after.map(|after| after.0),
        reason: step.reason.clone(),
    }
}

fn unmoved(of: &plan::Unmoved, names: &BTreeMap<JobId, &str>) -> Unmoved {
    Unmoved {
        job: names.get(&of.job).map(|name| (*name).to_owned()).unwrap_or_default(),
        from_gpus: of.from_gpus.0,
        to_gpus: of.to_gpus.0,
        gain: of.gain,
        forgone: of.forgone,
        code: of.code.to_string(),
        detail: of.detail.clone(),
    }
}
