//! `headway job …`: what there is to know of a job, and what may be changed of one that exists.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use headway_api::client::Client;
use headway_api::v1::{ElasticPatch, JobPatch, ResizeRequest};
use headway_types::Seconds;

use super::curve::{self, Curve};
use super::{cancel, describe, events, exec, logs, notify, ps, wait, why};
use super::{resolve_job, resolve_only_job};
use crate::failure::{Failure, Kind};
use crate::output::{Printer, duration, moment};
use crate::table::Column;
use crate::top::{self, Top};

#[derive(Subcommand, Clone, Debug)]
pub enum Job {
    /// Keep a job on the GPUs it has.
    Pin {
        /// Id, unique end or beginning of one, or name.
        job: String,
        /// Why, for the event log and for whoever asks why it does not move.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Let a pinned job be moved again.
    Unpin {
        /// Id, unique end or beginning of one, or name.
        job: String,
    },
    /// What other sizes would bring on the present nodes, each with its best configuration, and why some cannot be.
    Curve(Curve),
    /// Change priority, sizes, time limit or labels.
    Update(Update),
    /// List jobs (`headway ps`).
    List(ps::Ps),
    /// One job whole, with what was asked for.
    Get {
        /// Id, unique end or beginning of one, or name.
        job: String,
    },
    /// Wait until jobs have ended, or are in a state; exits with the job's own exit code.
    Wait(wait::Wait),
    /// Keep a job from running until it is released; what runs saves and stops.
    Hold {
        /// Id, unique end or beginning of one, or name.
        job: String,
        /// Why, for the event log and for whoever asks why it does not run.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Let a held job run again.
    Release {
        /// Id, unique end or beginning of one, or name.
        job: String,
    },
    /// Put a job back into the queue: what runs saves and gives up its GPUs, what failed or was cancelled goes on.
    Requeue {
        /// Id, unique end or beginning of one, or name.
        job: String,
        /// Why, for the event log.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Have a job run on another number of GPUs, as soon as there is a place: no cooldown keeps it from that.
    Resize {
        /// Id, unique end or beginning of one, or name.
        job: String,
        /// How many GPUs: a number (8) or a range (8-16).
        #[arg(value_name = "N[-M]", value_parser = sizes)]
        gpus: (u32, u32),
        /// Why, for the event log.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Have a running job save now and go on.
    Checkpoint {
        /// Id, unique end or beginning of one, or name.
        job: String,
    },
    /// Committed checkpoints, newest first.
    Checkpoints {
        /// Id, unique end or beginning of one, or name.
        job: String,
    },
    /// Call its webhooks now, with a notice that is told to be a test, and say what came of it.
    NotifyTest {
        /// Id, unique end or beginning of one, or name.
        job: String,
    },
    /// What happened to a job, newest first.
    Events {
        /// Id, unique end or beginning of one, or name.
        job: String,
        #[command(flatten)]
        wanted: events::Wanted,
    },
    /// Where its GPU-time went.
    Goodput {
        /// Id, unique end or beginning of one, or name.
        job: String,
    },
    /// Run a command beside a rank of a running job, as its user: nvidia-smi, py-spy, ls.
    Exec(exec::Exec),
    /// Print what its ranks wrote (`headway logs`).
    Logs(logs::Logs),
    /// End a job (`headway cancel`).
    Cancel(cancel::Cancel),
    /// Why it has what it has, or why it waits (`headway why`).
    Explain(why::Why),
    /// One job whole, as a page (`headway describe`).
    Describe(describe::Describe),
    /// Jobs and the cluster, live in a terminal (`headway top`).
    Top(Top),
}

#[derive(Args, Clone, Debug)]
pub struct Update {
    /// Id, unique end or beginning of one, or name.
    pub job: String,
    /// 0 to 100.
    #[arg(long)]
    pub priority: Option<u8>,
    /// Least GPUs.
    #[arg(long)]
    pub min: Option<u32>,
    /// Most GPUs.
    #[arg(long)]
    pub max: Option<u32>,
    /// Running time after which it is stopped ("48h").
    #[arg(long, value_name = "TIME", value_parser = headway_api::spec::duration)]
    pub time: Option<Seconds>,
    /// No move before it has run this long on its present GPUs ("10m").
    #[arg(long, value_name = "TIME", value_parser = headway_api::spec::duration)]
    pub min_runtime: Option<Seconds>,
    /// How often within an hour it may be moved.
    #[arg(long, value_name = "N")]
    pub max_resizes_per_hour: Option<u32>,
    /// Share of its time that moves may cost, in per cent.
    #[arg(long, value_name = "PERCENT")]
    pub max_overhead_pct: Option<f64>,
    /// Share of its fair share that it is sure of, above 0 and at most 1; 0 takes it away.
    #[arg(long, value_name = "SHARE")]
    pub min_share: Option<f64>,
    /// NAME=VALUE; given once or more, these replace all labels.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
}

pub async fn run(client: &Client, print: &Printer, job: Job) -> Result<ExitCode, Failure> {
    match job {
        Job::Wait(of) => return wait::run(client, print, of).await,
        Job::Exec(of) => return exec::run(client, of).await,
        Job::Curve(of) => curve::run(client, print, of).await,
        Job::List(of) => ps::run(client, print, of).await,
        Job::Logs(of) => logs::run(client, of).await,
        Job::Cancel(of) => cancel::run(client, print, of).await,
        Job::Explain(of) => why::run(client, print, of).await,
        Job::Describe(of) => describe::run(client, print, of).await,
        Job::Top(of) => top::run(client, print, of).await,
        Job::Events { job, wanted } => {
            events::run(client, print, events::Events { of: None, job: Some(job), wanted }).await
        }
        Job::Get { job } => {
            let detail = client.job(&resolve_job(client, &job).await?).await?;
            print.one(&detail, &detail.job.id.to_string())
        }
        Job::Goodput { job } => goodput(client, print, &job).await,
        Job::Checkpoints { job } => checkpoints(client, print, &job).await,
        Job::NotifyTest { job } => notify::test(client, print, &job).await,
        other => change(client, print, other).await,
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Carries out what changes one job.
pub async fn change(client: &Client, print: &Printer, job: Job) -> Result<(), Failure> {
    let (changed, what) = match job {
        Job::Pin { job, reason } => {
            (client.pin(&resolve_only_job(client, &job).await?, reason.as_deref()).await?, "is pinned")
        }
        Job::Unpin { job } => (client.unpin(&resolve_only_job(client, &job).await?).await?, "may be moved again"),
        Job::Update(update) => {
            let patch = patch(&update);
            if patch == JobPatch::default() {
                return Err(Failure::new(Kind::Usage, "nothing to change").hint("see `headway job update --help`"));
            }
            (client.update(&resolve_only_job(client, &update.job).await?, &patch).await?, "is changed")
        }
        Job::Hold { job, reason } => {
            (client.hold(&resolve_only_job(client, &job).await?, reason.as_deref()).await?, "is held")
        }
        Job::Requeue { job, reason } => {
            let id = resolve_only_job(client, &job).await?;
            (client.requeue(&id, reason.as_deref()).await?, "is put back into the queue")
        }
        Job::Release { job } => (client.release(&resolve_only_job(client, &job).await?).await?, "is released"),
        Job::Resize { job, gpus: (min, max), reason } => {
            let sizes = ResizeRequest { min: Some(min), max: Some(max), reason, ..ResizeRequest::default() };
            (client.resize(&resolve_only_job(client, &job).await?, &sizes).await?, "is resized: the next round decides")
        }
        Job::Checkpoint { job } => {
            (client.checkpoint(&resolve_only_job(client, &job).await?).await?, "is told to save and go on")
        }
        _ => return Ok(()),
    };
    if print.structured() {
        print.value(&changed)
    } else {
        say!("job {} {what}", changed.name)?;
        Ok(())
    }
}

const CHECKPOINTS: [Column; 5] = [
    Column::new("COMMITTED"),
    Column::new("STEP"),
    Column::new("GENERATION").rank(2),
    Column::new("TOOK").rank(1),
    Column::new("PATH").wrap(24),
];

async fn checkpoints(client: &Client, print: &Printer, job: &str) -> Result<(), Failure> {
    let items = client.checkpoints(&resolve_job(client, job).await?).await?;
    print.list(
        &items,
        &CHECKPOINTS,
        |one| {
            let (step, generation) = (one.step.to_string(), one.generation.to_string());
            vec![moment(one.committed_at), step, generation, duration(one.duration_seconds), one.path.clone()]
        },
        |one| one.path.clone(),
    )
}

/// What its GPU-time went into, with the share of each.
async fn goodput(client: &Client, print: &Printer, job: &str) -> Result<(), Failure> {
    let of = client.gpu_time(&resolve_job(client, job).await?).await?;
    if print.structured() {
        return print.value(&of);
    }
    let total = of.total_gpu_hours;
    let parts = [
        ("steps that counted", of.training_gpu_hours),
        ("starting", of.starting_gpu_hours),
        ("steps done again", of.rework_gpu_hours),
        ("stopping", of.stopping_gpu_hours),
        ("total", total),
    ];
    let share = |time: f64| if total > 0.0 { format!("{:.1} %", 100.0 * time / total) } else { "-".into() };
    print.list(
        &parts,
        &["GPU-TIME FOR", "GPU-HOURS", "SHARE"],
        |(name, time)| vec![(*name).to_owned(), format!("{time:.2}"), share(*time)],
        |(name, _)| (*name).to_owned(),
    )
}

/// "8" or "8-16".
fn sizes(text: &str) -> Result<(u32, u32), String> {
    let count = |text: &str| text.trim().parse::<u32>().ok().filter(|count| *count > 0);
    let ends = match text.split_once('-') {
        Some((min, max)) => count(min).zip(count(max)),
        None => count(text).map(|gpus| (gpus, gpus)),
    };
    ends.filter(|(min, max)| min <= max).ok_or_else(|| "must be a number (8) or a range (8-16) of GPUs".into())
}

fn patch(update: &Update) -> JobPatch {
    let elastic = ElasticPatch {
        min_runtime_seconds: update.min_runtime.map(|time| time.0),
        max_resizes_per_hour: update.max_resizes_per_hour,
        max_overhead_pct: update.max_overhead_pct,
        min_share: update.min_share,
    };
    let labels: BTreeMap<String, String> = update.labels.iter().cloned().collect();
    JobPatch {
        priority: update.priority,
        gpus_min: update.min,
        gpus_max: update.max,
        labels: (!labels.is_empty()).then_some(labels),
        time_limit_seconds: update.time.map(|time| time.0),
        elastic: (elastic != ElasticPatch::default()).then_some(elastic),
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("must be NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
