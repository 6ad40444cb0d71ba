//! `headway admin …`: what keeps a cluster, and what operators do after something has gone badly wrong.

mod backup;
mod bundle;
mod ca;
mod config;
mod doctor;
mod migrate;
mod space;

use clap::Subcommand;
use headway_api::v1::Server;
use serde::Serialize;

use crate::context::Connection;
use crate::failure::{Failure, Kind};
use crate::output::{Printer, moment};
use crate::table::Column;

#[derive(Subcommand, Clone, Debug)]
pub enum Admin {
    /// Write the whole database to one file while the server runs.
    Backup(backup::Backup),
    /// Restore a backup into an empty database or a new data directory; agents follow it by themselves. With --dry-run only verify the file.
    Restore(backup::Restore),
    /// Check what a person would check when something is wrong, here and over REST; exit code 1 where a check fails.
    Doctor(doctor::Doctor),
    /// Write one archive for somebody who helps: what the server says, what `admin doctor` finds, the ends of logs, and nothing that opens anything.
    SupportBundle(Box<bundle::SupportBundle>),
    /// Bring the database's schema up to this release ahead of an upgrade; with --dry-run list what is to be run.
    Migrate(migrate::Migrate),
    /// Settings of the server: show them, check them without a start.
    #[command(subcommand)]
    Config(config::Config),
    /// What signs nodes' certificates.
    #[command(subcommand)]
    Ca(ca::Ca),
    /// Which server leads since when, and which stand by.
    Leader,
    /// What the database takes, table by table, the largest first, and what bounds each table.
    Space,
    /// After a backup was restored: have nodes follow this database though they have followed a newer term. What they run that it does
    /// not know is stopped.
    Readmit {
        /// Why, for the event log.
        #[arg(long)]
        reason: Option<String>,
    },
}

pub async fn run(connection: &Connection, print: &Printer, admin: Admin) -> Result<(), Failure> {
    match admin {
        Admin::Backup(_) if connection.dry_run => Err(Failure::new(Kind::Usage, "this has no dry run")),
        Admin::Backup(one) => backup::back_up(print, one).await,
        Admin::Restore(one) => backup::restore(print, one, connection.dry_run).await,
        Admin::Doctor(one) => doctor::run(connection, print, one).await,
        Admin::SupportBundle(one) => bundle::run(connection, *one).await,
        Admin::Migrate(one) => migrate::run(print, one, connection.dry_run).await,
        Admin::Config(one) => config::run(print, one).await,
        Admin::Ca(one) => ca::run(&connection.client()?, print, one).await,
        Admin::Leader => leader(connection, print).await,
        Admin::Space => space::run(connection, print).await,
        Admin::Readmit { reason } => readmit(connection, print, reason.as_deref()).await,
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

const COLUMNS: [Column; 8] = [
    Column::new("ROLE"),
    Column::new("TERM"),
    Column::new("URL").cut(12),
    Column::new("AGENTS").rank(3),
    Column::new("SINCE").rank(4),
    Column::new("SEEN").rank(5),
    Column::new("VERSION").rank(2),
    Column::new("SERVER").rank(1),
];

async fn leader(connection: &Connection, print: &Printer) -> Result<(), Failure> {
    let known = connection.client()?.leadership().await?;
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
    print.list(&rows, &COLUMNS, cells, |row| row.server.id.to_string())
}

async fn readmit(connection: &Connection, print: &Printer, reason: Option<&str>) -> Result<(), Failure> {
    let client = connection.client()?;
    let done = client.readmit(reason).await?;
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
