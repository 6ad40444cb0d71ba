//! Leadership: one server per database acts, the others refuse.
//!
//! An advisory lock on a connection of its own keeps a second server out while this one lives; the term in the
//! cluster row keeps a server out that has lost the lock without noticing. The lock is convenience, the term is
//! safety: every commit checks it. The lock lasts no longer than its holder says something: Postgres ends a session that has been silent
//! for a lease, so that a server that is stopped, or was cut off, keeps nobody out.

use std::sync::Arc;
use std::time::Duration;

use headway_types::Term;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, PgConnection};
use tokio::sync::{Mutex, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::store::{Store, StoreError, newest_term};

/// The advisory lock's number within the database ("headway" in ASCII).
const LOCK: i64 = 0x68_65_61_64_77_61_79;
/// How long a leader may be silent.
const LEASE: Duration = Duration::from_secs(10);
/// A leader says something so many times in a lease.
const BEATS: u32 = 5;
/// Beyond the lease: the lock comes free when Postgres notices that it is over.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between attempts to hold the lock again.
const RETRY: Duration = Duration::from_secs(1);
/// What Postgres answers when patience is over.
const LOCK_NOT_AVAILABLE: &str = "55P03";
/// So that Postgres notices within seconds when the leader's machine is gone without a word.
const KEEPALIVE: [(&str, &str); 3] =
    [("tcp_keepalives_idle", "5"), ("tcp_keepalives_interval", "2"), ("tcp_keepalives_count", "3")];

/// Holds the lock for as long as it lives.
pub struct Leader {
    lock: Lock,
    /// Says something while a term lasts.
    keeper: Option<AbortOnDropHandle<()>>,
    hold: watch::Sender<Hold>,
}

/// The lock, as far as this process knows.
#[derive(Clone)]
struct Lock {
    options: PgConnectOptions,
    lease: Duration,
    held: Arc<Mutex<Option<PgConnection>>>,
}

/// What has become of the lock while a term lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    Held,
    /// Postgres does not answer.
    Away,
    /// Another server leads, or has led.
    Lost,
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
        Self::with_lease(options, LEASE)
    }

    pub(crate) fn with_lease(options: PgConnectOptions, lease: Duration) -> Self {
        Self { lock: Lock { options, lease, held: Arc::default() }, keeper: None, hold: watch::Sender::new(Hold::Held) }
    }

    /// Makes sure the lock is held, then begins a new term and keeps the lock while it lasts, however long the cluster takes to load.
    /// Waits a moment for a killed predecessor's connection to go away, and as long as a stopped one may keep it.
    pub async fn begin_term(&mut self, store: &Store) -> Result<Term, LeaderError> {
        self.keeper = None;
        self.lock.hold().await?;
        let term = store.begin_term().await.map_err(LeaderError::Term)?;
        self.keep(term);
        Ok(term)
    }

    /// What becomes of the lock of the term that was begun last. One that was lost to a hiccup is taken again, under the same term if
    /// nobody has begun another meanwhile.
    pub fn told(&self) -> watch::Receiver<Hold> {
        let mut told = self.hold.subscribe();
        // What has happened to it already is news to whoever listens from now on.
        told.mark_changed();
        told
    }

    fn keep(&mut self, term: Term) {
        let (lock, hold) = (self.lock.clone(), watch::Sender::new(Hold::Held));
        self.hold = hold.clone();
        self.keeper = Some(AbortOnDropHandle::new(tokio::spawn(async move { lock.keep(term, &hold).await })));
    }
}

impl Lock {
    /// Holds the lock, or finds that it is held still; the newest term that anybody has begun.
    async fn hold(&self) -> Result<Term, LeaderError> {
        let mut held = self.held.lock().await;
        if let Some(lock) = held.as_mut() {
            if let Ok(Ok(newest)) = tokio::time::timeout(self.lease, newest_term(lock)).await {
                return Ok(newest);
            }
            *held = None;
        }
        let millis = |duration: Duration| duration.as_millis().to_string();
        let (patience, lease) = (millis(self.lease + PATIENCE), millis(self.lease));
        let options = self.options.clone().options([("lock_timeout", patience), ("idle_session_timeout", lease)]);
        let mut connection = options.options(KEEPALIVE).connect().await.map_err(LeaderError::Lock)?;
        let taken = sqlx::query_scalar!(r#"SELECT pg_advisory_lock($1) IS NOT NULL AS "taken!""#, LOCK);
        match taken.fetch_one(&mut connection).await {
            Ok(_) => {
                let newest = newest_term(&mut connection).await.map_err(LeaderError::Term)?;
                *held = Some(connection);
                Ok(newest)
            }
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(LOCK_NOT_AVAILABLE) => {
                Err(LeaderError::AnotherLeads)
            }
            Err(error) => Err(LeaderError::Lock(error)),
        }
    }

    /// Says something on the lock's connection, again and again, until another server leads.
    async fn keep(&self, term: Term, told: &watch::Sender<Hold>) {
        loop {
            let (hold, pause) = match self.hold().await {
                Ok(newest) if newest != term => (Hold::Lost, RETRY),
                Ok(_) => (Hold::Held, self.lease / BEATS),
                Err(LeaderError::AnotherLeads) => (Hold::Lost, RETRY),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "Postgres does not answer");
                    (Hold::Away, RETRY)
                }
            };
            told.send_if_modified(|known| std::mem::replace(known, hold) != hold);
            if hold == Hold::Lost {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use sqlx::Connection;

    use super::*;
    use crate::support::TestDatabase;

    const SHORT: Duration = Duration::from_millis(500);

    #[tokio::test]
    async fn a_leader_that_says_nothing_keeps_nobody_out_and_its_commits_are_refused() {
        let database = TestDatabase::create().await;
        let store = database.store().await;
        let mut stopped = Leader::with_lease(database.options.clone(), SHORT);
        // As a process that was stopped right here: its connection stands, and nobody says anything on it.
        let first = stopped.begin_term(&store).await.unwrap();
        stopped.keeper = None;
        let mut second = Leader::with_lease(database.options.clone(), SHORT);
        let term = second.begin_term(&store).await.unwrap();
        assert!(term > first);
        assert!(matches!(store.commit(first, &[]).await, Err(StoreError::Fenced { .. })));
        stopped.keep(first);
        let mut lost = stopped.told();
        tokio::time::timeout(Duration::from_secs(20), lost.wait_for(|hold| *hold == Hold::Lost))
            .await
            .unwrap()
            .unwrap();
    }

    #[tokio::test]
    async fn a_leader_that_lives_keeps_others_out_for_longer_than_a_lease() {
        let database = TestDatabase::create().await;
        let store = database.store().await;
        let mut first = Leader::with_lease(database.options.clone(), SHORT);
        first.begin_term(&store).await.unwrap();
        let hold = first.told();
        let mut second = Leader::with_lease(database.options.clone(), SHORT);
        assert!(matches!(second.begin_term(&store).await, Err(LeaderError::AnotherLeads)));
        assert_eq!(*hold.borrow(), Hold::Held);
    }

    #[tokio::test]
    async fn a_lock_that_was_lost_to_a_hiccup_is_taken_again_under_the_same_term() {
        let database = TestDatabase::create().await;
        let store = database.store().await;
        let mut leader = Leader::with_lease(database.options.clone(), SHORT);
        let term = leader.begin_term(&store).await.unwrap();
        leader.keeper = None;
        // Silent for longer than a lease, and nobody came.
        let silent = leader.lock.held.clone();
        let gone = async {
            while silent.lock().await.as_mut().unwrap().ping().await.is_ok() {
                tokio::time::sleep(SHORT * 2).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
        leader.keep(term);
        let hold = leader.told();
        leader.lock.hold().await.unwrap();
        let mut second = Leader::with_lease(database.options.clone(), SHORT);
        assert!(matches!(second.begin_term(&store).await, Err(LeaderError::AnotherLeads)));
        assert_eq!(*hold.borrow(), Hold::Held);
        assert_eq!(leader.lock.hold().await.unwrap(), term);
    }
}
