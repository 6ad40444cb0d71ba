//! Table `servers`: the processes that serve this cluster, each as it tells of itself, and which of them leads. Its times are Postgres' own,
//! since servers with clocks of their own are compared by them.

use chrono::{DateTime, Utc};
use headway_types::{Seconds, Term, Timestamp};
use sqlx::PgConnection;
use uuid::Uuid;

use super::column::{moment, unsigned};
use super::{Store, StoreError};

/// One server process, and where it is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// Drawn at its start.
    pub id: Uuid,
    /// For people.
    pub url: String,
    /// For agents.
    pub agents: String,
    /// With what it was built from.
    pub version: String,
}

/// A server as the others know it.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownServer {
    pub server: Server,
    pub started_at: Timestamp,
    /// Since it last told of itself.
    pub silent: Seconds,
    /// It was told to stop, and said so.
    pub stopped: bool,
}

/// Who leads, and who else told of himself of late.
#[derive(Clone, Debug, PartialEq)]
pub struct Leadership {
    /// The newest that somebody has begun.
    pub term: Term,
    /// Who began it; `None` where nobody is named, as by an earlier release. Whether he lives, `silent` says.
    pub leader: Option<KnownServer>,
    pub since: Option<Timestamp>,
    /// In the order in which they started.
    pub others: Vec<KnownServer>,
}

/// Who is silent for so long is no longer told of, and later forgotten.
const TOLD_SECONDS: f64 = 60.0;
const KEPT_SECONDS: f64 = 86_400.0;

impl Store {
    /// Begins a new term; every commit under an older one is refused from now on. `leader`: who leads it. Refuses a
    /// database whose restore has not finished: a server that stands by may have waited for it.
    pub async fn begin_term_of(&self, leader: Option<Uuid>) -> Result<Term, StoreError> {
        let begun = self.begin_next_term(leader).await;
        if let Err(StoreError::DiskFull { .. }) = &begun {
            self.disk.note_full();
        }
        begun
    }

    async fn begin_next_term(&self, leader: Option<Uuid>) -> Result<Term, StoreError> {
        let failed = || StoreError::during("beginning a term");
        let begun = sqlx::query_scalar!(
            "UPDATE cluster SET term = term + 1, leader_id = $1, led_term = term + 1, led_since = now()
            WHERE to_regclass('unfinished_restore') IS NULL RETURNING term",
            leader
        )
        .fetch_one(&self.writer)
        .await;
        if begun.is_err() {
            self.refuse_unfinished_restore().await?;
        }
        let term = begun.map_err(failed())?;
        let forgotten = sqlx::query!(
            "DELETE FROM servers WHERE seen_at < now() - make_interval(secs => $1) AND server_id IS DISTINCT FROM $2",
            KEPT_SECONDS,
            leader
        );
        forgotten.execute(&self.writer).await.map_err(failed())?;
        Ok(Term(unsigned(term)))
    }

    /// Begins a term that nobody is named to lead.
    pub async fn begin_term(&self) -> Result<Term, StoreError> {
        self.begin_term_of(None).await
    }

    /// Tells of a server that it lives.
    pub async fn tell_of(&self, server: &Server) -> Result<(), StoreError> {
        let failed = || StoreError::during("telling of this server");
        let mut connection = self.pool.acquire().await.map_err(failed())?;
        tell_and_ask(&mut connection, server).await.map(|_| ()).map_err(failed())
    }

    pub async fn leadership(&self) -> Result<Leadership, StoreError> {
        let failed = || StoreError::during("reading who leads");
        let row = sqlx::query!(
            r#"SELECT term, led_since, CASE WHEN led_term = term THEN leader_id END AS leader FROM cluster"#
        )
        .fetch_one(&self.pool)
        .await
        .map_err(failed())?;
        let servers = sqlx::query_as!(
            Row,
            r#"SELECT server_id, url, agents_url, version, started_at, stopped_at IS NOT NULL AS "stopped!",
            GREATEST(0, EXTRACT(EPOCH FROM now() - seen_at))::float8 AS "silent!"
            FROM servers ORDER BY started_at, server_id"#
        )
        .fetch_all(&self.pool)
        .await
        .map_err(failed())?;
        let known = servers.into_iter().map(KnownServer::from);
        let (leader, others): (Vec<_>, Vec<_>) = known.partition(|one| Some(one.server.id) == row.leader);
        Ok(Leadership {
            term: Term(unsigned(row.term)),
            since: row.led_since.filter(|_| row.leader.is_some()).map(moment),
            leader: leader.into_iter().next(),
            others: others.into_iter().filter(|one| !one.stopped && one.silent.0 < TOLD_SECONDS).collect(),
        })
    }
}

/// Tells of a server that it lives; the newest term that somebody has begun. On the connection of whoever asks: what readers do to the pools
/// is no matter.
pub(crate) async fn tell_and_ask(connection: &mut PgConnection, server: &Server) -> Result<Term, sqlx::Error> {
    let term = sqlx::query_scalar!(
        r#"WITH told AS (
            INSERT INTO servers (server_id, url, agents_url, version) VALUES ($1, $2, $3, $4)
            ON CONFLICT (server_id) DO UPDATE SET seen_at = now()
        ) SELECT term FROM cluster"#,
        server.id,
        server.url,
        server.agents,
        server.version,
    )
    .fetch_one(connection)
    .await?;
    Ok(Term(unsigned(term)))
}

/// Tells of a server that it stops now.
pub(crate) async fn tell_of_the_end(connection: &mut PgConnection, server: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query!("UPDATE servers SET stopped_at = now() WHERE server_id = $1", server).execute(connection).await?;
    Ok(())
}

/// Who leads the newest term, where he was another than this one, and for how long nobody has heard of him.
pub(crate) async fn former(connection: &mut PgConnection, this: &Server) -> Result<Option<KnownServer>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT server_id, url, agents_url, version, started_at, stopped_at IS NOT NULL AS "stopped!",
        GREATEST(0, EXTRACT(EPOCH FROM now() - seen_at))::float8 AS "silent!"
        FROM servers JOIN cluster ON leader_id = server_id AND led_term = term WHERE server_id <> $1"#,
        this.id
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(KnownServer::from))
}

struct Row {
    server_id: Uuid,
    url: String,
    agents_url: String,
    version: String,
    started_at: DateTime<Utc>,
    stopped: bool,
    silent: f64,
}

impl From<Row> for KnownServer {
    fn from(row: Row) -> Self {
        Self {
            server: Server { id: row.server_id, url: row.url, agents: row.agents_url, version: row.version },
            started_at: moment(row.started_at),
            silent: Seconds(row.silent),
            stopped: row.stopped,
        }
    }
}
