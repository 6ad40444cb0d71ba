//! `headway events`: the event log, newest first, as all lists are.

use clap::Args;
use headway_api::client::Client;

use super::resolve_job;
use crate::failure::Failure;
use crate::output::Printer;

#[derive(Args, Clone, Debug)]
pub struct Events {
    /// Only of this job.
    #[arg(long)]
    pub job: Option<String>,
    /// At most this many.
    #[arg(long, default_value_t = 50)]
    pub limit: u32,
}

pub async fn run(client: &Client, print: &Printer, events: Events) -> Result<(), Failure> {
    let items = match &events.job {
        Some(text) => client.job_events(&resolve_job(client, text).await?, events.limit).await?,
        None => client.events(events.limit).await?,
    };
    print.list(
        &items,
        &["TIME", "ACTOR", "EVENT", "MESSAGE"],
        |event| {
            vec![
                event.at.format("%H:%M:%S").to_string(),
                event.actor.clone(),
                event.verb.clone(),
                event.message.clone(),
            ]
        },
        |event| event.seq.to_string(),
    )
}
