//! Table `deliveries`: what webhooks are to be told, and what came of it. Notices come with the events that they tell of.

use headway_engine::record::{Notice, NoticeId};
use headway_types::{JobId, Timestamp};
use reqwest::Url;
use sqlx::PgConnection;
use sqlx::types::Json;

use super::column::{count, document, integer, moment, small, text, time, unsigned};
use super::{Store, StoreError};

/// A notice that is to be sent now.
#[derive(Clone, Debug, PartialEq)]
pub struct DueNotice {
    pub notice: Notice,
    /// Whom it goes to.
    pub host: String,
    /// Attempts before this one.
    pub attempts: u32,
}

/// What no more calls are made for.
#[derive(Clone, Copy, Debug, Default)]
pub struct BusyReceivers<'a> {
    pub hosts: &'a [String],
    pub owners: &'a [String],
    pub under_way: &'a [NoticeId],
}

/// Where a notice stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum DeliveryState {
    Waiting,
    Delivered,
    GivenUp,
}

/// A notice with what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    pub notice: Notice,
    pub state: DeliveryState,
    pub attempts: u32,
    /// When it is tried next, while it waits.
    pub next_at: Timestamp,
    /// When it was delivered or given up.
    pub ended_at: Option<Timestamp>,
    /// Of its last attempt, where that failed.
    pub last_error: Option<String>,
}

impl Store {
    /// What is due, oldest first, but of one owner at most so many, and none of and for those that are busy already.
    pub async fn due_notices(
        &self,
        now: Timestamp,
        busy: BusyReceivers<'_>,
        of_owner: usize,
        limit: usize,
    ) -> Result<Vec<DueNotice>, StoreError> {
        let events: Vec<i64> = busy.under_way.iter().map(|id| integer(id.event)).collect();
        let webhooks: Vec<i32> = busy.under_way.iter().map(|id| small(id.webhook)).collect();
        // Owners by steps through the index, however much each of them waits for; of each no more is looked at than his first thousand.
        let rows = sqlx::query!(
            r#"WITH RECURSIVE owners AS (
                (SELECT owner FROM deliveries WHERE state = 'waiting' ORDER BY owner LIMIT 1)
                UNION ALL
                SELECT (SELECT owner FROM deliveries WHERE state = 'waiting' AND owner > owners.owner ORDER BY owner LIMIT 1)
                FROM owners WHERE owner IS NOT NULL
            )
            SELECT body AS "body!: Json<Notice>", host AS "host!", attempts AS "attempts!"
            FROM owners CROSS JOIN LATERAL (
                SELECT * FROM (
                    SELECT event_seq, webhook, body, host, attempts, next_at FROM deliveries
                    WHERE state = 'waiting' AND owner = owners.owner AND next_at <= $1
                    ORDER BY next_at LIMIT 1000
                ) AS first
                WHERE NOT host = ANY($2)
                  AND (event_seq, webhook) NOT IN (SELECT * FROM UNNEST($3::bigint[], $4::integer[]))
                ORDER BY next_at LIMIT $5
            ) AS due
            WHERE NOT owners.owner = ANY($6)
            ORDER BY next_at LIMIT $7"#,
            time(now),
            busy.hosts,
            &events,
            &webhooks,
            of_owner as i64,
            busy.owners,
            limit as i64,
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("reading due notices"))?;
        let due = |(notice, host, attempts): (Json<Notice>, String, i32)| DueNotice {
            notice: notice.0,
            host,
            attempts: count(attempts),
        };
        Ok(rows.into_iter().map(|row| due((row.body, row.host, row.attempts))).collect())
    }

    /// Notices that have not arrived and are not given up.
    pub async fn waiting_notices(&self) -> Result<u64, StoreError> {
        let waiting = sqlx::query_scalar!(r#"SELECT count(*) AS "count!" FROM deliveries WHERE state = 'waiting'"#);
        let waiting = waiting.fetch_one(&self.pool).await.map_err(StoreError::during("counting waiting notices"))?;
        Ok(unsigned(waiting))
    }

    /// An attempt has succeeded.
    pub async fn notice_delivered(&self, id: NoticeId, now: Timestamp) -> Result<(), StoreError> {
        sqlx::query!(
            "UPDATE deliveries SET state = 'delivered', attempts = attempts + 1, ended_at = $3, last_error = NULL
            WHERE event_seq = $1 AND webhook = $2 AND state = 'waiting'",
            integer(id.event),
            small(id.webhook),
            time(now),
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::during("noting a delivery"))?;
        Ok(())
    }

    /// An attempt has failed; the next is made at `next_at`.
    pub async fn notice_failed(&self, id: NoticeId, error: &str, next_at: Timestamp) -> Result<(), StoreError> {
        sqlx::query!(
            "UPDATE deliveries SET attempts = attempts + 1, next_at = $3, last_error = $4
            WHERE event_seq = $1 AND webhook = $2 AND state = 'waiting'",
            integer(id.event),
            small(id.webhook),
            time(next_at),
            text(error),
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::during("noting a failed delivery"))?;
        Ok(())
    }

    /// Of one job, newest first.
    pub async fn deliveries(&self, job: JobId, limit: u32) -> Result<Vec<Delivery>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT body AS "body: Json<Notice>", state, attempts, next_at, ended_at, last_error FROM deliveries
            WHERE job_id = $1 ORDER BY event_seq DESC, webhook LIMIT $2"#,
            job.0,
            i64::from(limit),
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("reading deliveries"))?;
        let row = rows.into_iter().map(|row| Delivery {
            notice: row.body.0,
            state: row.state.parse().unwrap_or(DeliveryState::Waiting),
            attempts: count(row.attempts),
            next_at: moment(row.next_at),
            ended_at: row.ended_at.map(moment),
            last_error: row.last_error,
        });
        Ok(row.collect())
    }

    /// Forgets what ended before this.
    pub async fn prune_deliveries(&self, before: Timestamp) -> Result<u64, StoreError> {
        let gone = sqlx::query!("DELETE FROM deliveries WHERE ended_at < $1", time(before)).execute(&self.pool).await;
        Ok(gone.map_err(StoreError::during("pruning deliveries"))?.rows_affected())
    }
}

/// Writing one twice changes nothing.
pub(super) async fn insert(connection: &mut PgConnection, notices: &[&Notice]) -> Result<(), sqlx::Error> {
    if notices.is_empty() {
        return Ok(());
    }
    let events: Vec<_> = notices.iter().map(|one| integer(one.id.event)).collect();
    let webhooks: Vec<_> = notices.iter().map(|one| small(one.id.webhook)).collect();
    let jobs: Vec<_> = notices.iter().map(|one| one.job.0).collect();
    let hosts: Vec<_> = notices.iter().map(|one| host(&one.webhook)).collect();
    let bodies: Vec<_> = notices.iter().map(document).collect();
    let made: Vec<_> = notices.iter().map(|one| time(one.at)).collect();
    sqlx::query!(
        "INSERT INTO deliveries (event_seq, webhook, job_id, host, body, made_at, next_at, state)
        SELECT event_seq, webhook, job_id, host, body::jsonb, made_at, made_at, 'waiting'
        FROM UNNEST($1::bigint[], $2::integer[], $3::uuid[], $4::text[], $5::text[], $6::timestamptz[])
            AS new (event_seq, webhook, job_id, host, body, made_at)
        ON CONFLICT DO NOTHING",
        &events,
        &webhooks,
        &jobs,
        &hosts,
        &bodies,
        &made,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// With the event that says so.
pub(super) async fn give_up(
    connection: &mut PgConnection,
    given_up: &[(NoticeId, Timestamp)],
) -> Result<(), sqlx::Error> {
    for (id, at) in given_up {
        sqlx::query!(
            "UPDATE deliveries SET state = 'given_up', ended_at = $3
            WHERE event_seq = $1 AND webhook = $2 AND state = 'waiting'",
            integer(id.event),
            small(id.webhook),
            time(*at),
        )
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// An address is looked at when a job is admitted: this one has a host.
fn host(webhook: &str) -> String {
    Url::parse(webhook).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default()
}
