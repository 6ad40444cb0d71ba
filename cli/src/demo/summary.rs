//! What the demonstration reached, against the same jobs on a static equal split at a fixed batch.
//!
//! Ours is measured: reference tokens over wall time, waiting and every pause for a move included. The baseline is
//! predicted by the scheduler's model of each job (`GET /goodput`) and generous: it pays for no start and no pause.

use std::time::Duration;

use headway_api::client::Client;
use headway_api::v1::{Baseline, Job};

use crate::command::ps;
use crate::failure::Failure;
use crate::output::{Printer, duration, optional, si};

const HEADERS: &[&str] = &[
    "JOB",
    "STATE",
    "TIME",
    "REFERENCE TOKENS",
    "GOODPUT (measured)",
    "STATIC SPLIT (predicted)",
    "GAIN",
    "GAIN WITHOUT CREDIT",
    "BATCH CHANGES",
    "MOVES",
    "RESTARTS",
    "LOSS",
];

pub async fn print(client: &Client, jobs: &[Job], elapsed: Duration) -> Result<(), Failure> {
    let ids: Vec<String> = jobs.iter().map(|job| job.id.to_string()).collect();
    let baselines = client.baseline(&ids).await?;
    let printer = Printer::plain();
    say!("Summary after {}", duration(elapsed.as_secs_f64()))?;
    let mut rows: Vec<Vec<String>> = jobs.iter().map(|job| row(job, baseline_of(job, &baselines))).collect();
    rows.push(total(jobs, &baselines));
    say!("{}", printer.table(HEADERS, rows.into_iter()))?;
    say!("")?;
    say!(
        "GOODPUT is measured: reference tokens ÷ time from submission to end, waiting and pauses for moves included."
    )?;
    say!(
        "STATIC SPLIT is predicted by the goodput model as specified: the same job on an equal share at its reference"
    )?;
    say!("batch for as long as it took here, without any start or pause.")?;
    say!("CREDIT is progress beyond the tokens seen, which theory gives batches below the reference: unconfirmed.")?;
    Ok(())
}

fn baseline_of<'a>(job: &Job, baselines: &'a [Baseline]) -> Option<&'a Baseline> {
    baselines.iter().find(|baseline| baseline.job_id == job.id)
}

/// Seconds from submission to end.
fn seconds(job: &Job) -> f64 {
    let end = job.ended_at.unwrap_or_else(chrono::Utc::now);
    (end - job.submitted_at).num_milliseconds() as f64 / 1000.0
}

/// Per second of the job's life.
fn measured(tokens: f64, job: &Job) -> f64 {
    tokens / seconds(job).max(1e-3)
}

fn without_credit(job: &Job) -> f64 {
    job.progress_tokens - job.credit_tokens
}

fn row(job: &Job, baseline: Option<&Baseline>) -> Vec<String> {
    let predicted = baseline.map(|baseline| baseline.goodput_tokens_per_second);
    vec![
        job.name.clone(),
        job.state.to_string(),
        duration(seconds(job)),
        si(job.progress_tokens),
        format!("{}/s", si(measured(job.progress_tokens, job))),
        predicted.map_or_else(
            || "-".into(),
            |rate| format!("{}/s on {}", si(rate), baseline.map_or(0, |baseline| baseline.gpus)),
        ),
        optional(predicted.map(|rate| measured(job.progress_tokens, job) / rate), gain),
        optional(predicted.map(|rate| measured(without_credit(job), job) / rate), gain),
        job.batch_changes.to_string(),
        job.reconfigurations.to_string(),
        job.restarts.to_string(),
        ps::loss(job),
    ]
}

/// All jobs: reference tokens each would have reached on its static share in the time it took here.
fn total(jobs: &[Job], baselines: &[Baseline]) -> Vec<String> {
    let reached: f64 = jobs.iter().map(|job| job.progress_tokens).sum();
    let would: f64 =
        jobs.iter().filter_map(|job| Some(baseline_of(job, baselines)?.goodput_tokens_per_second * seconds(job))).sum();
    let over = |reached: f64| if would > 0.0 { gain(reached / would) } else { "-".into() };
    let sum = |pick: fn(&Job) -> u32| jobs.iter().map(pick).sum::<u32>().to_string();
    vec![
        "total".into(),
        String::new(),
        String::new(),
        si(reached),
        String::new(),
        format!("{} tokens", si(would)),
        over(reached),
        over(jobs.iter().map(without_credit).sum()),
        sum(|job| job.batch_changes),
        sum(|job| job.reconfigurations),
        sum(|job| job.restarts),
        String::new(),
    ]
}

fn gain(ratio: f64) -> String {
    format!("{:+.0} %", (ratio - 1.0) * 100.0)
}
