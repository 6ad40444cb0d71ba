//! What becomes of jobs that wait for others, once those have come to something.

use headway_types::JobId;

use super::{judge, resolve};
use crate::draft::Note;
use crate::engine::Engine;
use crate::event::Actor;
use crate::job::JobEvent;
use crate::record::{DependencyStanding, Job, JobState};

impl Engine {
    /// Judges what waits for the jobs that this batch has brought into another state, and what waits for those in turn.
    pub(crate) fn settle_dependencies(&mut self) {
        let mut ahead: Vec<JobId> = self.facts.draft.entered.jobs.iter().rev().copied().collect();
        while let Some(id) = ahead.pop() {
            let waiting: Vec<JobId> = self.facts.dependents.of(id).collect();
            let Some(row) = self.facts.jobs.get(&id).cloned().filter(|_| !waiting.is_empty()) else { continue };
            ahead.extend(waiting.into_iter().filter(|one| self.settle_one(*one, &row)));
        }
    }

    /// What a job that waits makes of another one's state; true if it has ended for it.
    fn settle_one(&mut self, id: JobId, row: &Job) -> bool {
        let now = self.facts.now;
        let mut met = false;
        let mut never = None;
        self.facts.edit_job(id, |job| {
            for one in job.after.iter_mut().filter(|one| one.job == row.id && one.standing.is_open()) {
                one.standing = judge(one.on, row, now);
                met |= matches!(one.standing, DependencyStanding::Met { .. });
                if let DependencyStanding::Never { .. } = one.standing {
                    never = Some(one.in_words(&job.spec.project));
                }
            }
        });
        let Some(job) = self.facts.jobs.get(&id) else { return false };
        let (name, called) = (job.spec.name.clone(), called(row, job));
        let became = format!("{called} {}", resolve::outcome(row));
        if let Some(waits) = never {
            let reason = format!("it {waits}, and {became}");
            let by = Actor::Scheduler.to_string();
            let cancelled = self.transition(id, JobEvent::Cancel { by, reason: Some(reason.clone()) });
            if cancelled {
                let note = Note::new("job.cancelled", format!("{name} was cancelled: {reason}"));
                self.facts.note(note.job(id).with("dependency", row.id));
            }
            return cancelled;
        }
        let free = met && !job.is_blocked();
        if free && matches!(job.state, JobState::Queued { .. }) && self.transition(id, JobEvent::Unblock) {
            let became = if row.state.is_final() { became } else { format!("{called} has started") };
            let note = Note::new("job.unblocked", format!("{name} may start: {became}"));
            self.facts.note(note.job(id).with("dependency", row.id));
            self.facts.ask_round(format!("job {name} may start, since {became}"));
        }
        false
    }
}

/// What a job is called before those who may read the other.
fn called(row: &Job, reader: &Job) -> String {
    let of_reader = reader.after.iter().find(|one| one.job == row.id);
    of_reader.map_or_else(|| row.id.to_string(), |one| one.called_in(&reader.spec.project))
}
