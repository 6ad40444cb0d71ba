//! How far the model is from measurements: error, ranking and memory, per source. It fits nothing.

use std::collections::BTreeMap;

use headway_goodput::band::{Band, Deviation};
use headway_goodput::catalog::Hardware;
use headway_goodput::estimate::{leaves_a_stage_empty, step_time_of};
use headway_goodput::memory::{USABLE, memory_of};
use headway_goodput::physics::Parameters;
use headway_goodput::strategy::Precision;
use headway_types::quantile::quantile;
use serde::Serialize;

use crate::deviation::cautions_of;
use crate::measurement::{Ending, Measurement};

/// What the model says of one measured run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Predicted {
    /// Seconds of one step.
    pub step_time: f64,
    /// Bytes of the largest rank.
    pub memory: f64,
    /// How far off both may be.
    pub deviation: Deviation,
    /// Whether the run is thought to fail: it needs more memory than can be planned with, or a pipeline stage has nothing to do.
    pub doubted: bool,
    /// Whether it would be refused: it does not fit even at the lower end of its band, or a stage has nothing to do.
    pub refused: bool,
}

/// Predictions for all measurements, each with the constants of its own stack.
#[must_use]
pub fn predict(measurements: &[Measurement], parameters: &Parameters) -> Vec<Predicted> {
    let stack = |measurement: &Measurement| parameters.stack_of(&measurement.source, &measurement.framework);
    measurements.iter().map(|measurement| predict_as(measurement, parameters, stack(measurement))).collect()
}

/// The same as if the software of each were not known.
#[must_use]
pub(crate) fn predict_unnamed(measurements: &[Measurement], parameters: &Parameters) -> Vec<Predicted> {
    measurements.iter().map(|measurement| predict_as(measurement, parameters, None)).collect()
}

/// The hardware with a parameter set's factors for its family.
#[must_use]
pub(crate) fn hardware_of(measurement: &Measurement, parameters: &Parameters) -> Hardware {
    let family = headway_goodput::catalog::Catalog::built_in().family(&measurement.gpu_type);
    let factors = family.and_then(|family| parameters.family.get(family)).copied();
    Hardware { factors: factors.unwrap_or(measurement.hardware.factors), ..measurement.hardware }
}

fn predict_as(measurement: &Measurement, parameters: &Parameters, stack: Option<&str>) -> Predicted {
    let profile = parameters.profile(stack);
    let hardware = hardware_of(measurement, parameters);
    let cluster = measurement.cluster(&hardware, &profile);
    let memory = memory_of(&measurement.architecture, &measurement.strategy, &cluster).total();
    let deviation = parameters.deviation(stack, &cautions_of(measurement, parameters, stack));
    let room = USABLE * hardware.memory;
    let cannot_start = leaves_a_stage_empty(&measurement.architecture, &measurement.strategy, &profile);
    Predicted {
        step_time: step_time_of(&measurement.architecture, &measurement.strategy, &cluster).total().0,
        memory,
        deviation,
        doubted: memory > room || cannot_start,
        refused: Band::around(memory, deviation.memory).p10 > room || cannot_start,
    }
}

/// Relative errors of one kind, in per cent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Errors {
    pub rows: usize,
    /// Mean absolute error.
    pub mape: f64,
    pub median: f64,
    pub p90: f64,
    /// Mean signed error: above 0 where the model is too slow.
    pub bias: f64,
    /// Mean absolute error after the best single factor.
    pub after_one_factor: f64,
}

/// How well the model chooses among a source's runs of the same model, GPUs, precision, batch and sequence length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Choice {
    pub groups: usize,
    /// Mean loss of the predicted best against the best, per cent.
    pub top1_regret: f64,
    /// The same for the best of the three predicted best.
    pub top3_regret: f64,
    /// Share of groups whose predicted best is within 5 % of the best, per cent.
    pub within_5: f64,
}

/// Whether the model knows what does not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct OutOfMemory {
    pub rows: usize,
    /// Share of the failed runs that it doubts.
    pub recall: f64,
    /// Share of the doubted runs that failed.
    pub precision: f64,
    /// Share of the failed runs that it refuses.
    pub refused: f64,
}

/// One line of the scoreboard.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Source, GPU type and precision, or a wider group.
    pub name: String,
    pub step_time: Errors,
    /// What a constant utilisation, fitted to these very rows, would get.
    pub constant_mfu: f64,
    pub spearman: f64,
    pub choice: Choice,
    pub memory: Option<Errors>,
    /// Shares of the step times, and of the memory peaks, between the first and the ninth decile of their estimates, per cent.
    pub in_band: f64,
    pub memory_in_band: Option<f64>,
    /// Share of the successful runs that it would have refused.
    pub wrongly_refused: f64,
    pub out_of_memory: Option<OutOfMemory>,
}

/// Scores rows by source, GPU type and precision, with a line for the clean ones where others are not, and a line for each source that has
/// several of these groups.
#[must_use]
pub fn scoreboard(measurements: &[Measurement], predicted: &[Predicted]) -> Vec<Score> {
    let mut sources: BTreeMap<&str, BTreeMap<String, Vec<usize>>> = BTreeMap::new();
    for (index, measurement) in measurements.iter().enumerate() {
        let precision = format!("{:?}", measurement.strategy.precision).to_lowercase();
        let name = format!("{} {} {precision}", measurement.source, measurement.gpu_type);
        sources.entry(&measurement.source).or_default().entry(name).or_default().push(index);
    }
    let mut scores = Vec::new();
    for (source, groups) in sources {
        for (name, rows) in &groups {
            let clean: Vec<usize> = rows.iter().copied().filter(|row| measurements[*row].clean).collect();
            let unclean = |row: &&usize| !measurements[**row].clean && measurements[**row].ending == Ending::Ran;
            if !clean.is_empty() && rows.iter().any(|row| unclean(&row)) {
                scores.push(score(&format!("{name}, clean"), measurements, predicted, &clean));
            }
            scores.push(score(name, measurements, predicted, rows));
        }
        if groups.len() > 1 {
            let rows: Vec<usize> = groups.into_values().flatten().collect();
            scores.push(score(source, measurements, predicted, &rows));
        }
    }
    scores
}

impl Score {
    /// Whether a constant utilisation, which this model must beat to be worth anything, is nearer. It has the advantage of having been
    /// fitted to these very rows, so that one or two rows say nothing.
    #[must_use]
    pub fn is_worse_than_constant_mfu(&self) -> bool {
        self.step_time.rows >= 3 && self.step_time.mape > self.constant_mfu
    }
}

/// Scores a set of rows under a name.
#[must_use]
pub fn score(name: &str, measurements: &[Measurement], predicted: &[Predicted], rows: &[usize]) -> Score {
    let timed: Vec<(usize, f64)> = rows.iter().filter_map(|row| Some((*row, measurements[*row].step_time?))).collect();
    let truths: Vec<f64> = timed.iter().map(|(_, truth)| *truth).collect();
    let guesses: Vec<f64> = timed.iter().map(|(row, _)| predicted[*row].step_time).collect();
    let flops: Vec<f64> = timed.iter().map(|(row, _)| measurements[*row].flops_per_gpu()).collect();
    let held: Vec<(f64, f64)> =
        rows.iter().filter_map(|row| Some((measurements[*row].memory?, predicted[*row].memory))).collect();
    let (memory, memory_guess): (Vec<f64>, Vec<f64>) = held.into_iter().unzip();
    let within = |guess: f64, deviation: f64, truth: Option<f64>| Some(Band::around(guess, deviation).holds(truth?));
    let in_time = rows.iter().filter_map(|row| {
        within(predicted[*row].step_time, predicted[*row].deviation.time, measurements[*row].step_time)
    });
    let in_memory = rows
        .iter()
        .filter_map(|row| within(predicted[*row].memory, predicted[*row].deviation.memory, measurements[*row].memory));
    Score {
        name: name.to_owned(),
        step_time: errors(&truths, &guesses),
        constant_mfu: errors(&truths, &flops).after_one_factor,
        spearman: spearman(&truths, &guesses),
        choice: choice(measurements, predicted, &timed),
        memory: (!memory.is_empty()).then(|| errors(&memory, &memory_guess)),
        in_band: share_of(in_time).unwrap_or(f64::NAN),
        memory_in_band: share_of(in_memory),
        wrongly_refused: wrongly_refused(measurements, predicted, rows),
        out_of_memory: out_of_memory(measurements, predicted, rows),
    }
}

/// How many hold, per cent.
fn share_of(held: impl Iterator<Item = bool>) -> Option<f64> {
    let (all, held) = held.fold((0usize, 0usize), |(all, inside), holds| (all + 1, inside + usize::from(holds)));
    (all > 0).then(|| 100.0 * held as f64 / all as f64)
}

fn errors(truths: &[f64], guesses: &[f64]) -> Errors {
    if truths.is_empty() {
        return Errors::default();
    }
    let ratios: Vec<f64> = truths.iter().zip(guesses).map(|(truth, guess)| guess / truth).collect();
    let absolute = |factor: f64| -> Vec<f64> {
        let mut absolute: Vec<f64> = ratios.iter().map(|ratio| 100.0 * (ratio * factor - 1.0).abs()).collect();
        absolute.sort_by(f64::total_cmp);
        absolute
    };
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let at = |sorted: &[f64], share: f64| quantile(sorted, share).unwrap_or(f64::NAN);
    let plain = absolute(1.0);
    let mut sorted = ratios.clone();
    sorted.sort_by(f64::total_cmp);
    Errors {
        rows: truths.len(),
        mape: mean(&plain),
        median: at(&plain, 0.5),
        p90: at(&plain, 0.9),
        bias: 100.0 * (mean(&ratios) - 1.0),
        after_one_factor: mean(&absolute(1.0 / at(&sorted, 0.5))),
    }
}

/// Rank correlation; ties get their mean rank.
fn spearman(truths: &[f64], guesses: &[f64]) -> f64 {
    if truths.len() < 2 {
        return f64::NAN;
    }
    let (left, right) = (ranks(truths), ranks(guesses));
    let mean = (truths.len() - 1) as f64 / 2.0;
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>();
    product(&left, &right) / (product(&left, &left) * product(&right, &right)).sqrt()
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|left, right| values[*left].total_cmp(&values[*right]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    while start < order.len() {
        let same = order[start..].iter().take_while(|index| values[**index] == values[order[start]]).count();
        for index in &order[start..start + same] {
            ranks[*index] = start as f64 + (same - 1) as f64 / 2.0;
        }
        start += same;
    }
    ranks
}

/// Runs that a user would choose among: source, model, GPU type, precision, GPUs, batch and sequence length.
type Group<'a> = (&'a str, &'a str, &'a str, Precision, u32, u64, u32);

fn choice(measurements: &[Measurement], predicted: &[Predicted], timed: &[(usize, f64)]) -> Choice {
    let mut groups: BTreeMap<Group, Vec<(f64, f64)>> = BTreeMap::new();
    for (row, truth) in timed {
        let measurement = &measurements[*row];
        let key = (
            measurement.source.as_str(),
            measurement.model.as_str(),
            measurement.gpu_type.as_str(),
            measurement.strategy.precision,
            measurement.strategy.gpus(),
            measurement.strategy.global_batch(),
            measurement.architecture.seq_len,
        );
        groups.entry(key).or_default().push((predicted[*row].step_time, *truth));
    }
    let mut regrets = Vec::new();
    for runs in groups.values_mut().filter(|runs| runs.len() >= 3) {
        runs.sort_by(|left, right| left.0.total_cmp(&right.0));
        let best = runs.iter().fold(f64::INFINITY, |best, run| best.min(run.1));
        let top3 = runs.iter().take(3).fold(f64::INFINITY, |best, run| best.min(run.1));
        regrets.push((100.0 * (runs[0].1 / best - 1.0), 100.0 * (top3 / best - 1.0)));
    }
    if regrets.is_empty() {
        return Choice::default();
    }
    let groups = regrets.len() as f64;
    Choice {
        groups: regrets.len(),
        top1_regret: regrets.iter().map(|regret| regret.0).sum::<f64>() / groups,
        top3_regret: regrets.iter().map(|regret| regret.1).sum::<f64>() / groups,
        within_5: 100.0 * regrets.iter().filter(|regret| regret.0 <= 5.0).count() as f64 / groups,
    }
}

fn out_of_memory(measurements: &[Measurement], predicted: &[Predicted], rows: &[usize]) -> Option<OutOfMemory> {
    let failed = |row: &&usize| measurements[**row].ending == Ending::OutOfMemory;
    let of = |rows: &[&usize], told: fn(&Predicted) -> bool| rows.iter().filter(|row| told(&predicted[***row])).count();
    let (failed, ran): (Vec<&usize>, Vec<&usize>) = rows.iter().partition(failed);
    let (caught, wrong) = (of(&failed, |one| one.doubted), of(&ran, |one| one.doubted));
    let share = |part: usize, whole: usize| if whole == 0 { 1.0 } else { part as f64 / whole as f64 };
    (!failed.is_empty()).then(|| OutOfMemory {
        rows: failed.len(),
        recall: share(caught, failed.len()),
        precision: share(caught, caught + wrong),
        refused: share(of(&failed, |one| one.refused), failed.len()),
    })
}

/// Share of the successful runs that would have been refused.
fn wrongly_refused(measurements: &[Measurement], predicted: &[Predicted], rows: &[usize]) -> f64 {
    let ran: Vec<usize> = rows.iter().copied().filter(|row| measurements[*row].ending == Ending::Ran).collect();
    let refused = ran.iter().filter(|row| predicted[**row].refused).count();
    if ran.is_empty() { 0.0 } else { refused as f64 / ran.len() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_those_of_a_hand_count() {
        let errors = errors(&[1.0, 2.0, 4.0], &[1.1, 2.0, 3.0]);
        assert!((errors.mape - 35.0 / 3.0).abs() < 1e-9);
        assert!((errors.median - 10.0).abs() < 1e-9);
        assert!((errors.bias + 5.0).abs() < 1e-9);
    }

    #[test]
    fn a_constant_utilisation_is_nearer_only_where_there_are_rows_to_say_so() {
        let of = |rows, mape, constant_mfu| {
            let step_time = Errors { rows, mape, ..Errors::default() };
            Score { step_time, constant_mfu, ..score("none", &[], &[], &[]) }.is_worse_than_constant_mfu()
        };
        assert!(of(9, 5.0, 4.0) && !of(9, 4.0, 5.0) && !of(2, 5.0, 0.0));
    }

    #[test]
    fn ranking_is_perfect_when_the_order_is_right_and_ties_share() {
        assert!((spearman(&[1.0, 5.0, 9.0], &[2.0, 3.0, 70.0]) - 1.0).abs() < 1e-12);
        assert!((spearman(&[1.0, 5.0, 9.0], &[3.0, 2.0, 1.0]) + 1.0).abs() < 1e-12);
        assert_eq!(ranks(&[3.0, 1.0, 3.0]), [1.5, 0.0, 1.5]);
    }
}
