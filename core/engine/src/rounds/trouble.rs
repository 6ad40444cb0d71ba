//! Rounds that gave no plan: they took too long, or broke down. That is an incident: people see it, and the next round plans for fewer jobs
//! until one ends well, so that the cluster is never without plans for want of a large one. Whose turn it was goes on to the end of the
//! line; a job that rounds give no plan with is found on the way and set aside by name, so that all others are planned for as ever.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_types::spec::Priority;
use headway_types::{JobId, PlanId, Seconds, Timestamp};

use super::{InFlight, Pinned};
use crate::draft::Note;
use crate::engine::Engine;
use crate::record::{Job, JobState};

/// Jobs that a round plans for at most after the first that gave no plan.
const MOST: usize = 1_024;
/// After each further one it plans for so many times fewer, and after each that gave a plan for so many times more.
const STEP: usize = 4;

/// After the first round that broke down the next waits for this long at least, and twice as long after each further one.
const FIRST_WAIT: Seconds = Seconds(1.0);
/// But no longer than this, which is about as long as a round takes that is given up.
const LONGEST_WAIT: Seconds = Seconds(60.0);

/// For how long a job is set aside before it is tried again: at first, and at most. In between for as long as it has been so far.
const FIRST_ASIDE: Seconds = Seconds(60.0);
const LONGEST_ASIDE: Seconds = Seconds(3_600.0);

/// That rounds gave no plan of late, and what the next makes of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Trouble {
    /// How many since the first.
    pub rounds: u32,
    /// When the first of them ended.
    pub since: Timestamp,
    /// What was said of the newest.
    pub message: String,
    /// When the next may begin, if the newest broke down: what fails at once would fail as often as it is tried.
    pub again_at: Option<Timestamp>,
    /// Jobs that a round gave no plan with alone, while the next gave one without.
    pub aside: BTreeMap<JobId, Aside>,
    /// How many in a row, up to the newest round.
    in_a_row: u32,
    /// How many jobs the next round plans for.
    most: usize,
    /// Who had his turn last. A round that gives no plan ends nobody's turn, unless it was for him alone.
    reached: Option<Place>,
    /// Who the newest round was for alone, if it gave no plan.
    suspect: Option<JobId>,
}

/// A job that rounds do without.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aside {
    pub since: Timestamp,
    /// When it is tried again.
    pub again_at: Timestamp,
}

/// Where in line a job is planned for: those that wait come first, since what others leave free is theirs before it is anybody's to grow by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    runs: bool,
    priority: Reverse<Priority>,
    submitted_at: Timestamp,
    job: JobId,
}

/// What a round leaves out lest it come to nothing like the one before.
#[derive(Clone, Debug, Default)]
pub(super) struct Restraint {
    /// Jobs that it does not name.
    pub left: Arc<BTreeSet<JobId>>,
    /// Jobs that run and keep what they have; the round computes nothing with them.
    pub stay: Arc<BTreeSet<JobId>>,
    /// The last in line that it is for.
    upto: Option<Place>,
    /// Who it is for alone.
    alone: Option<JobId>,
}

impl Restraint {
    fn leaves_out(&self, job: JobId) -> bool {
        self.left.contains(&job) || self.stay.contains(&job)
    }
}

impl Engine {
    pub(crate) fn plan_given_up(&mut self, plan: PlanId, message: String) {
        let Some(round) = self.rounds.end(plan) else { return };
        self.facts.note(Note::new("plan.given_up", format!("the round was given up: {message}")).plan(plan));
        self.in_trouble(&round, message, |_| None);
    }

    pub(crate) fn plan_failed(&mut self, plan: PlanId, message: &str) {
        if let Some(round) = self.rounds.end(plan) {
            self.broke_down(&round, "plan.failed", format!("the round gave no plan: {message}"));
        }
    }

    pub(crate) fn plan_refused(&mut self, plan: PlanId, violation: &str) {
        if let Some(round) = self.rounds.end(plan) {
            self.broke_down(&round, "plan.refused", format!("the plan is refused, the target stays: {violation}"));
        }
    }

    /// It ended at once, and so would the next: that one waits, longer each time.
    fn broke_down(&mut self, round: &InFlight, verb: &'static str, message: String) {
        let (now, pause) = (self.facts.now, self.facts.policy.round_pause);
        let longest = LONGEST_WAIT.0.max(pause.0);
        let wait = |in_a_row: u32| (pause.0.max(FIRST_WAIT.0) * libm::exp2(f64::from(in_a_row.min(30)))).min(longest);
        self.in_trouble(round, message.clone(), |in_a_row| Some(now + Seconds(wait(in_a_row))));
        let again_at = self.rounds.trouble.as_ref().and_then(|trouble| trouble.again_at);
        let wait = again_at.map_or(0.0, |at| at.since(now).0);
        self.facts.note(Note::new(verb, format!("{message}; the next round waits {wait:.0} s")).plan(round.kind.plan));
    }

    /// `again_at`: when the next round may begin, by how many in a row have given no plan.
    fn in_trouble(&mut self, round: &InFlight, message: String, again_at: impl FnOnce(u32) -> Option<Timestamp>) {
        let now = self.facts.now;
        self.facts.ask_round_again("the round before gave no plan".into());
        self.rounds.pinned |= round.kind.pinned == Some(Pinned::ForApproval);
        let trouble = self.rounds.trouble.get_or_insert_with(|| Trouble::begin(now));
        trouble.rounds = trouble.rounds.saturating_add(1);
        trouble.in_a_row = trouble.in_a_row.saturating_add(1);
        trouble.again_at = again_at(trouble.in_a_row);
        trouble.message = message;
        let restraint = &round.kind.restraint;
        if let Some(aside) = restraint.alone.and_then(|job| trouble.aside.get_mut(&job)) {
            aside.again_at = aside.next(now);
            return;
        }
        trouble.most = (trouble.most.min(round.request.count) / STEP).clamp(1, MOST);
        trouble.suspect = restraint.alone;
        if restraint.alone.is_some() {
            trouble.reached = restraint.upto;
        }
    }

    /// A round has given a plan: the next is for more again, in the end for everybody.
    pub(super) fn ease(&mut self, round: &InFlight) {
        let (now, plan, restraint) = (self.facts.now, round.kind.plan, &round.kind.restraint);
        let Some(trouble) = &mut self.rounds.trouble else { return };
        trouble.in_a_row = 0;
        trouble.again_at = None;
        let suspect = trouble.suspect.take().filter(|job| restraint.leaves_out(*job));
        let back = restraint.alone.filter(|job| trouble.aside.remove(job).is_some());
        if let Some(job) = suspect {
            trouble.aside.insert(job, Aside { since: now, again_at: now + FIRST_ASIDE });
        }
        let mut left_out = restraint.left.iter().chain(restraint.stay.iter());
        let is_over = left_out.clone().next().is_none();
        let later = left_out.any(|job| !trouble.aside.contains_key(job));
        if back.is_none() {
            trouble.reached = restraint.upto;
            trouble.most = if later { trouble.most.saturating_mul(STEP) } else { usize::MAX };
        }
        if is_over {
            self.rounds.trouble = None;
            self.facts.note(Note::new("plan.recovered", "rounds give plans again and leave nobody out").plan(plan));
        }
        if later {
            self.facts.ask_round_again("the round before left jobs out".into());
        }
        if let Some(job) = suspect {
            let message = format!(
                "rounds give no plan with {} and do without it: it stays as it is and is tried again from time to time",
                self.facts.job_name(job)
            );
            self.facts.note(Note::new("job.set_aside", message).job(job).plan(plan));
        }
        if let Some(job) = back {
            let message = format!("rounds give plans with {} again", self.facts.job_name(job));
            self.facts.note(Note::new("job.taken_back", message).job(job).plan(plan));
        }
    }

    /// While nobody wants GPUs no round is owed to anybody.
    pub(super) fn forget_trouble_of_nobody(&mut self) {
        if self.rounds.trouble.is_some() && !self.facts.has_demand() {
            self.rounds.trouble = None;
            self.rounds.verdicts.left = Arc::default();
            self.facts.note(Note::new("plan.recovered", "nobody wants GPUs any more that rounds gave no plan for"));
        }
    }

    /// What the next round has to leave out.
    pub(super) fn restraint(&self) -> Restraint {
        let Some(trouble) = &self.rounds.trouble else { return Restraint::default() };
        let (facts, leaving) = (&self.facts, self.situation().leaving());
        let is_aside = |job: &Job| trouble.aside.contains_key(&job.id);
        let aside = trouble.aside.keys().filter_map(|id| facts.jobs.get(id)).filter(|job| job.wants_gpus(facts.now));
        let aside: Vec<Place> = aside.map(|job| Place::of(job)).collect();
        let tried = trouble.most == usize::MAX && self.rounds.manual.is_none();
        let due = aside.iter().find(|one| tried && trouble.aside[&one.job].again_at <= facts.now);
        // A round for everybody else need not know who that is: most of a long queue only wait.
        let line = if trouble.most == usize::MAX && due.is_none() {
            Vec::new()
        } else {
            self.line(|job| !is_aside(job) && leaving.get(&job.id).is_none_or(|leave| leave.lingers))
        };
        let turn: Vec<Place> = match due {
            Some(one) => vec![*one],
            None => {
                let from = trouble.reached.map_or(0, |last| line.partition_point(|one| *one <= last));
                line[from..].iter().chain(&line[..from]).take(trouble.most).copied().collect()
            }
        };
        let named: BTreeSet<JobId> = turn.iter().map(|one| one.job).collect();
        let others = line.iter().chain(&aside).filter(|one| !named.contains(&one.job));
        let (stay, left): (Vec<&Place>, Vec<&Place>) =
            others.partition(|one| one.runs && !leaving.contains_key(&one.job));
        let ids = |places: Vec<&Place>| Arc::new(places.into_iter().map(|one| one.job).collect());
        let alone = turn.first().filter(|_| turn.len() == 1).map(|one| one.job);
        Restraint { left: ids(left), stay: ids(stay), upto: turn.last().copied(), alone }
    }

    /// Jobs that wait or run and want GPUs, in order. Who stops is always planned for, and so should be who must go at once.
    fn line(&self, takes: impl Fn(&Job) -> bool) -> Vec<Place> {
        let stands = |job: &Job| Place::runs(job) || matches!(job.state, JobState::Queued { .. });
        let wants = |job: &&Arc<Job>| job.wants_gpus(self.facts.now) && stands(job) && takes(job);
        let mut line: Vec<Place> = self.facts.jobs.values().filter(wants).map(|job| Place::of(job)).collect();
        line.sort_unstable();
        line
    }
}

impl Place {
    fn of(job: &Job) -> Self {
        let priority = Reverse(job.spec.priority);
        Self { runs: Self::runs(job), priority, submitted_at: job.submitted_at, job: job.id }
    }

    fn runs(job: &Job) -> bool {
        matches!(job.state, JobState::Starting { .. } | JobState::Running { .. })
    }
}

impl Trouble {
    fn begin(now: Timestamp) -> Self {
        Self {
            rounds: 0,
            since: now,
            message: String::new(),
            again_at: None,
            aside: BTreeMap::new(),
            in_a_row: 0,
            most: usize::MAX,
            reached: None,
            suspect: None,
        }
    }

    /// Whether the next round is not for everybody again yet, those aside.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.in_a_row > 0 || self.most != usize::MAX
    }

    /// The job is over.
    pub(super) fn forget(&mut self, job: JobId) {
        self.aside.remove(&job);
        self.suspect.take_if(|suspect| *suspect == job);
    }
}

impl Aside {
    /// When the job is tried again after it was tried now.
    fn next(&self, now: Timestamp) -> Timestamp {
        now + Seconds(now.since(self.since).0.clamp(FIRST_ASIDE.0, LONGEST_ASIDE.0))
    }
}
