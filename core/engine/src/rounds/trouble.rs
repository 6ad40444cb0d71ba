//! Rounds that gave no plan: they took too long, or broke down. That is an incident: people see it, and the next round asks less until one
//! ends well, so that the cluster is never without plans for want of a large one, or for one job that nothing can be computed with.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use headway_types::spec::Priority;
use headway_types::{JobId, PlanId, Seconds, Timestamp};

use crate::draft::Note;
use crate::engine::Engine;
use crate::record::{Job, JobState};
use crate::situation::Situation;

/// Waiting jobs that a round names at most after the first that gave no plan; a quarter of that after each further one.
const MOST_WAITING: usize = 1_024;
/// After so many quarterings only one is left.
const QUARTERINGS: u32 = MOST_WAITING.ilog(4);
/// From so many in a row on, running jobs stay as they are as well.
const STILL_FROM: u32 = 2;

/// After the first round that broke down the next waits for this long at least, and twice as long after each further one.
const FIRST_WAIT: Seconds = Seconds(1.0);
/// But no longer than this, which is about as long as a round takes that is given up.
const LONGEST_WAIT: Seconds = Seconds(60.0);

/// Rounds in a row that gave no plan, less those since then that did.
#[derive(Clone, Debug, PartialEq)]
pub struct Trouble {
    pub rounds: u32,
    /// When the first of them ended.
    pub since: Timestamp,
    /// What was said of the newest.
    pub message: String,
    /// When the next may begin, if the newest broke down: what fails at once would fail as often as it is tried.
    pub again_at: Option<Timestamp>,
}

/// What a round leaves out lest it come to nothing like the one before.
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
        self.in_trouble(message, |_| None);
    }

    pub(crate) fn plan_failed(&mut self, plan: PlanId, message: String) {
        if self.rounds.in_flight.take_if(|round| round.kind.plan == plan).is_some() {
            self.broke_down(plan, "plan.failed", format!("the round gave no plan: {message}"));
        }
    }

    /// It ended at once, and so would the next: that one waits, longer each time.
    pub(super) fn broke_down(&mut self, plan: PlanId, verb: &'static str, message: String) {
        let (now, pause) = (self.facts.now, self.facts.policy.round_pause);
        let longest = LONGEST_WAIT.0.max(pause.0);
        let wait = |rounds: u32| (pause.0.max(FIRST_WAIT.0) * libm::exp2(f64::from(rounds.min(30)))).min(longest);
        self.in_trouble(message.clone(), |rounds| Some(now + Seconds(wait(rounds))));
        let again_at = self.rounds.trouble.as_ref().and_then(|trouble| trouble.again_at);
        let wait = again_at.map_or(0.0, |at| at.since(now).0);
        self.facts.note(Note::new(verb, format!("{message}; the next round waits {wait:.0} s")).plan(plan));
    }

    /// `again_at`: when the next round may begin, by how many in a row have given no plan.
    fn in_trouble(&mut self, message: String, again_at: impl FnOnce(u32) -> Option<Timestamp>) {
        self.facts.ask_round("the round before gave no plan".into());
        let before = self.rounds.trouble.take();
        let rounds = before.as_ref().map_or(0, |trouble| trouble.rounds).saturating_add(1);
        let since = before.map_or(self.facts.now, |trouble| trouble.since);
        self.rounds.trouble = Some(Trouble { rounds, since, message, again_at: again_at(rounds) });
    }

    /// A round has given a plan: the next may ask more again.
    pub(super) fn ease(&mut self, plan: PlanId) {
        let Some(trouble) = &mut self.rounds.trouble else { return };
        trouble.rounds -= 1;
        trouble.again_at = None;
        // Whoever was left out waits for it.
        self.facts.ask_round("the round before left jobs out".into());
        if trouble.rounds == 0 {
            self.rounds.trouble = None;
            self.facts.note(Note::new("plan.recovered", "rounds give plans again and leave nobody out").plan(plan));
        }
    }

    /// While nobody wants GPUs no round is owed to anybody.
    pub(super) fn forget_trouble_of_nobody(&mut self) {
        if self.rounds.trouble.is_some() && !self.facts.has_demand() {
            self.rounds.trouble = None;
            self.facts.note(Note::new("plan.recovered", "nobody wants GPUs any more that rounds gave no plan for"));
        }
    }

    /// What the next round has to leave out.
    pub(super) fn restraint(&self) -> Restraint {
        let Some(trouble) = &self.rounds.trouble else { return Restraint::default() };
        let quarterings = trouble.rounds - 1;
        let most = MOST_WAITING >> (2 * quarterings.min(QUARTERINGS));
        let mut waiting = waiting(self.situation());
        if !waiting.is_empty() {
            // Where no fewer can be asked, others are: a job that breaks every round it is in keeps nobody else from theirs for ever.
            let turn = quarterings.saturating_sub(QUARTERINGS) as usize % waiting.len();
            waiting.rotate_left(turn);
        }
        let left: BTreeSet<JobId> = waiting.into_iter().skip(most).collect();
        Restraint { left: Arc::new(left), still: trouble.rounds >= STILL_FROM }
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
