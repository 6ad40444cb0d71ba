//! Tables `jobs` and `arrays`, asked whose what is in them: for whoever may not know of all of it.

use std::collections::{BTreeMap, BTreeSet};

use headway_types::JobId;

use super::column::text;
use super::{Store, StoreError};

impl Store {
    /// What the jobs of these projects are called, with project and owner, whether they have ended or not.
    pub async fn names_in(&self, projects: &BTreeSet<String>) -> Result<Vec<(String, String, String)>, StoreError> {
        let projects: Vec<String> = projects.iter().map(|project| text(project)).collect();
        let rows = sqlx::query!("SELECT DISTINCT name, project, owner FROM jobs WHERE project = ANY($1)", &projects)
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::during("reading names of private jobs"))?;
        Ok(rows.into_iter().map(|row| (row.name, row.project, row.owner)).collect())
    }

    /// Project and owner of jobs, and of arrays among the ids.
    pub async fn jobs_whose(&self, jobs: &[JobId]) -> Result<BTreeMap<JobId, (String, String)>, StoreError> {
        if jobs.is_empty() {
            return Ok(BTreeMap::new());
        }
        let jobs: Vec<_> = jobs.iter().map(|job| job.0).collect();
        let rows = sqlx::query!(
            r#"SELECT job_id AS "job_id!", project AS "project!", owner AS "owner!" FROM jobs WHERE job_id = ANY($1)
            UNION ALL SELECT array_id, project, owner FROM arrays WHERE array_id = ANY($1)"#,
            &jobs
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("reading whose jobs are"))?;
        Ok(rows.into_iter().map(|row| (JobId(row.job_id), (row.project, row.owner))).collect())
    }
}
