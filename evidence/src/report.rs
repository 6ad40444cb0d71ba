//! From runs to the report: tables by question, plots, and the aims it is held against.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::document::Document;
use crate::measure::{Column, Measure, measures};
use crate::plot::{Bars, Curves, PlotError};
use crate::run::Outcome;
use crate::single::Comparison;
use crate::study::{Study, studies};
use crate::table::{contenders, over_seeds, values};

/// A line of `runs.jsonl`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    Run { study: String, world: String, outcome: Box<Outcome> },
    Single(Box<Comparison>),
}

/// Columns of the tables, by what they tell of.
const TABLES: [(&str, &[&str]); 5] = [
    ("Times", &["mean h", "geo h", "p50 h", "p99 h", "longest h", "longest wait h", "makespan h", "not ended"]),
    ("Waits of large jobs", &["p99 large wait h", "longest large wait h"]),
    ("Work", &["GPU-h", "work/GPU-h", "uncredited", "work while jobs come", "uncredited work", "useful %", "held %"]),
    ("Moves and fairness", &["restarts/job", "returned", "lost min/job", "worst unfairness", "unfair %"]),
    ("Model and rounds", &["prediction error %", "at starts %", "reached", "ms/round", "longest ms"]),
];

const COLUMNS: &str = "*geo*: geometric mean. *Longest wait*: from submission to the first grant; *large*: of jobs that ask \
    for at least a quarter of the cluster. *Work*: true reference tokens in hours of GPUs as \
    requested on the first GPU type; *uncredited*: where a token below the reference batch is worth no more than one at it. *Useful*: share of \
    GPU-time held that trained what was kept. *Lost*: held and not training, or trained and lost. *Unfairness*: time over what an equal share of the \
    cluster would have taken at the prior's rates; *unfair*: jobs above 1. *Prediction error*: of goodput, while training and at the first report of a \
    generation. *Reached*: true reference tokens over the target, of jobs that the scheduler took for done: below 1 it stopped them early. Each cell: \
    mean over seeds ± standard deviation.";

/// The report of all records there are.
pub fn document(records: &[Record], command: &str) -> Result<Document, PlotError> {
    let mut document = Document::default();
    document.heading(1, "Evidence");
    document.paragraph(
        "What policies make of the same jobs, decided by the production core (engine, planner, ledgers) in virtual time against a hidden truth that \
         the scheduler is not told, and counted by that truth. Jobs' layouts are off by factors that no other layout teaches, efficiency follows \
         another critical batch than gradients show, gangs share the fabric, starts are drawn from a distribution, nodes fail at published rates.",
    );
    document.code(command);
    document.paragraph(COLUMNS);
    for study in studies() {
        let outcomes: Vec<(&str, &Outcome)> = records
            .iter()
            .filter_map(|record| match record {
                Record::Run { study: name, world, outcome } if name == study.name => {
                    Some((world.as_str(), outcome.as_ref()))
                }
                _ => None,
            })
            .collect();
        let outcomes = complete(&study, &outcomes);
        if !outcomes.is_empty() {
            of_study(&mut document, &study, &outcomes)?;
        }
    }
    Ok(document)
}

/// Of an interrupted study only seeds that every contender has run: means over different seeds cannot be compared.
fn complete<'a>(study: &Study, outcomes: &[(&'a str, &'a Outcome)]) -> Vec<(&'a str, &'a Outcome)> {
    let together = |(world, one): &&(&str, &Outcome)| {
        let beside =
            outcomes.iter().filter(|(of, other)| of == world && (other.load, other.seed) == (one.load, one.seed));
        let ran: BTreeSet<&str> = beside.map(|(_, other)| other.contender.as_str()).collect();
        study.contenders.iter().all(|name| ran.contains(name))
    };
    let mut complete: Vec<(&str, &Outcome)> = outcomes.iter().filter(together).copied().collect();
    // Runs are written down as they end; what others are held against comes first.
    let place = |one: &Outcome| study.contenders.iter().position(|name| *name == one.contender);
    complete.sort_by_key(|(_, one)| (place(one), one.seed));
    complete
}

fn of_study(document: &mut Document, study: &Study, outcomes: &[(&str, &Outcome)]) -> Result<(), PlotError> {
    document.heading(2, study.title);
    document.paragraph(format!("{} `{}`.", study.about, study.cluster));
    if study.worlds.len() > 1 {
        return of_worlds(document, study, outcomes);
    }
    let all: Vec<&Outcome> = outcomes.iter().map(|(_, outcome)| *outcome).collect();
    if study.name == "loads" {
        document.heading(3, "Held against the aims");
        document.paragraph("Goodput over the other, seed by seed; below 1 is better for times, above 1 for work.");
        aims(document, study, &all);
    }
    if study.loads.len() > 1 {
        document.figure(
            format!("{}-mean", study.name),
            "Mean time from submission to end over that of fifo_backfill, by load",
            ratios(study.loads.iter().map(|load| (format!("load {load}"), at_load(&all, *load))).collect(), mean_time)?,
        );
    }
    for load in study.loads {
        let these = at_load(&all, *load);
        let Some(first) = these.first() else { continue };
        let seeds = these.iter().filter(|one| one.contender == first.contender).count();
        document
            .heading(3, format!("{} at load {load}: about {} jobs, {seeds} seeds", first.workload, first.measure.jobs));
        for (name, columns) in TABLES {
            tabulate(document, name, columns, &these);
        }
        document.figure(
            format!("{}-{load}-times", study.name),
            "Share of jobs that had ended so long after submission",
            spread(&these)?,
        );
    }
    Ok(())
}

fn at_load<'a>(outcomes: &[&'a Outcome], load: f64) -> Vec<&'a Outcome> {
    outcomes.iter().copied().filter(|one| one.load == load).collect()
}

fn tabulate(document: &mut Document, name: &str, wanted: &[&str], outcomes: &[&Outcome]) {
    let columns: Vec<Column> = measures().into_iter().filter(|column| wanted.contains(&column.name)).collect();
    let headers = std::iter::once(name).chain(columns.iter().map(|column| column.name)).map(str::to_owned).collect();
    let rows = contenders(outcomes)
        .into_iter()
        .map(|contender| {
            let cell = |column: &Column| written(&values(outcomes, contender, column), column.digits);
            std::iter::once(contender.to_owned()).chain(columns.iter().map(cell)).collect()
        })
        .collect();
    document.table(headers, rows);
}

fn written(values: &[f64], digits: usize) -> String {
    let (mean, spread) = over_seeds(values);
    if values.len() > 1 { format!("{mean:.digits$} ± {spread:.digits$}") } else { format!("{mean:.digits$}") }
}

fn mean_time(measure: &Measure) -> f64 {
    measure.mean_time
}

/// At least a minute, so that a ratio of two immediate starts is 1.
fn longest_large_wait(measure: &Measure) -> f64 {
    measure.longest_large_wait.max(60.0)
}

/// One contender over another, seed by seed.
fn paired(outcomes: &[&Outcome], one: &str, other: &str, of: fn(&Measure) -> f64) -> Vec<f64> {
    let find = |name: &str, seed: u64| outcomes.iter().find(|out| out.contender == name && out.seed == seed);
    let mine = outcomes.iter().filter(|out| out.contender == one);
    mine.filter_map(|mine| Some(of(&mine.measure) / of(&find(other, mine.seed)?.measure))).collect()
}

/// Those who decide by goodput too, in their variants.
const PEERS: [&str; 4] = ["sia", "sia_simulated", "pollux", "pollux_layouts"];

fn aims(document: &mut Document, study: &Study, outcomes: &[&Outcome]) {
    let mut rows = Vec::new();
    for load in study.loads {
        let these = at_load(outcomes, *load);
        let against = |other: &str, of: fn(&Measure) -> f64| paired(&these, "goodput", other, of);
        let peers = PEERS.map(|peer| against(peer, mean_time));
        let seeds = peers.iter().map(Vec::len).max().unwrap_or_default();
        let of_seed = |seed: usize| peers.iter().filter_map(move |ratios| ratios.get(seed)).copied();
        let best: Vec<f64> = (0..seeds).map(|seed| of_seed(seed).fold(0.0, f64::max)).collect();
        let most = best.iter().copied().fold(0.0, f64::max);
        rows.push(vec![
            format!("{load}"),
            format!("{} (worst seed {most:.2})", written(&best, 2)),
            written(&against("shortest_remaining", mean_time), 2),
            written(&against("fifo_backfill", |one| one.longest_wait), 2),
            written(&against("fifo_backfill", longest_large_wait), 2),
            written(&against("fifo_backfill", mean_time), 2),
            written(&against("fifo_backfill", |one| one.work_while_jobs_come), 2),
            written(&against("fifo_backfill", |one| one.uncredited_work_while_jobs_come), 2),
        ]);
    }
    let headers = [
        "load",
        "mean time, best of Sia and Pollux in their variants (aim ≤ 0.85, no seed above 1)",
        "mean time, shortest remaining (aim ≤ 1)",
        "longest wait, fifo_backfill (aim ≤ 1)",
        "longest wait of a large job, fifo_backfill (aim ≤ 1.5)",
        "mean time, fifo_backfill",
        "work while jobs come, fifo_backfill",
        "uncredited work while jobs come, fifo_backfill (aim ≥ 1.30)",
    ];
    document.table(headers.map(str::to_owned).to_vec(), rows);
}

/// Bars of a measure over that of the first contender, a group per name.
fn ratios(groups: Vec<(String, Vec<&Outcome>)>, of: fn(&Measure) -> f64) -> Result<String, PlotError> {
    let Some(names) = groups.iter().map(|(_, these)| contenders(these)).max_by_key(Vec::len) else {
        return Bars { y: "", groups: Vec::new(), series: Vec::new() }.svg();
    };
    let first = names.first().copied().unwrap_or_default();
    let series = names.iter().map(|name| {
        let values = groups.iter().map(|(_, these)| over_seeds(&paired(these, name, first, of))).collect();
        ((*name).to_owned(), values)
    });
    let series = series.collect();
    Bars { y: &format!("over {first}"), groups: groups.iter().map(|(name, _)| name.clone()).collect(), series }.svg()
}

fn spread(outcomes: &[&Outcome]) -> Result<String, PlotError> {
    let series = contenders(outcomes)
        .into_iter()
        .map(|contender| {
            let of = outcomes.iter().filter(|one| one.contender == contender);
            let mut times: Vec<f64> =
                of.flat_map(|one| one.times.iter().map(|time| f64::from(*time) / 3_600.0)).collect();
            times.sort_by(f64::total_cmp);
            let count = times.len().max(1) as f64;
            let points = times.into_iter().enumerate().map(|(at, time)| (time, (at + 1) as f64 / count));
            (contender.to_owned(), std::iter::once((0.0, 0.0)).chain(points).collect())
        })
        .collect();
    Curves { x: "hours", y: "share", series }.svg()
}

fn of_worlds(document: &mut Document, study: &Study, outcomes: &[(&str, &Outcome)]) -> Result<(), PlotError> {
    let worlds: Vec<(String, Vec<&Outcome>)> = study
        .worlds
        .iter()
        .map(|(name, _)| {
            let these = outcomes.iter().filter(|(world, _)| world == name).map(|(_, outcome)| *outcome);
            ((*name).to_owned(), these.collect::<Vec<_>>())
        })
        .filter(|(_, these)| !these.is_empty())
        .collect();
    let shown = [
        "mean h",
        "p99 h",
        "longest wait h",
        "longest large wait h",
        "work/GPU-h",
        "uncredited",
        "restarts/job",
        "lost min/job",
        "prediction error %",
        "reached",
    ];
    for (name, these) in &worlds {
        tabulate(document, name, &shown, these);
    }
    document.figure(
        format!("{}-mean", study.name),
        "Mean time from submission to end over that of fifo_backfill, by world",
        ratios(worlds, mean_time)?,
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn run(contender: &str, load: f64, seed: u64, hours: f64) -> Record {
        let measure = Measure { jobs: 2, ended: 2, mean_time: 3_600.0 * hours, ..Measure::default() };
        let (contender, workload) = (contender.to_owned(), "day".to_owned());
        let outcome = Outcome { contender, workload, seed, load, measure, times: vec![60, 120] };
        Record::Run { study: "loads".into(), world: "harsh".into(), outcome: Box::new(outcome) }
    }

    #[test]
    fn a_report_has_only_what_every_contender_has_run() {
        let all = studies().into_iter().find(|study| study.name == "loads").unwrap().contenders;
        let mut records: Vec<Record> = all.iter().map(|name| run(name, 0.9, 1, 2.0)).collect();
        records.push(run("goodput", 0.9, 2, 77.0));
        records.push(run("goodput", 2.0, 1, 88.0));
        let text = document(&records, "make evidence").unwrap().markdown();
        assert!(
            text.contains("| goodput | 2.00 |") && text.contains("day at load 0.9: about 2 jobs, 1 seeds"),
            "{text}"
        );
        assert!(text.contains("longest wait of a large job, fifo_backfill (aim ≤ 1.5)"), "{text}");
        assert!(text.contains("| Waits of large jobs | p99 large wait h | longest large wait h |"), "{text}");
        assert!(!text.contains("77.00") && !text.contains("88.00") && !text.contains("load 2:"), "{text}");
    }

    #[test]
    fn ratios_are_of_the_same_seed() {
        let records = [
            run("goodput", 0.9, 1, 1.0),
            run("fifo_backfill", 0.9, 1, 2.0),
            run("goodput", 0.9, 2, 3.0),
            run("fifo_backfill", 0.9, 2, 3.0),
        ];
        let outcomes: Vec<&Outcome> = records
            .iter()
            .filter_map(|record| match record {
                Record::Run { outcome, .. } => Some(outcome.as_ref()),
                Record::Single(_) => None,
            })
            .collect();
        assert_eq!(paired(&outcomes, "goodput", "fifo_backfill", mean_time), vec![0.5, 1.0]);
    }
}
