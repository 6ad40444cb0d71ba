//! Postgres: the only state. One file per table, one method per use case; rows become types at this border.
//!
//! Nothing here decides, and nothing here reads a clock: times come from the engine or the caller. Facts go through
//! `commit`, observations through `observe`; everything else reads.

mod allocations;
mod arrays;
mod audit;
mod audit_seals;
mod authorities;
mod backups;
mod browser_sessions;
mod checkpoints;
mod checkup;
mod cluster;
mod cluster_series;
mod column;
mod commit;
mod deliveries;
mod dependencies;
mod disk;
mod events;
mod goodput_series;
mod id_end;
mod idempotency;
mod identities;
mod job_models;
mod job_series;
mod jobs;
mod join_tokens;
mod load;
mod migrations;
mod nodes;
mod peer_lessons;
mod plan_inputs;
mod plans;
mod predicted_starts;
mod projects;
mod realised_goodput;
mod reservations;
mod restores;
mod roles;
mod secrets;
mod servers;
mod space;
mod spans;
mod tokens;
mod transitions;
mod unknown_tokens;
mod usage;
mod user_identities;
mod users;
mod waits;
mod whose;

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use headway_types::Term;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgConnection, PgPool};

pub use arrays::ArrayFilter;
pub use audit::{AuditEntry, AuditFilter, AuditLine, AuditResult};
pub use audit_seals::{AuditHead, AuditStart, Unsealed};
pub use authorities::{NewAuthority, Retirement};
pub use backups::{Contents, HeldSnapshot, Unled};
pub use browser_sessions::{BrowserSession, Sessions};
pub use checkup::Checkup;
pub use cluster_series::PulseMean;
pub use deliveries::{BusyReceivers, Delivery, DeliveryState, DueNotice};
pub use disk::DiskState;
pub use events::EventFilter;
pub use goodput_series::{GoodputBy, GoodputMean, Steps};
pub use id_end::{IdEnd, NoIdEnd};
pub use identities::{Claims, Ending, Identity, JoinRefusal};
pub use job_series::SeriesPoint;
pub use jobs::{JobFilter, JobKey, JobOrder, ListedJob, OutOfSight};
pub use join_tokens::{JoinToken, NewJoinToken};
pub use predicted_starts::{Awaited, MetStart, PredictedStart};
pub use realised_goodput::Met;
pub use restores::{RESTORE_SESSIONS, UnfinishedRestore};
pub use roles::GrantError;
pub use secrets::{Purse, SecretChange, SecretId, SecretOwner, SecretOwnerKind, SecretRow, SecretsKeyError};
pub use servers::{KnownServer, Leadership, Server};
pub(crate) use servers::{former, tell_and_ask, tell_of_the_end};
pub use space::{DatabaseSpace, TABLES, TableBound, TableSpace};
pub use spans::{Entries, SpanFilter, SpannedJob};
pub use tokens::{NewToken, Revocation, Token, TokenHash};
pub use transitions::{AllocationStateAt, JobStateAt, NodeStateAt, PlanStateAt, StatesAt};
pub use usage::{Held, HeldFor};
pub use user_identities::{Entered, GroupMembership, Linked, Person, UserIdentity};
pub use users::{RoleChange, User};
pub use waits::Waits;

use unknown_tokens::UnknownTokens;

use crate::secrets::{Keyring, OpenError};

/// For what is under way when a server stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// No reader may hold a connection longer.
const READ_TIMEOUT: &str = "15s";
/// No commit may stand still longer between two of its statements.
const WRITE_TIMEOUT: &str = "15s";
/// Nor where others stand by: a leader that is stopped in a commit holds the row that the next leader changes.
const SHORT_WRITE_TIMEOUT: &str = "3s";

/// What a server asks on its own behalf is waited for so long. Longer than a reader may take, and to come by a connection.
pub const ANSWER_TIME: Duration = Duration::from_secs(30);
/// The same of reading all that a leader needs.
const LOADING_TIME: Duration = Duration::from_secs(120);

/// A plan that Postgres keeps was made for tables as they were: on a new or restored database for empty ones, which it
/// scans from then on, until they are analysed.
const EACH_ITS_PLAN: (&str, &str) = ("plan_cache_mode", "force_custom_plan");
/// How long a connection may take to say that it is still there.
const PULSE: Duration = Duration::from_secs(2);
/// So that Postgres keeps nothing for a server whose machine, or whose connection, is gone without a word: it would for two hours, and have no room for
/// new connections.
const VANISHED: [(&str, &str); 4] = [
    ("tcp_keepalives_idle", "5"),
    ("tcp_keepalives_interval", "2"),
    ("tcp_keepalives_count", "3"),
    ("client_connection_check_interval", "10s"),
];

/// Schema changes, applied in order at start and before any test.
static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../migrations");

/// The store; cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    /// For readers and observations.
    pool: PgPool,
    /// For loading and all else of a leader that is no commit.
    writer: PgPool,
    /// For commits alone: no flood of readers may delay a commit until the term is given up. Its connections are not
    /// tested before use, since the beginning of a transaction is as good a test.
    commits: PgPool,
    disk: DiskState,
    unknown_tokens: Arc<UnknownTokens>,
    unknown_sessions: Arc<UnknownTokens>,
    /// What seals and opens secrets; none where no key file was given.
    keyring: Option<Arc<Keyring>>,
}

/// Why the store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another server holds a newer term: this one must not act any more. Nothing was written.
    #[error("term {term} is over")]
    Fenced { term: Term },
    /// A row already is newer than what was to be written; nothing was written.
    #[error("a stored {row} is newer than the one to be written")]
    Conflict { row: &'static str },
    /// Postgres said no, or whether it was done is unknown.
    #[error("{action}")]
    Database {
        action: &'static str,
        #[source]
        source: sqlx::Error,
    },
    /// Nothing can be stored until there is room.
    #[error("the disk of Postgres is full ({action})")]
    DiskFull { action: &'static str },
    /// Postgres has not said whether it was done, on a connection that it may know nothing of any more.
    #[error("no answer from Postgres in time")]
    Unanswered,
    /// An acknowledged write could be lost with this database.
    #[error("the database does not keep what it has confirmed: {setting} is off")]
    NotDurable { setting: &'static str },
    /// No key file was given to seal and open secrets with.
    #[error("this server has no key file for secrets")]
    NoSecretsKey,
    #[error("opening a secret")]
    Sealed(#[source] OpenError),
    #[error("drawing random bytes")]
    NoEntropy(#[source] getrandom::Error),
    /// This server's role owns nothing, so that it cannot change the audit either.
    #[error(
        "the schema lacks migrations {pending:?}, and the role of this server may not run them: `headway admin migrate --grant ROLE` as the owner of the tables does"
    )]
    SchemaBehind { pending: Vec<i64> },
    /// Its tables may be those of the backup, but the term is not above what agents follow.
    #[error(
        "a restore of this database began at {began_at} and has not finished: run `headway admin restore` again with \
         the same file, which finishes it, or use another database"
    )]
    RestoreUnfinished { began_at: DateTime<Utc> },
    /// The schema could not be brought up to date.
    #[error("migrating the database")]
    Migrate(#[source] sqlx::migrate::MigrateError),
}

impl StoreError {
    /// For `map_err`: names what was being done.
    fn during(action: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
        move |source| match disk::says_disk_full(&source) {
            true => StoreError::DiskFull { action },
            false => StoreError::Database { action, source },
        }
    }
}

/// What the store answers, unless nothing comes: a connection that was forgotten while it carried a question never says so. Whoever is not bounded
/// by a request of somebody else asks by this.
pub async fn answered<T>(asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    within(ANSWER_TIME, asked).await
}

/// Waits so long for an answer of the store, and no longer.
pub async fn within<T>(time: Duration, asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    tokio::time::timeout(time, asked).await.unwrap_or(Err(StoreError::Unanswered))
}

/// One page; `next` continues it where there is more.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T, C> {
    pub items: Vec<T>,
    pub next: Option<C>,
}

impl<T, C> Page<T, C> {
    /// From up to `limit + 1` items: the one too many only says that there is more.
    pub(crate) fn of(mut items: Vec<T>, limit: u32, cursor: impl FnOnce(&T) -> C) -> Self {
        let more = items.len() > limit as usize;
        items.truncate(limit as usize);
        let next = if more { items.last().map(cursor) } else { None };
        Self { items, next }
    }
}

/// A confirmed commit is on disk, whatever the database's or the role's own settings say. Whoever does not answer is not asked again.
fn durable(options: PgPoolOptions) -> PgPoolOptions {
    let options = options.acquire_timeout(Duration::from_secs(10)).after_connect(|connection, _| {
        Box::pin(async move {
            sqlx::query("SET synchronous_commit = on").execute(connection).await?;
            Ok(())
        })
    });
    // The pool's own test of a connection waits for as long as the kernel repeats what nobody hears: a quarter of an hour.
    options
        .test_before_acquire(false)
        .before_acquire(|connection, _| Box::pin(answers(connection)))
        .after_release(|connection, _| Box::pin(answers(connection)))
}

/// Whether the other end is still there: it may have vanished without a word, with its machine or with what a firewall knew of the connection.
async fn answers(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    Ok(matches!(tokio::time::timeout(PULSE, connection.ping()).await, Ok(Ok(()))))
}

impl Store {
    /// Connects without looking at the schema. Refuses a database that forgets what it has confirmed.
    pub async fn connect(options: PgConnectOptions) -> Result<Self, StoreError> {
        Self::connect_within(options, WRITE_TIMEOUT).await
    }

    /// The same of a server that may not keep waiting whoever stands by.
    pub async fn connect_beside_others(options: PgConnectOptions) -> Result<Self, StoreError> {
        Self::connect_within(options, SHORT_WRITE_TIMEOUT).await
    }

    async fn connect_within(options: PgConnectOptions, timeout: &str) -> Result<Self, StoreError> {
        let connecting = || StoreError::during("connecting to Postgres");
        // A server that is stopped in the middle of a commit holds its rows no longer than this.
        let options = options.options(VANISHED);
        let writing = options.clone().options([("idle_in_transaction_session_timeout", timeout), EACH_ITS_PLAN]);
        let writers = || durable(PgPoolOptions::new().max_connections(2));
        let writer = writers().connect_with(writing.clone()).await.map_err(connecting())?;
        let commits = writers().before_acquire(|_, _| Box::pin(async { Ok(true) })).connect_lazy_with(writing);
        let fsync: String = sqlx::query_scalar("SHOW fsync").fetch_one(&writer).await.map_err(connecting())?;
        if fsync != "on" {
            return Err(StoreError::NotDurable { setting: "fsync" });
        }
        // Filters are optional: a plan made once for all of them would use the index of none.
        let reading = [("statement_timeout", READ_TIMEOUT), EACH_ITS_PLAN];
        let pool = durable(PgPoolOptions::new().max_connections(14)).connect_lazy_with(options.options(reading));
        Ok(Self {
            pool,
            writer,
            commits,
            disk: DiskState::default(),
            unknown_tokens: Arc::default(),
            unknown_sessions: Arc::default(),
            keyring: None,
        })
    }

    /// Brings the schema up to date; safe to repeat. A role that owns nothing only looks whether it is. Refuses a
    /// database whose restore has not finished.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        self.refuse_unfinished_restore().await?;
        self.run_migrations().await
    }

    /// Brings the schema up to date while a restore is under way.
    pub async fn migrate_restored(&self) -> Result<(), StoreError> {
        self.run_migrations().await
    }

    async fn run_migrations(&self) -> Result<(), StoreError> {
        let looking = || StoreError::during("looking at the schema");
        let mut connection = self.writer.acquire().await.map_err(looking())?;
        if let Some(found) = roles::as_it_is(&mut connection).await.map_err(looking())? {
            return found;
        }
        drop(connection);
        migrations::run(&MIGRATIONS, &self.writer).await
    }

    /// Whether Postgres had room for the last write.
    #[must_use]
    pub fn disk(&self) -> &DiskState {
        &self.disk
    }

    /// Closes all connections; later calls fail. One that waits for an answer that will not come (its peer has forgotten it) is left to the system.
    pub async fn close(&self) {
        let all = async { tokio::join!(self.pool.close(), self.writer.close(), self.commits.close()) };
        if tokio::time::timeout(CLOSE_TIMEOUT, all).await.is_err() {
            tracing::warn!("connections to Postgres that do not answer were left open");
        }
    }
}

#[cfg(test)]
impl Store {
    /// As a flood of readers does.
    pub async fn take_all_connections(&self) -> Vec<sqlx::pool::PoolConnection<sqlx::Postgres>> {
        let mut taken = Vec::new();
        while taken.len() < self.pool.options().get_max_connections() as usize {
            taken.extend(self.pool.acquire().await);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sqlx::{AssertSqlSafe, ConnectOptions};

    use crate::support::TestDatabase;

    #[tokio::test]
    async fn a_commit_waits_for_the_disk_even_where_the_database_says_otherwise() {
        let database = TestDatabase::create().await;
        let mut connection = database.options.connect().await.unwrap();
        let name: String = sqlx::query_scalar("SELECT current_database()").fetch_one(&mut connection).await.unwrap();
        let off = format!("ALTER DATABASE {name} SET synchronous_commit = off");
        sqlx::query(AssertSqlSafe(off)).execute(&mut connection).await.unwrap();
        let store = database.store().await;
        for pool in [&store.writer, &store.commits, &store.pool] {
            let setting: String = sqlx::query_scalar("SHOW synchronous_commit").fetch_one(pool).await.unwrap();
            assert_eq!(setting, "on");
        }
    }
}
