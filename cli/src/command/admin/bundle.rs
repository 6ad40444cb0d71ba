//! `headway admin support-bundle`: one archive to send to somebody who helps.

use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use chrono::Utc;
use clap::Args;
use headway_api::client::{Client, ClientError, QueueFilter};
use serde::Serialize;

use super::doctor::Doctor;
use crate::VERSION;
use crate::bundle::Bundle;
use crate::context::Connection;
use crate::doctor::look;
use crate::failure::{Failure, Kind};

/// Of the events and rounds the newest.
const EVENTS: u32 = 1_000;
const ROUNDS: u32 = 50;
/// Of each log the end, in bytes.
const LOG: u64 = 2 << 20;

#[derive(Args, Clone, Debug)]
pub struct SupportBundle {
    /// File to write (tar.gz); one that is there is never written over.
    file: PathBuf,
    #[command(flatten)]
    doctor: Doctor,
}

#[derive(Serialize)]
struct About {
    headway: &'static str,
    made_at: String,
    server: Option<String>,
    operating_system: String,
    /// What could not be had.
    missing: Vec<String>,
}

pub async fn run(connection: &Connection, of: SupportBundle) -> Result<(), Failure> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::new(Kind::Conflict, format!("{} is there already; it is not written over", of.file.display()))
        }
        _ => Failure::new(Kind::Failed, format!("writing {}: {error}", of.file.display())),
    };
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&of.file).map_err(failed)?;
    let now = Utc::now();
    let directory = format!("headway-support-{}", now.format("%Y%m%dT%H%M%SZ"));
    let mut bundle = Bundle::new(file, &directory, u64::try_from(now.timestamp()).unwrap_or_default());
    let mut missing = Vec::new();
    let client = connection.client();
    let server = client.as_ref().ok().map(Client::address);
    match &client {
        Ok(client) => {
            for (name, text) in asked(client).await {
                match text {
                    Ok(text) => bundle.add(name, &text).map_err(failed)?,
                    Err(error) => missing.push(format!("{name}: {}", Failure::from(error).message)),
                }
            }
        }
        Err(failure) => missing.push(format!("all that the server knows: {}", failure.message)),
    }
    let places = of.doctor.clone().places();
    let findings = look(client, &places, env!("HEADWAY_BUILD")).await;
    bundle.add("doctor.json", &document(&findings)).map_err(failed)?;
    for (name, text) in places.data_dir.iter().flat_map(|root| logs(root)) {
        bundle.add(&name, &text).map_err(failed)?;
    }
    let system = std::fs::read_to_string("/proc/version").unwrap_or_default().trim().to_owned();
    let made_at = crate::output::moment(now);
    let about = About { headway: VERSION, made_at, server, operating_system: system, missing };
    bundle.add("about.json", &document(&about)).map_err(failed)?;
    let names = bundle.names().join(", ");
    bundle.finish().and_then(|file| file.sync_all()).map_err(failed)?;
    say!("{} holds {names}", of.file.display())?;
    for missing in &about.missing {
        say!("  could not be had: {missing}")?;
    }
    say!(
        "It holds no specification of a job, no token, no secret and no address behind a host; names of users, jobs, projects and nodes are in it as your own"
    )?;
    say!("token sees them. Read it before you send it.")?;
    Ok(())
}

/// What the server says, as the caller's token sees it: what is hidden from that is hidden here.
async fn asked(client: &Client) -> Vec<(&'static str, Result<String, ClientError>)> {
    let queue = QueueFilter::default();
    vec![
        ("version.json", client.version().await.map(|it| document(&it))),
        ("readyz.txt", client.readiness().await),
        ("metrics.txt", client.metrics().await),
        ("overview.json", client.overview().await.map(|it| document(&it))),
        ("nodes.json", client.nodes().await.map(|it| document(&it))),
        ("queue.json", client.queue(&queue).await.map(|it| document(&it))),
        ("policy.json", client.policy().await.map(|it| document(&it))),
        ("rounds.json", client.plan_history(None, Some(ROUNDS)).await.map(|it| document(&it))),
        ("events.json", client.events(EVENTS).await.map(|it| document(&it))),
    ]
}

fn document(of: &impl Serialize) -> String {
    serde_json::to_string_pretty(of).unwrap_or_else(|error| format!("could not be written: {error}"))
}

/// Ends of the logs below a data directory.
fn logs(root: &Path) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(root.join("logs")).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|kind| kind == "log")).collect();
    files.push(root.join("postgres/postgres.log"));
    files.sort();
    let named = |path: &PathBuf| Some((format!("logs/{}", path.file_name()?.to_string_lossy()), tail(path)?));
    files.iter().filter_map(named).collect()
}

fn tail(path: &Path) -> Option<String> {
    let mut file = std::fs::File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG))).ok()?;
    let mut bytes = Vec::new();
    file.take(LOG).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
