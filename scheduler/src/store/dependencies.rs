//! Table `jobs`, asked for jobs that name others and by the names that they give them.

use std::collections::BTreeMap;

use headway_engine::record::{Awaited, Job};
use headway_types::JobId;
use sqlx::types::Json;

use super::column::text;
use super::{OutOfSight, Store, StoreError};

/// Names that are looked through for the nearest.
const NAMES: i64 = 1_000;

impl Store {
    /// Of each project and name the newest job of an owner.
    pub async fn newest_named(
        &self,
        owner: &str,
        wanted: &[(String, String)],
    ) -> Result<BTreeMap<(String, String), JobId>, StoreError> {
        let projects: Vec<_> = wanted.iter().map(|(project, _)| text(project)).collect();
        let names: Vec<_> = wanted.iter().map(|(_, name)| text(name)).collect();
        let rows = sqlx::query!(
            r#"SELECT wanted.project AS "project!", wanted.name AS "name!", newest.job_id
            FROM UNNEST($2::text[], $3::text[]) AS wanted (project, name)
            CROSS JOIN LATERAL (
                SELECT job_id FROM jobs
                WHERE jobs.name = wanted.name AND jobs.project = wanted.project AND jobs.owner = $1
                ORDER BY job_id DESC LIMIT 1
            ) AS newest"#,
            text(owner),
            &projects,
            &names,
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("reading jobs by name"))?;
        Ok(rows.into_iter().map(|row| ((row.project, row.name), JobId(row.job_id))).collect())
    }

    /// What the newest jobs of an owner in a project are called.
    pub async fn names_of(&self, owner: &str, project: &str) -> Result<Vec<String>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT DISTINCT name FROM (
                SELECT name FROM jobs WHERE owner = $1 AND project = $2 ORDER BY job_id DESC LIMIT $3
            ) AS newest ORDER BY name"#,
            text(owner),
            text(project),
            NAMES,
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("reading names of jobs"))?;
        Ok(rows.into_iter().map(|row| row.name).collect())
    }

    /// Jobs that name this job or array as their dependency, the oldest first.
    pub async fn dependents(
        &self,
        of: Awaited,
        out_of_sight: Option<&OutOfSight>,
        at_most: u32,
    ) -> Result<Vec<Job>, StoreError> {
        let hidden: Vec<String> =
            out_of_sight.iter().flat_map(|hidden| &hidden.projects).map(|one| text(one)).collect();
        let id = match of {
            Awaited::Job(job) => job.0,
            Awaited::Array(array) => array.0,
        };
        let rows = sqlx::query!(
            r#"SELECT body AS "body: Json<Job>" FROM jobs
            WHERE depends_on @> ARRAY[$1::uuid] AND (cardinality($2::text[]) = 0 OR project <> ALL($2) OR owner = $3)
            ORDER BY job_id LIMIT $4"#,
            id,
            &hidden,
            out_of_sight.map(|hidden| text(&hidden.but_of)),
            i64::from(at_most),
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("reading who waits for a job"))?;
        Ok(rows.into_iter().map(|row| row.body.0).collect())
    }
}
