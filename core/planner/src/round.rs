//! One round from input to plan: candidates, guarantees, decision, assignments, account. It holds no logic of its own
//! beyond putting the parts together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_solver::milp::{Backend, MilpError};
use headway_types::plan::{Price, SolvedBy};
use headway_types::spec::NodeResources;
use headway_types::{Assignment, GpuCount, GpuType, JobId, Plan, PlanReport, Seconds, Solver};

use crate::candidate::{self, Options};
use crate::check::PlanError;
use crate::cluster::Cluster;
use crate::curves::CurveCache;
use crate::decide::Decision;
use crate::guarantee::{self, Guarantees};
use crate::input::{PlanInput, PlanJob, PlanWork};
use crate::policies::{self, Approach};
use crate::project::Tree;
use crate::promise::{self, Promise};
use crate::reservation::Reservation;
use crate::rows::Rows;
use crate::sound::Sound;
use crate::submitted::Premises;
use crate::value::Quanta;
use crate::{due, explain, force, idle, moves, table, urgency};

/// Decisions in which those that found no room are left out one by one; then all but those that surely have room on the
/// nodes, and then nobody gives way to anybody.
const PASSES: u32 = 3;

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
    /// Who solves its program.
    pub solver: Solver,
    /// Wait after which each job is due; empty if no wait makes a job due.
    pub due_after: BTreeMap<JobId, Seconds>,
    /// Due jobs for which there is room on the nodes now.
    pub startable: BTreeSet<usize>,
    /// Room that is kept for the first due job for which there is none.
    pub promise: Option<Promise>,
}

impl<'a> Round<'a> {
    pub fn new(input: &'a PlanInput, cluster: &'a Cluster<'a>, tree: &'a Tree<'a>) -> Self {
        let fair_share = Premises::new(&input.nodes, input.jobs.len()).fair_share();
        let approach = policies::approach(input.policy.objective);
        let solver = input.policy.solver;
        Self {
            input,
            cluster,
            tree,
            rows: Rows::new(input, cluster, tree),
            fair_share,
            approach,
            solver,
            due_after: BTreeMap::new(),
            startable: BTreeSet::new(),
            promise: None,
        }
    }

    /// Returns the promise to a job.
    pub fn promised_to(&self, job: usize) -> Option<&Promise> {
        self.promise.as_ref().filter(|promise| promise.job == job)
    }

    /// The reservation before which a job must have left a class, or a mix of two.
    pub fn end_of(&self, job: &PlanJob, class: usize) -> Option<&'a Reservation> {
        let members = self.cluster.members(class).into_iter();
        let ends = members.filter_map(|one| self.cluster.classes[one].gate.end(self.input, self.tree, job));
        ends.min_by_key(|one| one.from)
    }

    /// The reservation that keeps a job from starting on a class.
    pub fn closed_by(&self, job: &PlanJob, class: usize) -> Option<&'a Reservation> {
        self.cluster.classes[class].gate.closed_by(self.input, self.tree, job)
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
/// A round that contradicts itself. A job that does is left out, by name.
pub fn plan(input: &PlanInput, curves: &mut CurveCache) -> Result<Plan, PlanError> {
    let sound = Sound::of(input)?;
    let mut plan = solve_sound(&sound.input, curves)?;
    sound.account(input, &mut plan.report);
    Ok(plan)
}

fn solve_sound(input: &PlanInput, curves: &mut CurveCache) -> Result<Plan, PlanError> {
    curves.begin(input);
    let (cluster, tree) = (Cluster::new(input), Tree::new(&input.projects));
    let mut round = Round::new(input, &cluster, &tree);
    let mut options: Vec<Options<'_>> = input.jobs.iter().map(|job| candidate::options(&round, job, curves)).collect();
    urgency::weigh(&round, &mut options);
    options.iter_mut().for_each(|of| round.approach.appraise(&round, of));
    guarantee::bar_additions(&round, &mut options);
    promise::promise_room(&mut round, &mut options);
    force::narrow(&round, &mut options);
    let mut instead = None;
    let (owed, decision) = loop {
        match settle(&round, &options) {
            Ok(decided) => break decided,
            Err(MilpError::Program(error)) => return Err(PlanError::TooLarge(error)),
            // A round without a plan would leave the cluster as it is: ours decides, and the report says so. It fails in
            // no other way than above, so nothing comes here twice.
            Err(failed) => {
                round.solver = Solver::Headway;
                instead = Some(failed.to_string());
            }
        }
    };
    let (owed, decision) = match idle::released(&round, &mut options, &owed, &decision) {
        true => settle(&round, &options).unwrap_or((owed, decision)),
        false => (owed, decision),
    };
    let report = report(&round, &options, &owed, &decision, instead);
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

/// What is owed and what is decided, so that nobody gives way to a job that then finds no room: rows do not know
/// which host has what left, which nodes a job avoids, and how free GPUs lie.
fn settle(round: &Round<'_>, options: &[Options<'_>]) -> Result<(Guarantees, Decision), MilpError> {
    let mut hopeless = BTreeSet::new();
    for pass in 1.. {
        let (owed, decision) = decide(round, options, &hopeless)?;
        let unmet = owed.unmet(options, &decision.choice);
        if unmet.is_subset(&hopeless) {
            return Ok((owed, decision));
        }
        hopeless.extend(unmet);
        if pass >= PASSES {
            let gives_up = |job: &usize| pass > PASSES || !round.startable.contains(job);
            hopeless.extend((0..options.len()).filter(gives_up));
        }
    }
    unreachable!("where nobody gives way to anybody nobody does so in vain")
}

fn decide(
    round: &Round<'_>,
    options: &[Options<'_>],
    hopeless: &BTreeSet<usize>,
) -> Result<(Guarantees, Decision), MilpError> {
    let owed = guarantee::guarantees(round, options, hopeless);
    let decision = round.approach.decide(round, options, &owed)?;
    match owed.against_displacement(options, &decision.choice) {
        None => Ok((owed, decision)),
        Some(stricter) => {
            let decision = round.approach.decide(round, options, &stricter)?;
            Ok((stricter, decision))
        }
    }
}

fn report(
    round: &Round<'_>,
    options: &[Options<'_>],
    owed: &Guarantees,
    decision: &Decision,
    instead: Option<String>,
) -> PlanReport {
    let mut shadow_prices: BTreeMap<GpuType, f64> = BTreeMap::new();
    for (class, of) in round.cluster.classes.iter().enumerate() {
        let price = shadow_prices.entry(of.alike.gpu_type.clone()).or_default();
        *price = price.max(round.rows.price_per_gpu(class, &decision.prices));
    }
    let (jobs, unmoved) = explain::explain(round, options, owed, decision);
    let bound = decision.bound.map(|bound| bound.max(decision.objective));
    let gap = bound.map(|bound| (bound.0 - decision.objective.0) as f64 / (bound.0.abs().max(1)) as f64);
    PlanReport {
        trigger: round.input.trigger.clone(),
        objective: decision.objective.units(),
        objective_before: before(options, decision).units(),
        bound: bound.map(Quanta::units),
        gap,
        shadow_prices,
        scarce: scarce(round, decision),
        relaxed: relaxed(round, options, owed, decision),
        left_out: Vec::new(),
        nodes_left_out: Vec::new(),
        moves: moves::moves(round, options, decision, &jobs),
        jobs: Arc::new(jobs),
        unmoved,
        candidates: options.iter().map(|options| options.candidates.len() as u32).sum(),
        due: due::due_waits(round, options),
        solver: bound.and_then(|_| solved_by(round, instead)),
    }
}

/// Ours goes without saying, and its release is kept beside the stored round: a round solved by it says the same in every
/// release that decides the same.
fn solved_by(round: &Round<'_>, instead: Option<String>) -> Option<SolvedBy> {
    let (name, version) = match round.solver {
        Solver::Milp => (Backend::BUILT_IN.name(), Backend::BUILT_IN.version()),
        Solver::Headway if instead.is_some() => ("headway", headway_solver::VERSION),
        Solver::Headway => return None,
    };
    Some(SolvedBy { name: name.into(), version: version.into(), instead })
}

/// The objective of carrying on exactly as now. Staying counts a live batch change as done, so that is taken back. A job
/// that is forced off what it has counts as it is: its loss is a cost of the plan, never a part of the present.
fn before(options: &[Options<'_>], decision: &Decision) -> Quanta {
    let gained = |of: &Options<'_>| {
        let taken = of.batch_change.is_some_and(|change| change.taken);
        if taken || of.forced_off { of.candidates[of.incumbent].value.0 - of.present_value.0 } else { 0 }
    };
    Quanta(decision.objective_before.0 - options.iter().map(gained).sum::<i64>())
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
    for (&job, least) in owed.sure.iter().chain(&owed.forgone) {
        let got = options[job].candidates[decision.choice[job]].gpus;
        if got < *least {
            let job = options[job].job;
            let rule = if got < job.claim.floor { guarantee::floor_of_job(job) } else { sure_of(job) };
            let reason = format!("{got} of {least} GPUs: what is free lies scattered{}", or_elsewhere(job));
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
    relaxed.extend(options.iter().filter_map(|options| without_row(round, options.job)));
    relaxed
}

/// Of a job whose table does not know what it holds, and of which nobody says what it makes there: it counts as nothing.
fn without_row(round: &Round<'_>, job: &PlanJob) -> Option<headway_types::plan::Relaxed> {
    let (PlanWork::Table(table), Some(held)) = (&job.work, &job.current) else { return None };
    let class = round.cluster.alike(round.cluster.class_of_placement(&held.placement)?);
    if held.predicted.goodput.0 > 0.0 || table::present(table, class, held).is_some() {
        return None;
    }
    let (gpus, nodes) = (held.placement.gpus(), held.placement.nodes());
    let nodes = nodes.words();
    let rule = format!("the goodput table of {}", job.name);
    let reason = format!(
        "it has no row for the {} of {} on {nodes} that the job holds, nor says its allocation a goodput: it counts as nothing there",
        gpus.words(),
        class.gpu_type
    );
    Some(headway_types::plan::Relaxed { rule, reason })
}

/// What else may keep a job from free GPUs.
fn or_elsewhere(job: &PlanJob) -> &'static str {
    match (job.needs.per_node == NodeResources::default(), !job.needs.bind_nodes()) {
        (true, true) => "",
        (false, true) => ", or on hosts without what it needs besides",
        (true, false) => ", or on nodes it must not use",
        (false, false) => ", on nodes it must not use, or on hosts without what it needs besides",
    }
}

/// A right that is not a floor: to what others borrowed, or to a turn after a long wait.
fn sure_of(job: &PlanJob) -> String {
    format!("what job {} is sure of", job.name)
}
