//! Other sizes by a job's owner. How often a job is moved protects it from the scheduler, never from its owner: his word lifts that once, so that the next
//! round may move the job. Where to is the planner's to say.

use headway_types::spec::GpuRange;
use headway_types::{GpuCount, JobId};

use super::change::{changed, check_layout, refuse_new_sizes};
use crate::draft::Note;
use crate::engine::Engine;
use crate::event::{Actor, JobChange};
use crate::outcome::{Refusal, Reply};
use crate::record::{JobState, Resize};

impl Engine {
    pub(super) fn resize(
        &mut self,
        actor: &Actor,
        id: JobId,
        (min, max): (GpuCount, GpuCount),
        reason: Option<String>,
    ) -> Result<Reply, Refusal> {
        let job = self.live_job(id)?;
        if let Some(pin) = &job.pin {
            return Err(Refusal::WrongState(format!("job is {pin}; unpin it first")));
        }
        refuse_new_sizes(job)?;
        let change = JobChange { min: Some(min), max: Some(max), ..JobChange::default() };
        let after = changed(&job.spec, change)?;
        check_layout(job, &after)?;
        let name = after.name.clone();
        let by = actor.to_string();
        let why = reason.as_deref().map_or(String::new(), |reason| format!(": {reason}"));
        let message = format!("{by} wants {name} on {}{why}", words(&after.role().gpus));
        let holds = matches!(job.state, JobState::Starting { .. } | JobState::Running { .. });
        let at = self.facts.now;
        self.facts.edit_spec(id, |job| {
            job.spec = after;
            job.resize = holds.then_some(Resize { by, reason, at });
        });
        self.facts.note(Note::new("job.resized", message.clone()).by(actor.clone()).job(id));
        self.facts.ask_round_for_somebody(message);
        self.job_reply(id)
    }
}

/// "8 GPUs", "8 to 16 GPUs".
fn words(range: &GpuRange) -> String {
    if range.min == range.max { range.min.words() } else { format!("{} to {}", range.min, range.max.words()) }
}
