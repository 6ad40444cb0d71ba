//! `headway admin backup` and `headway admin restore`: they speak to Postgres, not to a server, which may be what is gone.

use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use clap::Args;
use headway_scheduler::PrivatePostgres;
use headway_scheduler::backup::{self, BackupError, BackupFile, Manifest, RestoreError, Restored};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::command::shutdown_token;
use crate::failure::{Failure, Kind};
use crate::output::{Printer, moment};
use crate::up::DataDirectory;

/// Which database is meant.
#[derive(Args, Clone, Debug)]
pub struct Whose {
    /// Postgres of the cluster. Without it the private one below the data directory.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,
    /// The data directory of `headway up` or `headway server` [default: /var/lib/headway for root, else ~/.local/share/headway].
    #[arg(long, env = "HEADWAY_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct Backup {
    /// File to write; one that is there is never written over.
    file: PathBuf,
    #[command(flatten)]
    whose: Whose,
}

#[derive(Args, Clone, Debug)]
pub struct Restore {
    /// File that `headway admin backup` wrote.
    file: PathBuf,
    #[command(flatten)]
    whose: Whose,
    /// Where the data directory has a database already: move that aside, beside the new one. Nothing is deleted.
    #[arg(long)]
    replace: bool,
}

/// What was restored, for programs.
#[derive(Serialize)]
struct Report<'a> {
    manifest: &'a Manifest,
    /// The next term is above it.
    term: u64,
    migrated: &'a [i64],
    /// Where the database lies that was there before.
    moved_aside: Option<&'a Path>,
}

pub async fn back_up(print: &Printer, backup: Backup) -> Result<(), Failure> {
    let cancelled = shutdown_token(None)?;
    let manifest = match &backup.whose.database_url {
        Some(url) => write(&cancelled, url, &backup.file).await?,
        None => write_of_directory(&cancelled, backup.whose.data_dir, &backup.file).await?,
    };
    if print.structured() {
        return print.value(&manifest);
    }
    say!("{} holds {}", backup.file.display(), manifest.in_words())?;
    say!(
        "  term t{}, schema {}, {} bytes, SHA-256 {}",
        manifest.term,
        schema(&manifest),
        manifest.bytes,
        manifest.sha256
    )?;
    say!(
        "It does not hold: {}; checkpoints; output of jobs; agents' ledgers. Keep the key file of secrets apart from it.",
        keys(&manifest)
    )?;
    Ok(())
}

pub async fn restore(print: &Printer, restore: Restore, dry_run: bool) -> Result<(), Failure> {
    if dry_run {
        return look(print, &restore.file);
    }
    let cancelled = shutdown_token(None)?;
    let now = Utc::now();
    let (done, aside) = match &restore.whose.database_url {
        Some(_) if restore.replace => {
            let told = "--replace is for a data directory; with --database-url name a database that is empty";
            return Err(Failure::new(Kind::Usage, told));
        }
        Some(url) => (load(&cancelled, url, &restore.file, now).await?, None),
        None => into_directory(&cancelled, &restore, now).await?,
    };
    if print.structured() {
        let Restored { manifest, term, migrated } = &done;
        return print.value(&Report { manifest, term: term.0, migrated, moved_aside: aside.as_deref() });
    }
    tell(&done, aside.as_deref())
}

/// Verifies a file, and changes nothing.
fn look(print: &Printer, file: &Path) -> Result<(), Failure> {
    let mut opened = BackupFile::open(file).map_err(|error| restored_failure(error.into()))?;
    opened.check_schema().map_err(restored_failure)?;
    opened.verify().map_err(|error| restored_failure(error.into()))?;
    let manifest = &opened.manifest;
    if print.structured() {
        return print.value(manifest);
    }
    say!("{} is whole and would be restored: {}", file.display(), manifest.in_words())?;
    say!(
        "  made {} by {} ({}), term t{}, schema {}",
        moment(manifest.made_at),
        manifest.version,
        manifest.build,
        manifest.term,
        schema(manifest)
    )?;
    Ok(())
}

/// Into the private Postgres of a data directory, which is made where there is none.
async fn into_directory(
    cancelled: &CancellationToken,
    restore: &Restore,
    now: DateTime<Utc>,
) -> Result<(Restored, Option<PathBuf>), Failure> {
    // Before anything is moved: a file that is no good is no reason to.
    let mut opened = BackupFile::open(&restore.file).map_err(|error| restored_failure(error.into()))?;
    opened.check_schema().map_err(restored_failure)?;
    opened.verify().map_err(|error| restored_failure(error.into()))?;
    let directory = DataDirectory::open(restore.whose.data_dir.clone())?;
    let postgres = directory.root().join("postgres");
    if let Some(url) = PrivatePostgres::running(&postgres).await {
        // A killed restore leaves its Postgres running, and nothing else of Headway uses this directory.
        if !is_unfinished(&url).await? {
            let told = format!("a Postgres runs in {}; stop what it belongs to first", postgres.display());
            return Err(Failure::new(Kind::Conflict, told));
        }
        if restore.replace {
            stop(start(&directory).await?).await?;
        }
    }
    let aside = if restore.replace && postgres.join("data").exists() {
        let aside = directory.root().join(format!("postgres.before-{}", now.format("%Y%m%dT%H%M%SZ")));
        std::fs::rename(&postgres, &aside)
            .map_err(|error| Failure::new(Kind::Failed, format!("moving {} aside: {error}", postgres.display())))?;
        Some(aside)
    } else {
        None
    };
    let postgres = start(&directory).await?;
    let done = load(cancelled, &postgres.url(), &restore.file, now).await;
    stop(postgres).await?;
    Ok((done?, aside))
}

/// Whether a restore into this database began and has not finished.
async fn is_unfinished(url: &str) -> Result<bool, Failure> {
    backup::is_unfinished(url).await.map_err(restored_failure)
}

fn tell(done: &Restored, aside: Option<&Path>) -> Result<(), Failure> {
    let Restored { manifest, term, migrated } = done;
    say!("Restored the backup of {}: {}", moment(manifest.made_at), manifest.in_words())?;
    if let Some(aside) = aside {
        say!("  the database that was there lies in {}", aside.display())?;
    }
    if !migrated.is_empty() {
        let from = manifest.migrations.last().copied().unwrap_or_default();
        say!("  its schema {from:04} was brought up to date: {} migrations", migrated.len())?;
    }
    say!("  the next term is above {term}, and so above all that agents follow: they need no `headway admin readmit`")?;
    say!("Next:")?;
    if manifest.rows_of("secrets") > 0 {
        let secrets = manifest.rows_of("secrets");
        say!(
            "  - put the key file back that sealed its {secrets} secrets (secrets/secrets.key of the data directory, or --secrets-key-file)"
        )?;
    }
    say!("  - make the checkpoint root visible under the path it had")?;
    say!(
        "  - start the server: agents come back by themselves within seconds, and no GPUs are granted before all have, for a minute at most"
    )?;
    say!(
        "  - look at `headway token list`: what was revoked after the backup opens again; webhooks may be told again what they were told since"
    )?;
    Ok(())
}

/// The directory of the private Postgres, where there is one.
pub fn existing(chosen: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let root = match chosen {
        Some(root) => root,
        None => DataDirectory::default_root()?,
    };
    let postgres = std::path::absolute(root.join("postgres"))?;
    if postgres.join("data/PG_VERSION").exists() {
        return Ok(postgres);
    }
    let told = format!("no database of Headway lies below {}", root.display());
    Err(Failure::new(Kind::NotFound, told).hint("give --data-dir, or --database-url where the server was given one"))
}

async fn start(directory: &DataDirectory) -> Result<PrivatePostgres, Failure> {
    let started = PrivatePostgres::start(&directory.root().join("postgres")).await;
    started.map_err(|error| anyhow::Error::new(error).context("starting Postgres").into())
}

async fn stop(postgres: PrivatePostgres) -> Result<(), Failure> {
    postgres.stop().await.map_err(|error| anyhow::Error::new(error).context("stopping Postgres").into())
}

/// Of the private Postgres of a data directory, whether it runs or not.
async fn write_of_directory(
    cancelled: &CancellationToken,
    chosen: Option<PathBuf>,
    file: &Path,
) -> Result<Manifest, Failure> {
    let postgres = existing(chosen)?;
    if let Some(url) = PrivatePostgres::running(&postgres).await {
        return write(cancelled, &url, file).await;
    }
    // Nobody runs there, and nobody starts meanwhile.
    let directory = DataDirectory::open(postgres.parent().map(Path::to_owned))?;
    let postgres = start(&directory).await?;
    let written = write(cancelled, &postgres.url(), file).await;
    stop(postgres).await?;
    written
}

async fn write(cancelled: &CancellationToken, url: &str, file: &Path) -> Result<Manifest, Failure> {
    let written = tokio::select! {
        written = backup::write(url, file, env!("HEADWAY_BUILD"), Utc::now()) => written,
        () = cancelled.cancelled() => return Err(Failure::new(Kind::Interrupted, "interrupted; nothing is left of the backup")),
    };
    written.map_err(|error| match &error {
        BackupError::Exists(_) => Failure::new(Kind::Conflict, error.to_string()),
        BackupError::NoCluster => Failure::new(Kind::NotFound, error.to_string()),
        _ => anyhow::Error::new(error).into(),
    })
}

async fn load(cancelled: &CancellationToken, url: &str, file: &Path, now: DateTime<Utc>) -> Result<Restored, Failure> {
    tokio::select! {
        restored = backup::restore(url, file, now) => restored.map_err(restored_failure),
        () = cancelled.cancelled() => {
            let told = "interrupted; servers refuse the database until the restore has finished";
            Err(Failure::new(Kind::Interrupted, told).hint("run it again with the same file, or use another database"))
        }
    }
}

fn restored_failure(error: RestoreError) -> Failure {
    let (kind, hint) = match &error {
        RestoreError::NotEmpty { .. } => (
            Kind::Conflict,
            Some(
                "give --replace to move the database of a data directory aside, or the URL of another database (`createdb`)",
            ),
        ),
        RestoreError::InUse | RestoreError::StillLoading { .. } => (Kind::Conflict, None),
        RestoreError::OtherUnfinished { .. } => (
            Kind::Conflict,
            Some("give --replace to move the database of a data directory aside, or the URL of another database"),
        ),
        RestoreError::NewerSchema { .. } => {
            (Kind::Failed, Some("a release restores backups of its own and of older ones"))
        }
        _ => (Kind::Failed, None),
    };
    let failure = Failure::new(kind, format!("{:#}", anyhow::Error::new(error)));
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn schema(manifest: &Manifest) -> String {
    format!("{:04}", manifest.migrations.last().copied().unwrap_or_default())
}

fn keys(manifest: &Manifest) -> String {
    match manifest.rows_of("secrets") {
        0 => "the key file of secrets".into(),
        some => format!("the key file that opens its {some} secrets"),
    }
}
