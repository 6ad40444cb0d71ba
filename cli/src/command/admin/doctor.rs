//! `headway admin doctor`: what a person would check when something is wrong, in one go.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::context::Connection;
use crate::doctor::{Finding, Level, Places, look};
use crate::failure::{Failure, Kind};
use crate::output::Printer;
use crate::table::Column;
use crate::up::DataDirectory;

#[derive(Args, Clone, Debug)]
pub struct Doctor {
    /// Look at this database too.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Look at this data directory too, its Postgres, its disk and its key file [default: the usual one, where it is there].
    #[arg(long, env = "HEADWAY_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Look whether this is visible here [default: that of the data directory].
    #[arg(long)]
    checkpoint_root: Option<PathBuf>,
    /// Look whether this key file of secrets can be used [default: that of the data directory].
    #[arg(long, env = "HEADWAY_SECRETS_KEY_FILE")]
    secrets_key_file: Option<PathBuf>,
}

const COLUMNS: [Column; 3] = [Column::new("").state(), Column::new("CHECK"), Column::new("FOUND").wrap(24)];

#[derive(Serialize)]
struct Report {
    /// The worst of them.
    level: Level,
    findings: Vec<Finding>,
}

impl Doctor {
    /// What of it is on this machine.
    pub fn places(self) -> Places {
        let usual = || DataDirectory::default_root().ok().filter(|root| root.join("postgres/data/PG_VERSION").exists());
        let data_dir = self.data_dir.or_else(usual).filter(|_| self.database_url.is_none());
        let below = |name: &str| data_dir.as_ref().map(|root| root.join(name)).filter(|path| path.exists());
        Places {
            checkpoint_root: self.checkpoint_root.or_else(|| below("checkpoints")),
            secrets_key: self.secrets_key_file.or_else(|| below("secrets/secrets.key")),
            database_url: self.database_url,
            data_dir,
        }
    }
}

pub async fn run(connection: &Connection, print: &Printer, doctor: Doctor) -> Result<(), Failure> {
    report(print, look(connection.client(), &doctor.places(), env!("HEADWAY_BUILD")).await)
}

/// Prints what was found; a failure where a check failed.
pub fn report(print: &Printer, findings: Vec<Finding>) -> Result<(), Failure> {
    let level = findings.iter().map(|one| one.level).max().unwrap_or(Level::Ok);
    let failed = findings.iter().filter(|one| one.level == Level::Fail).count();
    if print.structured() {
        print.value(&Report { level, findings })?;
    } else {
        let row = |one: &Finding| vec![one.level.word().to_owned(), one.check.to_owned(), in_words(one)];
        say!("{}", print.rows(&COLUMNS, findings.iter().map(row).collect()))?;
    }
    match failed {
        0 => Ok(()),
        1 => Err(Failure::new(Kind::Failed, "one check failed")),
        many => Err(Failure::new(Kind::Failed, format!("{many} checks failed"))),
    }
}

fn in_words(of: &Finding) -> String {
    match &of.advice {
        Some(advice) => format!("{}: {advice}", of.found.trim_end_matches('.')),
        None => of.found.clone(),
    }
}
