//! One file per command.

pub mod agent;
pub mod cancel;
pub mod catalog;
pub mod compare;
pub mod curve;
pub mod describe;
pub mod estimate;
pub mod evaluate;
pub mod events;
pub mod job;
pub mod logs;
pub mod model;
pub mod node;
pub mod plan;
pub mod policy;
pub mod project;
pub mod ps;
pub mod replay;
pub mod reservation;
pub mod server;
pub mod simulate;
pub mod solve;
pub mod submit;
pub mod why;

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use headway_api::client::Client;

use crate::failure::{Failure, Kind};

/// A token of cancellation that fires at SIGTERM, SIGINT, or when the given parent is gone.
fn shutdown_token(parent: Option<i32>) -> anyhow::Result<tokio_util::sync::CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    if let Some(parent) = parent {
        die_with(parent)?;
    }
    let token = tokio_util::sync::CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let cancel = token.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        cancel.cancel();
    });
    Ok(token)
}

/// Asks the kernel for SIGTERM when the parent dies, and checks that it has not died already.
fn die_with(parent: i32) -> anyhow::Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM)?;
    anyhow::ensure!(nix::unistd::getppid().as_raw() == parent, "the process that started this one is gone");
    Ok(())
}

/// A file, or standard input for `-`.
fn read(file: &Path) -> Result<String, Failure> {
    if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(file)
        .map_err(|error| Failure::new(Kind::Usage, format!("reading {}: {error}", file.display())))
}

/// Finds the job a user means: a full id, a unique beginning of one, or a name (the newest of that name).
async fn resolve_job(client: &Client, text: &str) -> Result<String, Failure> {
    if uuid::Uuid::parse_str(text).is_ok() {
        return Ok(text.to_owned());
    }
    let jobs = client.all_jobs().await?;
    if let Some(job) = jobs.iter().filter(|job| job.name == text).max_by_key(|job| job.submitted_at) {
        return Ok(job.id.to_string());
    }
    let mut matching =
        jobs.iter().map(|job| job.id.to_string()).filter(|id| id.starts_with(text) || id.ends_with(text));
    match (matching.next(), matching.next()) {
        (Some(id), None) => Ok(id),
        (Some(_), Some(_)) => Err(Failure::new(Kind::Usage, format!("{text} is the beginning of several job ids"))),
        _ => Err(Failure::new(Kind::NotFound, format!("no job is called {text}")).hint("see `headway ps --all`")),
    }
}

/// The tail of an id that tells recent ones apart (UUIDv7 begins with the time).
fn short(id: &str) -> &str {
    id.get(id.len().saturating_sub(8)..).unwrap_or(id)
}

/// Calls `show` again and again until Ctrl-C.
async fn watch<F, Fut>(every: Duration, mut show: F) -> Result<(), Failure>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<(), Failure>>,
{
    let mut interval = tokio::time::interval(every);
    loop {
        interval.tick().await;
        put!("\x1b[2J\x1b[H")?;
        show().await?;
    }
}
