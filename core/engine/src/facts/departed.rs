//! Rows of jobs that were let go a moment ago. A shell reads ended jobs from the store and may have read too early; within the life of a request
//! what is kept here is newer.

use std::sync::Arc;

use headway_types::{JobId, Seconds, Timestamp};
use imbl::{OrdMap, Vector};

use crate::record::Job;

/// Longer than any request is under way.
const KEPT: Seconds = Seconds(120.0);

/// The last of them, by when they were let go.
#[derive(Clone, Debug, Default)]
pub(crate) struct Departed {
    rows: OrdMap<JobId, (Timestamp, Arc<Job>)>,
    order: Vector<(Timestamp, JobId)>,
}

impl Departed {
    pub fn remember(&mut self, row: Arc<Job>, now: Timestamp) {
        self.order.push_back((now, row.id));
        self.rows.insert(row.id, (now, row));
    }

    pub fn get(&self, job: JobId) -> Option<&Arc<Job>> {
        self.rows.get(&job).map(|(_, row)| row)
    }

    pub fn forget_old(&mut self, now: Timestamp) {
        while let Some((at, job)) = self.order.front().copied().filter(|(at, _)| now.since(*at).0 > KEPT.0) {
            self.order.pop_front();
            // One that came back and was let go again is younger than that.
            if self.rows.get(&job).is_some_and(|(newest, _)| *newest == at) {
                self.rows.remove(&job);
            }
        }
    }
}
