//! Table `allocation_transitions`.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use headway_types::{Generation, JobId};
use sqlx::PgConnection;

use super::column::{count, integer, moment, small, text, unsigned};
use super::transitions::{AllocationStateAt, Row};

/// What an allocation entered.
pub(super) struct Entry {
    pub phase: String,
    pub gpus: u32,
}

/// Ends each subject's former row and adds the new ones. A row that is there already keeps its end.
pub(super) async fn write(
    connection: &mut PgConnection,
    rows: &[Row<'_, (JobId, Generation), Entry>],
) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let jobs: Vec<_> = rows.iter().map(|row| row.key.0.0).collect();
    let generations: Vec<_> = rows.iter().map(|row| integer(row.key.1.0)).collect();
    let starts: Vec<_> = rows.iter().map(|row| row.from).collect();
    let ends: Vec<_> = rows.iter().map(|row| row.to).collect();
    let phases: Vec<_> = rows.iter().map(|row| text(&row.state.phase)).collect();
    let gpus: Vec<_> = rows.iter().map(|row| small(row.state.gpus)).collect();
    sqlx::query!(
        "WITH new AS (
            SELECT job_id, generation, valid_from, valid_to, phase, gpus
            FROM UNNEST($1::uuid[], $2::bigint[], $3::timestamptz[], $4::timestamptz[], $5::text[], $6::integer[])
                AS new (job_id, generation, valid_from, valid_to, phase, gpus)
        ), closed AS (
            UPDATE allocation_transitions AS former SET valid_to = first.valid_from
            FROM (SELECT job_id, generation, min(valid_from) AS valid_from FROM new GROUP BY job_id, generation) AS first
            WHERE former.job_id = first.job_id AND former.generation = first.generation AND former.valid_to IS NULL AND former.valid_from < first.valid_from
        )
        INSERT INTO allocation_transitions (job_id, generation, valid_from, valid_to, phase, gpus)
        SELECT job_id, generation, valid_from, valid_to, phase, gpus FROM new
        ON CONFLICT (job_id, generation, valid_from) DO UPDATE SET
            valid_to = COALESCE(allocation_transitions.valid_to, excluded.valid_to), phase = excluded.phase, gpus = excluded.gpus",
        &jobs,
        &generations,
        &starts,
        &ends as &[Option<DateTime<Utc>>],
        &phases,
        &gpus,
    )
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn at(
    connection: &mut PgConnection,
    at: DateTime<Utc>,
) -> Result<BTreeMap<(JobId, Generation), AllocationStateAt>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT job_id, generation, valid_from, phase, gpus FROM allocation_transitions
        WHERE tstzrange(valid_from, valid_to) @> $1::timestamptz AND (phase <> 'ended' OR gpus > 0)",
        at,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let state = AllocationStateAt { since: moment(row.valid_from), phase: row.phase, gpus: count(row.gpus) };
            ((JobId(row.job_id), Generation(unsigned(row.generation))), state)
        })
        .collect())
}
