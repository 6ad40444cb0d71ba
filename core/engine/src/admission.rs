//! Requests about jobs: submit, cancel, hold, release, checkpoint. It records what users want; what
//! must be stopped or started for it is decided by reconcile.

use std::sync::Arc;

use headway_goodput::JobModel;
use headway_types::{GpuCount, JobId, JobSpec, Seconds, Timestamp};

use crate::draft::Note;
use crate::entry::JobEntry;
use crate::event::{Actor, IdempotencyKey, Request};
use crate::job::JobEvent;
use crate::outcome::{Refusal, Reply};
use crate::record::{Job, JobState, StopCause, Wish, lineage};
use crate::state::Engine;

impl Engine {
    /// Answers one request; a refusal has changed nothing.
    pub(crate) fn answer(&mut self, actor: &Actor, body: Request) -> Reply {
        let reply = match body {
            Request::Submit { jobs, idempotency } => self.submit(actor, jobs, idempotency),
            Request::Cancel { job, reason, grace } => self.cancel(actor, job, reason, grace),
            Request::Hold { job, reason } => self.hold(actor, job, reason),
            Request::Release { job } => self.release_job(actor, job),
            Request::Checkpoint { job } => self.save_now(job),
            Request::Change { job, change } => self.change_job(actor, job, change),
            Request::Pin { job, reason } => self.pin(actor, job, reason),
            Request::Unpin { job } => self.unpin(actor, job),
            Request::Once { key, body } => self.once(actor, key, *body),
            other => self.operate(actor, other),
        };
        reply.unwrap_or_else(Reply::Refused)
    }

    fn submit(
        &mut self,
        actor: &Actor,
        specs: Vec<JobSpec>,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<Reply, Refusal> {
        if let Some(key) = &idempotency
            && let Some(known) = self.known(key)?
        {
            return Ok(Reply::Replayed { jobs: known.into_iter().map(JobId).collect() });
        }
        if specs.is_empty() {
            return Err(Refusal::Invalid("a submission needs at least one job".into()));
        }
        specs.iter().try_for_each(|spec| check_spec(spec, self.now))?;
        let jobs: Vec<Arc<Job>> = specs.into_iter().map(|spec| self.admit(actor, spec)).collect();
        if let Some(key) = idempotency {
            self.remember(key, jobs.iter().map(|job| job.id.0).collect());
        }
        Ok(Reply::Submitted { jobs })
    }

    fn admit(&mut self, actor: &Actor, spec: JobSpec) -> Arc<Job> {
        let id = self.ids.job(self.now);
        let range = &spec.role().gpus;
        let message = format!(
            "{} asks for {} to {} GPUs in project {}{}{}",
            spec.name,
            range.min,
            range.max,
            spec.project,
            self.too_large(range.min.0),
            self.beyond_quota(&spec.project, range.min)
        );
        let name = spec.name.clone();
        let model = spec.training().cloned().map(|training| Arc::new(JobModel::new(training)));
        let job = Arc::new(Job::new(id, spec, actor_name(actor), self.now));
        self.jobs.insert(id, JobEntry::new(job.clone(), model));
        self.draft.jobs.insert(id);
        self.draft.entered.jobs.insert(id);
        self.note(Note::new("job.submitted", message).by(actor.clone()).job(id));
        self.rounds.ask(format!("job {name} arrived"));
        job
    }

    /// A job larger than the cluster is accepted, since nodes may come, but says so.
    fn too_large(&self, min: u32) -> String {
        let known: usize = self.nodes.values().map(|entry| entry.node.inventory.gpus.len()).sum();
        if known > 0 && min as usize > known {
            format!("; it cannot start yet, as the cluster has only {known} GPUs")
        } else {
            String::new()
        }
    }

    /// Likewise a job that no quota admits as they are now.
    fn beyond_quota(&self, project: &str, min: GpuCount) -> String {
        let tightest = lineage(&self.projects, project).into_iter().find_map(|name| {
            let rules = &self.projects[name].rules;
            let most = GpuCount(rules.quota?.0.saturating_add(rules.borrow.0));
            (most < min).then(|| format!("; it cannot start, as project {name} may have {} at most", most.words()))
        });
        tightest.unwrap_or_default()
    }

    pub(crate) fn live_job(&self, id: JobId) -> Result<&Job, Refusal> {
        let entry = self.jobs.get(&id).ok_or(Refusal::NoSuchJob(id))?;
        if entry.job.state.is_final() {
            return Err(Refusal::WrongState(format!("job is {}", entry.job.state)));
        }
        Ok(&entry.job)
    }

    pub(crate) fn job_reply(&self, id: JobId) -> Result<Reply, Refusal> {
        Ok(Reply::Job(self.jobs.get(&id).ok_or(Refusal::NoSuchJob(id))?.job.clone()))
    }

    fn cancel(
        &mut self,
        actor: &Actor,
        id: JobId,
        reason: Option<String>,
        grace: Option<Seconds>,
    ) -> Result<Reply, Refusal> {
        let job = self.live_job(id)?;
        let (name, state) = (job.spec.name.clone(), job.state.clone());
        let by = actor_name(actor);
        let why = reason.as_deref().map_or(String::new(), |reason| format!(": {reason}"));
        self.note(Note::new("job.cancel_requested", format!("{by} cancels {name}{why}")).by(actor.clone()).job(id));
        if state.generation().is_some() {
            self.edit_job(id, |job| job.wish = Some(Wish::Cancelled { by, reason, grace }));
            if !matches!(state, JobState::Stopping { .. }) {
                self.stop(id, StopCause::Cancel, "its owner cancelled it");
            }
        } else if self.transition(id, JobEvent::Cancel { by: by.clone(), reason }) {
            self.note(
                Note::new("job.cancelled", format!("{name} was cancelled by {by}{why}")).by(actor.clone()).job(id),
            );
            self.rounds.ask(format!("job {name} was cancelled"));
        }
        self.job_reply(id)
    }

    fn hold(&mut self, actor: &Actor, id: JobId, reason: Option<String>) -> Result<Reply, Refusal> {
        let job = self.live_job(id)?;
        if matches!(job.wish, Some(Wish::Cancelled { .. })) {
            return Err(Refusal::WrongState("job is being cancelled".into()));
        }
        let (name, state) = (job.spec.name.clone(), job.state.clone());
        if let JobState::Held { .. } = state {
            return self.job_reply(id);
        }
        let why = reason.as_deref().map_or(String::new(), |reason| format!(": {reason}"));
        if state.generation().is_some() {
            self.edit_job(id, |job| job.wish = Some(Wish::Held { reason }));
            if !matches!(state, JobState::Stopping { .. }) {
                self.stop(id, StopCause::Hold, "it is put on hold");
            }
        } else {
            self.transition(id, JobEvent::Hold { reason });
        }
        self.note(Note::new("job.held", format!("{name} is put on hold{why}")).by(actor.clone()).job(id));
        self.rounds.ask(format!("job {name} was put on hold"));
        self.job_reply(id)
    }

    fn release_job(&mut self, actor: &Actor, id: JobId) -> Result<Reply, Refusal> {
        let job = self.live_job(id)?;
        let name = job.spec.name.clone();
        match (&job.state, &job.wish) {
            (JobState::Held { .. }, _) => {
                self.transition(id, JobEvent::Release);
            }
            (_, Some(Wish::Held { .. })) => self.edit_job(id, |job| job.wish = None),
            (state, _) => return Err(Refusal::WrongState(format!("job is {state}, not held"))),
        }
        self.note(Note::new("job.released", format!("{name} may start again")).by(actor.clone()).job(id));
        self.rounds.ask(format!("job {name} was released from hold"));
        self.job_reply(id)
    }

    fn save_now(&mut self, id: JobId) -> Result<Reply, Refusal> {
        let job = self.live_job(id)?;
        if !matches!(job.state, JobState::Running { .. }) {
            return Err(Refusal::WrongState(format!("job is {}, not running", job.state)));
        }
        if let Some(entry) = self.jobs.get_mut(&id) {
            entry.save_wanted = Some(self.now);
        }
        self.job_reply(id)
    }

    pub(crate) fn forget_old_keys(&mut self) {
        self.keys.forget_before(self.now - self.config.idempotency_kept);
    }
}

/// What `api` cannot have let through, but a caller of the engine might.
fn check_spec(spec: &JobSpec, now: Timestamp) -> Result<(), Refusal> {
    let invalid = |what: &str| Err(Refusal::Invalid(format!("{}: {what}", spec.name)));
    let [role] = spec.roles.as_slice() else { return invalid("exactly one role is supported") };
    if spec.priority.0 > 100 {
        return invalid("priority must be 0 to 100");
    }
    let range = &role.gpus;
    if range.min.0 == 0 || range.min > range.max {
        return invalid("gpus.min must be at least 1 and at most gpus.max");
    }
    if !range.sizes.is_empty() && !range.sizes.iter().any(|size| range.allows(*size)) {
        return invalid("gpus.sizes names no size between gpus.min and gpus.max");
    }
    if spec.limits.deadline.is_some_and(|deadline| deadline <= now) {
        return invalid("its deadline has passed");
    }
    if spec.limits.budget.is_some_and(|budget| !(budget.0.is_finite() && budget.0 > 0.0)) {
        return invalid("budget must be more than no GPU-time");
    }
    if spec.elastic.min_share.is_some_and(|share| !(share > 0.0 && share <= 1.0)) {
        return invalid("min_share must be above 0 and at most 1");
    }
    let Some(training) = &role.training else { return Ok(()) };
    let batch = training.batch;
    if batch.min.0 == 0 || batch.min > batch.max || training.reference_batch.0 == 0 {
        return invalid("batches must be at least 1 and batch.min at most batch.max");
    }
    if training.target.is_some_and(|target| !(target.0.is_finite() && target.0 > 0.0)) {
        return invalid("target must be a positive number of tokens");
    }
    Ok(())
}

/// How the log and the job's owner field name an actor.
pub(crate) fn actor_name(actor: &Actor) -> String {
    match actor {
        Actor::User(name) => name.clone(),
        Actor::Scheduler => "scheduler".into(),
        Actor::Node(node) => node.to_string(),
    }
}
