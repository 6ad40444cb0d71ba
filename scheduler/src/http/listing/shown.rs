//! A job's row as text. Making it costs more than anything else a list does, so it is kept: of a job that has ended by version (`ended`), of a live one for a moment.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headway_api::v1;
use headway_engine::view::JobView;
use headway_types::JobId;

use crate::http::conversions;

/// How long what a live job's row says of others (why it waits, when it starts) may be old; a change of its own shows at once.
const KEPT: Duration = Duration::from_millis(500);
/// Some 20 MB.
const LIVE_AT_MOST: usize = 8_192;

/// A row, with whose it is.
#[derive(Debug)]
pub struct Shown {
    pub job: JobId,
    pub project: String,
    pub owner: String,
    /// A `v1::Job` as JSON.
    pub text: String,
}

impl Shown {
    pub fn of(job: &v1::Job) -> Self {
        let text = serde_json::to_string(job).expect("wire types are plain JSON");
        Self { job: JobId(job.id), project: job.project.clone(), owner: job.owner.clone(), text }
    }

    /// The row of an array, which is its first element's.
    pub fn standing_for(&self, array: &v1::Array) -> Self {
        let job: v1::Job = serde_json::from_str(&self.text).expect("it was a job");
        Self::of(&v1::Job { stands_for: Some(array.clone()), ..job })
    }

    /// What those see of it who may not read it.
    pub fn outline(&self) -> Self {
        let job = serde_json::from_str(&self.text).expect("it was a job");
        Self::of(&conversions::outline(job))
    }
}

/// Rows of live jobs, with until when they serve and what they were made of.
#[derive(Default)]
pub struct Live(Mutex<Rows>);

type Rows = HashMap<JobId, (Instant, Arc<JobView>, Arc<Shown>)>;

impl Live {
    pub fn row(&self, live: &Arc<JobView>, make: impl FnOnce() -> v1::Job) -> Arc<Shown> {
        let id = live.job.id;
        let kept = |kept: &(Instant, Arc<JobView>, Arc<Shown>)| {
            (Instant::now() < kept.0 && Arc::ptr_eq(&kept.1, live)).then(|| Arc::clone(&kept.2))
        };
        if let Some(row) = self.rows().get(&id).and_then(kept) {
            return row;
        }
        let row = Arc::new(Shown::of(&make()));
        let mut rows = self.rows();
        if rows.len() >= LIVE_AT_MOST {
            let now = Instant::now();
            rows.retain(|_, (until, ..)| now < *until);
        }
        if rows.len() < LIVE_AT_MOST {
            rows.insert(id, (Instant::now() + KEPT, Arc::clone(live), Arc::clone(&row)));
        }
        row
    }

    fn rows(&self) -> std::sync::MutexGuard<'_, Rows> {
        // The map is valid between any two of its operations, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::fixtures;

    #[test]
    fn a_live_row_serves_until_its_job_changes() {
        let (view, live) = (fixtures::running(), Live::default());
        let job = &view.jobs[&fixtures::job_id()];
        let make = || conversions::live_job(job, &view);
        let first = live.row(job, make);
        assert!(Arc::ptr_eq(&first, &live.row(job, || unreachable!("it is kept"))));
        let changed = Arc::new(JobView::clone(job));
        assert!(!Arc::ptr_eq(&first, &live.row(&changed, make)));
    }

    #[test]
    fn an_outline_is_made_of_the_row() {
        let view = fixtures::running();
        let job = conversions::live_job(&view.jobs[&fixtures::job_id()], &view);
        let outline: v1::Job = serde_json::from_str(&Shown::of(&job).outline().text).expect("a job");
        assert_eq!(outline, conversions::outline(job));
    }
}
