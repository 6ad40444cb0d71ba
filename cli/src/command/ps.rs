//! `headway ps`: jobs with their newest numbers.

use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::Args;
use clap::builder::PossibleValuesParser;
use headway_api::client::{Client, JobFilter};
use headway_api::v1::{Job, PastJob};
use headway_types::JobStateKind;
use strum::VariantArray;

use super::{short, watch};
use crate::failure::Failure;
use crate::output::{Printer, duration, moment, optional, si};

#[derive(Args, Clone, Debug)]
pub struct Ps {
    /// Ended jobs too.
    #[arg(short, long)]
    pub all: bool,
    /// Only jobs in this state.
    #[arg(long, value_parser = PossibleValuesParser::new(states()))]
    pub state: Vec<String>,
    /// Only jobs of this project.
    #[arg(long)]
    pub project: Option<String>,
    /// At most this many.
    #[arg(long, default_value_t = 100)]
    pub limit: u32,
    /// As it was at this moment (RFC 3339: 2026-03-01T14:02:00Z): jobs that had not ended, with what is known of them.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["all", "watch"])]
    pub at: Option<DateTime<Utc>>,
    /// Repeat every two seconds.
    #[arg(short, long)]
    pub watch: bool,
}

pub const HEADERS: &[&str] =
    &["ID", "NAME", "STATE", "GPUS", "LAYOUT", "BATCH", "TOK/S", "GNS", "EFF", "GOODPUT", "LOSS", "DONE", "ETA"];

pub async fn run(client: &Client, print: &Printer, ps: Ps) -> Result<(), Failure> {
    if ps.watch {
        watch(Duration::from_secs(2), || show(client, print, &ps)).await
    } else {
        show(client, print, &ps).await
    }
}

/// Every state by name, and the words for all that have ended and all others.
fn states() -> impl Iterator<Item = &'static str> {
    JobStateKind::VARIANTS.iter().map(|state| <&str>::from(*state)).chain(["live", "ended"])
}

async fn show(client: &Client, print: &Printer, ps: &Ps) -> Result<(), Failure> {
    let states = if ps.state.is_empty() && !ps.all && ps.at.is_none() { vec!["live".into()] } else { ps.state.clone() };
    let filter = JobFilter { states, project: ps.project.clone(), limit: Some(ps.limit), ..JobFilter::default() };
    if let Some(at) = ps.at {
        let page = client.jobs_at(&filter, at).await?;
        return print
            .list(&page.items, &["ID", "NAME", "STATE", "SINCE", "GPUS", "NODES"], past_row, |job| job.id.to_string());
    }
    let page = client.jobs(&filter).await?;
    print.list(&page.items, HEADERS, row, |job| job.id.to_string())
}

fn past_row(job: &PastJob) -> Vec<String> {
    let nodes = if job.nodes.is_empty() { "-".into() } else { job.nodes.join(",") };
    vec![
        short(&job.id.to_string()).into(),
        job.name.clone(),
        job.state.to_string(),
        moment(job.state_since),
        job.gpus.to_string(),
        nodes,
    ]
}

/// dp × tp × pp and what else the layout is.
fn layout(job: &Job) -> String {
    let Some(layout) = job.layout else { return "-".into() };
    let more = job.execution.unwrap_or_default();
    format!("{}×{}×{}{more}", layout.dp, layout.tp, layout.pp)
}

/// One line of the table of jobs.
pub fn row(job: &Job) -> Vec<String> {
    vec![
        short(&job.id.to_string()).into(),
        job.name.clone(),
        job.state.to_string(),
        gpus(job),
        layout(job),
        batch(job),
        optional(job.throughput_tokens_per_second, si),
        optional(job.noise_scale_tokens, si),
        optional(job.efficiency, |e| format!("{e:.2}")),
        optional(job.goodput_tokens_per_second, si),
        optional(job.loss, |loss| format!("{loss:.3}")),
        done(job),
        optional(job.eta_seconds, duration),
    ]
}

/// Of the target, and what of that is only credited to small batches.
fn done(job: &Job) -> String {
    let credit = job.target_tokens.map_or(0.0, |target| job.credit_tokens / target);
    let credited = if credit >= 0.005 { format!(" ({:.0}% credit)", credit * 100.0) } else { String::new() };
    optional(job.progress_fraction, |part| format!("{:.0}%{credited}", part * 100.0))
}

pub fn gpus(job: &Job) -> String {
    if job.gpus == 0 { format!("0 of {}", job.gpus_max) } else { job.gpus.to_string() }
}

pub fn batch(job: &Job) -> String {
    match (job.global_batch_sequences, job.micro_batch_sequences) {
        (Some(global), Some(micro)) => format!("{global} ({micro}×{})", job.accumulation.unwrap_or(1)),
        _ => "-".into(),
    }
}
