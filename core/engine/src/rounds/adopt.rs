//! What becomes of a round's answer: a plan becomes the target only if its parent still is the target and it still fits the
//! cluster as it is now.

use std::sync::Arc;

use headway_types::{Assignment, JobId, JobVerdict, Plan, PlanId, Reason, ReasonCode};

use super::fits::what_still_fits;
use super::{Asked, Pinned, Restraint, RoundKind, RoundRequest};
use crate::draft::Note;
use crate::engine::Engine;
use crate::event::{Actor, Rebalancing};
use crate::outcome::{Refusal, Reply};
use crate::record::{Adoption, Job, JobState, PlanEvent, PlanRecord, PlanState, PolicyMode, RESIZE_WINDOW};
use crate::verdicts::Verdicts;

impl Engine {
    pub(crate) fn plan_ready(&mut self, plan: &Arc<Plan>) {
        // Otherwise it answers a round of a former term, or one that was given up and told of as that.
        let Some(round) = self.rounds.end(plan.id) else { return };
        self.ease(&round);
        let late = plan.report.left_out.iter().filter(|one| one.deferred).count();
        if late > 0 {
            let message =
                format!("the round left {late} jobs as they are, whose goodput curves were not ready in time");
            self.facts.note(Note::new("plan.deferred", message).plan(plan.id));
            self.facts.ask_round_again(format!("curves of {late} jobs were not ready for the round before"));
        }
        let before = plan.assignments.len();
        let fits = what_still_fits(self.situation(), &round.kind, plan);
        if fits.as_ref().is_none_or(|plan| plan.assignments.len() < before) {
            self.facts.ask_round_again(format!("the cluster changed while planning ({})", round.kind.trigger));
            self.rounds.pinned |= round.kind.pinned == Some(Pinned::ForApproval);
        }
        let Some(plan) = fits else {
            if let Some((by, terms)) = round.asked_by.zip(round.kind.terms) {
                self.rounds.manual = Some(Asked { plan: round.kind.plan, by, terms });
            }
            return;
        };
        if let Some(why) = round.kind.terms.as_deref().and_then(|terms| self.unmet(terms, &plan)) {
            let note = Note::new("plan.unmet", format!("there is no such plan: {why}")).plan(plan.id);
            return self.facts.note(note);
        }
        self.take_verdicts(&plan, &round.request);
        self.tell_of_held_batches(&plan);
        let asks = self.facts.policy.mode == PolicyMode::Advisory && self.moves_running(&plan);
        let covered = self.facts.policy.auto_approve.as_ref().is_some_and(|rule| rule.covers(&plan));
        if round.asked_by.is_some() || asks && !covered {
            self.propose(plan, round.asked_by, round.kind.terms);
        } else {
            self.end_resizes(&round.request, &plan);
            if self.changes_something(&round.request, &plan) {
                self.adopt(plan, Actor::Scheduler, None);
            }
        }
    }

    /// Whether a plan takes or changes GPUs of jobs that have some and could keep them. Who stops for a move has said goodbye to his already.
    fn moves_running(&self, plan: &Plan) -> bool {
        let leaving = self.situation().leaving();
        let holds = |job: &Job| matches!(job.state, JobState::Starting { .. } | JobState::Running { .. });
        let may_stay =
            |job: &JobId| self.facts.jobs.get(job).is_some_and(|row| holds(row)) && !leaving.contains_key(job);
        plan.report.moves.iter().filter(|one| may_stay(&one.job)).any(|one| one.kind.disturbs())
    }

    fn take_verdicts(&mut self, plan: &Plan, round: &RoundRequest) {
        let nodes = &plan.report.nodes_left_out;
        for one in nodes.iter().filter(|one| !self.rounds.nodes_left_out.contains(&one.node)) {
            let message = format!("rounds leave node {} out: {}", one.name, one.reason);
            self.facts.note(Note::new("node.left_out", message).node(one.node).plan(plan.id));
        }
        self.rounds.nodes_left_out = nodes.iter().map(|one| one.node).collect();
        for one in plan.report.left_out.iter().filter(|one| !one.deferred) {
            let known = |verdict: &JobVerdict| verdict.reasons.iter().any(|it| it.code == ReasonCode::Malformed);
            if !self.rounds.verdicts.said.get(&one.job).is_some_and(known) {
                let message = format!("rounds leave the job as it is: {}", one.reason);
                self.facts.note(Note::new("job.left_out", message).job(one.job).plan(plan.id));
            }
        }
        self.rounds.verdicts = Verdicts {
            said: Arc::clone(&plan.report.jobs),
            left: Arc::clone(&round.left),
            due: plan.report.due.clone(),
            nodes_left_out: Arc::new(nodes.clone()),
        };
    }

    /// Better batches that are not taken since nobody knows their micro-batches, or since there were enough changes: told once an hour.
    fn tell_of_held_batches(&mut self, plan: &Plan) {
        let now = self.facts.now;
        let held = |reason: &&Reason| matches!(reason.code, ReasonCode::BatchUntried | ReasonCode::BatchBound);
        for id in self.facts.roll.live.clone() {
            let Some(reason) = plan.report.jobs.get(&id).and_then(|one| one.reasons.iter().find(held)) else {
                continue;
            };
            let Some(seen) = self.seen.job_mut(id) else { continue };
            if seen.batch_held_at.is_some_and(|at| now.since(at).0 < RESIZE_WINDOW.0) {
                continue;
            }
            seen.batch_held_at = Some(now);
            let message = format!("{} keeps its batch for now: {}", self.facts.job_name(id), reason.detail);
            self.facts.note(Note::new("job.batch_held", message).job(id).plan(plan.id).with("code", reason.code));
        }
    }

    /// Who has nothing by either plan is not looked at.
    fn changes_something(&self, round: &RoundRequest, plan: &Plan) -> bool {
        let Some(target) = &self.facts.target else { return true };
        let (before, after) = (&target.plan.assignments, &plan.assignments);
        let at = |one: &Assignment| (one.placement.clone(), one.configuration);
        before
            .keys()
            .chain(after.keys())
            .filter(|id| round.names(**id))
            .any(|id| before.get(id).map(at) != after.get(id).map(at))
    }

    fn propose(&mut self, plan: Arc<Plan>, asked_by: Option<Actor>, terms: Option<Arc<Rebalancing>>) {
        // What is foretold moves with every report: an approver who reads on would find each proposal stale.
        let given = |plan: &Plan| -> Vec<_> {
            plan.assignments.iter().map(|(job, one)| (*job, one.placement.clone(), one.configuration)).collect()
        };
        let same = |one: &Arc<PlanRecord>| one.plan.parent == plan.parent && given(&one.plan) == given(&plan);
        if asked_by.is_none() {
            if self.facts.proposals.values().any(same) {
                return;
            }
            // Starts on free GPUs do not wait for the approval of moves.
            self.rounds.pinned = true;
            self.facts.ask_round_again("starts need no approval".into());
        }
        let id = plan.id;
        let message = format!("a plan with {} waits for approval ({})", moves(&plan), plan.report.trigger);
        let state = PlanState::Proposed;
        let record = Arc::new(PlanRecord { plan, state, decided_at: None, decided_by: None, adopted: None, terms });
        let by = asked_by.unwrap_or(Actor::Scheduler);
        self.expire_proposals(&by);
        self.facts.proposals.insert(id, record.clone());
        self.facts.draft.plans.insert(id, record);
        self.facts.note(Note::new("plan.proposed", message).by(by).plan(id));
    }

    fn adopt(&mut self, plan: Arc<Plan>, by: Actor, terms: Option<Arc<Rebalancing>>) {
        let id = plan.id;
        if let Some(old) = self.facts.target.take() {
            self.decide(&old, PlanEvent::Supersede, &by);
        }
        let report = &plan.report;
        let forced = terms.as_ref().is_some_and(|terms| terms.is_forced());
        let message = format!(
            "a plan with {} becomes the target ({}): objective {:.4} instead of {:.4}{}",
            moves(&plan),
            report.trigger,
            report.objective,
            report.objective_before,
            if forced { ", forced" } else { "" }
        );
        let gap = report.gap.map_or("none".to_owned(), |gap| format!("{gap:.4}"));
        let note = Note::new("plan.adopted", message).by(by.clone()).plan(id).with("gap", gap);
        self.facts.note(note);
        let record = PlanRecord {
            plan,
            state: PlanState::Adopted,
            decided_at: Some(self.facts.now),
            decided_by: Some(by.clone()),
            adopted: Some(Adoption { at: self.facts.now, by: by.clone() }),
            terms,
        };
        let record = Arc::new(record);
        self.facts.proposals.remove(&id);
        self.facts.draft.plans.insert(id, record.clone());
        self.facts.draft.target = Some(id);
        self.facts.target = Some(record);
        // Every other proposal was made from the former target.
        self.expire_proposals(&by);
    }

    /// A newer plan knows more than those that wait for approval: at most one of them waits.
    fn expire_proposals(&mut self, by: &Actor) {
        for stale in std::mem::take(&mut self.facts.proposals).into_values() {
            self.expire(&stale, by, "the proposal is out of date: a newer plan was made".into());
        }
    }

    fn expire(&mut self, stale: &PlanRecord, by: &Actor, why: String) {
        self.decide(stale, PlanEvent::Expire, by);
        self.facts.note(Note::new("plan.expired", why).by(by.clone()).plan(stale.plan.id));
    }

    /// What nobody decides in time is dropped; where it still is the best, the next round proposes it anew.
    pub(crate) fn check_proposals(&mut self) {
        let last = self.facts.policy.proposals_last;
        let over = |one: &&Arc<PlanRecord>| one.plan.made_at + last <= self.facts.now;
        let stale: Vec<Arc<PlanRecord>> = self.facts.proposals.values().filter(over).cloned().collect();
        for one in stale {
            self.facts.proposals.remove(&one.plan.id);
            let why = format!("nobody decided on the proposal within {:.0} minutes", last.0 / 60.0);
            self.expire(&one, &Actor::Scheduler, why);
        }
    }

    /// Runs the plan's transition table.
    fn decide(&mut self, record: &PlanRecord, event: PlanEvent, by: &Actor) -> Arc<PlanRecord> {
        let Some(state) = record.state.clone().apply(event) else {
            self.facts.impossible("a plan that is decided was to be decided again", None, None);
            return Arc::new(record.clone());
        };
        let record = Arc::new(PlanRecord {
            plan: record.plan.clone(),
            state,
            decided_at: Some(self.facts.now),
            decided_by: Some(by.clone()),
            adopted: record.adopted.clone(),
            terms: record.terms.clone(),
        });
        self.facts.draft.plans.insert(record.plan.id, record.clone());
        record
    }

    pub(crate) fn approve(&mut self, actor: &Actor, id: PlanId) -> Result<Reply, Refusal> {
        let record = self.facts.proposals.get(&id).cloned().ok_or(Refusal::NoSuchPlan(id))?;
        let target = self.facts.target.as_ref().map(|target| target.plan.id);
        let kind = RoundKind {
            plan: id,
            trigger: record.plan.report.trigger.clone(),
            terms: record.terms.clone(),
            pinned: None,
            restraint: Restraint::default(),
        };
        let fits = what_still_fits(self.situation(), &kind, &record.plan);
        let whole = fits.is_some_and(|plan| plan.assignments == record.plan.assignments);
        if record.plan.parent != target || !whole {
            return Err(Refusal::StalePlan { plan: id, target });
        }
        self.adopt(record.plan.clone(), actor.clone(), record.terms.clone());
        self.facts.target.clone().map(Reply::Plan).ok_or(Refusal::NoSuchPlan(id))
    }

    pub(crate) fn reject(&mut self, actor: &Actor, id: PlanId, reason: Option<String>) -> Result<Reply, Refusal> {
        let record = self.facts.proposals.remove(&id).ok_or(Refusal::NoSuchPlan(id))?;
        let why = reason.as_deref().map_or(String::new(), |reason| format!(": {reason}"));
        let record = self.decide(&record, PlanEvent::Reject { reason }, actor);
        self.facts
            .note(Note::new("plan.rejected", format!("the proposal is rejected{why}")).by(actor.clone()).plan(id));
        Ok(Reply::Plan(record))
    }
}

/// "1 move", "3 moves".
fn moves(plan: &Plan) -> String {
    match plan.report.moves.len() {
        1 => "1 move".into(),
        many => format!("{many} moves"),
    }
}
