//! What a generation is told while it runs, besides its configuration.

use headway_types::{Generation, JobId, Seconds};

use crate::draft::Note;
use crate::engine::Engine;
use crate::record::Noticed;

impl Engine {
    /// The job is told that its time limit is near.
    pub(crate) fn notify(&mut self, key: (JobId, Generation)) {
        let told = self.facts.jobs.get(&key.0).and_then(|job| {
            let end = self.situation().time_limit_at(job)?;
            Some((job.spec.limits.signal?, job.spec.limits.time?, end.since(self.facts.now)))
        });
        let Some((notice, limit, left)) = told else {
            return self.facts.impossible(
                "a job without a signal or a time limit was to hear of its end",
                Some(key.0),
                None,
            );
        };
        self.facts.edit_allocation(key, |one| {
            let number = one.notice.map_or(0, |notice| notice.number) + 1;
            one.notice = Some(Noticed { number, limit });
        });
        let (name, signal) = (self.facts.job_name(key.0), notice.signal.name());
        let message = format!(
            "{name} is sent {signal}: its time limit of {} ends it in {}",
            limit.words(),
            Seconds(left.0.max(0.0)).words()
        );
        self.facts.note(Note::new("job.notified", message).job(key.0).with("signal", signal));
    }

    /// Renews the learning-rate factor of a running job.
    pub(crate) fn change_rate(&mut self, key: (JobId, Generation), to: f64) {
        let Some(seen) = self.seen.job_mut(key.0) else {
            return self.facts.impossible("nothing is known of a job that runs", Some(key.0), None);
        };
        seen.rate_told_at = Some(self.facts.now);
        let mut from = to;
        self.facts.edit_allocation(key, |one| {
            from = std::mem::replace(&mut one.lr_scale, to);
            one.revision += 1;
        });
        let name = self.facts.job_name(key.0);
        let message =
            format!("the learning rate of {name} goes from {from:.2} to {to:.2} times the recipe's: its noise moved");
        self.facts.note(Note::new("job.learning_rate_changed", message).job(key.0).with("lr_scale", to));
    }
}
