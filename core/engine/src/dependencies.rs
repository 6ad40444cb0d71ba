//! Jobs that come before others: whom a submission names, what a dependency comes to, and who waits for whom. A job whose dependencies are open is
//! in no round; one of which a dependency can never be met is cancelled, and with it whoever waits for it to succeed. A job that enters another
//! state touches those that wait for it and nobody else.

mod resolve;
mod settle;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_types::spec::Condition;
use headway_types::{JobId, Timestamp};
use imbl::OrdMap;

pub(crate) use resolve::outcome;
pub use resolve::{Referent, Resolved, Unresolved, resolve};

use crate::record::{DependencyStanding, Job, JobState};

/// What waiting for a job comes to, as it is now. Whoever has started once has started.
#[must_use]
pub fn judge(on: Condition, job: &Job, now: Timestamp) -> DependencyStanding {
    let (over, well) = (job.state.is_final(), matches!(job.state, JobState::Succeeded { .. }));
    let (met, never) = match on {
        Condition::Success => (over && well, over && !well),
        Condition::Failure => (over && !well, over && well),
        Condition::Any => (over, false),
        Condition::Start => (over || job.started_at.is_some(), false),
    };
    match (met, never) {
        (true, _) => DependencyStanding::Met { at: now },
        (_, true) => DependencyStanding::Never { at: now },
        _ => DependencyStanding::Open,
    }
}

/// What a job is called before everybody who may read a job of the project `before`: one of another project may be hidden from them, and is told
/// by its id alone.
#[must_use]
pub fn called(job: JobId, name: &str, project: &str, before: &str) -> String {
    if project == before { name.to_owned() } else { format!("job {job}") }
}

/// "waits for prep to succeed".
#[must_use]
pub fn waits(on: Condition, called: &str) -> String {
    let what = match on {
        Condition::Success => "to succeed",
        Condition::Failure => "to fail",
        Condition::Any => "to end",
        Condition::Start => "to start",
    };
    format!("waits for {called} {what}")
}

/// By job, those that wait for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Dependents(BTreeMap<JobId, BTreeSet<JobId>>);

impl Dependents {
    pub fn of_all(jobs: &OrdMap<JobId, Arc<Job>>) -> Self {
        let mut dependents = Self::default();
        jobs.values().for_each(|job| dependents.renew(job.id, &[], &waits_for(job)));
        dependents
    }

    /// Takes in that a job waits for others than before.
    pub fn renew(&mut self, job: JobId, before: &[JobId], after: &[JobId]) {
        for gone in before.iter().filter(|one| !after.contains(one)) {
            if let Some(waiting) = self.0.get_mut(gone) {
                waiting.remove(&job);
                if waiting.is_empty() {
                    self.0.remove(gone);
                }
            }
        }
        for new in after.iter().filter(|one| !before.contains(one)) {
            self.0.entry(*new).or_default().insert(job);
        }
    }

    pub fn of(&self, job: JobId) -> impl Iterator<Item = JobId> {
        self.0.get(&job).into_iter().flatten().copied()
    }

    /// Jobs that somebody waits for.
    pub fn awaited(&self) -> impl Iterator<Item = (JobId, &BTreeSet<JobId>)> {
        self.0.iter().map(|(job, waiting)| (*job, waiting))
    }
}

/// Whom a job waits for.
pub(crate) fn waits_for(job: &Job) -> Vec<JobId> {
    job.open_dependencies().map(|one| one.job).collect()
}
