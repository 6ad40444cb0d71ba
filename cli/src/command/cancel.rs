//! `headway cancel`: end a job for good, with a reason that stays in its history.

use clap::Args;
use headway_api::client::Client;

use super::resolve_only_job;
use crate::failure::Failure;
use crate::output::Printer;

#[derive(Args, Clone, Debug)]
pub struct Cancel {
    /// Ids, unique ends or beginnings of one, or names.
    #[arg(required = true)]
    pub jobs: Vec<String>,
    /// Why, for the event log.
    #[arg(long)]
    pub reason: Option<String>,
}

pub async fn run(client: &Client, print: &Printer, cancel: Cancel) -> Result<(), Failure> {
    // All are found before the first is ended: what is not clear ends nothing.
    let mut ids = Vec::with_capacity(cancel.jobs.len());
    for text in &cancel.jobs {
        ids.push(resolve_only_job(client, text).await?);
    }
    for id in ids {
        let job = client.cancel(&id, cancel.reason.as_deref()).await?;
        if print.structured() {
            print.value(&job)?;
        } else {
            say!("job {} is {}", job.name, job.state)?;
        }
    }
    Ok(())
}
