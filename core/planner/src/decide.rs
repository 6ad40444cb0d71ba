//! Solves and places until both agree. Where the program's choice has no room because free GPUs lie scattered, and
//! moving others out of the way does not pay, it tries the ways out (another shape for that job, or another choice for a
//! neighbour) and keeps the best that can be placed. The guarantees' witness is always one that the solver can fall
//! back on, and the present can always be kept, so there is always a decision.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use headway_solver::milp::{self, Backend, MilpError};
use headway_solver::{Column, Effort, Program, Solution, solve_from};
use headway_types::{Placement, Solver};

use crate::candidate::Options;
use crate::due;
use crate::guarantee::Guarantees;
use crate::place;
use crate::policy::Policy;
use crate::round::Round;
use crate::value::Quanta;

/// Solves per round; a choice without room costs one each. Fewer where each takes longer.
const ATTEMPTS: usize = 48;
const ATTEMPTS_TIMES_JOBS: usize = 2_000;
/// The same of an exact backend, of which each solve may take seconds.
const BACKEND_ATTEMPTS: usize = 3;
/// Neighbours tried per choice without room, cheapest first.
const NEIGHBOURS: usize = 6;
/// Work of one solve.
const DUAL_STEPS: u32 = 600;
const EXCHANGES: u32 = 200_000;

/// One candidate per job, and where it goes.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub choice: Vec<usize>,
    pub placements: Vec<Option<Placement>>,
    pub objective: Quanta,
    pub objective_before: Quanta,
    /// What no choice exceeds; `None` where nothing was optimised.
    pub bound: Option<Quanta>,
    /// Per row, in objective units.
    pub prices: Vec<f64>,
    /// Jobs whose best choice had no room.
    pub fragmented: BTreeSet<usize>,
}

/// (job, candidate) pairs left out of an attempt, and those of them that are evictions.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Attempt {
    forbidden: BTreeSet<(usize, usize)>,
    evicted: BTreeSet<usize>,
}

/// # Errors
/// What the solver refuses: values or amounts too large to add up. Of a backend: that it has no answer that holds.
pub(crate) fn decide(round: &Round<'_>, options: &[Options<'_>], owed: &Guarantees) -> Result<Decision, MilpError> {
    let policy = &round.input.policy;
    let mut best: Option<Decision> = None;
    // What the best decision leaves unmet, because nothing better found room.
    let mut fewest_unmet = UnmetRights::MOST;
    // Most promising first; of equals the earliest.
    let mut waiting = BinaryHeap::from([(Quanta(i64::MAX), Reverse(0), Attempt::default())]);
    let mut seen = BTreeSet::new();
    let attempts = match round.solver {
        Solver::Headway => (ATTEMPTS_TIMES_JOBS / options.len().max(1)).clamp(1, ATTEMPTS),
        Solver::Milp => BACKEND_ATTEMPTS,
    };
    let mut prices = vec![0.0; owed.capacity.len()];
    let mut solves = 0;
    while let Some((_, _, attempt)) = waiting.pop() {
        if solves == attempts {
            break;
        }
        if !seen.insert(attempt.clone()) {
            continue;
        }
        let Some((program, kept)) = program(options, owed, &attempt) else { continue };
        let solution = match round.solver {
            Solver::Headway => solve_from(&program, &effort(policy), &prices)?,
            Solver::Milp => milp::solve_from(Backend::BUILT_IN, &program, &effort(policy), &prices)?,
        };
        solves += 1;
        let meets_all = fewest_unmet == UnmetRights::default();
        let worse = best.as_ref().is_some_and(|best| meets_all && solution.objective <= best.objective.0);
        if worse {
            continue;
        }
        let choice: Vec<usize> = solution.choice.iter().zip(&kept).map(|(column, kept)| kept[*column]).collect();
        let placed = place::place(round, options, &owed.capacity, &choice, &attempt.evicted);
        if best.is_none() {
            prices.clone_from(&solution.prices);
        }
        let objective = value(options, &placed.choice);
        let found = best.get_or_insert_with(|| Decision::new(options, owed, &solution));
        if let Some(job) = placed.no_room {
            found.fragmented.insert(job);
            for (loss, way) in ways_out(round, options, &choice, job, &attempt) {
                let order = (seen.len() + waiting.len()) as u32;
                waiting.push((Quanta(solution.objective - loss), Reverse(order), way));
            }
        }
        let unmet = UnmetRights::by(&placed.choice, round, options, owed);
        if (unmet, Reverse(objective)) < (fewest_unmet, Reverse(found.objective)) {
            fewest_unmet = unmet;
            (found.choice, found.placements, found.objective) = (placed.choice, placed.placements, objective);
        }
    }
    let best = best.expect("without anything forbidden every job has a choice, so the first attempt decides");
    Ok(best.or_as_it_is(round, options, owed))
}

impl Decision {
    fn new(options: &[Options<'_>], owed: &Guarantees, solution: &Solution) -> Self {
        let incumbent: Vec<usize> = options.iter().map(|job| job.incumbent).collect();
        Self {
            choice: owed.start.clone(),
            placements: vec![None; options.len()],
            objective: Quanta(i64::MIN),
            objective_before: value(options, &incumbent),
            bound: Some(Quanta(solution.bound)),
            prices: solution.prices.iter().map(|price| Quanta(1).units() * price).collect(),
            fragmented: BTreeSet::new(),
        }
    }

    /// Everybody as it is, where that is allowed and worth as much: a plan that gains nothing moves nobody.
    fn or_as_it_is(self, round: &Round<'_>, options: &[Options<'_>], owed: &Guarantees) -> Self {
        let incumbent: Vec<usize> = options.iter().map(|job| job.incumbent).collect();
        if owed.start != incumbent || self.objective > self.objective_before {
            return self;
        }
        let placed = place::place(round, options, &owed.capacity, &incumbent, &BTreeSet::new());
        Self { choice: placed.choice, placements: placed.placements, objective: self.objective_before, ..self }
    }
}

pub(crate) fn effort(policy: &Policy) -> Effort {
    let tolerance = if policy.tolerance.is_finite() { policy.tolerance.clamp(0.0, 1.0) } else { 0.0 };
    Effort { tolerance, dual_steps: DUAL_STEPS, exchanges: EXCHANGES, nodes: policy.node_budget }
}

fn value(options: &[Options<'_>], choice: &[usize]) -> Quanta {
    Quanta(options.iter().zip(choice).map(|(job, &at)| job.candidates[at].value.0).sum())
}

/// How many jobs have less than they are sure of. Of equally many, those with another right than a wait (floors, what is
/// reclaimed, higher priority) weigh most. Then come those that are served before the job that room is promised to: one of
/// them that starts later than it can makes the promised moment recede.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct UnmetRights {
    all: usize,
    not_due: usize,
    startable: usize,
}

impl UnmetRights {
    const MOST: Self = Self { all: usize::MAX, not_due: usize::MAX, startable: usize::MAX };

    fn by(choice: &[usize], round: &Round<'_>, options: &[Options<'_>], owed: &Guarantees) -> Self {
        let unmet: Vec<usize> =
            owed.sure.keys().copied().filter(|&job| !owed.allow(options, job, choice[job])).collect();
        Self {
            all: unmet.len(),
            not_due: unmet.iter().filter(|&&job| !due::is_due(round, options[job].job)).count(),
            startable: unmet.iter().filter(|job| round.startable.contains(job)).count(),
        }
    }
}

/// The program without what guarantees and the attempt forbid, and per job which candidates its columns stand for.
/// `None` where the attempt leaves a job no choice, or no start within capacities.
fn program(options: &[Options<'_>], owed: &Guarantees, attempt: &Attempt) -> Option<(Program, Vec<Vec<usize>>)> {
    let kept: Vec<Vec<usize>> = options
        .iter()
        .enumerate()
        .map(|(job, of)| {
            let kept = |at: &usize| owed.allow(options, job, *at) && !attempt.forbidden.contains(&(job, *at));
            (0..of.candidates.len()).filter(kept).collect()
        })
        .collect();
    // A job whose place in the start is forbidden starts from having nothing, which its first candidate is.
    let start: Option<Vec<usize>> = kept
        .iter()
        .zip(&owed.start)
        .map(|(kept, at)| kept.iter().position(|one| one == at).or(if kept.is_empty() { None } else { Some(0) }))
        .collect();
    let groups = options
        .iter()
        .zip(&kept)
        .map(|(of, kept)| {
            let column =
                |at: &usize| Column { value: of.candidates[*at].value.0, uses: of.candidates[*at].uses.clone() };
            kept.iter().map(column).collect()
        })
        .collect();
    let program = Program { groups, capacity: owed.capacity.clone(), start: start? };
    let feasible = attempt.forbidden.is_empty() || program.fits(&program.start);
    feasible.then_some((program, kept))
}

/// Without the choice that has no room; or with it and without what one of the neighbours has. Each with what that
/// job at least loses by it.
fn ways_out(
    round: &Round<'_>,
    options: &[Options<'_>],
    choice: &[usize],
    job: usize,
    attempt: &Attempt,
) -> Vec<(i64, Attempt)> {
    let class_of = |other: usize| {
        let chosen = &options[other].candidates[choice[other]];
        let held = options[other].job.current.as_ref().filter(|_| chosen.stays);
        chosen.shape.map(|shape| shape.class).or_else(|| round.cluster.class_of_placement(&held?.placement))
    };
    let least_loss = |other: usize| {
        let candidates = options[other].candidates.iter().enumerate();
        let left = candidates
            .filter(|(at, _)| *at != choice[other] && !attempt.forbidden.contains(&(other, *at)))
            .map(|(_, candidate)| candidate.value.0);
        left.max().map(|value| options[other].candidates[choice[other]].value.0 - value)
    };
    let members = |job: usize| class_of(job).map(|class| round.cluster.members(class));
    let own = members(job);
    let beside = |other: usize| members(other).zip(own).is_some_and(|(one, own)| one.iter().any(|of| own.contains(of)));
    let neighbours = (0..options.len()).filter(|&other| other != job && beside(other));
    let mut losses: Vec<(i64, usize)> = neighbours.filter_map(|other| Some((least_loss(other)?, other))).collect();
    losses.sort_unstable();
    losses.truncate(NEIGHBOURS);
    losses.extend(least_loss(job).map(|loss| (loss, job)));
    losses
        .into_iter()
        .map(|(loss, other)| {
            let mut way = attempt.clone();
            way.forbidden.insert((other, choice[other]));
            if options[other].candidates[choice[other]].stays {
                way.evicted.insert(other);
            }
            (loss, way)
        })
        .collect()
}
