//! From the planner's plan to the reply: ids become names again.

use std::collections::BTreeMap;

use headway_api::solve::{Allocation, Decided, Held, Limit, Prediction, Price, Relaxed, Reply, Step, Unmoved, VERSION};
use headway_api::v1;
use headway_planner::{PlanInput, PlanJob, PlanNode};
use headway_types::plan::{self, Alternative, MoveKind};
use headway_types::{
    Assignment, Configuration, GpuUuid, JobId, JobVerdict, Move, NodeId, Plan, Reason, ReasonCode, Tier,
};
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
        shadow_prices: report.shadow_prices.iter().map(|(gpu_type, price)| (gpu_type.0.clone(), *price)).collect(),
        scarce: report.scarce.iter().map(|one| Price { of: one.of.clone(), price: one.price }).collect(),
        relaxed: report
            .relaxed
            .iter()
            .map(|one| Relaxed { rule: one.rule.clone(), reason: one.reason.clone() })
            .collect(),
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
        reasons: verdict.iter().flat_map(|verdict| &verdict.reasons).map(reason).collect(),
        runner_up: verdict.and_then(|verdict| verdict.runner_up.as_ref()).map(alternative),
        limits: verdict.iter().flat_map(|verdict| &verdict.limits).map(limit).collect(),
        marginal_speed_up: verdict.and_then(|verdict| verdict.marginal_speed_up),
    }
}

fn allocation(assignment: &Assignment, nodes: &BTreeMap<NodeId, &PlanNode>) -> Allocation {
    let placement = &assignment.placement;
    let slices = placement.slices().iter().filter_map(|slice| Some((nodes.get(&slice.node)?, &slice.gpus)));
    let first = nodes.get(&placement.first_node());
    Allocation {
        nodes: slices.map(|(node, gpus)| (node.name.clone(), held(node, gpus))).collect(),
        gpu_type: first.map(|node| node.class.gpu_type.0.clone()),
        gpus: Some(placement.gpus().0),
        label: assignment.label.clone(),
        configuration: assignment.configuration.as_ref().map(configuration),
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
        kind: kind(step.kind).into(),
        from_gpus: step.from_gpus.0,
        to_gpus: step.to_gpus.0,
        from_configuration: step.from_configuration.as_ref().map(configuration),
        to_configuration: step.to_configuration.as_ref().map(configuration),
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
        code: code(of.code),
        detail: of.detail.clone(),
    }
}

fn limit(of: &plan::Limit) -> Limit {
    Limit { of: of.of.clone(), needed: of.needed, left: of.left, price: of.price }
}

fn kind(of: MoveKind) -> &'static str {
    match of {
        MoveKind::Start => "start",
        MoveKind::Preempt => "preempt",
        MoveKind::Reconfigure(Tier::Batch) => "batch",
        MoveKind::Reconfigure(Tier::MicroBatch) => "micro_batch",
        MoveKind::Reconfigure(Tier::Layout) => "layout",
        MoveKind::Reconfigure(Tier::Migration) => "migration",
    }
}

fn configuration(of: &Configuration) -> v1::Configuration {
    v1::Configuration {
        layout: v1::Layout { dp: of.layout.dp, tp: of.layout.tp, pp: of.layout.pp },
        execution: of.layout.execution.unless_plain(),
        micro_batch_sequences: of.micro_batch.0,
        global_batch_sequences: of.global_batch.0,
    }
}

fn alternative(of: &Alternative) -> v1::Alternative {
    v1::Alternative {
        gpus: of.gpus.0,
        configuration: of.configuration.as_ref().map(configuration),
        speed_up: of.speed_up,
    }
}

fn reason(of: &Reason) -> v1::Reason {
    v1::Reason { code: code(of.code), binding: of.binding, detail: of.detail.clone() }
}

/// The word by which the code is stored.
fn code(of: ReasonCode) -> String {
    let word = serde_json::to_value(of).ok().and_then(|code| code.as_str().map(str::to_owned));
    word.unwrap_or_default()
}
