//! `headway admin migrate`: brings the schema of a database up to this release ahead of an upgrade, which the server does at its start as well where its
//! role may; and lets a role run servers that owns nothing.

use clap::Args;
use headway_scheduler::PrivatePostgres;
use headway_scheduler::postgres::database_options;
use headway_scheduler::store::{Checkup, Store};
use serde::Serialize;

use super::backup::Whose;
use crate::failure::{Failure, Kind};
use crate::output::Printer;

#[derive(Args, Clone, Debug)]
pub struct Migrate {
    #[command(flatten)]
    whose: Whose,
    /// Then let this role run servers: it may do what they need, and of the audit no more than read it and add to it. Run it as the owner of the tables, after each upgrade.
    #[arg(long, value_name = "ROLE")]
    grant: Option<String>,
}

/// A change of the schema.
#[derive(Serialize)]
struct Migration {
    version: i64,
    name: String,
}

pub async fn run(print: &Printer, Migrate { whose, grant }: Migrate, dry_run: bool) -> Result<(), Failure> {
    let url = match whose.database_url {
        Some(url) => url,
        None => {
            let postgres = super::backup::existing(whose.data_dir)?;
            PrivatePostgres::running(&postgres).await.ok_or_else(|| {
                Failure::new(Kind::Unreachable, format!("no Postgres runs in {}", postgres.display()))
                    .hint("the next start of `headway up` or `headway server` runs what is to be run")
            })?
        }
    };
    let options = || {
        database_options(&url).map_err(|error| Failure::new(Kind::Usage, format!("reading the database URL: {error}")))
    };
    let failed = |error| Failure::from(anyhow::Error::new(error));
    let found = Checkup::of(&options()?).await.map_err(failed)?;
    if !found.unknown.is_empty() {
        let told =
            format!("the database is of a newer release: this one does not know its migrations {:?}", found.unknown);
        return Err(Failure::new(Kind::Conflict, told).hint("use the release that made it, or a later one"));
    }
    let pending: Vec<Migration> =
        found.pending.into_iter().map(|(version, name)| Migration { version, name }).collect();
    if !dry_run && (!pending.is_empty() || grant.is_some()) {
        let store = Store::connect(options()?).await.map_err(failed)?;
        store.migrate().await.map_err(failed)?;
        if let Some(role) = &grant {
            store.grant_to(role).await.map_err(|error| Failure::from(anyhow::Error::new(error)))?;
        }
        store.close().await;
    }
    if print.structured() {
        return print.value(&pending);
    }
    for one in &pending {
        say!("{:04} {}", one.version, one.name)?;
    }
    match (pending.len(), dry_run) {
        (0, _) => say!("The schema is this release's already")?,
        (some, true) => say!("{some} would be run; they are safe beside a server of the release before")?,
        (some, false) => say!("{some} have been run; servers of the release before go on")?,
    }
    match (grant, dry_run) {
        (None, _) => {}
        (Some(role), true) => say!("{role} would be let run servers")?,
        (Some(role), false) => say!("{role} may run servers, and of the audit only read it and add to it")?,
    }
    Ok(())
}
