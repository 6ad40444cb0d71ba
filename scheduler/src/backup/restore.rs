//! Restores a backup into an empty database: verified first, all of it or nothing, brought up to this release's schema, and marked so that the next leader's
//! term is above all that agents follow. It may be killed at any moment: from before the first table until the term is raised, the database has a
//! mark (`store/restores.rs`) that servers refuse.

use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use headway_types::{Term, Timestamp};
use sqlx::postgres::PgConnectOptions;
use tokio::io::AsyncWriteExt as _;

use super::file::{BackupFile, FileError, PIECE};
use super::manifest::Manifest;
use super::programs::{Program, ProgramError, database};
use crate::postgres::database_options;
use crate::store::{Contents, RESTORE_SESSIONS, Store, StoreError, UnfinishedRestore, Unled};

/// For the sessions of a killed restore to end.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(20);
/// For the lock of a killed restore or server to come free.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(50);

/// Why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("reading the database URL")]
    DatabaseUrl(#[source] sqlx::Error),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "the backup is of a newer schema: {version} made it, and this release does not know its migrations {unknown:?}; restore it with that release"
    )]
    NewerSchema { version: String, unknown: Vec<i64> },
    #[error("a Headway server uses this database; stop it first")]
    InUse,
    #[error("the database is not empty: it has {}", tables.join(", "))]
    NotEmpty { tables: Vec<String> },
    #[error(
        "a restore of another backup began at {began_at} and has not finished; restore that file again, which finishes \
         it, or give this one an empty database"
    )]
    OtherUnfinished { began_at: DateTime<Utc> },
    #[error(
        "an earlier restore still works in this database, in the processes {processes:?} of Postgres; try again when \
         they have ended, or end them with `SELECT pg_terminate_backend(PROCESS)`"
    )]
    StillLoading { processes: Vec<i32> },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error("handing the dump to pg_restore")]
    Read(#[source] std::io::Error),
    /// The database is not empty any more, and no server should use it.
    #[error("what was restored is not what the backup says: {what} has {found} rows, not {expected}")]
    Differs { what: String, expected: u64, found: u64 },
}

/// What was restored.
#[derive(Clone, Debug)]
pub struct Restored {
    pub manifest: Manifest,
    /// The next term is above it.
    pub term: Term,
    /// Migrations that the database has been through since.
    pub migrated: Vec<i64>,
}

impl BackupFile {
    /// Whether this release can use what is in it.
    pub fn check_schema(&self) -> Result<(), RestoreError> {
        let known: Vec<i64> = Store::known_migrations().into_iter().map(|(version, _)| version).collect();
        let unknown: Vec<i64> =
            self.manifest.migrations.iter().copied().filter(|version| !known.contains(version)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        Err(RestoreError::NewerSchema { version: self.manifest.version.clone(), unknown })
    }
}

/// Restores a file into a database that is empty, and leaves it so where it fails. What a killed restore of the same file
/// has loaded is finished. `now`: by the clock of this machine.
pub async fn restore(database_url: &str, file: &Path, now: DateTime<Utc>) -> Result<Restored, RestoreError> {
    let options: PgConnectOptions = database_options(database_url).map_err(RestoreError::DatabaseUrl)?;
    let options = options.application_name(RESTORE_SESSIONS);
    let mut backup = BackupFile::open(file)?;
    backup.check_schema()?;
    backup.verify()?;
    let mut unled = claim(&options).await?;
    let unfinished = unled.unfinished_restore().await?;
    if unfinished.is_some() {
        await_earlier_restore(&mut unled).await?;
    }
    let mut tables = unled.tables().await?;
    let manifest = backup.manifest.clone();
    let is_loaded_now = tables.is_empty();
    match &unfinished {
        _ if is_loaded_now => {
            let mark = UnfinishedRestore { began_at: now, backup_sha256: manifest.sha256.clone() };
            unled.mark_unfinished(&mark).await?;
            let loaded = load(&mut backup, database_url).await;
            // The program has ended and left nothing. An orphan of an earlier restore may still come, so that mark stays.
            if loaded.is_err() && unfinished.is_none() && unled.tables().await?.is_empty() {
                unled.remove_mark().await?;
            }
            loaded?;
        }
        Some(earlier) if earlier.backup_sha256 == manifest.sha256 => {
            tracing::info!(began_at = %earlier.began_at, "an earlier restore loaded this backup, and is finished now");
        }
        Some(earlier) => return Err(RestoreError::OtherUnfinished { began_at: earlier.began_at }),
        None => {
            tables.truncate(5);
            return Err(RestoreError::NotEmpty { tables });
        }
    }
    let contents = unled.contents().await?;
    // A restore that was killed after its migrations began had been compared before.
    if is_loaded_now || contents.migrations == manifest.migrations {
        check_rows(&manifest, &contents)?;
    }
    let store = Store::connect(options).await?;
    store.migrate_restored().await?;
    let made_at = Timestamp(manifest.made_at.timestamp_micros());
    let at = Timestamp(now.timestamp_micros());
    let term = store.mark_restored(made_at, above_all(&manifest, now), at).await?;
    store.close().await;
    unled.release().await?;
    let migrated = Store::known_migrations().into_iter().map(|(version, _)| version);
    let migrated = migrated.filter(|version| !manifest.migrations.contains(version)).collect();
    Ok(Restored { manifest, term, migrated })
}

/// Whether a restore into this database began and has not finished.
pub async fn is_unfinished(database_url: &str) -> Result<bool, RestoreError> {
    let options = database_options(database_url).map_err(RestoreError::DatabaseUrl)?;
    let mut unled = claim(&options).await?;
    let unfinished = unled.unfinished_restore().await?.is_some();
    unled.release().await?;
    Ok(unfinished)
}

/// Keeps servers out. Waits a moment for Postgres to notice that an earlier restore was killed.
async fn claim(options: &PgConnectOptions) -> Result<Unled, RestoreError> {
    let began = Instant::now();
    loop {
        match Unled::claim(options).await? {
            Some(unled) => return Ok(unled),
            None if began.elapsed() > LOCK_PATIENCE => return Err(RestoreError::InUse),
            None => tokio::time::sleep(POLL).await,
        }
    }
}

/// Waits for what a killed restore left running: its `pg_restore` loads what it was given, and its sessions end.
async fn await_earlier_restore(unled: &mut Unled) -> Result<(), RestoreError> {
    let began = Instant::now();
    loop {
        let processes = unled.restoring_processes().await?;
        if processes.is_empty() {
            return Ok(());
        }
        if began.elapsed() > ORPHAN_PATIENCE {
            return Err(RestoreError::StillLoading { processes });
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Compares rows with the manifest.
fn check_rows(manifest: &Manifest, contents: &Contents) -> Result<(), RestoreError> {
    for (table, expected) in &manifest.rows {
        let found = contents.rows.get(table).copied().unwrap_or_default();
        if found != *expected {
            return Err(RestoreError::Differs { what: table.clone(), expected: *expected, found });
        }
    }
    Ok(())
}

/// A term that no agent can have heard of: each start of a server begins one, and no cluster has started a server every second since the backup. So it is above
/// those of an earlier restore of the same backup, too.
fn above_all(manifest: &Manifest, now: DateTime<Utc>) -> Term {
    /// For clocks that disagree, and terms that began faster.
    const MARGIN: u64 = 1_000;
    let since = u64::try_from((now - manifest.made_at).num_seconds()).unwrap_or_default();
    Term(manifest.term.saturating_add(since).saturating_add(MARGIN))
}

/// Has `pg_restore` read the dump, in one transaction.
async fn load(backup: &mut BackupFile, database_url: &str) -> Result<(), RestoreError> {
    let arguments = ["--exit-on-error", "--single-transaction", "--no-owner", "--no-privileges", "--no-password"];
    let named = format!("--dbname={}", database(database_url)?);
    let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).chain([named]).collect();
    let mut program = Program::start("pg_restore", RESTORE_SESSIONS, database_url, &arguments)?;
    let mut input = program.child.stdin.take().expect("its input is piped");
    let mut dump = backup.dump().map_err(RestoreError::Read)?;
    let mut piece = vec![0; PIECE];
    loop {
        let some = dump.read(&mut piece).map_err(RestoreError::Read)?;
        // One that has failed reads no further, and says why.
        if some == 0 || input.write_all(&piece[..some]).await.is_err() {
            break;
        }
    }
    drop(input);
    Ok(program.finish().await?)
}
