//! How far estimates are off, from measurements that a fit had not seen: the deviations of `headway_goodput::band`, each the least that four of
//! five held-out rows lie within. Few rows count with what is believed beforehand.

use std::collections::BTreeMap;

use headway_goodput::band::{Deviation, Measured, NINTH_DECILE};
use headway_goodput::catalog::Catalog;
use headway_goodput::caution::{Caution, cautions};
use headway_goodput::physics::Parameters;

use crate::fit::FitError;
use crate::measurement::Measurement;
use crate::prior::{DeviationBelief, Prior};
use crate::score::Predicted;
use crate::validate::{LeaveOut, predict_left_out};

/// Share of the rows that a band holds.
const HELD: f64 = 0.8;
/// Bisections of a deviation: to a ten thousandth.
const STEPS: u32 = 14;
/// Cautions that measured rows may have, in the order in which they are told apart.
const MEASURED: [Caution; 3] = [Caution::Context, Caution::FourBit, Caution::Experts];

/// What an estimate of a measured run rests on.
#[must_use]
pub fn cautions_of(row: &Measurement, parameters: &Parameters, stack: Option<&str>) -> Vec<Caution> {
    cautions(&row.architecture, &row.strategy, &row.gpu_type, Catalog::built_in(), parameters, stack)
}

/// The parameters with deviations from cross-validation: of each stack by models left out, of unknown software by all of a family of stacks left
/// out, and of the cautions that any row has. The others are as believed.
pub fn with_deviations(
    measurements: &[Measurement],
    parameters: &Parameters,
    prior: &Prior,
    folds: usize,
    patience: usize,
) -> Result<Parameters, FitError> {
    let left_out = |leave_out| predict_left_out(measurements, parameters, prior, leave_out, patience);
    let by_model = left_out(LeaveOut::Models { folds })?;
    let by_software = left_out(LeaveOut::Software)?;
    Ok(deviations(measurements, parameters, prior, &by_model, &by_software))
}

/// One held-out row: how far off it was, what of that is explained already, and its weight.
#[derive(Clone, Copy)]
struct Miss<'a> {
    source: &'a str,
    logarithm: f64,
    explained: f64,
    weight: f64,
}

/// Step time or memory.
#[derive(Clone, Copy)]
enum Side {
    Time,
    Memory,
}

impl Side {
    const BOTH: [Side; 2] = [Side::Time, Side::Memory];

    fn of(self, deviation: Deviation) -> f64 {
        match self {
            Side::Time => deviation.time,
            Side::Memory => deviation.memory,
        }
    }

    fn of_mut(self, deviation: &mut Deviation) -> &mut f64 {
        match self {
            Side::Time => &mut deviation.time,
            Side::Memory => &mut deviation.memory,
        }
    }

    fn measured(self, measured: &mut Measured) -> &mut Option<f64> {
        match self {
            Side::Time => &mut measured.time,
            Side::Memory => &mut measured.memory,
        }
    }

    fn logarithm(self, row: &Measurement, predicted: &Predicted) -> Option<f64> {
        match self {
            Side::Time => Some((predicted.step_time / row.step_time?).ln()),
            Side::Memory => Some((predicted.memory / row.memory?).ln()),
        }
    }
}

fn deviations(
    measurements: &[Measurement],
    parameters: &Parameters,
    prior: &Prior,
    by_model: &[Option<Predicted>],
    by_software: &[Option<Predicted>],
) -> Parameters {
    let believed = &prior.deviation;
    let mut found = parameters.clone();
    found.deviation.clone_from(&believed.cautions);
    let rows: Vec<Row> = measurements.iter().map(|row| Row::of(row, parameters)).collect();
    let (by_model, by_software) =
        (HeldOut { rows: &rows, predicted: by_model }, HeldOut { rows: &rows, predicted: by_software });
    for side in Side::BOTH {
        for (name, stack) in &mut found.stack {
            let misses = by_model.misses(side, |row| row.stack == Some(name) && row.cautions.is_empty(), |_| 0.0);
            let known = (!misses.is_empty()).then(|| believed.with(&misses, side.of(believed.stack)));
            *side.measured(&mut stack.deviation) = known;
        }
        let mut misses = by_software.misses(side, |row| row.cautions.is_empty(), |_| 0.0);
        // Every source counts alike.
        let mut of_source = BTreeMap::new();
        misses.iter().for_each(|miss| *of_source.entry(miss.source).or_insert(0.0) += 1.0);
        misses.iter_mut().for_each(|miss| miss.weight = 1.0 / of_source[miss.source]);
        let software = found.deviation.entry(Caution::Software).or_default();
        *side.of_mut(software) = believed.with(&misses, side.of(*software));
        for caution in MEASURED {
            let others = |row: &Row| -> Vec<Caution> {
                row.cautions.iter().copied().filter(|other| *other != caution).collect()
            };
            let explained = |row: &Row| side.of(found.deviation(row.stack, &others(row)));
            let misses = by_model.misses(side, |row| row.cautions.contains(&caution), explained);
            let more = believed.with(&misses, side.of(found.deviation_of(caution)));
            *side.of_mut(found.deviation.entry(caution).or_default()) = more;
        }
    }
    found
}

/// A row with what its estimate rests on.
struct Row<'a> {
    measured: &'a Measurement,
    stack: Option<&'a str>,
    cautions: Vec<Caution>,
}

impl<'a> Row<'a> {
    fn of(measured: &'a Measurement, parameters: &'a Parameters) -> Self {
        let stack = parameters.stack_of(&measured.source, &measured.framework);
        Self { measured, stack, cautions: cautions_of(measured, parameters, stack) }
    }
}

/// Rows with what fits that had not seen them predict.
struct HeldOut<'a> {
    rows: &'a [Row<'a>],
    predicted: &'a [Option<Predicted>],
}

impl<'a> HeldOut<'a> {
    /// How far off the clean rows that are wanted are.
    fn misses(
        &self,
        side: Side,
        wanted: impl Fn(&Row<'a>) -> bool,
        explained: impl Fn(&Row<'a>) -> f64,
    ) -> Vec<Miss<'a>> {
        let rows = self.rows.iter().zip(self.predicted).filter(|(row, _)| row.measured.clean && wanted(row));
        rows.filter_map(|(row, predicted)| {
            let logarithm = side.logarithm(row.measured, predicted.as_ref()?)?;
            Some(Miss { source: &row.measured.source, logarithm, explained: explained(row), weight: 1.0 })
        })
        .collect()
    }
}

impl DeviationBelief {
    /// What misses say of a deviation, with what was believed counting for `rows` more.
    fn with(&self, misses: &[Miss], believed: f64) -> f64 {
        let rows = misses.iter().map(|miss| miss.weight).sum::<f64>();
        let square = rows * least(misses).powi(2) + self.rows * believed.powi(2);
        (square / (rows + self.rows)).sqrt()
    }
}

/// The least deviation with which so many misses lie within their bands.
fn least(misses: &[Miss]) -> f64 {
    let all: f64 = misses.iter().map(|miss| miss.weight).sum();
    let holds = |deviation: f64| {
        let inside =
            misses.iter().filter(|miss| miss.logarithm.abs() <= NINTH_DECILE * libm::hypot(miss.explained, deviation));
        inside.map(|miss| miss.weight).sum::<f64>() >= HELD * all
    };
    let (mut low, mut high) = (0.0, 2.0);
    if holds(low) {
        return low;
    }
    for _ in 0..STEPS {
        let middle = (low + high) / 2.0;
        if holds(middle) { high = middle } else { low = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn off(logarithm: f64) -> Miss<'static> {
        Miss { source: "made-up", logarithm, explained: 0.0, weight: 1.0 }
    }

    #[test]
    fn the_least_deviation_holds_four_fifths() {
        let misses: Vec<Miss> = (1..=10).map(|miss| off(f64::from(miss) / 100.0)).collect();
        let deviation = least(&misses);
        assert!((deviation * NINTH_DECILE - 0.08).abs() < 3e-4, "{deviation}");
        let explained: Vec<Miss> = misses.iter().map(|miss| Miss { explained: 1.0, ..*miss }).collect();
        assert_eq!(least(&explained), 0.0);
    }

    #[test]
    fn few_rows_leave_what_was_believed() {
        let belief = Prior::built_in().deviation;
        let wild = [off(1.0)];
        assert_eq!(belief.with(&[], 0.1), 0.1);
        let deviation = belief.with(&wild, 0.1);
        assert!(deviation > 0.1 && deviation < 1.0 / NINTH_DECILE, "{deviation}");
    }
}
