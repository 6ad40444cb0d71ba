//! The first statement of a commit: checks the term, changes the cluster's row and writes the jobs.
//!
//! It is one statement for several tables because a commit waits for each answer of Postgres before it sends the next
//! statement: on a network with a millisecond between the two, each statement is a millisecond of every submit.

use headway_engine::record::Job;
use headway_types::Term;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::store::cluster::ClusterChange;
use crate::store::column::{document, integer, time};
use crate::store::jobs::JobColumns;

/// What came of the statement. Unless it is `Written`, nothing may be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guarded {
    Written,
    /// Another server holds a newer term.
    Fenced,
    /// A stored job has a newer generation or version.
    Conflict,
}

/// Locks the cluster's row for this transaction. If the term still is the newest, changes the row and writes whole jobs.
/// A server with an older term writes no job and waits for no other lock.
pub(super) async fn write(
    connection: &mut PgConnection,
    term: Term,
    change: &ClusterChange<'_>,
    jobs: &[&Job],
) -> Result<Guarded, sqlx::Error> {
    let columns = JobColumns::from_jobs(jobs);
    let done = sqlx::query!(
        r#"WITH led AS (
            UPDATE cluster SET target_plan_id = COALESCE($2, target_plan_id),
                policy = COALESCE($3::text::jsonb, policy), last_event_seq = GREATEST($4, last_event_seq),
                last_at = GREATEST($5, last_at), term = GREATEST($6, term),
                restored_backup_at = CASE WHEN $7 THEN NULL ELSE restored_backup_at END
            WHERE term = $1 RETURNING term
        ), written AS (
            INSERT INTO jobs (job_id, name, project, owner, state, generation, version, submitted_at, body, depends_on,
                array_id, array_place)
            SELECT job_id, name, project, owner, state, generation, version, submitted_at, body::jsonb,
                depends_on::uuid[], array_id, array_place
            FROM UNNEST($8::uuid[], $9::text[], $10::text[], $11::text[], $12::text[], $13::bigint[], $14::bigint[],
                $15::timestamptz[], $16::text[], $17::text[], $18::uuid[], $19::integer[])
                AS new (job_id, name, project, owner, state, generation, version, submitted_at, body, depends_on,
                    array_id, array_place)
            WHERE EXISTS (SELECT FROM led)
            ON CONFLICT (job_id) DO UPDATE SET
                name = excluded.name, project = excluded.project, state = excluded.state,
                generation = excluded.generation, version = excluded.version, body = excluded.body
            WHERE jobs.generation <= excluded.generation AND jobs.version <= excluded.version
            RETURNING job_id
        )
        SELECT (SELECT count(*) FROM led) AS "led!", (SELECT count(*) FROM written) AS "written!""#,
        integer(term.0),
        change.target.map(|plan| plan.0),
        change.policy.map(document),
        change.last_event_seq.map(integer),
        change.last_at.map(time),
        change.term.map(|term| integer(term.0)),
        change.returned,
        &columns.ids,
        &columns.names,
        &columns.projects,
        &columns.owners,
        &columns.states,
        &columns.generations,
        &columns.versions,
        &columns.submitted,
        &columns.bodies,
        &columns.depends_on as &[Option<String>],
        &columns.arrays as &[Option<Uuid>],
        &columns.places as &[Option<i32>],
    )
    .fetch_one(connection)
    .await?;
    Ok(match (done.led, done.written) {
        (0, _) => Guarded::Fenced,
        (_, written) if written == integer(jobs.len() as u64) => Guarded::Written,
        _ => Guarded::Conflict,
    })
}
