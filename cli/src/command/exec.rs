//! `headway job exec`: a command beside a rank of a running job; its output and its exit code are the command's.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use futures::StreamExt;
use headway_api::client::Client;
use headway_api::v1::{ExecCommand, ExecEnded, ExecLine};
use headway_types::Seconds;

use super::resolve_only_job;
use crate::failure::{Failure, Kind};

#[derive(Args, Clone, Debug)]
pub struct Exec {
    /// Id, unique end or beginning of one, or name.
    pub job: String,
    /// Global rank beside which it runs: on its node, with its directory, variables and limits.
    #[arg(long, default_value_t = 0)]
    pub rank: u32,
    /// After which it is ended, with the exit code 124 ("10m").
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = headway_api::spec::duration)]
    pub timeout: Seconds,
    /// Program and arguments; give them to `sh -c` for a shell's line.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

pub async fn run(client: &Client, of: Exec) -> Result<ExitCode, Failure> {
    let id = resolve_only_job(client, &of.job).await?;
    let timeout_s = Some(of.timeout.0.ceil() as u32);
    let command = ExecCommand { command: of.command, rank: of.rank, timeout_s };
    let mut lines = std::pin::pin!(client.exec(&id, &command).await?);
    let mut dry_run = None;
    while let Some(line) = lines.next().await {
        match line? {
            ExecLine::Started(started) => dry_run = Some(started),
            ExecLine::Stdout(bytes) => {
                let mut stdout = std::io::stdout();
                stdout.write_all(&bytes)?;
                stdout.flush()?;
            }
            ExecLine::Stderr(bytes) => std::io::stderr().write_all(&bytes)?,
            ExecLine::Ended(ended) => return Ok(exit_code(ended)),
            ExecLine::Broken(broken) => return Err(Failure::new(Kind::Failed, broken.detail)),
        }
    }
    match dry_run {
        Some(at) if client.is_dry_run() => {
            aside!(
                "headway: the command would run on node {}, beside rank {} (generation {})",
                at.node,
                at.rank,
                at.generation
            );
            Ok(ExitCode::SUCCESS)
        }
        _ => Err(Failure::new(Kind::Failed, "the reply broke off; the command is ended within 15 s")),
    }
}

/// As a shell tells it.
fn exit_code(of: ExecEnded) -> ExitCode {
    match of {
        ExecEnded { timed_out: true, .. } => {
            aside!("headway: the command's time was over (--timeout gives it more)");
            ExitCode::from(Kind::WaitTimeout as u8)
        }
        ExecEnded { exit_code: Some(code), .. } => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        ExecEnded { signal: Some(signal), .. } => {
            aside!("headway: the command was ended by signal {signal}");
            ExitCode::from(128_u8.saturating_add(u8::try_from(signal).unwrap_or(127)))
        }
        ExecEnded { .. } => ExitCode::FAILURE,
    }
}
