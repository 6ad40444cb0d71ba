//! What was in which state over a span of time: rows of `transitions`, with whose they are. One query a kind, whatever the page.

use std::collections::BTreeMap;

use headway_engine::record::{Allocation, Entered};
use headway_types::{JobId, NodeId, Timestamp};
use sqlx::types::Json;
use uuid::Uuid;

use super::column::{moment, text, time};
use super::{OutOfSight, Page, Store, StoreError};

const READING: &str = "reading a span of the past";

/// A span of time and whose past in it is wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpanFilter {
    pub from: Timestamp,
    pub to: Timestamp,
    pub project: Option<String>,
    /// Only of these; absent: of all.
    pub among: Option<Vec<JobId>>,
    /// Whom the reader may not know of.
    pub out_of_sight: Option<OutOfSight>,
    /// The last job of the page before.
    pub cursor: Option<JobId>,
    pub limit: u32,
}

/// A job that was there within a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpannedJob {
    pub id: JobId,
    pub name: String,
    pub project: String,
    pub owner: String,
}

/// What each subject entered, oldest first, from its state as the span begins.
pub type Entries = BTreeMap<Uuid, Vec<(Timestamp, Entered)>>;

impl Store {
    /// Jobs that had been submitted before the span ended and had not ended before it began, newest first. Who was there is found by the index of
    /// spans before it is sorted: the order alone would have it look at all jobs where few were.
    pub async fn jobs_within(&self, filter: &SpanFilter) -> Result<Page<SpannedJob, JobId>, StoreError> {
        let among: Option<Vec<Uuid>> = filter.among.as_ref().map(|jobs| jobs.iter().map(|job| job.0).collect());
        let hidden: Vec<String> =
            filter.out_of_sight.iter().flat_map(|hidden| &hidden.projects).map(|project| text(project)).collect();
        let but_of = filter.out_of_sight.as_ref().map(|hidden| text(&hidden.but_of));
        let rows = sqlx::query!(
            r#"WITH there AS MATERIALIZED (
                SELECT job_id, name, project, owner FROM jobs
                WHERE state IN ('queued', 'held', 'starting', 'running', 'stopping') AND submitted_at < $2
                UNION ALL
                SELECT job_id, name, project, owner FROM jobs
                WHERE state IN ('succeeded', 'failed', 'cancelled')
                  AND tstzrange(submitted_at, GREATEST(ended_at, submitted_at), '[]') && tstzrange($1, $2)
            )
            SELECT job_id AS "job_id!", name AS "name!", project AS "project!", owner AS "owner!" FROM there
            WHERE ($3::text IS NULL OR project = $3)
              AND ($4::uuid[] IS NULL OR job_id = ANY($4))
              AND ($5::uuid IS NULL OR job_id < $5)
              AND (project <> ALL($7::text[]) OR owner = $8)
            ORDER BY job_id DESC LIMIT $6"#,
            time(filter.from),
            time(filter.to),
            filter.project.as_deref().map(text),
            among.as_deref() as Option<&[Uuid]>,
            filter.cursor.map(|job| job.0),
            i64::from(filter.limit) + 1,
            &hidden,
            but_of,
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during(READING))?;
        let jobs = rows.into_iter().map(|row| SpannedJob {
            id: JobId(row.job_id),
            name: row.name,
            project: row.project,
            owner: row.owner,
        });
        Ok(Page::of(jobs.collect(), filter.limit, |job| job.id))
    }

    /// The states of these jobs within a span.
    pub async fn job_entries(&self, jobs: &[JobId], from: Timestamp, to: Timestamp) -> Result<Entries, StoreError> {
        self.entries("job", jobs.iter().map(|job| job.0).collect(), from, to).await
    }

    /// The states of these nodes within a span, deleted ones included.
    pub async fn node_entries(&self, nodes: &[NodeId], from: Timestamp, to: Timestamp) -> Result<Entries, StoreError> {
        self.entries("node", nodes.iter().map(|node| node.0).collect(), from, to).await
    }

    /// The key of the table has each subject's rows together and in order.
    async fn entries(
        &self,
        subject: &str,
        ids: Vec<Uuid>,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Entries, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT subject_id, valid_from, entered AS "entered: Json<Entered>" FROM transitions
            WHERE subject = $1 AND subject_id = ANY($2) AND valid_from < $4 AND (valid_to IS NULL OR valid_to >= $3)
            ORDER BY subject_id, generation, valid_from"#,
            subject,
            &ids,
            time(from),
            time(to),
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during(READING))?;
        let mut entries = Entries::new();
        for row in rows {
            entries.entry(row.subject_id).or_default().push((moment(row.valid_from), row.entered.0));
        }
        Ok(entries)
    }

    /// What these jobs held within a span, in the order of their generations.
    pub async fn allocations_within(
        &self,
        jobs: &[JobId],
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<Allocation>, StoreError> {
        let jobs: Vec<Uuid> = jobs.iter().map(|job| job.0).collect();
        let rows = sqlx::query!(
            r#"SELECT body AS "body: Json<Allocation>" FROM allocations
            WHERE job_id = ANY($1) AND granted_at < $3 AND (ended_at IS NULL OR ended_at >= $2)
            ORDER BY job_id, generation"#,
            &jobs,
            time(from),
            time(to),
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during(READING))?;
        Ok(rows.into_iter().map(|row| row.body.0).collect())
    }

    /// Deleted nodes that were there within a span, with their names.
    pub async fn former_nodes_within(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<BTreeMap<NodeId, String>, StoreError> {
        let rows = sqlx::query!(
            "SELECT node_id, name FROM former_nodes
            WHERE EXISTS (
                SELECT 1 FROM transitions
                WHERE subject = 'node' AND subject_id = node_id AND valid_from < $2 AND (valid_to IS NULL OR valid_to >= $1)
            )",
            time(from),
            time(to),
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during(READING))?;
        Ok(rows.into_iter().map(|row| (NodeId(row.node_id), row.name)).collect())
    }
}
