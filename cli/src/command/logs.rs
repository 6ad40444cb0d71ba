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
    loop {
        let page = client.logs(&id, &request).await?;
        std::io::stdout().write_all(page.text.as_bytes())?;
        let more = !page.text.is_empty();
        request = LogRequest { rank: logs.rank, offset: Some(page.next_offset), tail: None };
        if !more {
            if !logs.follow {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}
