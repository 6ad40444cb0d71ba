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
const SWEEP_EVERY: Duration = Duration::from_secs(1);

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

/// Rows of live jobs, with until when they serve and what they were made of. Rows that serve no longer are dropped once
/// a second while rows are made: each holds all that is known of its job, which may have ended.
#[derive(Default)]
pub struct Live(Mutex<Rows>);

#[derive(Default)]
struct Rows {
    by_job: HashMap<JobId, (Instant, Arc<JobView>, Arc<Shown>)>,
    swept_at: Option<Instant>,
}

impl Rows {
    fn sweep(&mut self, now: Instant) {
        if self.swept_at.is_none_or(|at| now.duration_since(at) >= SWEEP_EVERY) {
            self.by_job.retain(|_, (until, ..)| now < *until);
            self.swept_at = Some(now);
        }
    }
}

impl Live {
    pub fn row(&self, live: &Arc<JobView>, make: impl FnOnce() -> v1::Job) -> Arc<Shown> {
        let id = live.job.id;
        let kept = |kept: &(Instant, Arc<JobView>, Arc<Shown>)| {
            (Instant::now() < kept.0 && Arc::ptr_eq(&kept.1, live)).then(|| Arc::clone(&kept.2))
        };
        if let Some(row) = self.rows().by_job.get(&id).and_then(kept) {
            return row;
        }
        let row = Arc::new(Shown::of(&make()));
        let (mut rows, now) = (self.rows(), Instant::now());
        rows.sweep(now);
        if rows.by_job.len() < LIVE_AT_MOST {
            rows.by_job.insert(id, (now + KEPT, Arc::clone(live), Arc::clone(&row)));
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
    fn rows_of_jobs_that_nobody_asks_for_any_more_are_dropped() {
        let (view, live) = (fixtures::running(), Live::default());
        let shown = &view.jobs[&fixtures::job_id()];
        let make = || conversions::live_job(shown, &view);
        let mut ids = headway_types::IdSource::seeded(1);
        for _ in 0..100 {
            let job = headway_engine::record::Job {
                id: ids.job(headway_types::Timestamp(0)),
                ..headway_engine::record::Job::clone(&shown.job)
            };
            live.row(&Arc::new(JobView { job: Arc::new(job), ..JobView::clone(shown) }), make);
        }
        assert_eq!(live.rows().by_job.len(), 100);
        let later = Instant::now() + SWEEP_EVERY;
        live.rows().sweep(later);
        assert!(live.rows().by_job.is_empty());
        live.row(shown, make);
        assert_eq!(live.rows().by_job.len(), 1);
    }

    #[test]
    fn an_outline_is_made_of_the_row() {
        let view = fixtures::running();
        let job = conversions::live_job(&view.jobs[&fixtures::job_id()], &view);
        let outline: v1::Job = serde_json::from_str(&Shown::of(&job).outline().text).expect("a job");
        assert_eq!(outline, conversions::outline(job));
    }
}
