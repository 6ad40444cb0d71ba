//! What policies that serve one job after another share: they choose, the choice is placed, and whoever then finds no
//! room because what is free lies scattered is served again with something else. They do not optimise: their objective
//! is counted as ours would count it, and there is no bound.

use std::collections::BTreeSet;

use super::{Line, Running};
use crate::candidate::{Candidate, Options};
use crate::decide::Decision;
use crate::guarantee::Guarantees;
use crate::place;
use crate::round::Round;
use crate::value::Quanta;

/// Choices that may prove unplaceable before the last one is taken as it can be placed.
const ATTEMPTS: usize = 8;

/// Chooses with `choose`, to which it names the (job, candidate) pairs that found no room.
pub(super) fn decide(
    round: &Round<'_>,
    options: &[Options<'_>],
    owed: &Guarantees,
    line: &Line,
    choose: impl Fn(&BTreeSet<(usize, usize)>) -> Vec<usize>,
) -> Decision {
    let mut forbidden = BTreeSet::new();
    let mut fragmented = BTreeSet::new();
    let mut attempts = 0;
    let (choice, placements) = loop {
        attempts += 1;
        let wanted = choose(&forbidden);
        let (offered, numbers) = offered(options, &wanted, line.running);
        let at: Vec<usize> = numbers.iter().map(|kept| kept.len() - 1).collect();
        let placed = place::place(round, &offered, &owed.capacity, &at, &BTreeSet::new());
        match placed.no_room {
            Some(job) if attempts < ATTEMPTS => {
                fragmented.insert(job);
                forbidden.insert((job, wanted[job]));
            }
            _ => {
                let choice: Vec<usize> = placed.choice.iter().zip(&numbers).map(|(&at, kept)| kept[at]).collect();
                break (choice, placed.placements);
            }
        }
    };
    let value = |choice: &mut dyn Iterator<Item = i64>| Quanta(choice.sum());
    let of = |choice: &[usize]| value(&mut options.iter().zip(choice).map(|(job, &at)| job.candidates[at].value.0));
    let incumbent: Vec<usize> = options.iter().map(|job| job.incumbent).collect();
    Decision {
        objective: of(&choice),
        objective_before: of(&incumbent),
        bound: None,
        prices: vec![0.0; owed.capacity.len()],
        choice,
        placements,
        fragmented,
    }
}

/// What placing may choose from: for each job what was chosen, last, and before it what it may have instead; and the
/// numbers these candidates have among all.
fn offered<'a>(options: &[Options<'a>], wanted: &[usize], running: Running) -> (Vec<Options<'a>>, Vec<Vec<usize>>) {
    let numbers: Vec<Vec<usize>> = options
        .iter()
        .zip(wanted)
        .map(|(of, &at)| {
            let chosen = &of.candidates[at];
            let instead = |one: &Candidate| match running {
                Running::Stays => one.gpus.0 == 0 && !chosen.stays,
                Running::MayMove => one.gpus.0 == 0 || (chosen.stays && one.gpus == chosen.gpus),
            };
            let others = (0..of.candidates.len()).filter(|&other| other != at && instead(&of.candidates[other]));
            others.chain([at]).collect()
        })
        .collect();
    let offered = options
        .iter()
        .zip(&numbers)
        .map(|(of, kept)| Options {
            job: of.job,
            model: of.model.clone(),
            candidates: kept.iter().map(|&at| of.candidates[at].clone()).collect(),
            incumbent: 0,
            batch_change: of.batch_change,
            untried: of.untried,
            obstacle: None,
            present: of.present,
            present_value: of.present_value,
            forced_off: of.forced_off,
            measure: of.measure,
            urgency: of.urgency,
            scale: of.scale,
            move_penalty: of.move_penalty,
            spared: of.spared,
            sizes: Vec::new(),
            barred: Vec::new(),
            late: of.late,
        })
        .collect();
    (offered, numbers)
}

/// Numbers of a job's candidates that take GPUs, best first by `key`; of equals the one it has, then the first.
pub(super) fn preferred<K: Ord>(options: &Options<'_>, key: impl Fn(&Candidate) -> K) -> Vec<usize> {
    let candidates = &options.candidates;
    let mut order: Vec<usize> = (0..candidates.len()).filter(|&at| candidates[at].gpus.0 > 0).collect();
    order.sort_by_key(|&at| (key(&candidates[at]), !candidates[at].stays, at));
    order
}

/// A number as it sorts; one that is none comes last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sorted(pub f64);

impl Eq for Sorted {}

impl PartialOrd for Sorted {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Sorted {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}
