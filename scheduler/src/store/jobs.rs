//! Table `jobs`.

use std::collections::BTreeMap;

use headway_engine::record::Job;
use headway_types::{JobId, JobStateKind};
use sqlx::PgConnection;
use sqlx::types::Json;

use super::column::{document, integer, text, time};
use super::{Page, Store, StoreError};

/// Which jobs a listing wants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFilter {
    /// Empty: any.
    pub states: Vec<JobStateKind>,
    pub project: Option<String>,
    pub owner: Option<String>,
    /// Part of the name, in any case.
    pub name_contains: Option<String>,
    /// Only of these; absent: of all.
    pub among: Option<Vec<JobId>>,
    pub limit: u32,
    /// The last job of the page before.
    pub cursor: Option<JobId>,
}

impl Store {
    /// Jobs, live and ended, newest first.
    pub async fn list_jobs(&self, filter: &JobFilter) -> Result<Page<Job, JobId>, StoreError> {
        let among = filter.among.as_ref().map(|jobs| jobs.iter().map(|job| job.0).collect::<Vec<_>>());
        let states: Vec<String> = filter.states.iter().map(ToString::to_string).collect();
        let rows = sqlx::query!(
            r#"SELECT body AS "body: Json<Job>" FROM jobs
            WHERE (cardinality($1::text[]) = 0 OR state = ANY($1))
              AND ($2::text IS NULL OR project = $2)
              AND ($3::text IS NULL OR owner = $3)
              AND ($4::text IS NULL OR strpos(lower(name), lower($4)) > 0)
              AND ($5::uuid IS NULL OR job_id < $5)
              AND ($6::uuid[] IS NULL OR job_id = ANY($6))
            ORDER BY job_id DESC LIMIT $7"#,
            &states,
            filter.project.as_deref().map(text),
            filter.owner.as_deref().map(text),
            filter.name_contains.as_deref().map(text),
            filter.cursor.map(|job| job.0),
            among.as_deref() as Option<&[uuid::Uuid]>,
            i64::from(filter.limit) + 1,
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("listing jobs"))?;
        Ok(Page::of(rows.into_iter().map(|row| row.body.0).collect(), filter.limit, |job| job.id))
    }

    /// What jobs are called.
    pub async fn job_names(&self, jobs: &[JobId]) -> Result<BTreeMap<JobId, String>, StoreError> {
        let jobs: Vec<_> = jobs.iter().map(|job| job.0).collect();
        let rows = sqlx::query!("SELECT job_id, name FROM jobs WHERE job_id = ANY($1)", &jobs)
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::during("reading names of jobs"))?;
        Ok(rows.into_iter().map(|row| (JobId(row.job_id), row.name)).collect())
    }

    /// Project and owner of jobs.
    pub async fn jobs_whose(&self, jobs: &[JobId]) -> Result<BTreeMap<JobId, (String, String)>, StoreError> {
        if jobs.is_empty() {
            return Ok(BTreeMap::new());
        }
        let jobs: Vec<_> = jobs.iter().map(|job| job.0).collect();
        let rows = sqlx::query!("SELECT job_id, project, owner FROM jobs WHERE job_id = ANY($1)", &jobs)
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::during("reading whose jobs are"))?;
        Ok(rows.into_iter().map(|row| (JobId(row.job_id), (row.project, row.owner))).collect())
    }

    pub async fn job(&self, job: JobId) -> Result<Option<Job>, StoreError> {
        let row = sqlx::query!(r#"SELECT body AS "body: Json<Job>" FROM jobs WHERE job_id = $1"#, job.0)
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::during("reading a job"))?;
        Ok(row.map(|row| row.body.0))
    }
}

/// Writes whole rows; false if a stored one has a newer generation or version, and then nothing may be committed.
pub(super) async fn upsert(connection: &mut PgConnection, jobs: &[&Job]) -> Result<bool, sqlx::Error> {
    if jobs.is_empty() {
        return Ok(true);
    }
    let ids: Vec<_> = jobs.iter().map(|job| job.id.0).collect();
    let names: Vec<_> = jobs.iter().map(|job| text(&job.spec.name)).collect();
    let projects: Vec<_> = jobs.iter().map(|job| text(&job.spec.project)).collect();
    let owners: Vec<_> = jobs.iter().map(|job| text(&job.owner)).collect();
    let states: Vec<_> = jobs.iter().map(|job| job.state.kind().to_string()).collect();
    let generations: Vec<_> = jobs.iter().map(|job| integer(job.generation.0)).collect();
    let versions: Vec<_> = jobs.iter().map(|job| integer(job.version)).collect();
    let submitted: Vec<_> = jobs.iter().map(|job| time(job.submitted_at)).collect();
    let bodies: Vec<_> = jobs.iter().map(document).collect();
    let written = sqlx::query!(
        "INSERT INTO jobs (job_id, name, project, owner, state, generation, version, submitted_at, body)
        SELECT job_id, name, project, owner, state, generation, version, submitted_at, body::jsonb
        FROM UNNEST($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[],
            $8::timestamptz[], $9::text[])
            AS new (job_id, name, project, owner, state, generation, version, submitted_at, body)
        ON CONFLICT (job_id) DO UPDATE SET
            name = excluded.name, project = excluded.project, state = excluded.state,
            generation = excluded.generation, version = excluded.version, body = excluded.body
        WHERE jobs.generation <= excluded.generation AND jobs.version <= excluded.version",
        &ids,
        &names,
        &projects,
        &owners,
        &states,
        &generations,
        &versions,
        &submitted,
        &bodies,
    )
    .execute(connection)
    .await?
    .rows_affected();
    Ok(written == jobs.len() as u64)
}

/// Jobs that have not ended, and ended ones whose GPUs are not all proven free.
pub(super) async fn live(connection: &mut PgConnection) -> Result<Vec<Job>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT body AS "body: Json<Job>" FROM jobs
        WHERE state IN ('queued', 'held', 'starting', 'running', 'stopping')
           OR job_id IN (SELECT job_id FROM allocations WHERE holds)
        ORDER BY job_id"#
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| row.body.0).collect())
}
