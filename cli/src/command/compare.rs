//! The scoreboard: `headway estimate --compare FILE.csv…` and the cross-validation of `headway model fit`.

use std::path::PathBuf;

use headway_calibration::measurement::Measurement;
use headway_calibration::score::{Predicted, Score, predict, score, scoreboard};
use headway_calibration::table::Table;
use headway_goodput::band::Band;
use headway_goodput::catalog::Catalog;
use headway_goodput::physics::Parameters;
use headway_goodput::strategy::Strategy;
use serde::Serialize;

use super::estimate::describe;
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

const HEADERS: [&str; 20] = [
    "SOURCE",
    "ROWS",
    "MAPE",
    "MEDIAN",
    "P90",
    "BIAS",
    "BAND",
    "1-FACTOR",
    "CONST-MFU",
    "RHO",
    "GROUPS",
    "TOP1",
    "TOP3",
    "IN5%",
    "MEMORY",
    "M-BAND",
    "REFUSED",
    "OOM-RECALL",
    "OOM-PREC",
    "OOM-REFUSED",
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

/// One row with what was measured and what is predicted.
#[derive(Serialize)]
struct RowOfTwo<'a> {
    source: &'a str,
    row_id: &'a str,
    model: &'a str,
    gpu_type: &'a str,
    gpus: u32,
    strategy: Strategy,
    step_time_seconds: Option<f64>,
    predicted_seconds: f64,
    band: Band,
    memory: Option<f64>,
    predicted_memory: f64,
    memory_band: Band,
    refused: bool,
}

/// Every row with its prediction.
pub fn compare_rows(print: &Printer, table: &Table, parameters: &Parameters) -> Result<(), Failure> {
    let predicted = predict(&table.measurements, parameters);
    let rows = table.measurements.iter().zip(&predicted).map(|(row, predicted)| RowOfTwo {
        source: &row.source,
        row_id: &row.row_id,
        model: &row.model,
        gpu_type: &row.gpu_type,
        gpus: row.strategy.gpus(),
        strategy: row.strategy,
        step_time_seconds: row.step_time,
        predicted_seconds: predicted.step_time,
        band: Band::around(predicted.step_time, predicted.deviation.time),
        memory: row.memory,
        predicted_memory: predicted.memory,
        memory_band: Band::around(predicted.memory, predicted.deviation.memory),
        refused: predicted.refused,
    });
    let rows: Vec<RowOfTwo> = rows.collect();
    let headers = [
        "SOURCE",
        "ROW",
        "MODEL",
        "GPUS",
        "CONFIGURATION",
        "MEASURED",
        "PREDICTED",
        "P10",
        "P90",
        "OFF",
        "MEMORY",
        "PREDICTED",
        "REFUSED",
    ];
    let gib = |bytes: f64| format!("{:.1} GiB", bytes / (1u64 << 30) as f64);
    let line = |row: &RowOfTwo| {
        vec![
            row.source.to_owned(),
            row.row_id.to_owned(),
            row.model.to_owned(),
            format!("{}x{}", row.gpus, row.gpu_type),
            describe(&row.strategy),
            optional(row.step_time_seconds, |seconds| format!("{seconds:.3}")),
            format!("{:.3}", row.predicted_seconds),
            format!("{:.3}", row.band.p10),
            format!("{:.3}", row.band.p90),
            optional(row.step_time_seconds, |seconds| {
                format!("{:+.1} %", 100.0 * (row.predicted_seconds / seconds - 1.0))
            }),
            optional(row.memory, gib),
            gib(row.predicted_memory),
            if row.refused { "yes" } else { "" }.to_owned(),
        ]
    };
    print.list(&rows, &headers, line, |row| row.row_id.to_owned())
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
        "BAND and M-BAND: rows within their bands; REFUSED: of the runs that happened; OOM: of the failed ones, told and refused;"
    )?;
    say!(
        "CONST-MFU is what one utilisation fitted to the same rows gets; GROUPS of the same source, model, GPUs, precision, batch and sequence."
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
        if score.in_band.is_finite() { format!("{:.0}", score.in_band) } else { "-".into() },
        one(score.step_time.after_one_factor),
        one(score.constant_mfu),
        if score.spearman.is_finite() { format!("{:.2}", score.spearman) } else { "-".into() },
        score.choice.groups.to_string(),
        chosen(score.choice.top1_regret),
        chosen(score.choice.top3_regret),
        chosen(score.choice.within_5),
        optional(score.memory.map(|memory| memory.mape), one),
        optional(score.memory_in_band, |share| format!("{share:.0}")),
        format!("{:.1}", 100.0 * score.wrongly_refused),
        optional(oom.map(|oom| oom.recall), |value| format!("{:.1}", 100.0 * value)),
        optional(oom.map(|oom| oom.precision), |value| format!("{:.1}", 100.0 * value)),
        optional(oom.map(|oom| oom.refused), |value| format!("{:.1}", 100.0 * value)),
    ]
}
