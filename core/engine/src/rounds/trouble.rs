//! Rounds that were given up. That is an incident: people see it, and the next round asks less until one ends in time, so that the cluster is
//! never without plans for want of a large one.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use headway_types::spec::Priority;
use headway_types::{JobId, PlanId, Timestamp};

use crate::draft::Note;
use crate::engine::Engine;
use crate::record::{Job, JobState};
use crate::situation::Situation;

/// Waiting jobs that a round names at most after the first that was given up; a quarter of that after each further one.
const MOST_WAITING: usize = 1_024;
/// And at least.
const LEAST_WAITING: usize = 4;
/// From so many in a row on, running jobs stay as they are as well.
const STILL_FROM: u32 = 2;

/// Rounds in a row that were given up, less those since then that were not.
#[derive(Clone, Debug, PartialEq)]
pub struct Trouble {
    pub given_up: u32,
    /// When the first of them was given up.
    pub since: Timestamp,
    /// What was said of the newest.
    pub message: String,
}

/// What a round leaves out lest it be given up like the one before.
#[derive(Clone, Debug, Default)]
pub(super) struct Restraint {
    /// Waiting jobs that it does not name.
    pub left: Arc<BTreeSet<JobId>>,
    /// Running jobs stay as they are.
    pub still: bool,
}

impl Engine {
    pub(crate) fn plan_given_up(&mut self, plan: PlanId, message: String) {
        if self.rounds.in_flight.take_if(|round| round.kind.plan == plan).is_none() {
            return;
        }
        self.facts.note(Note::new("plan.given_up", format!("the round was given up: {message}")).plan(plan));
        self.facts.ask_round("the round before was given up".into());
        let before = self.rounds.trouble.take();
        self.rounds.trouble = Some(Trouble {
            given_up: before.as_ref().map_or(0, |trouble| trouble.given_up).saturating_add(1),
            since: before.map_or(self.facts.now, |trouble| trouble.since),
            message,
        });
    }

    /// A round has ended in time: the next may ask more again.
    pub(super) fn ease(&mut self, plan: PlanId) {
        let Some(trouble) = &mut self.rounds.trouble else { return };
        trouble.given_up -= 1;
        // Whoever was left out waits for it.
        self.facts.ask_round("the round before left jobs out".into());
        if trouble.given_up == 0 {
            self.rounds.trouble = None;
            self.facts.note(Note::new("plan.recovered", "rounds end in time again and leave nobody out").plan(plan));
        }
    }

    /// What the next round has to leave out.
    pub(super) fn restraint(&self) -> Restraint {
        let Some(trouble) = &self.rounds.trouble else { return Restraint::default() };
        let most = (MOST_WAITING >> (2 * (trouble.given_up - 1)).min(16)).max(LEAST_WAITING);
        let left: BTreeSet<JobId> = waiting(self.situation()).into_iter().skip(most).collect();
        Restraint { left: Arc::new(left), still: trouble.given_up >= STILL_FROM }
    }
}

/// Those that wait for GPUs, first in line first.
fn waiting(at: Situation<'_>) -> Vec<JobId> {
    let now = at.facts.now;
    let waits = |job: &&Arc<Job>| matches!(job.state, JobState::Queued { .. }) && job.wants_gpus(now);
    let order = |job: &Arc<Job>| -> (Reverse<Priority>, Timestamp, JobId) {
        (Reverse(job.spec.priority), job.submitted_at, job.id)
    };
    let mut waiting: Vec<_> = at.facts.jobs.values().filter(waits).map(order).collect();
    waiting.sort_unstable();
    waiting.into_iter().map(|(.., id)| id).collect()
}
