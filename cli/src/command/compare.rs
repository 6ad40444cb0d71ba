//! The scoreboard: `headway estimate --compare FILE.csv…` and the cross-validation of `headway model fit`.

use std::path::PathBuf;

use headway_calibration::measurement::Measurement;
use headway_calibration::score::{Predicted, Score, predict, score, scoreboard};
use headway_calibration::table::Table;
use headway_goodput::catalog::Catalog;
use headway_goodput::physics::Parameters;
use serde::Serialize;

use crate::failure::{Failure, Kind};
use crate::output::{Printer, optional};

/// Rows that were not used, with the reason.
#[derive(Serialize)]
struct Skipped {
    source: String,
    rows: usize,
    reason: String,
}

/// Rows that were used although a column is missing.
#[derive(Serialize)]
struct Assumed {
    source: String,
    rows: usize,
    column: &'static str,
}

#[derive(Serialize)]
struct Scoreboard {
    used: usize,
    scores: Vec<Score>,
    skipped: Vec<Skipped>,
    assumed: Vec<Assumed>,
    /// Rows whose software is not known: predicted with average constants.
    unnamed_software: usize,
}

const HEADERS: [&str; 16] = [
    "SOURCE",
    "ROWS",
    "MAPE",
    "MEDIAN",
    "P90",
    "BIAS",
    "1-FACTOR",
    "CONST-MFU",
    "RHO",
    "GROUPS",
    "TOP1",
    "TOP3",
    "IN5%",
    "MEMORY",
    "OOM-RECALL",
    "OOM-PREC",
];

/// Reads measurement files.
pub fn read(files: &[PathBuf], catalog: &Catalog) -> Result<Table, Failure> {
    let mut table = Table::default();
    for file in files {
        table.read(file, catalog).map_err(|error| Failure::from(anyhow::Error::from(error)))?;
    }
    if table.measurements.is_empty() {
        return Err(Failure::new(Kind::Usage, "no row of these files can be used").hint(reasons(&table)));
    }
    Ok(table)
}

fn reasons(table: &Table) -> String {
    let lines: Vec<String> =
        table.skipped.iter().map(|((source, skip), rows)| format!("{source}: {rows} rows: {skip}")).collect();
    lines.join("; ")
}

/// Scores all rows with a parameter set.
pub fn compare(print: &Printer, table: &Table, parameters: &Parameters) -> Result<(), Failure> {
    let predicted = predict(&table.measurements, parameters);
    show(print, table, &table.measurements, &predicted, parameters)
}

/// Scores the rows that a cross-validation predicted without having seen them.
pub fn compare_left_out(
    print: &Printer,
    table: &Table,
    predicted: &[Option<Predicted>],
    parameters: &Parameters,
) -> Result<(), Failure> {
    let (measurements, predicted): (Vec<Measurement>, Vec<Predicted>) =
        table.measurements.iter().zip(predicted).filter_map(|(row, guess)| Some((row.clone(), (*guess)?))).unzip();
    show(print, table, &measurements, &predicted, parameters)
}

fn show(
    print: &Printer,
    table: &Table,
    measurements: &[Measurement],
    predicted: &[Predicted],
    parameters: &Parameters,
) -> Result<(), Failure> {
    let mut scores = scoreboard(measurements, predicted);
    let all: Vec<usize> = (0..measurements.len()).collect();
    scores.push(score("all rows", measurements, predicted, &all));
    let board = Scoreboard {
        used: measurements.len(),
        scores,
        skipped: table
            .skipped
            .iter()
            .map(|((source, skip), rows)| Skipped { source: source.clone(), rows: *rows, reason: skip.to_string() })
            .collect(),
        assumed: table.assumed().into_iter().map(|((source, column), rows)| Assumed { source, rows, column }).collect(),
        unnamed_software: measurements
            .iter()
            .filter(|row| parameters.stack_of(&row.source, &row.framework).is_none())
            .count(),
    };
    if print.structured() {
        return print.value(&board);
    }
    say!("{}", print.table(&HEADERS, board.scores.iter().map(line)))?;
    say!("")?;
    say!(
        "{} rows used. MAPE, median, p90, bias, memory (MAPE) and regret in per cent; 1-FACTOR after the best single factor;",
        board.used
    )?;
    say!(
        "CONST-MFU is what one utilisation fitted to the same rows gets; GROUPS of the same model, GPUs, batch and sequence."
    )?;
    let beaten: Vec<&str> = board
        .scores
        .iter()
        .filter(|score| score.is_worse_than_constant_mfu())
        .map(|score| score.name.as_str())
        .collect();
    if !beaten.is_empty() {
        say!("a constant utilisation is nearer on: {}", beaten.join("; "))?;
    }
    for skipped in &board.skipped {
        say!("skipped {:5} of {}: {}", skipped.rows, skipped.source, skipped.reason)?;
    }
    for assumed in &board.assumed {
        say!(
            "assumed {:5} of {}: {}: missing or unknown, the usual taken",
            assumed.rows,
            assumed.source,
            assumed.column
        )?;
    }
    if board.unnamed_software > 0 {
        say!("{} rows ran software without fitted constants", board.unnamed_software)?;
    }
    Ok(())
}

fn line(score: &Score) -> Vec<String> {
    let one = |value: f64| format!("{value:.1}");
    let chosen = |value: f64| if score.choice.groups == 0 { "-".to_owned() } else { one(value) };
    let oom = score.out_of_memory;
    vec![
        score.name.clone(),
        score.step_time.rows.to_string(),
        one(score.step_time.mape),
        one(score.step_time.median),
        one(score.step_time.p90),
        format!("{:+.1}", score.step_time.bias),
        one(score.step_time.after_one_factor),
        one(score.constant_mfu),
        if score.spearman.is_finite() { format!("{:.2}", score.spearman) } else { "-".into() },
        score.choice.groups.to_string(),
        chosen(score.choice.top1_regret),
        chosen(score.choice.top3_regret),
        chosen(score.choice.within_5),
        optional(score.memory.map(|memory| memory.mape), one),
        optional(oom.map(|oom| oom.recall), |value| format!("{value:.3}")),
        optional(oom.map(|oom| oom.precision), |value| format!("{value:.3}")),
    ]
}
