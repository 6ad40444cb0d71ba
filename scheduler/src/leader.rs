//! Leadership: one server per database acts, the others refuse.
//!
//! An advisory lock on a connection of its own keeps a second server out while this one lives; the term in the
//! cluster row keeps a server out that has lost the lock without noticing. The lock is convenience, the term is
//! safety: every commit checks it.

use std::time::Duration;

use headway_types::Term;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};

use crate::store::{Store, StoreError};

/// The advisory lock's number within the database ("headway" in ASCII).
const LOCK: i64 = 0x68_65_61_64_77_61_79;
/// A killed server's connection may outlive it by moments.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(200);

/// Holds the lock for as long as it lives.
pub struct Leader {
    options: PgConnectOptions,
    lock: Option<PgConnection>,
}

/// Why this server does not lead.
#[derive(Debug, thiserror::Error)]
pub enum LeaderError {
    #[error("another Headway server is using this database; stop it first, or give this one another database")]
    AnotherLeads,
    #[error("taking the leader lock")]
    Lock(#[source] sqlx::Error),
    #[error("beginning a term")]
    Term(#[source] StoreError),
}

impl Leader {
    #[must_use]
    pub fn new(options: PgConnectOptions) -> Self {
        Self { options, lock: None }
    }

    /// Makes sure the lock is held, then begins a new term. Waits a moment for a killed predecessor's connection to
    /// go away.
    pub async fn begin_term(&mut self, store: &Store) -> Result<Term, LeaderError> {
        let give_up = tokio::time::Instant::now() + PATIENCE;
        while !self.locked().await.map_err(LeaderError::Lock)? {
            if tokio::time::Instant::now() > give_up {
                return Err(LeaderError::AnotherLeads);
            }
            tokio::time::sleep(PAUSE).await;
        }
        store.begin_term().await.map_err(LeaderError::Term)
    }

    async fn locked(&mut self) -> Result<bool, sqlx::Error> {
        if let Some(lock) = &mut self.lock {
            if lock.ping().await.is_ok() {
                return Ok(true);
            }
            self.lock = None;
        }
        let mut connection = self.options.connect().await?;
        let taken = sqlx::query_scalar!(r#"SELECT pg_try_advisory_lock($1) AS "taken!""#, LOCK)
            .fetch_one(&mut connection)
            .await?;
        if taken {
            self.lock = Some(connection);
        }
        Ok(taken)
    }
}
