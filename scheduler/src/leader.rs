//! Leadership: one server per database acts, the others refuse or stand by.
//!
//! An advisory lock on a connection of its own keeps a second server out while this one lives; the term in the
//! cluster row keeps a server out that has lost the lock without noticing. The lock is convenience, the term is
//! safety: every commit checks it. The lock lasts no longer than its holder says something: Postgres ends a session that has been silent
//! for a while, so that a server that is stopped, or was cut off, keeps nobody out; its own lease is over before.

mod lease;

use std::sync::Arc;
use std::time::Duration;

use headway_types::{Seconds, Term};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, PgConnection};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

pub use self::lease::Lease;
use crate::store::{DiskState, KnownServer, Server, Store, StoreError, former, tell_and_ask, tell_of_the_end};

/// The advisory lock's number within the database ("headway" in ASCII).
pub(crate) const LOCK: i64 = 0x68_65_61_64_77_61_79;
/// How long a leader may be silent before Postgres ends its session.
const SESSION: Duration = Duration::from_secs(10);
/// And where others stand by.
const SHORT_SESSION: Duration = Duration::from_secs(3);
/// A leader says something so many times meanwhile.
const BEATS: u32 = 5;
/// Beyond the session: the lock comes free when Postgres notices that it is over.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the beginning of a term is waited for: what a leader that was cut off in a commit holds is free by then.
const TERM_TIME: Duration = Duration::from_secs(20);
/// Between attempts to hold the lock again.
const RETRY: Duration = Duration::from_secs(1);
/// What Postgres answers when patience is over.
const LOCK_NOT_AVAILABLE: &str = "55P03";
/// So that Postgres notices within seconds when the leader's machine is gone without a word. What a leader tells of itself may be lost
/// with the machine of the database.
const SETTINGS: [(&str, &str); 4] = [
    ("tcp_keepalives_idle", "5"),
    ("tcp_keepalives_interval", "2"),
    ("tcp_keepalives_count", "3"),
    ("synchronous_commit", "off"),
];

/// Holds the lock for as long as it lives.
pub struct Leader {
    lock: Lock,
    /// Says something while a term lasts.
    keeper: Option<AbortOnDropHandle<()>>,
    stands_by: bool,
}

/// The lock, as far as this process knows.
#[derive(Clone)]
struct Lock {
    options: PgConnectOptions,
    session: Duration,
    lease: Lease,
    /// As it tells of itself.
    server: Arc<Server>,
    held: Arc<Mutex<Option<PgConnection>>>,
    /// Of the store that is led.
    disk: DiskState,
}

/// A term that has begun, and what becomes of the lock while it lasts.
#[derive(Debug)]
pub struct Lead {
    pub term: Term,
    pub hold: watch::Receiver<Hold>,
    /// Who led the term before, where he was another.
    pub former: Option<KnownServer>,
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
        Self::with_session(options, SESSION)
    }

    /// How long it may be silent.
    pub(crate) fn session(&self) -> Duration {
        self.lock.session
    }

    pub(crate) fn with_session(options: PgConnectOptions, session: Duration) -> Self {
        let (lease, server, held) = (Lease::of(session), Arc::default(), Arc::default());
        let lock = Lock { options, session, lease, server, held, disk: DiskState::default() };
        Self { lock, keeper: None, stands_by: false }
    }

    /// One that tells of itself, so that others can name it.
    #[must_use]
    pub fn of(mut self, server: Server) -> Self {
        self.lock.server = Arc::new(server);
        self
    }

    /// One that waits for as long as another leads.
    #[must_use]
    pub fn standing_by(mut self) -> Self {
        self.lock.session = self.lock.session.min(SHORT_SESSION);
        self.lock.lease = Lease::of(self.lock.session);
        Self { stands_by: true, ..self }
    }

    #[must_use]
    pub fn stands_by(&self) -> bool {
        self.stands_by
    }

    /// As it tells of itself.
    #[must_use]
    pub fn server(&self) -> Arc<Server> {
        Arc::clone(&self.lock.server)
    }

    /// While it stands, nobody else leads.
    #[must_use]
    pub fn lease(&self) -> Lease {
        self.lock.lease.clone()
    }

    /// Makes sure the lock is held, then begins a new term and keeps the lock while it lasts. Waits a moment for a killed predecessor's
    /// connection to go away, and as long as a stopped one may keep it.
    pub async fn begin_term(&mut self, store: &Store) -> Result<Lead, LeaderError> {
        self.begin_within(self.lock.session + PATIENCE, store).await
    }

    /// The same where the lock is free now.
    pub async fn begin_at_once(&mut self, store: &Store) -> Result<Lead, LeaderError> {
        self.begin_within(Duration::from_millis(1), store).await
    }

    /// Whether the lock outlasts so long a silence of its holder.
    #[must_use]
    pub fn keeps_for(&self, silent: Seconds) -> bool {
        silent.0 < self.lock.session.as_secs_f64()
    }

    /// Says that this server stops, and lets the lock go: whoever stands by need not wait until the process has ended.
    pub async fn resign(mut self) {
        self.keeper = None;
        if let Some(mut connection) = self.lock.held.lock().await.take() {
            let told = tell_of_the_end(&mut connection, self.lock.server.id);
            if let Err(error) = answered(self.lock.session, told).await {
                tracing::debug!(error = &error as &dyn std::error::Error, "nobody is told that this server stops");
            }
        }
    }

    async fn begin_within(&mut self, patience: Duration, store: &Store) -> Result<Lead, LeaderError> {
        self.keeper = None;
        self.lock.disk = store.disk().clone();
        self.lock.hold(patience, None).await?;
        let former = self.lock.former().await.map_err(LeaderError::Lock)?;
        let begun = tokio::time::timeout(TERM_TIME, store.begin_term_of(Some(self.lock.server.id))).await;
        let term = begun.unwrap_or(Err(StoreError::Unanswered)).map_err(LeaderError::Term)?;
        let (told, hold) = watch::channel(Hold::Held);
        let lock = self.lock.clone();
        self.keeper = Some(AbortOnDropHandle::new(tokio::spawn(async move { lock.keep(term, &told).await })));
        Ok(Lead { term, hold, former })
    }
}

impl Lock {
    /// Says something on the lock's connection, or takes the lock if it has none; the newest term that somebody has begun. `led`: the term that the
    /// lock is taken again for, and not at all where there is a newer one.
    async fn hold(&self, patience: Duration, led: Option<Term>) -> Result<Term, LeaderError> {
        let mut held = self.held.lock().await;
        if let Some(lock) = held.as_mut() {
            if let Ok(newest) = self.say(lock).await {
                return Ok(newest);
            }
            *held = None;
        }
        let millis = |duration: Duration| duration.as_millis().to_string();
        let options = self.options.clone().options(SETTINGS);
        let options =
            options.options([("lock_timeout", millis(patience)), ("idle_session_timeout", millis(self.session))]);
        let mut connection = answered(self.session, options.connect()).await.map_err(LeaderError::Lock)?;
        if let Some(led) = led {
            let newest = tell_and_ask(&mut connection, &self.server);
            let newest = answered(self.session, newest).await.map_err(LeaderError::Lock)?;
            if newest != led {
                return Ok(newest);
            }
        }
        let taken = sqlx::query_scalar!(r#"SELECT pg_advisory_lock($1) IS NOT NULL AS "taken!""#, LOCK);
        match answered(self.session + patience, taken.fetch_one(&mut connection)).await {
            Ok(_) => {
                let newest = self.say(&mut connection).await.map_err(LeaderError::Lock)?;
                *held = Some(connection);
                Ok(newest)
            }
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(LOCK_NOT_AVAILABLE) => {
                Err(LeaderError::AnotherLeads)
            }
            Err(error) => Err(LeaderError::Lock(error)),
        }
    }

    async fn say(&self, connection: &mut PgConnection) -> Result<Term, sqlx::Error> {
        let said = Instant::now();
        let newest = answered(self.session, tell_and_ask(connection, &self.server)).await?;
        self.lease.renew(said);
        Ok(newest)
    }

    async fn former(&self) -> Result<Option<KnownServer>, sqlx::Error> {
        match self.held.lock().await.as_mut() {
            Some(connection) => answered(self.session, former(connection, &self.server)).await,
            None => Ok(None),
        }
    }

    /// Says something again and again until another server leads. A lock that was lost to a hiccup is taken again, under the same term if
    /// nobody has begun another meanwhile.
    async fn keep(&self, term: Term, told: &watch::Sender<Hold>) {
        let tell = |hold| told.send_if_modified(|known| std::mem::replace(known, hold) != hold);
        loop {
            let holding = self.hold(self.session + PATIENCE, Some(term));
            tokio::pin!(holding);
            let answer = tokio::select! {
                biased;
                // Told though the answer may have come by now: whoever goes by the lease has stopped, and has to be told to go on.
                () = self.lease.over() => {
                    tell(Hold::Away);
                    holding.await
                }
                answer = &mut holding => answer,
            };
            let (hold, pause) = match answer {
                Ok(newest) if newest != term => (Hold::Lost, RETRY),
                Ok(_) => (Hold::Held, self.session / BEATS),
                Err(LeaderError::AnotherLeads) => (Hold::Lost, RETRY),
                Err(error) => {
                    if let LeaderError::Lock(error) = &error {
                        self.disk.note_error(error);
                    }
                    tracing::warn!(error = &error as &dyn std::error::Error, "Postgres does not answer");
                    (Hold::Away, RETRY)
                }
            };
            tell(hold);
            if hold == Hold::Lost {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// What Postgres answers, unless that takes longer: a connection that was cut without a word tells nothing.
async fn answered<T>(within: Duration, answer: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    let late = |_| sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
    tokio::time::timeout(within, answer).await.map_err(late)?
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use sqlx::Connection;

    use super::*;
    use crate::support::TestDatabase;

    const SHORT: Duration = Duration::from_millis(500);

    impl Leader {
        /// As a process that is stopped right here: its connection stands, and nobody says anything on it.
        fn falls_silent(&mut self) {
            self.keeper = None;
        }
    }

    #[tokio::test]
    async fn a_leader_that_says_nothing_keeps_nobody_out_and_its_commits_are_refused() {
        let database = TestDatabase::create().await;
        let store = database.store().await;
        let mut stopped = Leader::with_session(database.options.clone(), SHORT);
        let first = stopped.begin_term(&store).await.unwrap().term;
        stopped.falls_silent();
        let mut second = Leader::with_session(database.options.clone(), SHORT);
        let lead = second.begin_term(&store).await.unwrap();
        assert!(lead.term > first);
        assert!(matches!(store.commit(first, &[]).await, Err(StoreError::Fenced { .. })));
        let (told, mut lost) = watch::channel(Hold::Held);
        let lock = stopped.lock.clone();
        tokio::spawn(async move { lock.keep(first, &told).await });
        tokio::time::timeout(Duration::from_secs(20), lost.wait_for(|hold| *hold == Hold::Lost))
            .await
            .unwrap()
            .unwrap();
    }

    #[tokio::test]
    async fn whoever_has_begun_a_term_keeps_others_out_for_longer_than_a_lease() {
        let database = TestDatabase::create().await;
        let store = database.store().await;
        let mut first = Leader::with_session(database.options.clone(), SHORT);
        // What is loaded under the term takes as long as it takes.
        let lead = first.begin_term(&store).await.unwrap();
        let mut second = Leader::with_session(database.options.clone(), SHORT);
        assert!(matches!(second.begin_term(&store).await, Err(LeaderError::AnotherLeads)));
        assert_eq!(*lead.hold.borrow(), Hold::Held);
    }

    #[tokio::test]
    async fn readers_that_take_all_connections_hide_no_lost_term_and_lose_none() {
        let database = TestDatabase::create().await;
        let store = database.store().await;
        let mut leader = Leader::with_session(database.options.clone(), SHORT);
        let mut lead = leader.begin_term(&store).await.unwrap();
        let _readers = store.take_all_connections().await;
        let newer = tokio::time::timeout(Duration::from_secs(20), store.begin_term()).await.unwrap().unwrap();
        assert!(newer > lead.term);
        tokio::time::timeout(Duration::from_secs(20), lead.hold.wait_for(|hold| *hold == Hold::Lost))
            .await
            .unwrap()
            .unwrap();
    }

    #[tokio::test]
    async fn a_lock_that_was_lost_to_a_hiccup_is_taken_again_under_the_same_term() {
        let database = TestDatabase::create().await;
        let store = database.store().await;
        let mut leader = Leader::with_session(database.options.clone(), SHORT);
        let term = leader.begin_term(&store).await.unwrap().term;
        leader.falls_silent();
        // Silent for longer than a lease, and nobody came.
        let silent = leader.lock.held.clone();
        let gone = async {
            while silent.lock().await.as_mut().unwrap().ping().await.is_ok() {
                tokio::time::sleep(SHORT * 2).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
        assert_eq!(leader.lock.hold(SHORT, Some(term)).await.unwrap(), term);
        let (told, hold) = watch::channel(Hold::Held);
        let lock = leader.lock.clone();
        tokio::spawn(async move { lock.keep(term, &told).await });
        let mut second = Leader::with_session(database.options.clone(), SHORT);
        assert!(matches!(second.begin_term(&store).await, Err(LeaderError::AnotherLeads)));
        assert_eq!(*hold.borrow(), Hold::Held);
    }
}
