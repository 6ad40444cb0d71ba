//! Writes a backup. Commits go on meanwhile: it holds what one snapshot does.

use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use sqlx::postgres::PgConnectOptions;
use tokio::io::AsyncReadExt as _;

use super::file::{PIECE, Unfinished};
use super::manifest::Manifest;
use super::programs::{Program, ProgramError};
use crate::postgres::database_options;
use crate::store::{HeldSnapshot, StoreError};

/// Why there is no backup. Nothing of it is left behind.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("reading the database URL")]
    DatabaseUrl(#[source] sqlx::Error),
    #[error("{0} is there already; a backup is never written over")]
    Exists(PathBuf),
    #[error("this database holds no cluster of Headway")]
    NoCluster,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error("writing {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("reading what pg_dump writes")]
    Read(#[source] std::io::Error),
}

/// Backs the database up into a file that must not exist, readable to its owner alone. `build`: what the binary was built from.
pub async fn write(
    database_url: &str,
    file: &Path,
    build: &str,
    made_at: DateTime<Utc>,
) -> Result<Manifest, BackupError> {
    let failed = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::AlreadyExists => BackupError::Exists(file.to_owned()),
        _ => BackupError::Write { path: file.to_owned(), source },
    };
    let options: PgConnectOptions = database_options(database_url).map_err(BackupError::DatabaseUrl)?;
    if file.try_exists().map_err(failed)? {
        return Err(BackupError::Exists(file.to_owned()));
    }
    let mut unfinished = Unfinished::begin(file).map_err(failed)?;
    let held = HeldSnapshot::take(&options).await?.ok_or(BackupError::NoCluster)?;
    // Rows compress tenfold at the first level; the next ones take three times as long for a tenth less.
    let arguments = ["--format=custom", "--compress=1", "--no-owner", "--no-privileges", "--no-password"];
    let snapshot = format!("--snapshot={}", held.id);
    let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).chain([snapshot]).collect();
    let mut dump = Program::start("pg_dump", "headway admin backup", database_url, &arguments)?;
    let mut output = dump.child.stdout.take().expect("its output is piped");
    let mut piece = vec![0; PIECE];
    loop {
        match output.read(&mut piece).await.map_err(BackupError::Read)? {
            0 => break,
            some => unfinished.add(&piece[..some]).map_err(failed)?,
        }
    }
    dump.finish().await?;
    let contents = held.contents.clone();
    held.release().await?;
    unfinished.finish(file, |bytes, sha256| Manifest::new(build, made_at, &contents, bytes, sha256)).map_err(failed)
}
