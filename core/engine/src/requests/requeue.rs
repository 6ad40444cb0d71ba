//! Putting a job back into the queue by its owner's word: one that runs saves and gives up its GPUs; one that failed or was cancelled goes on
//! where it had come to, its history kept. Whoever waited for it is not asked again.

use std::collections::BTreeSet;
use std::sync::Arc;

use headway_types::{JobId, Seconds};

use crate::draft::Note;
use crate::engine::Engine;
use crate::event::{Actor, Known};
use crate::job::JobEvent;
use crate::outcome::{Refusal, Reply};
use crate::record::{Dependency, DependencyStanding, Job, JobState, StopCause, Turn, UserLoad, weight};
use crate::seen::JobSeen;

impl Engine {
    /// `known`: the job where it has ended, and those that it depends on.
    pub(super) fn requeue(
        &mut self,
        actor: &Actor,
        id: JobId,
        reason: Option<String>,
        known: &Known,
    ) -> Result<Reply, Refusal> {
        let kept = self.facts.jobs.get(&id).cloned();
        let row = kept.or_else(|| self.facts.newest_job(id, known)).ok_or(Refusal::NoSuchJob(id))?;
        let refused = |why: &str| Err(Refusal::WrongState(why.to_owned()));
        // Of a job that has ended nothing tells whether its last start came as far as a process.
        if row.spec.limits.forbid_restart() && (row.state.is_final() || self.facts.has_used_its_only_start(&row)) {
            return refused("job must not run twice (limits.restartable: false); submit it again as a new job");
        }
        match &row.state {
            JobState::Starting { .. }
            | JobState::Running { .. }
            | JobState::Failed { .. }
            | JobState::Cancelled { .. } => {}
            JobState::Succeeded { .. } => return refused("job has succeeded; to run it again, submit it again"),
            JobState::Queued { .. } => return refused("job is queued already"),
            JobState::Held { .. } => return refused("job is held; release it instead"),
            JobState::Stopping { .. } => return refused("job is stopping; ask again once it has stopped"),
        }
        let name = row.spec.name.clone();
        let why = reason.as_deref().map_or(String::new(), |reason| format!(": {reason}"));
        if row.state.is_final() {
            self.revive(&row, known)?;
        } else {
            self.facts.edit_job(id, forget_failures);
            self.stop(id, StopCause::Requeue, &format!("{actor} puts it back into the queue{why}"));
        }
        let message = format!("{actor} puts {name} back into the queue{why}");
        self.facts.note(Note::new("job.requeued", message).by(actor.clone()).job(id));
        self.facts.ask_round_for_somebody(format!("job {name} was put back into the queue"));
        self.job_reply(id)
    }

    fn revive(&mut self, row: &Arc<Job>, known: &Known) -> Result<(), Refusal> {
        if self.budget_is_spent(row) {
            let budget = row.budget_in_words();
            return Err(Refusal::WrongState(format!(
                "its budget of {budget} is spent; submit it again with a larger one"
            )));
        }
        self.within_quota(&row.owner, UserLoad { jobs: 1, bytes: weight(&row.spec) })?;
        let after = self.judged_anew(row, known)?;
        let id = row.id;
        if let Some(element) = &row.element {
            let array =
                self.facts.newest_array(element.array, known).or_else(|| self.facts.array(element.array).cloned());
            self.facts.keep_array(array.ok_or(Refusal::NoSuchArray(element.array))?);
        }
        if !self.facts.jobs.contains_key(&id) {
            self.facts.add_job(Arc::clone(row));
            self.seen.jobs.insert(id, Arc::new(JobSeen::new(row, None, &self.seen.lessons)));
        }
        if self.transition(id, JobEvent::Revive) {
            self.facts.edit_job(id, |job| {
                forget_failures(job);
                (job.after, job.turn, job.ran) = (after, Turn::default(), Seconds(0.0));
            });
        }
        Ok(())
    }

    /// What was met stays met; what could not be met may be by now, since the other job has been put back as well.
    fn judged_anew(&self, row: &Job, known: &Known) -> Result<Vec<Dependency>, Refusal> {
        let judged = row.after.iter().map(|one| {
            if let DependencyStanding::Met { .. } = one.standing {
                return Ok(one.clone());
            }
            let Some(other) = self.facts.newest_of(one.of, known) else {
                let waits = one.in_words(&row.spec.project);
                return Err(Refusal::WrongState(format!(
                    "it {waits}, which is not known any more: submit it again without"
                )));
            };
            let standing = other.judge(one.on, self.facts.now);
            if let DependencyStanding::Never { .. } = standing {
                let (waits, called) = (one.in_words(&row.spec.project), one.called_in(&row.spec.project));
                let ended = other.outcome();
                return Err(Refusal::WrongState(format!("it {waits}, and {called} {ended}: put that one back first")));
            }
            Ok(Dependency { standing, ..one.clone() })
        });
        judged.collect()
    }
}

/// Attempts are counted anew, and no node is under suspicion any more.
fn forget_failures(job: &mut Job) {
    (job.failures, job.setbacks, job.hangs) = (0, 0, 0);
    (job.suspects, job.lacking, job.not_before) = (BTreeSet::new(), None, None);
}
