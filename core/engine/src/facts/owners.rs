//! What each user's unfinished jobs come to, kept with the rows so that no submission counts them.

use std::sync::Arc;

use headway_types::JobId;
use imbl::OrdMap;

use super::Facts;
use crate::record::{Job, UserLoad, weight};

/// By owner; who has no unfinished job is not in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Owners(OrdMap<String, UserLoad>);

impl Owners {
    pub fn of(jobs: &OrdMap<JobId, Arc<Job>>) -> Self {
        let mut owners = Self::default();
        jobs.values().for_each(|job| owners.renew(job, false));
        owners
    }

    pub fn all(&self) -> &OrdMap<String, UserLoad> {
        &self.0
    }

    /// Takes in a job as it is now, whether it counted before or not. Its specification is as it was.
    pub(super) fn renew(&mut self, job: &Job, counted: bool) {
        match (counted, !job.state.is_final()) {
            (false, true) => self.add(job),
            (true, false) => self.take(job),
            (false, false) | (true, true) => {}
        }
    }

    /// Lets go of a job that is not kept any more.
    pub(super) fn forget(&mut self, job: &Job) {
        if !job.state.is_final() {
            self.take(job);
        }
    }

    fn add(&mut self, job: &Job) {
        let UserLoad { jobs, bytes } = self.of_user(&job.owner);
        self.set(&job.owner, UserLoad { jobs: jobs + 1, bytes: bytes + weight(&job.spec) });
    }

    fn take(&mut self, job: &Job) {
        let UserLoad { jobs, bytes } = self.of_user(&job.owner);
        let bytes = bytes.saturating_sub(weight(&job.spec));
        self.set(&job.owner, UserLoad { jobs: jobs.saturating_sub(1), bytes });
    }

    fn of_user(&self, user: &str) -> UserLoad {
        self.0.get(user).copied().unwrap_or_default()
    }

    fn set(&mut self, user: &str, load: UserLoad) {
        match load.jobs {
            0 => drop(self.0.remove(user)),
            _ => drop(self.0.insert(user.to_owned(), load)),
        }
    }
}

impl Facts {
    /// Changes a job's specification, and what else changes with it.
    pub fn edit_spec(&mut self, id: JobId, change: impl FnOnce(&mut Job)) {
        let weighed = |facts: &Self| {
            let job = facts.jobs.get(&id).filter(|job| !job.state.is_final())?;
            Some((job.owner.clone(), weight(&job.spec)))
        };
        let before = weighed(self);
        self.edit_job(id, change);
        if let (Some((_, before)), Some((owner, after))) = (before, weighed(self)) {
            let load = self.load_of(&owner);
            self.owners.set(&owner, UserLoad { bytes: load.bytes.saturating_sub(before) + after, ..load });
        }
    }

    /// What a user has of its quota.
    pub fn load_of(&self, user: &str) -> UserLoad {
        self.owners.of_user(user)
    }
}
