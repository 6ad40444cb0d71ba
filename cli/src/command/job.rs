//! `headway job …`: what may be changed of a job that exists.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use headway_api::client::Client;
use headway_api::v1::JobPatch;
use headway_types::Seconds;

use super::curve::{self, Curve};
use super::resolve_only_job;
use crate::failure::{Failure, Kind};
use crate::output::Printer;

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
    /// NAME=VALUE; given once or more, these replace all labels.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
}

pub async fn run(client: &Client, print: &Printer, job: Job) -> Result<(), Failure> {
    let (changed, what) = match job {
        Job::Curve(of) => return curve::run(client, print, of).await,
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
    };
    if print.structured() {
        print.value(&changed)
    } else {
        say!("job {} {what}", changed.name)?;
        Ok(())
    }
}

fn patch(update: &Update) -> JobPatch {
    let labels: BTreeMap<String, String> = update.labels.iter().cloned().collect();
    JobPatch {
        priority: update.priority,
        gpus_min: update.min,
        gpus_max: update.max,
        labels: (!labels.is_empty()).then_some(labels),
        time_limit_seconds: update.time.map(|time| time.0),
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("must be NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
