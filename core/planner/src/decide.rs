//! Solves and places until both agree. Where the program's choice has no room because free GPUs lie scattered, it tries
//! the two ways out (another shape for that job, or moving a neighbour) and keeps the best that can be placed. The
//! present assignment is always one, so there is always a decision.

use std::collections::{BTreeSet, VecDeque};

use headway_types::Placement;

use crate::candidate::{self, Options};
use crate::cluster::Cluster;
use crate::input::Policy;
use crate::place::{self, NoRoom};
use crate::solver::{self, Column, Problem};
use crate::value::Quanta;

/// Solves per round; a choice without room costs one each.
const ATTEMPTS: u32 = 24;
/// Neighbours tried per choice without room, cheapest first.
const NEIGHBOURS: usize = 2;

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
    let mut waiting = VecDeque::from([Attempt::default()]);
    let mut seen = BTreeSet::new();
    let mut solves = 0;
    while let Some(attempt) = waiting.pop_front() {
        if solves == ATTEMPTS {
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
        match place::place(cluster, options, &choice, &attempt.evicted) {
            Ok(placements) => {
                best = Decision { choice, placements, objective: solution.objective, ..best };
            }
            Err(NoRoom { job }) => {
                best.fragmented.insert(job);
                waiting.extend(ways_out(cluster, options, &choice, job, &attempt));
            }
        }
    }
    best
}

/// Everybody stays as it is.
fn keep(cluster: &Cluster<'_>, options: &[Options<'_>], incumbent: &[usize]) -> Decision {
    let placements =
        place::place(cluster, options, incumbent, &BTreeSet::new()).expect("a present placement needs no other room");
    let objective = Quanta(options.iter().zip(incumbent).map(|(job, &at)| job.candidates[at].value.0).sum());
    Decision {
        choice: incumbent.to_vec(),
        placements,
        objective,
        objective_before: objective,
        bound: objective,
        prices: vec![0.0; cluster.classes.len() * candidate::RESOURCES_PER_CLASS],
        fragmented: BTreeSet::new(),
    }
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
        .map(|(kept, at)| kept.iter().position(|candidate| candidate == at).or(if kept.is_empty() { None } else { Some(0) }))
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
    let capacity = candidate::capacities(cluster);
    Some((Problem { jobs, capacity, incumbent: start?, node_budget: policy.node_budget }, kept))
}

/// Without the choice that has no room; or with it and without one of the neighbours that could move at least loss.
fn ways_out(
    cluster: &Cluster<'_>,
    options: &[Options<'_>],
    choice: &[usize],
    job: usize,
    attempt: &Attempt,
) -> Vec<Attempt> {
    let mut without = attempt.clone();
    without.forbidden.insert((job, choice[job]));
    let class = options[job].candidates[choice[job]].shape.map(|shape| shape.class);
    let mut neighbours: Vec<(i64, usize)> = (0..options.len())
        .filter(|&other| other != job && options[other].candidates[choice[other]].stays)
        .filter(|&other| {
            let current = options[other].job.current.as_ref();
            current.and_then(|current| cluster.class_of_placement(&current.placement)) == class
        })
        .filter_map(|other| {
            let stay = &options[other].candidates[choice[other]];
            let alternatives = options[other].candidates.iter().filter(|candidate| candidate.shape.is_some());
            let least = alternatives.map(|candidate| stay.value.0 - candidate.value.0).min()?;
            Some((least, other))
        })
        .collect();
    neighbours.sort_unstable();
    let evictions = neighbours.into_iter().take(NEIGHBOURS).map(|(_, other)| {
        let mut moved = attempt.clone();
        moved.forbidden.insert((other, choice[other]));
        moved.evicted.insert(other);
        moved
    });
    std::iter::once(without).chain(evictions).collect()
}
