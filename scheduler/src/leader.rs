//! Leadership: one server per database acts, the others refuse.
//!
//! An advisory lock on a connection of its own keeps a second server out while this one lives; the term in the
//! cluster row keeps a server out that has lost the lock without noticing. The lock is convenience, the term is
//! safety: every commit checks it.

use headway_types::Term;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};

use crate::store::{Store, StoreError};

/// The advisory lock's number within the database ("headway" in ASCII).
const LOCK: i64 = 0x68_65_61_64_77_61_79;
/// A killed server's connection may outlive it by moments; the lock comes free the moment Postgres notices.
const PATIENCE: &str = "5s";
/// What Postgres answers when patience is over.
const LOCK_NOT_AVAILABLE: &str = "55P03";
/// So that Postgres notices within seconds when the leader's machine is gone without a word.
const KEEPALIVE: [(&str, &str); 3] =
    [("tcp_keepalives_idle", "5"), ("tcp_keepalives_interval", "2"), ("tcp_keepalives_count", "3")];

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
        self.lock().await?;
        store.begin_term().await.map_err(LeaderError::Term)
    }

    async fn lock(&mut self) -> Result<(), LeaderError> {
        if let Some(lock) = &mut self.lock {
            if lock.ping().await.is_ok() {
                return Ok(());
            }
            self.lock = None;
        }
        let options = self.options.clone().options([("lock_timeout", PATIENCE)]).options(KEEPALIVE);
        let mut connection = options.connect().await.map_err(LeaderError::Lock)?;
        let taken = sqlx::query_scalar!(r#"SELECT pg_advisory_lock($1) IS NOT NULL AS "taken!""#, LOCK);
        match taken.fetch_one(&mut connection).await {
            Ok(_) => {
                self.lock = Some(connection);
                Ok(())
            }
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(LOCK_NOT_AVAILABLE) => {
                Err(LeaderError::AnotherLeads)
            }
            Err(error) => Err(LeaderError::Lock(error)),
        }
    }
}
