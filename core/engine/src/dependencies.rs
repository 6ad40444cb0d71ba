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

pub use resolve::{Referent, Resolved, Unresolved, resolve};

use crate::record::{Array, Awaited, DependencyStanding, Job, JobState};

/// What another may wait for, at its newest.
#[derive(Clone, Debug, PartialEq)]
pub enum Other {
    Job(Arc<Job>),
    Array(Arc<Array>),
}

impl Other {
    /// What waiting for it comes to, as it is now. Whoever has started once has started. Of an array all elements count, as with Slurm: it succeeds
    /// once all have, it fails once all have ended and any has not succeeded, and it starts with its last.
    #[must_use]
    pub fn judge(&self, on: Condition, now: Timestamp) -> DependencyStanding {
        let (met, never) = match self {
            Self::Job(job) => of_job(on, job),
            Self::Array(array) => of_array(on, array),
        };
        standing(met, never, now)
    }

    #[must_use]
    pub fn id(&self) -> Awaited {
        match self {
            Self::Job(job) => Awaited::Job(job.id),
            Self::Array(array) => Awaited::Array(array.id),
        }
    }

    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Job(job) => &job.spec.name,
            Self::Array(array) => &array.name,
        }
    }

    #[must_use]
    pub fn project(&self) -> &str {
        match self {
            Self::Job(job) => &job.spec.project,
            Self::Array(array) => &array.project,
        }
    }

    #[must_use]
    pub fn owner(&self) -> &str {
        match self {
            Self::Job(job) => &job.owner,
            Self::Array(array) => &array.owner,
        }
    }

    #[must_use]
    pub fn has_ended(&self) -> bool {
        match self {
            Self::Job(job) => job.state.is_final(),
            Self::Array(array) => array.is_over(),
        }
    }

    /// How it has ended, or begins to, in words: "succeeded", "has elements that failed".
    #[must_use]
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::Job(job) => match job.state {
                JobState::Succeeded { .. } => "succeeded",
                JobState::Cancelled { .. } => "was cancelled",
                JobState::Failed { .. } => "failed",
                _ => "has not ended",
            },
            Self::Array(array) => match array.tally {
                tally if tally.failed > 0 => "has elements that failed",
                tally if tally.cancelled > 0 => "has elements that were cancelled",
                _ if array.is_over() => "succeeded",
                _ => "has not ended",
            },
        }
    }
}

/// Whether it is met, and whether it never can be.
fn of_job(on: Condition, job: &Job) -> (bool, bool) {
    let (over, well) = (job.state.is_final(), matches!(job.state, JobState::Succeeded { .. }));
    match on {
        Condition::Success => (over && well, over && !well),
        Condition::Failure => (over && !well, over && well),
        Condition::Any => (over, false),
        Condition::Start => (over || job.started_at.is_some(), false),
    }
}

fn of_array(on: Condition, array: &Array) -> (bool, bool) {
    let (over, ill) = (array.is_over(), array.tally.failed + array.tally.cancelled > 0);
    match on {
        Condition::Success => (over && !ill, ill),
        Condition::Failure => (over && ill, over && !ill),
        Condition::Any => (over, false),
        Condition::Start => (array.tally.begun >= array.count(), false),
    }
}

fn standing(met: bool, never: bool, now: Timestamp) -> DependencyStanding {
    match (met, never) {
        (true, _) => DependencyStanding::Met { at: now },
        (_, true) => DependencyStanding::Never { at: now },
        _ => DependencyStanding::Open,
    }
}

/// What a job or an array is called before everybody who may read a job of the project `before`: one of another project may be hidden from them, and is told
/// by its id alone.
#[must_use]
pub fn called(of: Awaited, name: &str, project: &str, before: &str) -> String {
    match of {
        _ if project == before => name.to_owned(),
        Awaited::Job(job) => format!("job {job}"),
        Awaited::Array(array) => format!("array {array}"),
    }
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

/// By job or array, the jobs that wait for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Dependents(BTreeMap<Awaited, BTreeSet<JobId>>);

impl Dependents {
    pub fn of_all(jobs: &OrdMap<JobId, Arc<Job>>) -> Self {
        let mut dependents = Self::default();
        jobs.values().for_each(|job| dependents.renew(job.id, &[], &waits_for(job)));
        dependents
    }

    /// Takes in that a job waits for others than before.
    pub fn renew(&mut self, job: JobId, before: &[Awaited], after: &[Awaited]) {
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

    pub fn of(&self, one: Awaited) -> impl Iterator<Item = JobId> {
        self.0.get(&one).into_iter().flatten().copied()
    }

    /// Jobs and arrays that somebody waits for.
    pub fn awaited(&self) -> impl Iterator<Item = (Awaited, &BTreeSet<JobId>)> {
        self.0.iter().map(|(job, waiting)| (*job, waiting))
    }
}

/// Whom a job waits for.
pub(crate) fn waits_for(job: &Job) -> Vec<Awaited> {
    job.open_dependencies().map(|one| one.of).collect()
}
