//! One round from input to plan: candidates, guarantees, decision, assignments, account. It holds no logic of its own
//! beyond putting the parts together.

use std::collections::{BTreeMap, BTreeSet};

use headway_solver::ProgramError;
use headway_types::plan::Price;
use headway_types::{Assignment, GpuCount, GpuType, GpuUuid, JobId, NodeId, Plan, PlanReport};

use crate::candidate::{self, Options};
use crate::cluster::Cluster;
use crate::curves::CurveCache;
use crate::decide::Decision;
use crate::guarantee::{self, Guarantees};
use crate::input::{PlanInput, PlanJob};
use crate::policies::{self, Approach};
use crate::project::Tree;
use crate::rows::Rows;
use crate::{explain, moves};

/// Why a round has no plan. All of these are broken promises of the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("node {0} appears twice or out of order in the round")]
    NodesNotAscending(NodeId),
    #[error("job {0} appears twice or out of order in the round")]
    JobsNotAscending(JobId),
    #[error("project {0} appears twice or out of order in the round")]
    ProjectsNotAscending(String),
    #[error("GPU {0} is offered twice in the round")]
    RepeatedGpu(GpuUuid),
    #[error("GPU {gpu} is held by job {first} and by job {second}")]
    HeldTwice { gpu: GpuUuid, first: JobId, second: JobId },
    #[error("the round is too large to add up")]
    TooLarge(#[source] ProgramError),
}

/// What every part of a round may look at.
pub(crate) struct Round<'a> {
    pub input: &'a PlanInput,
    pub cluster: &'a Cluster<'a>,
    pub tree: &'a Tree<'a>,
    pub rows: Rows<'a>,
    /// Usable GPUs over jobs.
    pub fair_share: GpuCount,
    /// How it decides.
    pub approach: &'static dyn Approach,
}

impl<'a> Round<'a> {
    pub fn new(input: &'a PlanInput, cluster: &'a Cluster<'a>, tree: &'a Tree<'a>) -> Self {
        let usable: u32 = (0..cluster.classes.len()).map(|class| cluster.open(class).0).sum();
        let fair_share = GpuCount(usable / (input.jobs.len() as u32).max(1));
        let approach = policies::approach(input.policy.objective);
        Self { input, cluster, tree, rows: Rows::new(input, cluster, tree), fair_share, approach }
    }

    /// Classes the job accepts and that admit it.
    pub fn admitted(&self, job: &PlanJob) -> impl Iterator<Item = usize> {
        let accepts = |class: &usize| {
            let of = &self.cluster.classes[*class];
            job.range.accepts(&of.alike.gpu_type) && of.gate.admits(self.input, self.tree, job)
        };
        (0..self.cluster.classes.len()).filter(accepts).collect::<Vec<_>>().into_iter()
    }
}

/// Makes the plan of a round. Equal inputs give equal plans, byte for byte; `curves` only makes it faster.
///
/// # Errors
/// An input that contradicts itself.
pub fn plan(input: &PlanInput, curves: &mut CurveCache) -> Result<Plan, PlanError> {
    check(input)?;
    curves.begin(input);
    let (cluster, tree) = (Cluster::new(input), Tree::new(&input.projects));
    let round = Round::new(input, &cluster, &tree);
    let mut options: Vec<Options<'_>> = input.jobs.iter().map(|job| candidate::options(&round, job, curves)).collect();
    options.iter_mut().for_each(|of| round.approach.appraise(&round, of));
    let owed = guarantee::guarantees(&round, &options);
    let decision = round.approach.decide(&round, &options, &owed).map_err(PlanError::TooLarge)?;
    let report = report(&round, &options, &owed, &decision);
    let assignments = options
        .iter()
        .zip(&decision.choice)
        .zip(&decision.placements)
        .filter_map(|((options, &at), placement)| {
            let chosen = &options.candidates[at];
            let assignment = Assignment {
                placement: placement.clone()?,
                configuration: chosen.configuration,
                predicted: chosen.prediction,
                label: chosen.label.clone(),
            };
            Some((options.job.job, assignment))
        })
        .collect();
    Ok(Plan { id: input.plan, parent: input.parent, made_at: input.now, assignments, report })
}

fn report(round: &Round<'_>, options: &[Options<'_>], owed: &Guarantees, decision: &Decision) -> PlanReport {
    let mut shadow_prices: BTreeMap<GpuType, f64> = BTreeMap::new();
    for (class, of) in round.cluster.classes.iter().enumerate() {
        let price = shadow_prices.entry(of.alike.gpu_type.clone()).or_default();
        *price = price.max(round.rows.price_per_gpu(class, &decision.prices));
    }
    let bound = decision.bound.max(decision.objective);
    let gap = (bound.0 - decision.objective.0) as f64 / (bound.0.abs().max(1)) as f64;
    PlanReport {
        trigger: round.input.trigger.clone(),
        objective: decision.objective.units(),
        objective_before: decision.objective_before.units(),
        bound: bound.units(),
        gap,
        shadow_prices,
        scarce: scarce(round, decision),
        relaxed: relaxed(round, options, owed, decision),
        jobs: explain::verdicts(round, options, owed, decision),
        moves: moves::moves(round, options, decision),
        candidates: options.iter().map(|options| options.candidates.len() as u32).sum(),
    }
}

/// What is scarce, dearest first by what all of it is worth.
fn scarce(round: &Round<'_>, decision: &Decision) -> Vec<Price> {
    let mut prices: Vec<(f64, usize)> = decision
        .prices
        .iter()
        .enumerate()
        .filter(|(_, price)| **price >= 1e-6)
        .map(|(row, price)| (price * round.rows.capacity[row].unsigned_abs() as f64, row))
        .collect();
    prices.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    prices.into_iter().map(|(_, row)| Price { of: round.rows.describe(row), price: decision.prices[row] }).collect()
}

/// What could not be kept: what the guarantees say, and what then found no room.
fn relaxed(
    round: &Round<'_>,
    options: &[Options<'_>],
    owed: &Guarantees,
    decision: &Decision,
) -> Vec<headway_types::plan::Relaxed> {
    let mut relaxed = owed.relaxed.clone();
    for (&job, least) in &owed.sure {
        let got = options[job].candidates[decision.choice[job]].gpus;
        if got < *least {
            let rule = format!("what job {} is sure of", options[job].job.name);
            let reason = format!("{got} of {least} GPUs: what is free lies scattered");
            relaxed.push(headway_types::plan::Relaxed { rule, reason });
        }
    }
    let mut used = vec![0; owed.capacity.len()];
    for (job, &at) in options.iter().zip(&decision.choice) {
        for part in &job.candidates[at].uses {
            used[part.row as usize] += part.amount;
        }
    }
    for (row, (used, capacity)) in used.iter().zip(&owed.capacity).enumerate().filter(|(_, (_, cap))| **cap < 0) {
        if used > capacity {
            let reason = format!("{} of {} GPUs: what is free lies scattered", -used, -capacity);
            relaxed.push(headway_types::plan::Relaxed { rule: round.rows.describe(row), reason });
        }
    }
    relaxed
}

fn check(input: &PlanInput) -> Result<(), PlanError> {
    if let Some(pair) = input.nodes.windows(2).find(|pair| pair[0].node >= pair[1].node) {
        return Err(PlanError::NodesNotAscending(pair[1].node));
    }
    if let Some(pair) = input.jobs.windows(2).find(|pair| pair[0].job >= pair[1].job) {
        return Err(PlanError::JobsNotAscending(pair[1].job));
    }
    if let Some(pair) = input.projects.windows(2).find(|pair| pair[0].name >= pair[1].name) {
        return Err(PlanError::ProjectsNotAscending(pair[1].name.clone()));
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
