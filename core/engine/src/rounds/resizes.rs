//! What becomes of a wish for another size once a round has looked at the job.

use headway_types::{JobId, Plan};

use super::RoundRequest;
use crate::draft::Note;
use crate::engine::Engine;

impl Engine {
    /// A plan has been taken: whom it could have moved by his owner's word and leaves where he is, it leaves for good, and that is told.
    pub(super) fn end_resizes(&mut self, round: &RoundRequest, plan: &Plan) {
        let stays = |id: &JobId| {
            let held = self.facts.jobs.get(id).and_then(|job| self.facts.live_allocation(job));
            held.zip(plan.assignments.get(id)).is_some_and(|(held, planned)| held.is_as_assigned(planned))
        };
        let staying: Vec<JobId> = round.resized().filter(stays).collect();
        for id in staying {
            // One that was asked for since is for the next round.
            let Some(job) = self.facts.jobs.get(&id) else { continue };
            if job.resize.as_ref().is_none_or(|resize| resize.at > round.asked_at()) {
                continue;
            }
            let message = format!("the round after its owner asked for another size leaves {} as it is", job.spec.name);
            self.facts.edit_job(id, |job| job.resize = None);
            self.facts.note(Note::new("job.resize_ended", message).job(id));
        }
    }
}
