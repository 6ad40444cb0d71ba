//! `headway logs`: what a rank wrote, from the node it ran on.

use std::io::Write as _;
use std::time::Duration;

use clap::Args;
use headway_api::client::{Client, LogRequest};

use super::resolve_job;
use crate::failure::Failure;

#[derive(Args, Clone, Debug)]
pub struct Logs {
    /// Id, unique end or beginning of one, or name.
    pub job: String,
    /// Rank to read.
    #[arg(long, default_value_t = 0)]
    pub rank: u32,
    /// Only the last lines.
    #[arg(long)]
    pub tail: Option<u32>,
    /// Go on as the job writes.
    #[arg(short, long)]
    pub follow: bool,
}

pub async fn run(client: &Client, logs: Logs) -> Result<(), Failure> {
    let id = resolve_job(client, &logs.job).await?;
    let mut request = LogRequest { rank: logs.rank, offset: None, tail: logs.tail };
    let mut generation = None;
    loop {
        let page = client.logs(&id, &request).await?;
        if generation.is_some_and(|before| before != page.generation) {
            // The job was moved: the next generation writes a file of its own, from its beginning.
            generation = Some(page.generation);
            request.offset = Some(0);
            continue;
        }
        generation = Some(page.generation);
        std::io::stdout().write_all(page.text.as_bytes())?;
        request = LogRequest { rank: logs.rank, offset: Some(page.next_offset), tail: None };
        if !page.at_end {
            continue;
        }
        if !logs.follow || client.job(&id).await?.job.ended_at.is_some() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
