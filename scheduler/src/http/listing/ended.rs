//! Jobs that have ended, as they are shown. Their records hardly change any more (the proof that their last GPUs are free may still come), and reading one costs
//! ten times as much as showing it: those that lists have lately shown are remembered by version.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use headway_types::JobId;

use super::shown::Shown;
use crate::store::ListedJob;

/// In each half of the memory; some 25 MB in both.
const HALF: usize = 5_000;

type Half = BTreeMap<ListedJob, Arc<Shown>>;

/// What was shown since the memory was half full, and what was shown before that: when the first half is full, the second is forgotten.
#[derive(Default)]
pub struct Ended(Mutex<(Half, Half)>);

impl Ended {
    /// Those that are remembered in these versions.
    pub fn of<'a>(&self, jobs: impl Iterator<Item = &'a ListedJob>) -> BTreeMap<JobId, Arc<Shown>> {
        let mut halves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = jobs.filter_map(|job| {
            let shown = match halves.0.get(job) {
                Some(shown) => Arc::clone(shown),
                None => {
                    let shown = halves.1.remove(job)?;
                    put(&mut halves, *job, Arc::clone(&shown));
                    shown
                }
            };
            Some((job.id, shown))
        });
        found.collect()
    }

    pub fn remember(&self, job: ListedJob, shown: &Arc<Shown>) {
        put(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), job, Arc::clone(shown));
    }
}

fn put(halves: &mut (Half, Half), job: ListedJob, shown: Arc<Shown>) {
    if halves.0.len() >= HALF {
        halves.1 = std::mem::take(&mut halves.0);
    }
    halves.0.insert(job, shown);
}

#[cfg(test)]
mod tests {
    use headway_types::{IdSource, Timestamp};

    use super::*;
    use crate::http::{conversions, fixtures};

    #[test]
    fn what_is_shown_again_and_again_is_remembered_and_the_rest_forgotten() {
        let (mut ids, ended) = (IdSource::seeded(1), Ended::default());
        let shown = Arc::new(Shown::of(&conversions::stored_job(&fixtures::job())));
        let jobs: Vec<ListedJob> = (0..3 * HALF).map(|_| ListedJob { id: ids.job(Timestamp(0)), version: 7 }).collect();
        for job in &jobs {
            ended.remember(*job, &shown);
            assert!(!ended.of(jobs.iter().take(1)).is_empty(), "it is shown each time");
        }
        assert!(ended.of(jobs.iter()).len() <= 2 * HALF);
        assert!(ended.of(jobs.iter().rev().take(1)).contains_key(&jobs[3 * HALF - 1].id));
        let newer = ListedJob { version: 8, ..jobs[0] };
        assert!(ended.of(std::iter::once(&newer)).is_empty(), "another version is another job");
    }
}
