//! What becomes of jobs that wait for others, once those have come to something.

use headway_types::JobId;

use super::Other;
use crate::draft::Note;
use crate::engine::Engine;
use crate::event::Actor;
use crate::job::JobEvent;
use crate::record::{Awaited, Dependency, DependencyStanding, Job, JobState};

impl Engine {
    /// Judges what waits for the jobs that this batch has brought into another state, and what waits for those in turn.
    pub(crate) fn settle_dependencies(&mut self) {
        let arrays = self.facts.draft.arrays.iter().rev().copied().map(Awaited::Array);
        let jobs = self.facts.draft.entered.jobs.iter().rev().copied().map(Awaited::Job);
        let mut ahead: Vec<Awaited> = arrays.chain(jobs).collect();
        while let Some(one) = ahead.pop() {
            let waiting: Vec<JobId> = self.facts.dependents.of(one).collect();
            let Some(other) = self.facts.kept(one).filter(|_| !waiting.is_empty()) else { continue };
            for job in waiting {
                if self.settle_one(job, &other) {
                    let array = self.facts.jobs.get(&job).and_then(|job| job.element.as_ref()).map(|one| one.array);
                    let array = array.map(Awaited::Array);
                    let known = ahead.last().copied().filter(|last| Some(*last) == array).is_some();
                    if known {
                        ahead.pop();
                    }
                    ahead.push(Awaited::Job(job));
                    ahead.extend(array);
                }
            }
        }
    }

    /// What a job that waits makes of another one's state; true if it has ended for it.
    fn settle_one(&mut self, id: JobId, other: &Other) -> bool {
        let (now, of) = (self.facts.now, other.id());
        let judged = |one: &Dependency| one.of == of && one.standing.is_open() && !other.judge(one.on, now).is_open();
        if !self.facts.jobs.get(&id).is_some_and(|job| job.after.iter().any(judged)) {
            return false;
        }
        let mut met = false;
        let mut never = None;
        self.facts.edit_job(id, |job| {
            for one in job.after.iter_mut().filter(|one| one.of == of && one.standing.is_open()) {
                one.standing = other.judge(one.on, now);
                met |= matches!(one.standing, DependencyStanding::Met { .. });
                if let DependencyStanding::Never { .. } = one.standing {
                    never = Some(one.in_words(&job.spec.project));
                }
            }
        });
        let Some(job) = self.facts.jobs.get(&id) else { return false };
        let (name, called) = (job.spec.name.clone(), called(of, job));
        let became = format!("{called} {}", other.outcome());
        if let Some(waits) = never {
            let reason = format!("it {waits}, and {became}");
            let by = Actor::Scheduler.to_string();
            let cancelled = self.transition(id, JobEvent::Cancel { by, reason: Some(reason.clone()) });
            if cancelled {
                let note = Note::new("job.cancelled", format!("{name} was cancelled: {reason}"));
                self.facts.note(note.job(id).with("dependency", told(of)));
            }
            return cancelled;
        }
        let free = met && !job.is_blocked();
        if free && matches!(job.state, JobState::Queued { .. }) && self.transition(id, JobEvent::Unblock) {
            let became = if other.has_ended() { became } else { format!("{called} has started") };
            let note = Note::new("job.unblocked", format!("{name} may start: {became}"));
            self.facts.note(note.job(id).with("dependency", told(of)));
            self.facts.ask_round(format!("job {name} may start, since {became}"));
        }
        false
    }
}

/// What a job is called before those who may read the other.
fn called(of: Awaited, reader: &Job) -> String {
    let of_reader = reader.after.iter().find(|one| one.of == of);
    of_reader.map_or_else(|| told(of), |one| one.called_in(&reader.spec.project))
}

fn told(of: Awaited) -> String {
    match of {
        Awaited::Job(job) => job.to_string(),
        Awaited::Array(array) => array.to_string(),
    }
}
