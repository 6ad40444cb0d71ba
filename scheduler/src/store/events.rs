//! Table `events`: the append-only log.

use headway_engine::record::EventRecord;
use headway_types::{JobId, NodeId};
use sqlx::PgConnection;
use sqlx::types::Json;

use super::column::{document, integer, text, time};
use super::{Page, Store, StoreError};

/// Which part of the log to read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventFilter {
    /// Oldest first, from here on (exclusive).
    pub after: Option<u64>,
    /// Newest first, before this (exclusive); used when `after` is absent.
    pub before: Option<u64>,
    pub job: Option<JobId>,
    pub node: Option<NodeId>,
    pub limit: u32,
}

impl Store {
    /// Events in the order the filter asks for; `next` is the number to go on from.
    pub async fn events(&self, filter: &EventFilter) -> Result<Page<EventRecord, u64>, StoreError> {
        let job = filter.job.map(|job| job.0);
        let node = filter.node.map(|node| node.0);
        let limit = i64::from(filter.limit) + 1;
        let events: Result<Vec<EventRecord>, sqlx::Error> = match filter.after {
            Some(after) => sqlx::query!(
                r#"SELECT body AS "body: Json<EventRecord>" FROM events
                WHERE seq > $1 AND ($2::uuid IS NULL OR job_id = $2) AND ($3::uuid IS NULL OR node_id = $3)
                ORDER BY seq LIMIT $4"#,
                integer(after),
                job,
                node,
                limit,
            )
            .fetch_all(&self.pool)
            .await
            .map(|rows| rows.into_iter().map(|row| row.body.0).collect()),
            None => sqlx::query!(
                r#"SELECT body AS "body: Json<EventRecord>" FROM events
                WHERE ($1::bigint IS NULL OR seq < $1)
                  AND ($2::uuid IS NULL OR job_id = $2) AND ($3::uuid IS NULL OR node_id = $3)
                ORDER BY seq DESC LIMIT $4"#,
                filter.before.map(integer),
                job,
                node,
                limit,
            )
            .fetch_all(&self.pool)
            .await
            .map(|rows| rows.into_iter().map(|row| row.body.0).collect()),
        };
        let events = events.map_err(StoreError::during("reading events"))?;
        Ok(Page::of(events, filter.limit, |event| event.seq))
    }
}

/// Appends; a number used twice fails the whole commit.
pub(super) async fn insert(connection: &mut PgConnection, events: &[&EventRecord]) -> Result<(), sqlx::Error> {
    if events.is_empty() {
        return Ok(());
    }
    let numbers: Vec<_> = events.iter().map(|event| integer(event.seq)).collect();
    let times: Vec<_> = events.iter().map(|event| time(event.at)).collect();
    let verbs: Vec<_> = events.iter().map(|event| text(&event.verb)).collect();
    let jobs: Vec<_> = events.iter().map(|event| event.job.map(|job| job.0)).collect();
    let nodes: Vec<_> = events.iter().map(|event| event.node.map(|node| node.0)).collect();
    let plans: Vec<_> = events.iter().map(|event| event.plan.map(|plan| plan.0)).collect();
    let bodies: Vec<_> = events.iter().map(document).collect();
    sqlx::query!(
        "INSERT INTO events (seq, happened_at, verb, job_id, node_id, plan_id, body)
        SELECT seq, happened_at, verb, job_id, node_id, plan_id, body::jsonb
        FROM UNNEST($1::bigint[], $2::timestamptz[], $3::text[], $4::uuid[], $5::uuid[], $6::uuid[], $7::text[])
            AS new (seq, happened_at, verb, job_id, node_id, plan_id, body)",
        &numbers,
        &times,
        &verbs,
        &jobs as &[Option<uuid::Uuid>],
        &nodes as &[Option<uuid::Uuid>],
        &plans as &[Option<uuid::Uuid>],
        &bodies,
    )
    .execute(connection)
    .await?;
    Ok(())
}
