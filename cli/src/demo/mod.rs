//! `headway demo`: three real training jobs on a running cluster, one live table, and a summary against a static split.

mod jobs;
mod live;
mod summary;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use headway_api::client::Client;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Failure, Kind};

#[derive(Args, Clone, Debug)]
pub struct Demo {
    /// Directory of text to train on [default: the Python standard library of the trainer's interpreter].
    #[arg(long)]
    pub corpus: Option<PathBuf>,
    /// Directory of the Python package `headway`, put on the workers' module path.
    #[arg(long, env = "HEADWAY_WORKER_PATH")]
    pub worker_path: PathBuf,
    /// Train to this share of the usual targets (a quick look).
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
    /// Give up after this many seconds.
    #[arg(long, default_value_t = 900)]
    pub deadline: u64,
}

pub async fn run(client: &Client, demo: Demo) -> Result<(), Failure> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let begin = Instant::now();
    let mut waiting = jobs::script(&demo);
    waiting.reverse();
    let mut ids = Vec::new();
    let mut screen = live::Screen::new();
    let mut interval = tokio::time::interval(Duration::from_secs(1));
    loop {
        while waiting.last().is_some_and(|job| begin.elapsed() >= job.after) {
            let Some(job) = waiting.pop() else { break };
            let reply = client.submit_yaml(&job.yaml, Some(&uuid::Uuid::now_v7().to_string())).await?;
            ids.extend(reply.jobs.iter().map(|job| job.id));
        }
        let mut jobs = Vec::with_capacity(ids.len());
        for id in &ids {
            jobs.push(client.job(&id.to_string()).await?.job);
        }
        let events = client.events(200).await?;
        screen.show(begin.elapsed(), &jobs, &events, waiting.len());
        if waiting.is_empty() && jobs.iter().all(|job| job.state.is_final()) {
            screen.leave();
            return summary::print(client, &jobs, begin.elapsed()).await;
        }
        if begin.elapsed() >= Duration::from_secs(demo.deadline) {
            screen.leave();
            return Err(Failure::new(Kind::WaitTimeout, format!("the jobs had not ended after {} s", demo.deadline)));
        }
        tokio::select! {
            _ = interval.tick() => {}
            _ = interrupt.recv() => {
                screen.leave();
                return Err(Failure::new(Kind::Failed, "interrupted; the jobs go on (see `headway ps`)"));
            }
        }
    }
}
