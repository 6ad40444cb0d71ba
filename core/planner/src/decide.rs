//! Solves and places until both agree. Where the program's choice has no room because free GPUs lie scattered, it tries
//! the two ways out (another shape for that job, or moving a neighbour) and keeps the best that can be placed. The
//! present assignment is always one, so there is always a decision.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use headway_types::Placement;

use crate::candidate::Options;
use crate::cluster::Cluster;
use crate::place;
use crate::policy::Policy;
use crate::resource;
use crate::solver::{self, Column, Problem};
use crate::value::Quanta;

/// Solves per round; a choice without room costs one each. Fewer where each takes longer.
const ATTEMPTS: usize = 48;
const LEAST_ATTEMPTS: usize = 4;
const ATTEMPTS_TIMES_JOBS: usize = 2_000;
/// Neighbours tried per choice without room, cheapest first.
const NEIGHBOURS: usize = 6;

/// One candidate per job, and where it goes.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub choice: Vec<usize>,
    pub placements: Vec<Option<Placement>>,
    pub objective: Quanta,
    pub objective_before: Quanta,
    pub bound: Quanta,
    /// Per resource, in objective units.
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

pub(crate) fn decide(policy: &Policy, cluster: &Cluster<'_>, options: &[Options<'_>]) -> Decision {
    let incumbent: Vec<usize> = options.iter().map(|job| job.incumbent).collect();
    let mut best = keep(cluster, options, &incumbent);
    // Most promising first; of equals the earliest.
    let mut waiting = BinaryHeap::from([(Quanta(i64::MAX), Reverse(0), Attempt::default())]);
    let mut seen = BTreeSet::new();
    let attempts = (ATTEMPTS_TIMES_JOBS / options.len().max(1)).clamp(LEAST_ATTEMPTS, ATTEMPTS);
    let mut solves = 0;
    while let Some((_, _, attempt)) = waiting.pop() {
        if solves == attempts {
            break;
        }
        if !seen.insert(attempt.clone()) {
            continue;
        }
        let Some((problem, kept)) = problem(policy, cluster, options, &incumbent, &attempt) else { continue };
        let solution = solver::solve(&problem);
        solves += 1;
        if solves == 1 {
            best.bound = solution.bound;
            best.prices = solution.prices;
        }
        if solution.objective <= best.objective {
            continue;
        }
        let choice: Vec<usize> = solution.choice.iter().zip(&kept).map(|(column, kept)| kept[*column]).collect();
        let placed = place::place(cluster, options, &choice, &attempt.evicted);
        if let Some(job) = placed.no_room {
            best.fragmented.insert(job);
            for (loss, way) in ways_out(cluster, options, &choice, job, &attempt) {
                let order = (seen.len() + waiting.len()) as u32;
                waiting.push((Quanta(solution.objective.0 - loss), Reverse(order), way));
            }
        }
        let objective = value(options, &placed.choice);
        if objective > best.objective {
            best = Decision { choice: placed.choice, placements: placed.placements, objective, ..best };
        }
    }
    best
}

/// Everybody stays as it is.
fn keep(cluster: &Cluster<'_>, options: &[Options<'_>], incumbent: &[usize]) -> Decision {
    let placements = place::place(cluster, options, incumbent, &BTreeSet::new()).placements;
    let objective = value(options, incumbent);
    Decision {
        choice: incumbent.to_vec(),
        placements,
        objective,
        objective_before: objective,
        bound: objective,
        prices: vec![0.0; cluster.classes.len() * resource::PER_CLASS],
        fragmented: BTreeSet::new(),
    }
}

fn value(options: &[Options<'_>], choice: &[usize]) -> Quanta {
    Quanta(options.iter().zip(choice).map(|(job, &at)| job.candidates[at].value.0).sum())
}

/// The program without what the attempt forbids, and per job which candidates its columns stand for. `None` where
/// a job has no choice left.
fn problem(
    policy: &Policy,
    cluster: &Cluster<'_>,
    options: &[Options<'_>],
    incumbent: &[usize],
    attempt: &Attempt,
) -> Option<(Problem, Vec<Vec<usize>>)> {
    let kept: Vec<Vec<usize>> = options
        .iter()
        .enumerate()
        .map(|(job, options)| {
            (0..options.candidates.len()).filter(|&at| !attempt.forbidden.contains(&(job, at))).collect()
        })
        .collect();
    // An evicted job's incumbent is to have nothing, which its first candidate is.
    let start: Option<Vec<usize>> = kept
        .iter()
        .zip(incumbent)
        .map(|(kept, at)| {
            kept.iter().position(|candidate| candidate == at).or(if kept.is_empty() { None } else { Some(0) })
        })
        .collect();
    let jobs = options
        .iter()
        .zip(&kept)
        .map(|(options, kept)| {
            kept.iter()
                .map(|&at| Column { value: options.candidates[at].value, uses: options.candidates[at].uses.clone() })
                .collect()
        })
        .collect();
    let capacity = resource::capacities(cluster);
    Some((Problem { jobs, capacity, incumbent: start?, node_budget: policy.node_budget }, kept))
}

/// Without the choice that has no room; or with it and without what one of the neighbours has. Each with what that
/// job at least loses by it.
fn ways_out(
    cluster: &Cluster<'_>,
    options: &[Options<'_>],
    choice: &[usize],
    job: usize,
    attempt: &Attempt,
) -> Vec<(i64, Attempt)> {
    let class_of = |other: usize| {
        let chosen = &options[other].candidates[choice[other]];
        let held = options[other].job.current.as_ref().filter(|_| chosen.stays);
        chosen.shape.map(|shape| shape.class).or_else(|| cluster.class_of_placement(&held?.placement))
    };
    let least_loss = |other: usize| {
        let candidates = options[other].candidates.iter().enumerate();
        let left = candidates
            .filter(|(at, _)| *at != choice[other] && !attempt.forbidden.contains(&(other, *at)))
            .map(|(_, candidate)| candidate.value.0);
        left.max().map(|value| options[other].candidates[choice[other]].value.0 - value)
    };
    let neighbours = (0..options.len()).filter(|&other| other != job && class_of(other) == class_of(job));
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
