//! `headway admin …`: what operators do after something has gone badly wrong.

use clap::Subcommand;
use headway_api::client::Client;
use headway_api::v1::Server;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{Printer, moment};

#[derive(Subcommand, Clone, Debug)]
pub enum Admin {
    /// Which server leads since when, and which stand by.
    Leader,
    /// After a backup was restored: have nodes follow this database though they have followed a newer term. What they run that it does
    /// not know is stopped.
    Readmit {
        /// Why, for the event log.
        #[arg(long)]
        reason: Option<String>,
    },
}

pub async fn run(client: &Client, print: &Printer, admin: Admin) -> Result<(), Failure> {
    match admin {
        Admin::Leader => leader(client, print).await,
        Admin::Readmit { reason } => readmit(client, print, reason).await,
    }
}

#[derive(Serialize)]
struct Row {
    role: &'static str,
    #[serde(flatten)]
    server: Server,
}

/// One that leads speaks twice a second, one that stands by once.
const SILENT: f64 = 3.0;

async fn leader(client: &Client, print: &Printer) -> Result<(), Failure> {
    let known = client.leadership().await?;
    if print.structured() {
        return print.value(&known);
    }
    let lives = known.leader.as_ref().is_some_and(|one| one.silent_seconds < SILENT);
    let role = if lives { "leads" } else { "led" };
    let leader = known.leader.into_iter().map(|server| Row { role, server });
    let standing = |server: &Server| if server.silent_seconds < SILENT { "stands by" } else { "silent" };
    let standbys = known.standbys.into_iter().map(|server| Row { role: standing(&server), server });
    let rows: Vec<Row> = leader.chain(standbys).collect();
    let cells = |row: &Row| {
        let Server { id, url, agents_url, version, silent_seconds, .. } = &row.server;
        let of_a_leader = ["leads", "led"].contains(&row.role);
        let since = known.since.filter(|_| of_a_leader).map_or_else(String::new, moment);
        let term = if of_a_leader { format!("t{}", known.term) } else { String::new() };
        let seen = format!("{silent_seconds:.1} s ago");
        vec![row.role.into(), term, url.clone(), agents_url.clone(), since, seen, version.clone(), id.to_string()]
    };
    let columns = ["ROLE", "TERM", "URL", "AGENTS", "SINCE", "SEEN", "VERSION", "SERVER"];
    print.list(&rows, &columns, cells, |row| row.server.id.to_string())
}

async fn readmit(client: &Client, print: &Printer, reason: Option<String>) -> Result<(), Failure> {
    let done = client.readmit(reason.as_deref()).await?;
    if print.structured() {
        return print.value(&done);
    }
    for node in &done.nodes {
        say!("{} followed term t{}", node.name, node.term)?;
    }
    if client.is_dry_run() {
        say!("They would be readmitted: the next term would be t{} or above", done.term)?;
    } else {
        say!("They are readmitted: the next term is t{} or above; they register within seconds", done.term)?;
    }
    Ok(())
}
