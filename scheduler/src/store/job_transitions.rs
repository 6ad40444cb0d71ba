//! Table `job_transitions`.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use headway_types::{Generation, JobId};
use sqlx::PgConnection;

use super::column::{integer, moment, text, unsigned};
use super::transitions::{JobStateAt, Row};

/// What a job entered.
pub(super) struct Entry {
    pub state: String,
    pub generation: Generation,
}

/// Ends each subject's former row and adds the new ones. A row that is there already keeps its end.
pub(super) async fn write(connection: &mut PgConnection, rows: &[Row<'_, JobId, Entry>]) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let jobs: Vec<_> = rows.iter().map(|row| row.key.0).collect();
    let starts: Vec<_> = rows.iter().map(|row| row.from).collect();
    let ends: Vec<_> = rows.iter().map(|row| row.to).collect();
    let states: Vec<_> = rows.iter().map(|row| text(&row.state.state)).collect();
    let generations: Vec<_> = rows.iter().map(|row| integer(row.state.generation.0)).collect();
    sqlx::query!(
        "WITH new AS (
            SELECT job_id, valid_from, valid_to, state, generation
            FROM UNNEST($1::uuid[], $2::timestamptz[], $3::timestamptz[], $4::text[], $5::bigint[])
                AS new (job_id, valid_from, valid_to, state, generation)
        ), closed AS (
            UPDATE job_transitions AS former SET valid_to = first.valid_from
            FROM (SELECT job_id, min(valid_from) AS valid_from FROM new GROUP BY job_id) AS first
            WHERE former.job_id = first.job_id AND former.valid_to IS NULL AND former.valid_from < first.valid_from
        )
        INSERT INTO job_transitions (job_id, valid_from, valid_to, state, generation)
        SELECT job_id, valid_from, valid_to, state, generation FROM new
        ON CONFLICT (job_id, valid_from) DO UPDATE SET
            valid_to = COALESCE(job_transitions.valid_to, excluded.valid_to), state = excluded.state, generation = excluded.generation",
        &jobs,
        &starts,
        &ends as &[Option<DateTime<Utc>>],
        &states,
        &generations,
    )
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn at(
    connection: &mut PgConnection,
    at: DateTime<Utc>,
) -> Result<BTreeMap<JobId, JobStateAt>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT job_id, valid_from, state, generation FROM job_transitions
        WHERE tstzrange(valid_from, valid_to) @> $1::timestamptz AND state NOT IN ('succeeded', 'failed', 'cancelled')",
        at,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let state = JobStateAt {
                since: moment(row.valid_from),
                state: row.state,
                generation: Generation(unsigned(row.generation)),
            };
            (JobId(row.job_id), state)
        })
        .collect())
}
