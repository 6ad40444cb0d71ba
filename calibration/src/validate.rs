//! Fits scored on what they have not seen: whole models or whole sources left out. What the constants are worth elsewhere shows here,
//! not in the score of the rows they were fitted to.

use std::collections::{BTreeMap, BTreeSet};

use headway_goodput::band::Measured;
use headway_goodput::physics::Parameters;

use crate::fit::{FitError, fit};
use crate::measurement::Measurement;
use crate::prior::Prior;
use crate::score::{Predicted, predict, predict_unnamed};

/// What is left out together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveOut {
    /// Models, in as many folds as given; each fold leaves some of every stack's models out.
    Models { folds: usize },
    /// One source at a time; its stack's factors go back to the prior's.
    Sources,
    /// One family of stacks at a time (a root and all that descends from it), predicted as software nobody has named.
    Software,
}

/// Predictions of each row by a fit without it. Rows of a stack with one model only cannot be left out by model and keep the fit of
/// the first fold, which saw them: they come back as `None`.
pub fn predict_left_out(
    measurements: &[Measurement],
    start: &Parameters,
    prior: &Prior,
    leave_out: LeaveOut,
    patience: usize,
) -> Result<Vec<Option<Predicted>>, FitError> {
    let fold_of = folds(measurements, start, leave_out);
    let mut predicted = vec![None; measurements.len()];
    let all: BTreeSet<usize> = fold_of.iter().flatten().copied().collect();
    for fold in all {
        let seen: Vec<Measurement> = rows(measurements, &fold_of, |this| this != Some(fold));
        let fitted = fit(&seen, &neutral(start, &seen), prior, patience)?;
        let unseen: Vec<usize> = (0..measurements.len()).filter(|row| fold_of[*row] == Some(fold)).collect();
        for row in unseen {
            let one = &measurements[row..=row];
            let guesses = if leave_out == LeaveOut::Software {
                predict_unnamed(one, &fitted.parameters)
            } else {
                predict(one, &fitted.parameters)
            };
            predicted[row] = guesses.into_iter().next();
        }
    }
    Ok(predicted)
}

fn rows(
    measurements: &[Measurement],
    fold_of: &[Option<usize>],
    keep: impl Fn(Option<usize>) -> bool,
) -> Vec<Measurement> {
    measurements.iter().zip(fold_of).filter(|(_, fold)| keep(**fold)).map(|(row, _)| row.clone()).collect()
}

/// Stacks without any row left start from 1, as if nobody had ever measured them.
fn neutral(start: &Parameters, seen: &[Measurement]) -> Parameters {
    let mut parameters = start.clone();
    let known: BTreeSet<String> =
        seen.iter().filter_map(|row| start.stack_of(&row.source, &row.framework)).map(str::to_owned).collect();
    for (name, stack) in &mut parameters.stack {
        if !known.contains(name) {
            stack.factors.values_mut().for_each(|factor| *factor = 1.0);
            stack.deviation = Measured::default();
        }
    }
    parameters
}

fn folds(measurements: &[Measurement], start: &Parameters, leave_out: LeaveOut) -> Vec<Option<usize>> {
    match leave_out {
        LeaveOut::Sources => {
            let sources: BTreeSet<&str> = measurements.iter().map(|row| row.source.as_str()).collect();
            let order: BTreeMap<&str, usize> = sources.into_iter().zip(0..).collect();
            measurements.iter().map(|row| order.get(row.source.as_str()).copied()).collect()
        }
        LeaveOut::Software => {
            let root = |row: &Measurement| {
                let stack = start.stack_of(&row.source, &row.framework)?;
                start.lineage(stack).last().map(|(name, _)| name.to_owned())
            };
            let roots: Vec<Option<String>> = measurements.iter().map(root).collect();
            let known: BTreeSet<&String> = roots.iter().flatten().collect();
            let order: BTreeMap<&String, usize> = known.into_iter().zip(0..).collect();
            roots.iter().map(|root| order.get(root.as_ref()?).copied()).collect()
        }
        LeaveOut::Models { folds } => {
            let stack = |row: &Measurement| start.stack_of(&row.source, &row.framework).unwrap_or_default().to_owned();
            let mut models: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
            for row in measurements {
                models.entry(stack(row)).or_default().insert(&row.model);
            }
            measurements
                .iter()
                .map(|row| {
                    let known = &models[&stack(row)];
                    let place = known.iter().position(|model| *model == row.model)?;
                    (known.len() > 1).then_some(place % folds.max(1))
                })
                .collect()
        }
    }
}
