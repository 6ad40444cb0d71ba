//! Table `jobs`.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use headway_engine::record::{Awaited, Dependency, Job};
use headway_types::{ArrayId, JobId, JobStateKind, Timestamp};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::column::{document, integer, text, time, unsigned};
use super::{IdEnd, Page, Store, StoreError};

/// Which jobs a listing wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobFilter {
    /// Empty: any.
    pub states: Vec<JobStateKind>,
    pub project: Option<String>,
    pub owner: Option<String>,
    /// Labels it has: with this value, or with any.
    pub labels: BTreeMap<String, Option<String>>,
    /// The whole name.
    pub name: Option<String>,
    /// Part of the name, in any case.
    pub name_contains: Option<String>,
    /// Only elements of this array.
    pub array: Option<ArrayId>,
    /// Only of these, which are in order; absent: of all.
    pub among: Option<Vec<JobId>>,
    /// What whoever asks may not know of.
    pub out_of_sight: Option<OutOfSight>,
    pub order: JobOrder,
    pub limit: u32,
    /// The last job of the page before.
    pub cursor: Option<JobId>,
}

/// Jobs that somebody may not even know of: those of these projects, but for his own.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutOfSight {
    pub projects: BTreeSet<String>,
    pub but_of: String,
}

impl OutOfSight {
    pub fn hides(&self, project: &str, owner: &str) -> bool {
        owner != self.but_of && self.projects.contains(project)
    }
}

/// What a listing is sorted by; jobs alike in it the newest first, from the other end the other way round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobOrder {
    pub key: JobKey,
    /// From the end: the oldest, `z`, the last to end.
    pub backwards: bool,
}

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobKey {
    /// The newest first.
    #[default]
    Submitted,
    Name,
    Owner,
    Project,
    /// Of jobs that have ended alone, the first to end first.
    Ended,
}

/// A job of a listing. Whoever lists knows the live ones, and perhaps this version of one that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedJob {
    pub id: JobId,
    pub version: u64,
}

struct Row {
    job_id: Uuid,
    version: i64,
}

/// What a filter says to the columns.
pub(super) struct Conditions {
    /// Several.
    pub states: Vec<String>,
    /// One: rows with it lie in the order of an index.
    pub state: Option<String>,
    pub name: Option<String>,
    pub labels: Option<serde_json::Value>,
    pub label_names: Option<Vec<String>>,
    among: Option<Vec<Uuid>>,
    pub hidden: Vec<String>,
    pub but_of: Option<String>,
}

impl Conditions {
    pub fn of(filter: &JobFilter) -> Self {
        let of_values =
            filter.labels.iter().filter_map(|(name, value)| Some((text(name), text(value.as_ref()?).into())));
        let labels: serde_json::Map<String, serde_json::Value> = of_values.collect();
        let any: Vec<String> =
            filter.labels.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| text(name)).collect();
        let states: Vec<String> = filter.states.iter().map(ToString::to_string).collect();
        let (states, state) = match <[String; 1]>::try_from(states) {
            Ok([state]) => (Vec::new(), Some(state)),
            Err(states) => (states, None),
        };
        Self {
            states,
            state,
            name: filter.name_contains.as_deref().map(|part| format!("%{}%", literally(&text(part)))),
            labels: (!labels.is_empty()).then_some(serde_json::Value::Object(labels)),
            label_names: (!any.is_empty()).then_some(any),
            among: filter.among.as_ref().map(|jobs| jobs.iter().map(|job| job.0).collect()),
            hidden: filter.out_of_sight.iter().flat_map(|hidden| &hidden.projects).map(|name| text(name)).collect(),
            but_of: filter.out_of_sight.as_ref().map(|hidden| text(&hidden.but_of)),
        }
    }
}

/// A text as a pattern that only it matches.
fn literally(text: &str) -> String {
    text.replace('\\', r"\\").replace('%', r"\%").replace('_', r"\_")
}

/// The texts of all lists are one but for what comes after the last row of the page before, and the order: a text that chose its order by a
/// parameter would use no index.
macro_rules! list {
    ($pool:expr, $filter:expr, $after:literal, $order:literal) => {{
        let (filter, conditions) = ($filter, Conditions::of($filter));
        sqlx::query_as!(
            Row,
            "SELECT job_id, version FROM jobs
            WHERE (cardinality($1::text[]) = 0 OR state = ANY($1))
              AND ($2::text IS NULL OR project = $2)
              AND ($3::text IS NULL OR owner = $3)
              AND ($4::text IS NULL OR name ILIKE $4)
              AND ($5::jsonb IS NULL OR labels @> $5)
              AND ($6::text[] IS NULL OR labels ?& $6)
              AND (cardinality($9::text[]) = 0 OR project <> ALL($9) OR owner = $10)
              AND ($11::text IS NULL OR state = $11)
              AND ($12::uuid IS NULL OR array_id = $12)
              AND ($13::text IS NULL OR name = $13)
              AND ($14::uuid[] IS NULL OR job_id = ANY($14))
              AND ($7::uuid IS NULL OR "
                + $after
                + ") ORDER BY "
                + $order
                + " LIMIT $8",
            &conditions.states,
            filter.project.as_deref().map(text),
            filter.owner.as_deref().map(text),
            conditions.name,
            conditions.labels,
            conditions.label_names.as_deref() as Option<&[String]>,
            filter.cursor.map(|job| job.0),
            i64::from(filter.limit) + 1,
            &conditions.hidden,
            conditions.but_of,
            conditions.state,
            filter.array.map(|array| array.0),
            filter.name.as_deref().map(text),
            conditions.among.as_deref() as Option<&[Uuid]>,
        )
        .fetch_all($pool)
        .await
    }};
}

impl Store {
    /// Jobs, live and ended.
    pub async fn list_jobs(&self, filter: &JobFilter) -> Result<Page<ListedJob, JobId>, StoreError> {
        let JobOrder { key, backwards } = filter.order;
        let rows = match (key, backwards) {
            (JobKey::Submitted, false) => list!(&self.pool, filter, "job_id < $7", "job_id DESC"),
            (JobKey::Submitted, true) => list!(&self.pool, filter, "job_id > $7", "job_id"),
            (JobKey::Name, false) => list!(
                &self.pool,
                filter,
                "name >= (SELECT name FROM jobs WHERE job_id = $7)
                    AND (name > (SELECT name FROM jobs WHERE job_id = $7) OR job_id < $7)",
                "name, job_id DESC"
            ),
            (JobKey::Name, true) => list!(
                &self.pool,
                filter,
                "name <= (SELECT name FROM jobs WHERE job_id = $7)
                    AND (name < (SELECT name FROM jobs WHERE job_id = $7) OR job_id > $7)",
                "name DESC, job_id"
            ),
            (JobKey::Owner, false) => list!(
                &self.pool,
                filter,
                "owner >= (SELECT owner FROM jobs WHERE job_id = $7)
                    AND (owner > (SELECT owner FROM jobs WHERE job_id = $7) OR job_id < $7)",
                "owner, job_id DESC"
            ),
            (JobKey::Owner, true) => list!(
                &self.pool,
                filter,
                "owner <= (SELECT owner FROM jobs WHERE job_id = $7)
                    AND (owner < (SELECT owner FROM jobs WHERE job_id = $7) OR job_id > $7)",
                "owner DESC, job_id"
            ),
            (JobKey::Project, false) => list!(
                &self.pool,
                filter,
                "project >= (SELECT project FROM jobs WHERE job_id = $7)
                    AND (project > (SELECT project FROM jobs WHERE job_id = $7) OR job_id < $7)",
                "project, job_id DESC"
            ),
            (JobKey::Project, true) => list!(
                &self.pool,
                filter,
                "project <= (SELECT project FROM jobs WHERE job_id = $7)
                    AND (project < (SELECT project FROM jobs WHERE job_id = $7) OR job_id > $7)",
                "project DESC, job_id"
            ),
            (JobKey::Ended, false) => list!(
                &self.pool,
                filter,
                "(ended_at, job_id) > ((SELECT ended_at FROM jobs WHERE job_id = $7), $7)) AND (ended_at IS NOT NULL",
                "ended_at, job_id"
            ),
            (JobKey::Ended, true) => list!(
                &self.pool,
                filter,
                "(ended_at, job_id) < ((SELECT ended_at FROM jobs WHERE job_id = $7), $7)) AND (ended_at IS NOT NULL",
                "ended_at DESC, job_id DESC"
            ),
        };
        let rows = rows.map_err(StoreError::during("listing jobs"))?;
        let listed = |row: Row| ListedJob { id: JobId(row.job_id), version: unsigned(row.version) };
        Ok(Page::of(rows.into_iter().map(listed).collect(), filter.limit, |job| job.id))
    }

    /// How many jobs a filter admits by state, whatever it says of states.
    pub async fn count_jobs(&self, filter: &JobFilter) -> Result<BTreeMap<String, u64>, StoreError> {
        let conditions = Conditions::of(filter);
        let rows = sqlx::query!(
            r#"SELECT state, count(*) AS "jobs!" FROM jobs
            WHERE ($1::text IS NULL OR project = $1)
              AND ($2::text IS NULL OR owner = $2)
              AND ($3::text IS NULL OR name ILIKE $3)
              AND ($4::jsonb IS NULL OR labels @> $4)
              AND ($5::text[] IS NULL OR labels ?& $5)
              AND (cardinality($6::text[]) = 0 OR project <> ALL($6) OR owner = $7)
              AND ($8::uuid IS NULL OR array_id = $8)
              AND ($9::text IS NULL OR name = $9)
              AND ($10::uuid[] IS NULL OR job_id = ANY($10))
            GROUP BY state"#,
            filter.project.as_deref().map(text),
            filter.owner.as_deref().map(text),
            conditions.name,
            conditions.labels,
            conditions.label_names.as_deref() as Option<&[String]>,
            &conditions.hidden,
            conditions.but_of,
            filter.array.map(|array| array.0),
            filter.name.as_deref().map(text),
            conditions.among.as_deref() as Option<&[Uuid]>,
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("counting jobs"))?;
        Ok(rows.into_iter().map(|row| (row.state, u64::try_from(row.jobs).unwrap_or(0))).collect())
    }

    /// The records of these, newest first.
    pub async fn jobs(&self, filter: &JobFilter) -> Result<Page<Job, JobId>, StoreError> {
        let conditions = Conditions::of(filter);
        let rows = sqlx::query!(
            r#"SELECT body AS "body: Json<Job>" FROM jobs
            WHERE ($1::text IS NULL OR project = $1)
              AND ($2::text IS NULL OR owner = $2)
              AND ($3::text IS NULL OR name ILIKE $3)
              AND ($4::uuid IS NULL OR job_id < $4)
              AND ($5::uuid[] IS NULL OR job_id = ANY($5))
              AND (cardinality($7::text[]) = 0 OR project <> ALL($7) OR owner = $8)
            ORDER BY job_id DESC LIMIT $6"#,
            filter.project.as_deref().map(text),
            filter.owner.as_deref().map(text),
            conditions.name,
            filter.cursor.map(|job| job.0),
            conditions.among.as_deref() as Option<&[Uuid]>,
            i64::from(filter.limit) + 1,
            &conditions.hidden,
            conditions.but_of,
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("listing jobs"))?;
        Ok(Page::of(rows.into_iter().map(|row| row.body.0).collect(), filter.limit, |job| job.id))
    }

    /// The jobs whose ids begin or end so, of more than `most` the newest of both. An index has either, so that it costs what it finds.
    pub async fn jobs_by_id(&self, end: &IdEnd, most: u32) -> Result<Vec<JobId>, StoreError> {
        let range = end.range();
        let rows = sqlx::query!(
            r#"(SELECT job_id AS "job_id!" FROM jobs WHERE job_id BETWEEN $1 AND $2 ORDER BY job_id DESC LIMIT $4)
            UNION
            (SELECT job_id FROM jobs WHERE reverse(job_id::text) LIKE $3 ORDER BY job_id DESC LIMIT $4)"#,
            range.map(|(first, _)| first),
            range.map(|(_, last)| last),
            end.backwards(),
            i64::from(most),
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("finding jobs by the end of their ids"))?;
        let mut jobs: Vec<JobId> = rows.into_iter().map(|row| JobId(row.job_id)).collect();
        jobs.sort_unstable();
        Ok(jobs)
    }

    /// What jobs are called.
    pub async fn job_names(&self, jobs: &[JobId]) -> Result<BTreeMap<JobId, String>, StoreError> {
        if jobs.is_empty() {
            return Ok(BTreeMap::new());
        }
        let jobs: Vec<_> = jobs.iter().map(|job| job.0).collect();
        let rows = sqlx::query!("SELECT job_id, name FROM jobs WHERE job_id = ANY($1)", &jobs)
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::during("reading names of jobs"))?;
        Ok(rows.into_iter().map(|row| (JobId(row.job_id), row.name)).collect())
    }

    /// Forgets jobs that ended before this moment, the first that ended first, with their allocations, checkpoints and
    /// models; returns how many jobs. Jobs that still hold GPUs stay, those that an unfinished job waits for, and those of
    /// an array until its last element is past its time.
    pub async fn prune_jobs(&self, before: Timestamp, most: u32) -> Result<u64, StoreError> {
        let done = sqlx::query_scalar!(
            r#"WITH old AS MATERIALIZED (
                SELECT job_id FROM jobs WHERE ended_at < $1
                    AND NOT EXISTS (SELECT FROM allocations WHERE allocations.job_id = jobs.job_id AND holds)
                    AND NOT EXISTS (
                        SELECT FROM jobs AS waiting WHERE waiting.depends_on @> ARRAY[jobs.job_id]
                            AND waiting.state IN ('queued', 'held', 'starting', 'running', 'stopping')
                    )
                    AND NOT EXISTS (
                        SELECT FROM jobs AS element WHERE element.array_id = jobs.array_id
                            AND (element.ended_at IS NULL OR element.ended_at >= $1)
                    )
                ORDER BY ended_at, job_id LIMIT $2
            ), held AS (
                DELETE FROM allocations USING old WHERE allocations.job_id = old.job_id
            ), saved AS (
                DELETE FROM checkpoints USING old WHERE checkpoints.job_id = old.job_id
            ), learnt AS (
                DELETE FROM job_models USING old WHERE job_models.job_id = old.job_id
            ), gone AS (
                DELETE FROM jobs USING old WHERE jobs.job_id = old.job_id RETURNING 1
            )
            SELECT count(*) AS "jobs!" FROM gone"#,
            time(before),
            i64::from(most),
        )
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::during("pruning jobs"))?;
        Ok(unsigned(done))
    }

    pub async fn job(&self, job: JobId) -> Result<Option<Job>, StoreError> {
        let row = sqlx::query!(r#"SELECT body AS "body: Json<Job>" FROM jobs WHERE job_id = $1"#, job.0)
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::during("reading a job"))?;
        Ok(row.map(|row| row.body.0))
    }
}

/// The columns of jobs to be written.
pub(super) struct JobColumns {
    pub ids: Vec<Uuid>,
    pub names: Vec<String>,
    pub projects: Vec<String>,
    pub owners: Vec<String>,
    pub states: Vec<String>,
    pub generations: Vec<i64>,
    pub versions: Vec<i64>,
    pub submitted: Vec<DateTime<Utc>>,
    pub bodies: Vec<String>,
    pub depends_on: Vec<Option<String>>,
    pub arrays: Vec<Option<Uuid>>,
    pub places: Vec<Option<i32>>,
}

impl JobColumns {
    pub fn from_jobs(jobs: &[&Job]) -> Self {
        let place = |job: &Job| Some(i32::try_from(job.element.as_ref()?.place).unwrap_or(i32::MAX));
        Self {
            ids: jobs.iter().map(|job| job.id.0).collect(),
            names: jobs.iter().map(|job| text(&job.spec.name)).collect(),
            projects: jobs.iter().map(|job| text(&job.spec.project)).collect(),
            owners: jobs.iter().map(|job| text(&job.owner)).collect(),
            states: jobs.iter().map(|job| job.state.kind().to_string()).collect(),
            generations: jobs.iter().map(|job| integer(job.generation.0)).collect(),
            versions: jobs.iter().map(|job| integer(job.version)).collect(),
            submitted: jobs.iter().map(|job| time(job.submitted_at)).collect(),
            bodies: jobs.iter().map(document).collect(),
            depends_on: jobs.iter().map(|job| depends_on(job)).collect(),
            arrays: jobs.iter().map(|job| job.element.as_ref().map(|element| element.array.0)).collect(),
            places: jobs.iter().map(|job| place(job)).collect(),
        }
    }
}

/// As Postgres writes an array; arrays of several lengths cannot be unnested together.
fn depends_on(job: &Job) -> Option<String> {
    let id = |one: &Dependency| match one.of {
        Awaited::Job(job) => job.to_string(),
        Awaited::Array(array) => array.to_string(),
    };
    let ids: Vec<String> = job.after.iter().map(id).collect();
    (!ids.is_empty()).then(|| format!("{{{}}}", ids.join(",")))
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
