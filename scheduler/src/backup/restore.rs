//! Restores a backup into an empty database: verified first, all of it or nothing, brought up to this release's schema, and marked so that the next leader's
//! term is above all that agents follow.

use std::io::Read as _;
use std::path::Path;

use chrono::{DateTime, Utc};
use headway_types::{Term, Timestamp};
use sqlx::postgres::PgConnectOptions;
use tokio::io::AsyncWriteExt as _;

use super::file::{BackupFile, FileError, PIECE};
use super::manifest::Manifest;
use super::programs::{Program, ProgramError, database};
use crate::store::{Store, StoreError, Unled};

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

/// Restores a file into a database that is empty, and stays so where it fails. `now`: by the clock of this machine.
pub async fn restore(database_url: &str, file: &Path, now: DateTime<Utc>) -> Result<Restored, RestoreError> {
    let options: PgConnectOptions = database_url.parse().map_err(RestoreError::DatabaseUrl)?;
    let mut backup = BackupFile::open(file)?;
    backup.check_schema()?;
    backup.verify()?;
    let mut unled = Unled::claim(&options).await?.ok_or(RestoreError::InUse)?;
    let mut tables = unled.tables().await?;
    if !tables.is_empty() {
        tables.truncate(5);
        return Err(RestoreError::NotEmpty { tables });
    }
    load(&mut backup, database_url).await?;
    let manifest = backup.manifest.clone();
    let found = unled.contents().await?;
    for (table, expected) in &manifest.rows {
        let found = found.rows.get(table).copied().unwrap_or_default();
        if found != *expected {
            return Err(RestoreError::Differs { what: table.clone(), expected: *expected, found });
        }
    }
    let store = Store::connect(options).await?;
    store.migrate().await?;
    let made_at = Timestamp(manifest.made_at.timestamp_micros());
    let at = Timestamp(now.timestamp_micros());
    let term = store.mark_restored(made_at, above_all(&manifest, now), at).await?;
    store.close().await;
    unled.release().await?;
    let migrated = Store::known_migrations().into_iter().map(|(version, _)| version);
    let migrated = migrated.filter(|version| !manifest.migrations.contains(version)).collect();
    Ok(Restored { manifest, term, migrated })
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
    let mut program = Program::start("pg_restore", database_url, &arguments)?;
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
