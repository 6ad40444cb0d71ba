//! Rounds: when to ask for a plan, and what becomes of the answer. At most one is in flight; a plan becomes the
//! target only if its parent still is the target and it still fits the cluster as it is now.

use std::collections::BTreeSet;
use std::sync::Arc;

use headway_planner::{PlanInput, verify};
use headway_types::plan::MoveKind;
use headway_types::{JobId, JobVerdict, Plan, PlanId, ReasonCode, Timestamp};

use crate::draft::Note;
use crate::entry::JobEntry;
use crate::event::Actor;
use crate::input::RoundKind;
use crate::outcome::{Refusal, Reply};
use crate::record::{JobState, PlanEvent, PlanRecord, PlanState, PolicyMode};
use crate::state::Engine;

/// A job's noise scale or step time must have moved by this share since the last round to call for a new one.
const MOVED: f64 = 0.15;

#[derive(Clone, Debug)]
pub(crate) struct Rounds {
    /// Why a round is wanted, in words; the first cause stands.
    wanted: Option<String>,
    in_flight: Option<InFlight>,
    last_at: Option<Timestamp>,
    /// A round an operator asked for.
    manual: Option<(PlanId, Option<f64>, Actor)>,
    /// The next automatic round moves no running job, since a proposal that does waits for approval.
    pinned: bool,
}

#[derive(Clone, Debug)]
struct InFlight {
    input: Arc<PlanInput>,
    kind: RoundKind,
    asked_by: Option<Actor>,
}

impl Rounds {
    pub fn new() -> Self {
        let wanted = Some("the scheduler took over".into());
        Self { wanted, in_flight: None, last_at: None, manual: None, pinned: false }
    }

    pub fn ask(&mut self, trigger: String) {
        self.wanted.get_or_insert(trigger);
    }

    /// When the next round may or must begin.
    pub fn due(&self, policy: &crate::record::PolicySettings, now: Timestamp) -> Option<Timestamp> {
        if self.in_flight.is_some() || (policy.mode == PolicyMode::Paused && self.manual.is_none()) {
            return None;
        }
        let pause =
            if self.wanted.is_some() || self.manual.is_some() { policy.round_pause } else { policy.round_every };
        Some(self.last_at.map_or(now, |last| last + pause))
    }
}

impl Engine {
    /// The input of a round, if one is due.
    pub(crate) fn consider_round(&mut self) -> Option<Arc<PlanInput>> {
        self.notice_changes();
        if self.rounds.due(&self.policy, self.now).is_none_or(|due| due > self.now) || self.awaits_nodes() {
            return None;
        }
        let (kind, asked_by) = match self.rounds.manual.take() {
            Some((plan, min_gain, actor)) => {
                let trigger = format!("{} asked for it", crate::admission::actor_name(&actor));
                (RoundKind { plan, trigger, min_gain, pinned: false }, Some(actor))
            }
            None => {
                let trigger = self.rounds.wanted.take().unwrap_or_else(|| "time has passed".into());
                let plan = self.ids.plan(self.now);
                let pinned = std::mem::take(&mut self.rounds.pinned);
                (RoundKind { plan, trigger, min_gain: None, pinned }, None)
            }
        };
        let input = Arc::new(self.build_input(&kind));
        if input.jobs.is_empty() && asked_by.is_none() {
            return None;
        }
        self.rounds.last_at = Some(self.now);
        self.remember_what_was_planned(&input);
        self.rounds.in_flight = Some(InFlight { input: input.clone(), kind, asked_by });
        Some(input)
    }

    /// A round made while nodes are still registering would take them for gone.
    fn awaits_nodes(&self) -> bool {
        let waiting = |entry: &crate::entry::NodeEntry| {
            matches!(entry.node.availability, crate::record::Availability::Registering { .. })
        };
        self.nodes.values().any(waiting)
    }

    fn remember_what_was_planned(&mut self, input: &PlanInput) {
        let named: BTreeSet<JobId> = input.jobs.iter().map(|job| job.job).collect();
        let step_times: Vec<Option<f64>> = self.jobs.values().map(|entry| self.expected_step_time(entry)).collect();
        for ((id, entry), step_time) in self.jobs.iter_mut().zip(step_times) {
            entry.planned_step_time = step_time;
            entry.planned = named.contains(id);
            entry.planned_noise = entry.model.as_ref().and_then(|model| model.noise_scale()).map(|(phi, _)| phi);
        }
    }

    /// What calls for a round although no event asked for one.
    fn notice_changes(&mut self) {
        if self.rounds.wanted.is_some() {
            return;
        }
        self.rounds.wanted = self.jobs.values().find_map(|entry| {
            let name = &entry.job.spec.name;
            if self.wants_gpus(&entry.job) && !entry.planned {
                return Some(format!("job {name} wants GPUs"));
            }
            let ended = protection_ends(entry).filter(|ends| *ends <= self.now)?;
            let unseen = self.rounds.last_at.is_some_and(|last| last < ended);
            unseen.then(|| format!("{name} has run long enough to be moved"))
        });
    }

    /// A step report has just been heard: has the job become another than the newest round took it for?
    pub(crate) fn notice_drift(&mut self, job: JobId) {
        if self.rounds.wanted.is_some() {
            return;
        }
        let Some(entry) = self.jobs.get(&job) else { return };
        let name = &entry.job.spec.name;
        let moved = |now: f64, before: f64| (now - before).abs() > MOVED * before.abs();
        let pace = entry.planned_step_time.zip(self.expected_step_time(entry));
        let noise = entry.model.as_ref().and_then(|model| model.noise_scale()).map(|(phi, _)| phi);
        let cause = match (pace, noise, entry.planned_noise) {
            (Some((before, now)), ..) if moved(now, before) => {
                format!("steps of {name} turn out to take {now:.3} s instead of {before:.3} s")
            }
            (_, Some(now), None) => format!("the noise scale of {name} is known: {now:.0} tokens"),
            (_, Some(now), Some(before)) if moved(now, before) => {
                format!("the noise scale of {name} moved from {before:.0} to {now:.0} tokens")
            }
            _ => return,
        };
        self.rounds.wanted = Some(cause);
        self.unsettled = true;
    }

    /// What the model, as corrected by reports so far, expects of a job's present configuration.
    fn expected_step_time(&self, entry: &JobEntry) -> Option<f64> {
        let allocation = self.allocations.get(&(entry.job.id, entry.job.state.generation()?))?;
        let node = self.nodes.get(&allocation.placement.first_node())?;
        let (gpus, nodes) = (allocation.placement.gpus(), allocation.placement.nodes());
        let class = node.node.inventory.class();
        let step = entry.model.as_ref()?.step_time(&class, gpus, nodes, &allocation.configuration?);
        step.ok().map(|step| step.time.0)
    }

    pub(crate) fn plan_failed(&mut self, plan: PlanId, message: &str) {
        if self.rounds.in_flight.as_ref().is_some_and(|round| round.kind.plan == plan) {
            self.rounds.in_flight = None;
            self.note(Note::new("plan.failed", format!("the round gave no plan: {message}")).plan(plan));
        }
    }

    pub(crate) fn plan_ready(&mut self, plan: Plan) {
        let Some(round) = self.rounds.in_flight.take_if(|round| round.kind.plan == plan.id) else { return };
        if let Err(violation) = verify(&round.input, &plan) {
            let message = format!("the plan is refused, the target stays: {violation}");
            self.note(Note::new("plan.refused", message).plan(plan.id));
            return;
        }
        let before = plan.assignments.len();
        let Some(plan) = self.what_still_fits(&round.kind, plan) else {
            self.rounds.ask(format!("the cluster changed while planning ({})", round.kind.trigger));
            if let Some(actor) = round.asked_by {
                self.rounds.manual = Some((round.kind.plan, round.kind.min_gain, actor));
            }
            return;
        };
        if plan.assignments.len() < before {
            self.rounds.ask(format!("the cluster changed while planning ({})", round.kind.trigger));
        }
        self.take_verdicts(&plan);
        let leaving = self.leaving();
        let waits = self.policy.mode == PolicyMode::Advisory && moves_running(&plan, |job| !leaving.contains_key(&job));
        if round.asked_by.is_some() || waits {
            self.propose(plan, round.asked_by);
        } else if self.changes_something(&round.input, &plan) {
            self.adopt(Arc::new(plan), Actor::Scheduler);
        }
    }

    fn take_verdicts(&mut self, plan: &Plan) {
        for one in &plan.report.left_out {
            let known = |verdict: &Arc<JobVerdict>| verdict.reasons.iter().any(|it| it.code == ReasonCode::Malformed);
            if !self.verdicts.get(&one.job).is_some_and(known) {
                let message = format!("rounds leave the job as it is: {}", one.reason);
                self.note(Note::new("job.left_out", message).job(one.job).plan(plan.id));
            }
        }
        for (job, verdict) in &plan.report.jobs {
            self.verdicts.insert(*job, Arc::new(verdict.clone()));
            self.draft.shown_jobs.insert(*job);
        }
    }

    fn changes_something(&self, input: &PlanInput, plan: &Plan) -> bool {
        let Some(target) = &self.target else { return true };
        input.jobs.iter().any(|job| {
            let before = target.plan.assignments.get(&job.job);
            let after = plan.assignments.get(&job.job);
            before.map(|one| (&one.placement, &one.configuration))
                != after.map(|one| (&one.placement, &one.configuration))
        })
    }

    fn propose(&mut self, plan: Plan, asked_by: Option<Actor>) {
        let same = |one: &Arc<PlanRecord>| one.plan.assignments == plan.assignments && one.plan.parent == plan.parent;
        let automatic = asked_by.is_none();
        if automatic {
            // Starts on free GPUs do not wait for the approval of moves.
            self.rounds.pinned = true;
            self.rounds.ask("starts need no approval".into());
            if self.proposals.values().any(same) {
                self.rounds.pinned = false;
                self.rounds.wanted = None;
                return;
            }
        }
        let id = plan.id;
        let message = format!("a plan with {} waits for approval ({})", moves(&plan), plan.report.trigger);
        let record = Arc::new(PlanRecord {
            plan: Arc::new(plan),
            state: PlanState::Proposed,
            decided_at: None,
            decided_by: None,
        });
        self.proposals.insert(id, record.clone());
        self.draft.plans.insert(id, record);
        self.note(Note::new("plan.proposed", message).by(asked_by.unwrap_or(Actor::Scheduler)).plan(id));
    }

    fn adopt(&mut self, plan: Arc<Plan>, by: Actor) {
        let id = plan.id;
        if let Some(old) = self.target.take() {
            self.decide(&old, PlanEvent::Supersede, &by);
        }
        let report = &plan.report;
        let message = format!(
            "a plan with {} becomes the target ({}): objective {:.4} instead of {:.4}",
            moves(&plan),
            report.trigger,
            report.objective,
            report.objective_before
        );
        let gap = report.gap.map_or("none".to_owned(), |gap| format!("{gap:.4}"));
        let note = Note::new("plan.adopted", message).by(by.clone()).plan(id).with("gap", gap);
        self.note(note);
        let record =
            PlanRecord { plan, state: PlanState::Adopted, decided_at: Some(self.now), decided_by: Some(by.clone()) };
        let record = Arc::new(record);
        self.proposals.remove(&id);
        self.draft.plans.insert(id, record.clone());
        self.draft.target = Some(id);
        self.target = Some(record);
        // Every other proposal was made from the former target.
        for stale in std::mem::take(&mut self.proposals).into_values() {
            self.decide(&stale, PlanEvent::Expire, &by);
        }
    }

    /// Runs the plan's transition table; a plan that is decided already stays as it is.
    fn decide(&mut self, record: &PlanRecord, event: PlanEvent, by: &Actor) -> Arc<PlanRecord> {
        let Some(state) = record.state.clone().apply(event) else { return Arc::new(record.clone()) };
        let record = Arc::new(PlanRecord {
            plan: record.plan.clone(),
            state,
            decided_at: Some(self.now),
            decided_by: Some(by.clone()),
        });
        self.draft.plans.insert(record.plan.id, record.clone());
        record
    }

    pub(crate) fn rebalance(&mut self, actor: &Actor, min_gain: Option<f64>) -> PlanId {
        if let Some((plan, ..)) = &self.rounds.manual {
            return *plan;
        }
        let plan = self.ids.plan(self.now);
        self.rounds.manual = Some((plan, min_gain, actor.clone()));
        plan
    }

    pub(crate) fn approve(&mut self, actor: &Actor, id: PlanId) -> Result<Reply, Refusal> {
        let record = self.proposals.get(&id).cloned().ok_or(Refusal::NoSuchPlan(id))?;
        let target = self.target.as_ref().map(|target| target.plan.id);
        let kind = RoundKind { plan: id, trigger: record.plan.report.trigger.clone(), min_gain: None, pinned: false };
        let fits = self.what_still_fits(&kind, Plan::clone(&record.plan));
        let whole = fits.is_some_and(|plan| plan.assignments == record.plan.assignments);
        if record.plan.parent != target || !whole {
            return Err(Refusal::StalePlan { plan: id, target });
        }
        self.adopt(record.plan.clone(), actor.clone());
        self.target.clone().map(Reply::Plan).ok_or(Refusal::NoSuchPlan(id))
    }

    pub(crate) fn reject(&mut self, actor: &Actor, id: PlanId, reason: Option<String>) -> Result<Reply, Refusal> {
        let record = self.proposals.remove(&id).ok_or(Refusal::NoSuchPlan(id))?;
        let why = reason.as_deref().map_or(String::new(), |reason| format!(": {reason}"));
        let record = self.decide(&record, PlanEvent::Reject { reason }, actor);
        self.note(Note::new("plan.rejected", format!("the proposal is rejected{why}")).by(actor.clone()).plan(id));
        Ok(Reply::Plan(record))
    }

    /// The earliest moment at which time alone changes something.
    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        let leases = self.nodes.keys().filter_map(|id| self.lease_end(*id));
        let standings = self.nodes.values().filter_map(|entry| entry.node.health.due());
        let drains = self.nodes.values().filter_map(|entry| entry.drain_deadline()).filter(|at| *at > self.now);
        let jobs = self.jobs.values().filter_map(|entry| self.job_deadline(entry));
        // A round that cannot begin yet begins with the event that allows it, not by time.
        let wanted = self.rounds.manual.is_some() || self.jobs.values().any(|entry| self.wants_gpus(&entry.job));
        let round = wanted && !self.awaits_nodes();
        let round = round.then(|| self.rounds.due(&self.policy, self.now)).flatten();
        // What a protected job kept from others, or from itself, is decided as soon as the protection ends.
        let protections = self.jobs.values().filter_map(protection_ends).filter(|ends| *ends > self.now);
        let lives = self.jobs.values().any(|entry| entry.job.state.generation().is_some());
        let periodic = lives.then(|| self.now + self.config.reconcile_every);
        let soon = self.now + headway_types::Seconds(0.001);
        leases
            .chain(standings)
            .chain(drains)
            .chain(jobs)
            .chain(self.draft.repeat_at)
            .chain(self.next_reservation())
            .chain(round)
            .chain(protections)
            .chain(periodic)
            .min()
            .map(|at| at.max(soon))
    }
}

/// "1 move", "3 moves".
fn moves(plan: &Plan) -> String {
    match plan.report.moves.len() {
        1 => "1 move".into(),
        many => format!("{many} moves"),
    }
}

/// When a running job's minimum runtime on its present GPUs is over.
fn protection_ends(entry: &JobEntry) -> Option<Timestamp> {
    match entry.job.state {
        JobState::Running { since, .. } => Some(since + entry.job.spec.elastic.min_runtime),
        _ => None,
    }
}

/// Whether a plan takes or changes GPUs of jobs that have some and could keep them.
fn moves_running(plan: &Plan, may_stay: impl Fn(JobId) -> bool) -> bool {
    plan.report.moves.iter().filter(|one| may_stay(one.job)).any(|one| match one.kind {
        MoveKind::Start => false,
        MoveKind::Preempt => true,
        MoveKind::Reconfigure(tier) => !tier.is_live(),
    })
}
