//! Table `arrays`, and the jobs that are their elements.

use std::collections::BTreeMap;

use headway_engine::record::{Array, Job};
use headway_types::{ArrayId, JobId, Timestamp};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::column::{document, integer, text, time, unsigned};
use super::jobs::Conditions;
use super::{IdEnd, JobFilter, ListedJob, OutOfSight, Page, Store, StoreError};

/// Which arrays a listing wants, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArrayFilter {
    pub project: Option<String>,
    pub owner: Option<String>,
    /// The whole name.
    pub name: Option<String>,
    /// How the id begins or ends.
    pub id: Option<IdEnd>,
    /// Part of the name, in any case.
    pub name_contains: Option<String>,
    /// Only those of which an element has not ended, or only the others.
    pub live: Option<bool>,
    /// What whoever asks may not know of.
    pub out_of_sight: Option<OutOfSight>,
    pub limit: u32,
    /// The last array of the page before.
    pub cursor: Option<ArrayId>,
}

impl Store {
    pub async fn arrays(&self, filter: &ArrayFilter) -> Result<Page<Array, ArrayId>, StoreError> {
        let of_jobs = JobFilter {
            name_contains: filter.name_contains.clone(),
            out_of_sight: filter.out_of_sight.clone(),
            ..JobFilter::default()
        };
        let conditions = Conditions::of(&of_jobs);
        let range = filter.id.as_ref().and_then(IdEnd::range);
        let rows = sqlx::query!(
            r#"SELECT body AS "body: Json<Array>" FROM arrays
            WHERE ($1::text IS NULL OR project = $1)
              AND ($2::text IS NULL OR owner = $2)
              AND ($3::text IS NULL OR name ILIKE $3)
              AND (cardinality($4::text[]) = 0 OR project <> ALL($4) OR owner = $5)
              AND ($6::boolean IS NULL OR $6 = EXISTS (
                SELECT FROM jobs WHERE jobs.array_id = arrays.array_id
                  AND state IN ('queued', 'held', 'starting', 'running', 'stopping')
              ))
              AND ($7::uuid IS NULL OR array_id < $7)
              AND ($9::text IS NULL OR name = $9)
              AND ($10::text IS NULL OR reverse(array_id::text) LIKE $10 OR array_id BETWEEN $11 AND $12)
            ORDER BY array_id DESC LIMIT $8"#,
            filter.project.as_deref().map(text),
            filter.owner.as_deref().map(text),
            conditions.name,
            &conditions.hidden,
            conditions.but_of,
            filter.live,
            filter.cursor.map(|array| array.0),
            i64::from(filter.limit) + 1,
            filter.name.as_deref().map(text),
            filter.id.as_ref().map(IdEnd::backwards),
            range.map(|(first, _)| first),
            range.map(|(_, last)| last),
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("listing arrays"))?;
        Ok(Page::of(rows.into_iter().map(|row| row.body.0).collect(), filter.limit, |array| array.id))
    }

    /// The rows of these, as far as there are.
    pub async fn arrays_among(&self, arrays: &[ArrayId]) -> Result<Vec<Array>, StoreError> {
        if arrays.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<Uuid> = arrays.iter().map(|array| array.0).collect();
        let rows = sqlx::query!(r#"SELECT body AS "body: Json<Array>" FROM arrays WHERE array_id = ANY($1)"#, &ids)
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::during("reading arrays"))?;
        Ok(rows.into_iter().map(|row| row.body.0).collect())
    }

    /// Of each project and name the newest array of an owner.
    pub async fn newest_arrays_named(
        &self,
        owner: &str,
        wanted: &[(String, String)],
    ) -> Result<BTreeMap<(String, String), ArrayId>, StoreError> {
        let projects: Vec<_> = wanted.iter().map(|(project, _)| text(project)).collect();
        let names: Vec<_> = wanted.iter().map(|(_, name)| text(name)).collect();
        let rows = sqlx::query!(
            r#"SELECT wanted.project AS "project!", wanted.name AS "name!", newest.array_id
            FROM UNNEST($2::text[], $3::text[]) AS wanted (project, name)
            CROSS JOIN LATERAL (
                SELECT array_id FROM arrays
                WHERE arrays.name = wanted.name AND arrays.project = wanted.project AND arrays.owner = $1
                ORDER BY array_id DESC LIMIT 1
            ) AS newest"#,
            text(owner),
            &projects,
            &names,
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("reading arrays by name"))?;
        Ok(rows.into_iter().map(|row| ((row.project, row.name), ArrayId(row.array_id))).collect())
    }

    /// Forgets arrays of before this moment whose elements are all gone; returns how many. An array that an unfinished
    /// job waits for stays.
    pub async fn prune_arrays(&self, before: Timestamp, most: u32) -> Result<u64, StoreError> {
        let gone = sqlx::query!(
            "DELETE FROM arrays WHERE array_id IN (
                SELECT array_id FROM arrays WHERE submitted_at < $1
                    AND NOT EXISTS (SELECT FROM jobs WHERE jobs.array_id = arrays.array_id)
                    AND NOT EXISTS (
                        SELECT FROM jobs AS waiting WHERE waiting.depends_on @> ARRAY[arrays.array_id]
                            AND waiting.state IN ('queued', 'held', 'starting', 'running', 'stopping')
                    )
                ORDER BY array_id LIMIT $2
            )",
            time(before),
            i64::from(most),
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::during("pruning arrays"))?;
        Ok(gone.rows_affected())
    }

    /// Elements of an array after a place, in the order of their indices.
    pub async fn elements(&self, array: ArrayId, after: Option<u32>, limit: u32) -> Result<Page<Job, u32>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT body AS "body: Json<Job>" FROM jobs
            WHERE array_id = $1 AND array_place > $2 ORDER BY array_place LIMIT $3"#,
            array.0,
            after.map_or(-1, |after| i32::try_from(after).unwrap_or(i32::MAX)),
            i64::from(limit) + 1,
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("reading elements of an array"))?;
        let place = |job: &Job| job.element.as_ref().map_or(0, |element| element.place);
        Ok(Page::of(rows.into_iter().map(|row| row.body.0).collect(), limit, place))
    }

    /// Jobs of no array, and in place of all elements of an array its first, if the filter admits any of them; the newest first. Both kinds are
    /// read in the order of an index of their own.
    pub async fn list_collapsed(
        &self,
        filter: &JobFilter,
    ) -> Result<Page<(ListedJob, Option<ArrayId>), JobId>, StoreError> {
        let conditions = Conditions::of(filter);
        let states: Vec<String> = conditions.states.iter().cloned().chain(conditions.state.clone()).collect();
        let rows = sqlx::query!(
            r#"SELECT job_id AS "job_id!", version AS "version!", array_id FROM (
                (SELECT job_id, version, array_id FROM jobs
                WHERE array_id IS NULL
                  AND (cardinality($1::text[]) = 0 OR state = ANY($1))
                  AND ($2::text IS NULL OR project = $2)
                  AND ($3::text IS NULL OR owner = $3)
                  AND ($4::text IS NULL OR name ILIKE $4)
                  AND ($5::jsonb IS NULL OR labels @> $5)
                  AND ($6::text[] IS NULL OR labels ?& $6)
                  AND (cardinality($9::text[]) = 0 OR project <> ALL($9) OR owner = $10)
                  AND ($7::uuid IS NULL OR job_id < $7)
                ORDER BY job_id DESC LIMIT $8)
                UNION ALL
                (SELECT job_id, version, array_id FROM jobs
                WHERE array_place = 0
                  AND ($2::text IS NULL OR project = $2)
                  AND ($3::text IS NULL OR owner = $3)
                  AND (cardinality($9::text[]) = 0 OR project <> ALL($9) OR owner = $10)
                  AND ($7::uuid IS NULL OR job_id < $7)
                  AND EXISTS (
                    SELECT FROM jobs AS element
                    WHERE element.array_id = jobs.array_id
                      AND (cardinality($1::text[]) = 0 OR element.state = ANY($1))
                      AND ($4::text IS NULL OR element.name ILIKE $4)
                      AND ($5::jsonb IS NULL OR element.labels @> $5)
                      AND ($6::text[] IS NULL OR element.labels ?& $6)
                  )
                ORDER BY job_id DESC LIMIT $8)
            ) AS both_kinds ORDER BY job_id DESC LIMIT $8"#,
            &states,
            filter.project.as_deref().map(text),
            filter.owner.as_deref().map(text),
            conditions.name,
            conditions.labels,
            conditions.label_names.as_deref() as Option<&[String]>,
            filter.cursor.map(|job| job.0),
            i64::from(filter.limit) + 1,
            &conditions.hidden,
            conditions.but_of,
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("listing jobs and arrays"))?;
        let listed = rows.into_iter().map(|row| {
            (ListedJob { id: JobId(row.job_id), version: unsigned(row.version) }, row.array_id.map(ArrayId))
        });
        Ok(Page::of(listed.collect(), filter.limit, |(job, _)| job.id))
    }
}

/// Writes whole rows.
pub(super) async fn upsert(connection: &mut PgConnection, arrays: &[&Array]) -> Result<(), sqlx::Error> {
    if arrays.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = arrays.iter().map(|array| array.id.0).collect();
    let names: Vec<_> = arrays.iter().map(|array| text(&array.name)).collect();
    let projects: Vec<_> = arrays.iter().map(|array| text(&array.project)).collect();
    let owners: Vec<_> = arrays.iter().map(|array| text(&array.owner)).collect();
    let submitted: Vec<_> = arrays.iter().map(|array| time(array.submitted_at)).collect();
    let versions: Vec<_> = arrays.iter().map(|array| integer(array.version)).collect();
    let bodies: Vec<_> = arrays.iter().map(document).collect();
    sqlx::query!(
        "INSERT INTO arrays (array_id, name, project, owner, submitted_at, version, body)
        SELECT array_id, name, project, owner, submitted_at, version, body::jsonb
        FROM UNNEST($1::uuid[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::bigint[], $7::text[])
            AS new (array_id, name, project, owner, submitted_at, version, body)
        ON CONFLICT (array_id) DO UPDATE SET version = excluded.version, body = excluded.body",
        &ids,
        &names,
        &projects,
        &owners,
        &submitted,
        &versions,
        &bodies,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Those of which an element has not ended, or has GPUs that are not all proven free.
pub(super) async fn live(connection: &mut PgConnection) -> Result<Vec<Array>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT body AS "body: Json<Array>" FROM arrays
        WHERE array_id IN (
            SELECT array_id FROM jobs
            WHERE array_id IS NOT NULL AND state IN ('queued', 'held', 'starting', 'running', 'stopping')
            UNION
            SELECT array_id FROM allocations JOIN jobs USING (job_id) WHERE holds AND array_id IS NOT NULL
        )
        ORDER BY array_id"#
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| row.body.0).collect())
}
