//! One round from input to plan: candidates, decision, assignments, account. It holds no logic of its own beyond
//! putting the parts together.

use std::collections::{BTreeMap, BTreeSet};

use headway_types::{Assignment, GpuType, GpuUuid, JobId, NodeId, Plan, PlanReport};

use crate::candidate::{self, Options};
use crate::cluster::Cluster;
use crate::curves::CurveCache;
use crate::decide::{self, Decision};
use crate::input::PlanInput;
use crate::{explain, moves, resource};

/// Why a round has no plan. All of these are broken promises of the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("node {0} appears twice or out of order in the round")]
    NodesNotAscending(NodeId),
    #[error("job {0} appears twice or out of order in the round")]
    JobsNotAscending(JobId),
    #[error("GPU {0} is offered twice in the round")]
    RepeatedGpu(GpuUuid),
    #[error("GPU {gpu} is held by job {first} and by job {second}")]
    HeldTwice { gpu: GpuUuid, first: JobId, second: JobId },
}

/// Makes the plan of a round. Equal inputs give equal plans, byte for byte; `curves` only makes it faster.
pub fn plan(input: &PlanInput, curves: &mut CurveCache) -> Result<Plan, PlanError> {
    check(input)?;
    curves.begin(input);
    let cluster = Cluster::new(&input.nodes);
    let options: Vec<Options<'_>> =
        input.jobs.iter().map(|job| candidate::options(input, &cluster, job, curves)).collect();
    let decision = decide::decide(&input.policy, &cluster, &options);
    let report = report(input, &cluster, &options, &decision);
    let assignments = options
        .iter()
        .zip(&decision.choice)
        .zip(&decision.placements)
        .filter_map(|((options, &at), placement)| {
            let chosen = &options.candidates[at];
            let placement = placement.clone()?;
            let assignment =
                Assignment { placement, configuration: chosen.configuration, predicted: chosen.prediction };
            Some((options.job.job, assignment))
        })
        .collect();
    Ok(Plan { id: input.plan, parent: input.parent, made_at: input.now, assignments, report })
}

fn report(input: &PlanInput, cluster: &Cluster<'_>, options: &[Options<'_>], decision: &Decision) -> PlanReport {
    let mut shadow_prices: BTreeMap<GpuType, f64> = BTreeMap::new();
    for (class, named) in cluster.classes.iter().enumerate() {
        let price = shadow_prices.entry(named.gpu_type.clone()).or_default();
        *price = price.max(decision.prices[class * resource::PER_CLASS]);
    }
    let bound = decision.bound.max(decision.objective);
    let gap = (bound.0 - decision.objective.0) as f64 / (bound.0.abs().max(1)) as f64;
    PlanReport {
        trigger: input.trigger.clone(),
        objective: decision.objective.units(),
        objective_before: decision.objective_before.units(),
        bound: bound.units(),
        gap,
        shadow_prices,
        jobs: explain::verdicts(input, cluster, options, decision),
        moves: moves::moves(input, cluster, options, decision),
        candidates: options.iter().map(|options| options.candidates.len() as u32).sum(),
    }
}

fn check(input: &PlanInput) -> Result<(), PlanError> {
    if let Some(pair) = input.nodes.windows(2).find(|pair| pair[0].node >= pair[1].node) {
        return Err(PlanError::NodesNotAscending(pair[1].node));
    }
    if let Some(pair) = input.jobs.windows(2).find(|pair| pair[0].job >= pair[1].job) {
        return Err(PlanError::JobsNotAscending(pair[1].job));
    }
    let mut offered = BTreeSet::new();
    if let Some(gpu) = input.nodes.iter().flat_map(|node| &node.gpus).find(|gpu| !offered.insert(*gpu)) {
        return Err(PlanError::RepeatedGpu(gpu.clone()));
    }
    let mut held: BTreeMap<&GpuUuid, JobId> = BTreeMap::new();
    for job in &input.jobs {
        for (_, gpu) in job.current.iter().flat_map(|current| current.placement.ranks()) {
            if let Some(first) = held.insert(gpu, job.job) {
                return Err(PlanError::HeldTwice { gpu: gpu.clone(), first, second: job.job });
            }
        }
    }
    Ok(())
}
