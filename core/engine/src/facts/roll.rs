//! Which jobs time and reconcile have to look at, so that a batch looks at no others: most jobs of a long queue only wait.

use std::collections::BTreeSet;
use std::sync::Arc;

use headway_types::{JobId, Timestamp};
use imbl::OrdMap;

use super::Facts;
use crate::dependencies::{Other, waits_for};
use crate::event::Known;
use crate::record::{Awaited, Job, JobState};

/// Jobs by what they are up to; held jobs, ended ones, and those that wait for others are on no list.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Roll {
    /// With a live generation.
    pub live: BTreeSet<JobId>,
    /// Queued, and free to start.
    pub queued: BTreeSet<JobId>,
    /// Queued after a failure, by the end of their wait, which may be over.
    pub backing_off: BTreeSet<(Timestamp, JobId)>,
}

/// The list that a job is on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Place {
    Live,
    Queued,
    BackingOff(Timestamp),
    None,
}

impl Place {
    pub fn of(job: &Job) -> Self {
        match (&job.state, job.not_before) {
            (JobState::Queued { .. }, _) if job.is_blocked() => Self::None,
            (JobState::Queued { .. }, None) => Self::Queued,
            (JobState::Queued { .. }, Some(at)) => Self::BackingOff(at),
            (state, _) if state.generation().is_some() => Self::Live,
            _ => Self::None,
        }
    }
}

impl Roll {
    pub fn of(jobs: &OrdMap<JobId, Arc<Job>>) -> Self {
        let mut roll = Self::default();
        jobs.iter().for_each(|(id, job)| roll.move_to(*id, Place::None, Place::of(job)));
        roll
    }

    pub(super) fn move_to(&mut self, job: JobId, from: Place, to: Place) {
        if from == to {
            return;
        }
        match from {
            Place::Live => drop(self.live.remove(&job)),
            Place::Queued => drop(self.queued.remove(&job)),
            Place::BackingOff(at) => drop(self.backing_off.remove(&(at, job))),
            Place::None => {}
        }
        match to {
            Place::Live => drop(self.live.insert(job)),
            Place::Queued => drop(self.queued.insert(job)),
            Place::BackingOff(at) => drop(self.backing_off.insert((at, job))),
            Place::None => {}
        }
    }

    /// Queued jobs whose wait after a failure is over.
    pub fn waited_out(&self, now: Timestamp) -> impl Iterator<Item = JobId> {
        self.backing_off.iter().take_while(move |(at, _)| *at <= now).map(|(_, job)| *job)
    }

    /// The next end of such a wait.
    pub fn next_end(&self, now: Timestamp) -> Option<Timestamp> {
        self.backing_off.iter().map(|(at, _)| *at).find(|at| *at > now)
    }
}

impl Facts {
    /// Whoever may be waited for, at its newest, where the shell names it.
    pub fn newest_of(&self, of: Awaited, known: &Known) -> Option<Other> {
        match of {
            Awaited::Job(id) => self.newest_job(id, known).map(Other::Job),
            Awaited::Array(id) => self.newest_array(id, known).map(Other::Array),
        }
    }

    /// Likewise among those that are kept.
    pub fn kept(&self, of: Awaited) -> Option<Other> {
        match of {
            Awaited::Job(id) => self.jobs.get(&id).cloned().map(Other::Job),
            Awaited::Array(id) => self.array(id).cloned().map(Other::Array),
        }
    }

    /// The newest row of a job that the shell has read, since it may have ended or gone on meanwhile. What the shell does not name it may not know of.
    pub fn newest_job(&self, id: JobId, known: &Known) -> Option<Arc<Job>> {
        let told = known.jobs.get(&id)?;
        Some(Arc::clone(self.jobs.get(&id).or_else(|| self.departed.get(id)).unwrap_or(told)))
    }

    /// Takes in a job that was not kept.
    pub fn add_job(&mut self, job: Arc<Job>) {
        let id = job.id;
        self.owners.renew(&job, false);
        self.roll.move_to(id, Place::None, Place::of(&job));
        self.dependents.renew(id, &[], &waits_for(&job));
        if let Some(array) = &job.element.as_ref().map(|element| element.array) {
            self.draft.shown_arrays.insert(*array);
        }
        if self.arrays.enter(&job).is_some() {
            self.impossible("an element of an array that is not kept came in", Some(id), None);
        }
        self.jobs.insert(id, job);
        self.draft.jobs.insert(id);
        self.draft.entered.jobs.insert(id);
    }

    /// Lets go of a job that is over.
    pub fn drop_job(&mut self, id: JobId) {
        if let Some(job) = self.jobs.remove(&id) {
            self.owners.forget(&job);
            self.roll.move_to(id, Place::of(&job), Place::None);
            if let Some(array) = self.arrays.leave(&job) {
                self.departed_arrays.remember(array.id, array, self.now);
            }
            self.departed.remember(id, job, self.now);
        }
    }

    /// Jobs with a live generation.
    pub fn live_jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.roll.live.iter().filter_map(|id| self.jobs.get(id))
    }

    /// How many jobs want GPUs now.
    pub fn wanting(&self) -> usize {
        let live = self.live_jobs().filter(|job| job.wants_gpus(self.now));
        self.roll.queued.len() + self.roll.waited_out(self.now).count() + live.count()
    }

    /// Whether anybody wants GPUs now.
    pub fn has_demand(&self) -> bool {
        !self.roll.queued.is_empty()
            || self.roll.waited_out(self.now).next().is_some()
            || self.live_jobs().any(|job| job.wants_gpus(self.now))
    }
}
