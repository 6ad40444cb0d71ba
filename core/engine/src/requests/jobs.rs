//! What a user does with a job that exists: cancel, hold, release, save. It records what users want; what must be stopped or
//! started for it is decided by reconcile.

use headway_types::{JobId, Seconds};

use crate::draft::Note;
use crate::engine::Engine;
use crate::event::Actor;
use crate::job::JobEvent;
use crate::outcome::{Refusal, Reply};
use crate::record::{JobState, StopCause, Wish};

impl Engine {
    pub(super) fn cancel(
        &mut self,
        actor: &Actor,
        id: JobId,
        reason: Option<String>,
        grace: Option<Seconds>,
    ) -> Result<Reply, Refusal> {
        // A retry whose first answer was lost asks for what is so already.
        if let Some(job) = self.facts.jobs.get(&id)
            && matches!(job.state, JobState::Cancelled { .. })
        {
            return Ok(Reply::Job(job.clone()));
        }
        let job = self.live_job(id)?;
        let (name, state) = (job.spec.name.clone(), job.state.clone());
        let by = actor.to_string();
        let why = reason.as_deref().map_or(String::new(), |reason| format!(": {reason}"));
        self.facts
            .note(Note::new("job.cancel_requested", format!("{by} cancels {name}{why}")).by(actor.clone()).job(id));
        if state.generation().is_some() {
            self.facts.edit_job(id, |job| job.wish = Some(Wish::Cancelled { by, reason, grace }));
            if !matches!(state, JobState::Stopping { .. }) {
                self.stop(id, StopCause::Cancel, "its owner cancelled it");
            }
        } else if self.transition(id, JobEvent::Cancel { by: by.clone(), reason }) {
            self.facts.note(
                Note::new("job.cancelled", format!("{name} was cancelled by {by}{why}")).by(actor.clone()).job(id),
            );
            self.facts.ask_round_for_somebody(format!("job {name} was cancelled"));
        }
        self.job_reply(id)
    }

    pub(super) fn hold(&mut self, actor: &Actor, id: JobId, reason: Option<String>) -> Result<Reply, Refusal> {
        let job = self.live_job(id)?;
        if matches!(job.wish, Some(Wish::Cancelled { .. })) {
            return Err(Refusal::WrongState("job is being cancelled".into()));
        }
        let (name, state) = (job.spec.name.clone(), job.state.clone());
        if let JobState::Held { .. } = state {
            return self.job_reply(id);
        }
        if self.facts.has_used_its_only_start(job) {
            let why = "job must not run twice (limits.restartable: false), so it cannot be held once it runs; cancel it instead";
            return Err(Refusal::WrongState(why.into()));
        }
        let why = reason.as_deref().map_or(String::new(), |reason| format!(": {reason}"));
        if state.generation().is_some() {
            self.facts.edit_job(id, |job| job.wish = Some(Wish::Held { reason }));
            if !matches!(state, JobState::Stopping { .. }) {
                self.stop(id, StopCause::Hold, "it is put on hold");
            }
        } else {
            let _refusal_is_recorded = self.transition(id, JobEvent::Hold { reason });
        }
        self.facts.note(Note::new("job.held", format!("{name} is put on hold{why}")).by(actor.clone()).job(id));
        self.facts.ask_round_for_somebody(format!("job {name} was put on hold"));
        self.job_reply(id)
    }

    pub(super) fn release_job(&mut self, actor: &Actor, id: JobId) -> Result<Reply, Refusal> {
        let job = self.live_job(id)?;
        let name = job.spec.name.clone();
        match (&job.state, &job.wish) {
            (JobState::Held { .. }, _) => {
                let _refusal_is_recorded = self.transition(id, JobEvent::Release);
            }
            (_, Some(Wish::Held { .. })) => self.facts.edit_job(id, |job| job.wish = None),
            (state, _) => return Err(Refusal::WrongState(format!("job is {state}, not held"))),
        }
        self.facts.note(Note::new("job.released", format!("{name} may start again")).by(actor.clone()).job(id));
        self.facts.ask_round_for_somebody(format!("job {name} was released from hold"));
        self.job_reply(id)
    }

    /// What is asked for is a fact until a newer checkpoint is committed or the generation ends: also another leader keeps it.
    pub(super) fn save_now(&mut self, actor: &Actor, id: JobId) -> Result<Reply, Refusal> {
        let job = self.live_job(id)?;
        if !matches!(job.state, JobState::Running { .. }) {
            return Err(Refusal::WrongState(format!("job is {}, not running", job.state)));
        }
        if job.save_wanted.is_none() {
            let message = format!("{} is to save now", job.spec.name);
            let now = self.facts.now;
            self.facts.edit_job(id, |job| job.save_wanted = Some(now));
            self.facts.note(Note::new("job.checkpoint_requested", message).by(actor.clone()).job(id));
        }
        self.job_reply(id)
    }
}
