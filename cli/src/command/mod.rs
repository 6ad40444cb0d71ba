//! One file per command.

pub mod admin;
pub mod agent;
pub mod array;
pub mod audit;
pub mod cancel;
pub mod catalog;
mod chosen;
pub mod compare;
pub mod context;
pub mod curve;
pub mod describe;
pub mod estimate;
pub mod evaluate;
pub mod events;
pub mod exec;
pub mod job;
mod last_lines;
pub mod login;
pub mod logs;
pub mod model;
pub mod node;
mod notify;
mod outcome;
pub mod plan;
pub mod policy;
pub mod project;
pub mod ps;
pub mod queue;
mod rebalance;
pub mod replay;
pub mod reservation;
pub mod secret;
pub mod server;
pub mod simulate;
pub mod solve;
pub mod submit;
pub mod token;
pub mod usage;
pub mod user;
pub mod version;
pub mod wait;
pub mod why;

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use std::time::Duration;

use headway_api::client::Client;

use crate::failure::{Failure, Kind};

/// A token of cancellation that fires at SIGTERM, SIGINT, or when the given parent is gone.
pub fn shutdown_token(parent: Option<i32>) -> anyhow::Result<tokio_util::sync::CancellationToken> {
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

/// Tokens of an agent that leaves before it ends: the first SIGTERM tells it to leave, a second one or SIGINT to end
/// at once.
pub fn departure_tokens() -> anyhow::Result<headway_agent::Ending> {
    use tokio::signal::unix::{SignalKind, signal};
    let ending = headway_agent::Ending::default();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let told = ending.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {
                told.leave.cancel();
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            }
            _ = interrupt.recv() => {}
        }
        told.stop.cancel();
    });
    Ok(ending)
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

/// Finds the job a user wants to hear of: a full id, a unique beginning or end of one, or a name. Of several with that name the newest,
/// which is said.
async fn resolve_job(client: &Client, text: &str) -> Result<String, Failure> {
    if uuid::Uuid::parse_str(text).is_ok() {
        return Ok(text.to_owned());
    }
    let chosen = chosen::to_show(client, text).await?;
    if chosen.others > 0 {
        aside!("headway: {} jobs are called {text}; this is the newest, {}", chosen.others + 1, short(&chosen.id));
    }
    Ok(chosen.id)
}

/// Finds the job a user wants something done to: never one of several that he may mean.
async fn resolve_only_job(client: &Client, text: &str) -> Result<String, Failure> {
    if uuid::Uuid::parse_str(text).is_ok() {
        return Ok(text.to_owned());
    }
    chosen::to_change(client, text).await
}

/// Whether an id may begin or end so.
fn may_end_an_id(text: &str) -> bool {
    (1..=36).contains(&text.len()) && text.chars().all(|sign| sign.is_ascii_hexdigit() || sign == '-')
}

/// The tail of an id that tells recent ones apart (UUIDv7 begins with the time).
fn short(id: &str) -> &str {
    id.get(id.len().saturating_sub(8)..).unwrap_or(id)
}

/// Calls `show` again and again until Ctrl-C: over what it showed before on a terminal, after it in a file or a pipe.
async fn watch<F, Fut>(every: Duration, mut show: F) -> Result<(), Failure>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<(), Failure>>,
{
    let mut interval = tokio::time::interval(every);
    let terminal = std::io::stdout().is_terminal();
    for round in 0u64.. {
        interval.tick().await;
        match (terminal, round) {
            (true, _) => std::io::stdout().write_all(b"\x1b[2J\x1b[H")?,
            (false, 0) => {}
            (false, _) => say!("")?,
        }
        show().await?;
    }
    Ok(())
}
