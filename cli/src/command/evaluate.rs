//! `headway evaluate`: policies side by side on a workload, in virtual time against a hidden truth.

use std::path::{Path, PathBuf};

use clap::Args;
use headway_emulation::Nature;
use headway_evidence::gather::{GatherError, Wanted, gather};
use headway_evidence::run::Outcome;
use headway_evidence::table::upright;
use headway_evidence::workload::traced;
use headway_evidence::{AT_WILL, Cluster, Contender, Named, Plenty, Settings, Trial, Workload, run_all};
use headway_types::Seconds;
use headway_types::spec::Elasticity;

use crate::failure::{Failure, Kind};
use crate::output::Printer;

#[derive(Args, Clone, Debug)]
pub struct Evaluate {
    /// What comes: day, bursts, equals, equals-day or demo (the day of `headway up --demo`).
    #[arg(long, default_value = "day", conflicts_with = "trace")]
    pub workload: String,
    /// The jobs of a table with the columns job_id, submit_time_s, num_gpus and duration_s instead.
    #[arg(long)]
    pub trace: Option<PathBuf>,
    /// GPU-time asked for over the cluster's, while jobs come.
    #[arg(long, value_delimiter = ',', default_value = "0.9")]
    pub load: Vec<f64>,
    /// Median duration of a job on what it asks for, minutes.
    #[arg(long, default_value_t = 40.0)]
    pub median: f64,
    /// For how long jobs come, hours.
    #[arg(long, default_value_t = 24.0)]
    pub hours: f64,
    /// Seeds, first and last, or one.
    #[arg(long, default_value = "1..3")]
    pub seeds: String,
    /// Who decides: goodput, fifo_backfill (or fifo), fifo_backfill_maximum, sia, sia_simulated, pollux, pollux_layouts, least_attained, shortest_remaining, static; ablations of goodput: batch_fixed,
    /// no_shrinking, layout_fixed, size_fixed. Each may set fields of its policy: goodput:patience=null:min_gain=0.05.
    #[arg(long, value_delimiter = ',', default_value = "goodput,fifo_backfill,sia,pollux,shortest_remaining")]
    pub policies: Vec<String>,
    /// A field of every policy, as KEY=VALUE.
    #[arg(long)]
    pub policy: Vec<String>,
    /// Nodes, as TYPExGPUS=NODES,…; requests are meant in the first type.
    #[arg(long, default_value = "H100x8=4,A100-80Gx8=4")]
    pub nodes: String,
    /// The world: gentle (as emulated fleets) or harsh (each layout has factors of its own, another κ, long starts).
    #[arg(long, default_value = "harsh")]
    pub world: String,
    /// Times the ordinary time to start.
    #[arg(long)]
    pub starts: Option<f64>,
    /// Times the published rate of failures.
    #[arg(long, default_value_t = 1.0)]
    pub failures: f64,
    /// Deviation of the logarithm of each layout's own factor.
    #[arg(long)]
    pub layout_spread: Option<f64>,
    /// Deviation of the logarithm of κ.
    #[arg(long)]
    pub kappa_spread: Option<f64>,
    /// Deviation of the logarithm of the noise that gradients show.
    #[arg(long)]
    pub noise_spread: Option<f64>,
    /// The hidden world of an emulated fleet of this name (`headway up --emulate` has "fleet") instead of one per seed.
    #[arg(long)]
    pub fleet: Option<String>,
    /// Longest time between rounds, seconds.
    #[arg(long, default_value_t = 300.0)]
    pub round_every: f64,
    /// Let jobs be moved whenever a policy likes, as the papers of Sia and Pollux have it, not as rarely as specifications ask by default.
    #[arg(long)]
    pub at_will: bool,
    /// Runs at a time [default: as many as there are processors].
    #[arg(long)]
    pub jobs: Option<usize>,
    /// Also write every run as a line of JSON to DIR/runs.jsonl.
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Also write what arrives when, as the first policy has it, to FILE: a line of JSON per job with its specification.
    #[arg(long, value_name = "FILE")]
    pub submissions: Option<PathBuf>,
    /// Run the studies of the evidence report instead, those that DIR/runs.jsonl lacks, and write the report to DIR.
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// Only these studies: loads, at-will, bursts, ablations, equals, equals-day, sensitivity, single.
    #[arg(long, value_delimiter = ',', requires = "report")]
    pub studies: Vec<String>,
}

pub fn run(print: &Printer, evaluate: &Evaluate) -> Result<(), Failure> {
    let threads = evaluate.jobs.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1);
    if let Some(dir) = &evaluate.report {
        return report(evaluate, dir, threads);
    }
    let cluster: Cluster = evaluate.nodes.parse().map_err(usage)?;
    let contenders = evaluate
        .policies
        .iter()
        .map(|text| Contender::read(text, &evaluate.policy).map_err(usage))
        .collect::<Result<Vec<_>, _>>()?;
    let workloads = workloads(evaluate, &cluster)?;
    if let (Some(file), Some((.., workload)), Some(first)) =
        (&evaluate.submissions, workloads.first(), contenders.first())
    {
        write_submissions(file, workload, first)?;
    }
    let trials: Vec<Trial<'_>> = workloads
        .iter()
        .flat_map(|(seed, load, workload)| {
            contenders.iter().map(|contender| Trial { seed: *seed, load: *load, workload, contender })
        })
        .collect();
    let told = |one: &Outcome| {
        let (hours, cpu) = (one.measure.mean_time / 3_600.0, one.measure.cpu_seconds);
        aside!("{} at {} seed {}: mean {hours:.2} h, {cpu:.1} CPU s", one.contender, one.load, one.seed);
    };
    let outcomes = run_all(&trials, &settings(evaluate)?, threads, &told)
        .map_err(|error| Failure::new(Kind::Failed, chain(&error)))?;
    if let Some(out) = &evaluate.out {
        write_lines(out, &outcomes)?;
    }
    if print.structured() {
        return print.value(&outcomes);
    }
    for load in &evaluate.load {
        let these: Vec<&Outcome> = outcomes.iter().filter(|one| one.load == *load).collect();
        let Some(first) = these.first() else { continue };
        say!("{} at load {load}, {} jobs, seeds {}", first.workload, first.measure.jobs, evaluate.seeds)?;
        let (headers, rows) = upright(&these);
        say!("{}", print.table_of(&headers, rows.into_iter()))?;
    }
    Ok(())
}

fn report(evaluate: &Evaluate, dir: &Path, threads: usize) -> Result<(), Failure> {
    let seeds = seeds(&evaluate.seeds)?;
    let command = format!("headway evaluate --report {} --seeds {}", dir.display(), evaluate.seeds);
    let wanted = Wanted { dir, studies: &evaluate.studies, seeds, threads, command: &command };
    gather(&wanted, &|line| aside!("{line}")).map_err(|error| {
        let kind = if matches!(error, GatherError::NoStudy { .. }) { Kind::Usage } else { Kind::Failed };
        Failure::new(kind, chain(&error))
    })
}

/// An error with all that caused it.
fn chain(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(Some(error), |error| error.source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn workloads(evaluate: &Evaluate, cluster: &Cluster) -> Result<Vec<(u64, f64, Workload)>, Failure> {
    let seeds = seeds(&evaluate.seeds)?;
    let lasts = Seconds(evaluate.hours * 3_600.0);
    let trace = match &evaluate.trace {
        None => None,
        Some(file) => {
            let text = super::read(file)?;
            let jobs = headway_sim::trace::read(&text)
                .map_err(|error| Failure::new(Kind::Usage, format!("{}: {error}", file.display())))?;
            Some((file.file_stem().unwrap_or_default().to_string_lossy().into_owned(), jobs))
        }
    };
    let named = Named::of_name(&evaluate.workload)
        .ok_or_else(|| Failure::new(Kind::Usage, format!("no workload is called \"{}\"", evaluate.workload)))?;
    let draw = |seed, load| match &trace {
        Some((name, jobs)) => traced(name, jobs, seed, cluster, lasts),
        None => named.draw(seed, cluster, &Plenty { load, lasts, median: Seconds(60.0 * evaluate.median) }),
    };
    let each = evaluate.load.iter().flat_map(|load| seeds.clone().map(move |seed| (seed, *load)));
    Ok(each.map(|(seed, load)| (seed, load, draw(seed, load))).collect())
}

fn settings(evaluate: &Evaluate) -> Result<Settings, Failure> {
    let world = match evaluate.world.as_str() {
        "gentle" => Nature::GENTLE,
        "harsh" => Nature::HARSH,
        other => return Err(Failure::new(Kind::Usage, format!("no world is called \"{other}\""))),
    };
    let nature = Nature {
        starts: evaluate.starts.map_or(world.starts, |times| world.starts * times),
        layout: evaluate.layout_spread.unwrap_or(world.layout),
        kappa: evaluate.kappa_spread.unwrap_or(world.kappa),
        noise: evaluate.noise_spread.unwrap_or(world.noise),
        failures: world.failures * evaluate.failures,
        ..world
    };
    let round_every = Seconds(evaluate.round_every);
    let fleet = evaluate.fleet.clone();
    let elastic = if evaluate.at_will { AT_WILL } else { Elasticity::default() };
    Ok(Settings { nature, mishaps: evaluate.failures, round_every, fleet, elastic, ..Settings::default() })
}

fn seeds(text: &str) -> Result<std::ops::RangeInclusive<u64>, Failure> {
    let wrong = || Failure::new(Kind::Usage, format!("{text}: seeds are FIRST..LAST or one number"));
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
    match text.split_once("..") {
        Some((first, last)) => Ok(number(first)?..=number(last.trim_start_matches('='))?),
        None => number(text).map(|seed| seed..=seed),
    }
}

fn write_lines(out: &Path, outcomes: &[Outcome]) -> Result<(), Failure> {
    std::fs::create_dir_all(out)?;
    let lines: Result<Vec<String>, _> = outcomes.iter().map(serde_json::to_string).collect();
    let lines = lines.map_err(|error| Failure::new(Kind::Failed, format!("writing runs: {error}")))?;
    Ok(std::fs::write(out.join("runs.jsonl"), lines.join("\n") + "\n")?)
}

fn write_submissions(file: &Path, workload: &Workload, contender: &Contender) -> Result<(), Failure> {
    let line = |job: &headway_evidence::workload::Job| {
        let specification = headway_api::spec::to_json(&contender.spec(job, &workload.cluster));
        serde_json::json!({ "arrives_seconds": job.arrives.0, "specification": specification }).to_string()
    };
    let lines: Vec<String> = workload.jobs.iter().map(line).collect();
    Ok(std::fs::write(file, lines.join("\n") + "\n")?)
}

fn usage(error: impl std::fmt::Display) -> Failure {
    Failure::new(Kind::Usage, error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn seeds_are_a_range_or_one() {
        assert_eq!(seeds("3..5").ok().unwrap(), 3..=5);
        assert_eq!(seeds("7").ok().unwrap(), 7..=7);
        assert!(seeds("a..b").is_err());
    }
}
