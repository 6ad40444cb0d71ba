//! Whether the machine's clock is believed when a scheduler starts. One that is far ahead of all that is stored would end jobs by their
//! time limits, spend budgets and forget the past, none of which can be taken back; so the cluster's clock goes on from what is stored
//! until the machine's is back or an operator says that it is right.

use headway_types::{Seconds, Timestamp};

use crate::draft::Note;
use crate::engine::Engine;
use crate::snapshot::Snapshot;

/// Longer than this no scheduler is away while jobs run.
pub const LONGEST_ABSENCE: Seconds = Seconds(7.0 * 86_400.0);

/// A clock that is not believed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Doubt {
    /// So far it is ahead.
    pub beyond: Seconds,
    pub since: Timestamp,
}

/// How far the machine's clock is ahead of the newest moment that is stored, where that is not believed: jobs held GPUs then. A cluster
/// that was switched off in good order has none.
#[must_use]
pub fn doubt(newest: Timestamp, clock: Timestamp, snapshot: &Snapshot) -> Option<Seconds> {
    let beyond = clock.since(newest);
    let at_stake = || snapshot.jobs.iter().any(|job| job.state.generation().is_some());
    (beyond.0 > LONGEST_ABSENCE.0 && at_stake()).then_some(beyond)
}

impl Engine {
    pub(crate) fn clock_doubted(&mut self, beyond: Seconds) {
        let message = format!(
            "the machine's clock is {} ahead of all that is stored and is not believed: time goes on from there. Set it right, or start the \
             server with --trust-clock",
            beyond.words()
        );
        self.facts.note(Note::new("clock.doubted", message).with("seconds", format!("{:.0}", beyond.0)));
        self.seen.doubt = Some(Doubt { beyond, since: self.facts.now });
    }

    pub(crate) fn clock_believed(&mut self) {
        if self.seen.doubt.take().is_some() {
            self.facts.note(Note::new("clock.believed", "the machine's clock is right again"));
        }
    }
}

#[cfg(test)]
mod tests {
    use headway_types::{Generation, JobId, example};

    use super::*;
    use crate::record::{Job, JobState};

    #[test]
    fn a_clock_far_ahead_is_believed_only_where_nothing_is_at_stake() {
        let (newest, since) = (Timestamp(1_000_000), Timestamp(0));
        let job = |state| Snapshot { jobs: vec![Job { state, ..job() }], ..Snapshot::default() };
        let runs = job(JobState::Running { generation: Generation(1), since });
        let waits = job(JobState::Queued { since });
        let (soon, late) = (newest + LONGEST_ABSENCE, newest + Seconds(400.0 * 86_400.0));
        assert_eq!(doubt(newest, late, &runs), Some(Seconds(400.0 * 86_400.0)));
        for (clock, snapshot) in [(soon, &runs), (since, &runs), (late, &waits), (late, &Snapshot::default())] {
            assert_eq!(doubt(newest, clock, snapshot), None);
        }
    }

    fn job() -> Job {
        Job::new(JobId(uuid::Uuid::nil()), example::spec("one", example::gpus(1, 1), None), "ada".into(), Timestamp(0))
    }
}
