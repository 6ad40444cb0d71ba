//! The end of a batch: every touched row is gathered once, its history is written on, readers get a fresh view, and
//! what is over is let go.

use std::collections::BTreeSet;
use std::sync::Arc;

use headway_types::JobId;

use crate::draft::{Draft, Note};
use crate::efficiency;
use crate::engine::Engine;
use crate::facts::Facts;
use crate::outcome::{ArrayDone, Change, Outcome, Reply};
use crate::record::{Entered, Job, Transition};
use crate::rounds::RoundRequest;

impl Engine {
    pub(crate) fn finish(&mut self, plan_request: Option<Arc<RoundRequest>>) -> Outcome {
        self.facts.settle_released();
        self.tell_reports();
        let mut draft = std::mem::take(&mut self.facts.draft);
        self.facts.raise_versions(&draft);
        let changes = self.facts.changes(&mut draft);
        let replies = std::mem::take(&mut draft.replies);
        let replies = replies.into_iter().map(|(id, reply)| (id, self.facts.refreshed(reply))).collect();
        self.drop_ended(&draft);
        self.show(&draft);
        Outcome {
            changes,
            replies,
            commands: draft.commands,
            refused: draft.refused,
            plan_request,
            wake_at: self.asked_wake,
            observations: draft.observations,
        }
    }

    /// Jobs that have ended are told what their GPU-time went into, and what would have gone better.
    fn tell_reports(&mut self) {
        let entered: Vec<JobId> = self.facts.draft.entered.jobs.iter().copied().collect();
        for id in entered {
            let ended = self.facts.jobs.get(&id).filter(|job| job.state.is_final() && job.spent.total().0 > 0.0);
            let Some(job) = ended.cloned() else { continue };
            let report = efficiency::report(&job, self.seen.jobs.get(&id).and_then(|seen| seen.model.as_deref()));
            let mut note = Note::new("job.report", format!("{} {}", job.spec.name, report.summary)).job(id);
            for advice in report.advice {
                note = note.with(advice.code.into(), advice.detail);
            }
            self.facts.note(note);
        }
    }

    /// Lets go of jobs and allocations that are over. Only what this batch touched can be.
    fn drop_ended(&mut self, draft: &Draft) {
        let touched = draft.jobs.iter().copied().chain(draft.allocations.iter().map(|(job, _)| *job));
        for id in touched.collect::<BTreeSet<JobId>>() {
            let live = self.facts.jobs.get(&id).filter(|job| !job.state.is_final()).map(|job| job.generation);
            for key in self.facts.over(id, live) {
                self.facts.allocations.remove(&key);
                self.seen.forget_sent(key);
            }
            if live.is_none() && !self.facts.still_holds(id) {
                self.facts.drop_job(id);
                self.seen.jobs.remove(&id);
                self.rounds.forget(id);
            }
        }
    }
}

impl Facts {
    fn raise_versions(&mut self, draft: &Draft) {
        for id in &draft.jobs {
            if let Some(job) = self.jobs.get_mut(id) {
                Arc::make_mut(job).version += 1;
            }
        }
        self.raise_array_versions(&draft.arrays);
        for id in &draft.nodes {
            if let Some(node) = self.nodes.get_mut(id) {
                Arc::make_mut(node).version += 1;
            }
        }
    }

    /// Parents before children, so that the store may hold references between rows.
    fn changes(&self, draft: &mut Draft) -> Vec<Change> {
        let mut changes = Vec::new();
        changes.extend(draft.nodes.iter().map(|id| match self.nodes.get(id) {
            Some(node) => Change::Node(node.clone()),
            None => Change::NodeGone(*id),
        }));
        changes.extend(draft.arrays.iter().filter_map(|id| Some(Change::Array(self.array(*id)?.clone()))));
        changes.extend(draft.jobs.iter().filter_map(|id| Some(Change::Job(self.jobs.get(id)?.clone()))));
        changes.extend(draft.plans.values().cloned().map(Change::Plan));
        changes.extend(draft.target.map(Change::Target));
        let allocations = draft.allocations.iter();
        changes.extend(allocations.filter_map(|key| Some(Change::Allocation(self.allocations.get(key)?.clone()))));
        changes.extend(std::mem::take(&mut draft.checkpoints).into_values().flatten().map(Change::Checkpoint));
        changes.extend(draft.policy.then(|| Change::Policy(self.policy.clone())));
        changes.extend(draft.term.map(Change::Term));
        changes.extend(draft.returned.then_some(Change::Returned));
        changes.extend(draft.projects.iter().map(|name| match self.projects.get(name) {
            Some(project) => Change::Project(project.clone()),
            None => Change::ProjectGone(name.clone()),
        }));
        changes.extend(draft.reservations.iter().map(|id| match self.reservations.get(id) {
            Some(reservation) => Change::Reservation(reservation.clone()),
            None => Change::ReservationGone(*id),
        }));
        changes.extend(std::mem::take(&mut draft.idempotency).into_iter().map(Change::Idempotency));
        changes.extend(std::mem::take(&mut draft.events).into_iter().map(Change::Event));
        changes.extend(std::mem::take(&mut draft.deeds).into_iter().map(|deed| Change::Deed(Box::new(deed))));
        changes.extend(std::mem::take(&mut draft.realised).into_iter().map(|one| Change::Realised(Box::new(one))));
        changes.extend(std::mem::take(&mut draft.notices).into_iter().map(|one| Change::Notice(Box::new(one))));
        let given_up = std::mem::take(&mut draft.notices_given_up).into_iter();
        changes.extend(given_up.map(|notice| Change::NoticeGivenUp { notice, at: self.now }));
        let entered = self.entered(draft).into_iter();
        changes.extend(entered.map(|entered| Change::Transition(Transition { at: self.now, entered })));
        changes
    }

    /// The states that subjects have entered in this batch.
    fn entered(&self, draft: &Draft) -> Vec<Entered> {
        let jobs = draft.entered.jobs.iter().filter_map(|id| {
            let job = self.jobs.get(id)?;
            Some(Entered::Job { job: *id, state: job.state.kind(), generation: job.generation })
        });
        let nodes = draft.entered.nodes.iter().map(|id| match self.nodes.get(id) {
            None => Entered::NodeGone { node: *id },
            Some(node) => Entered::Node {
                node: *id,
                availability: node.availability.kind(),
                policy: node.policy.kind(),
                standing: node.health.standing.kind(),
                gpus: node.inventory.gpus.len() as u32,
                healthy: node.inventory.healthy().0,
            },
        });
        let allocations = draft.entered.allocations.iter().filter_map(|key| {
            let allocation = self.allocations.get(key)?;
            let phase = allocation.phase();
            Some(Entered::Allocation { job: key.0, generation: key.1, phase, gpus: allocation.held_gpus().0 })
        });
        let plans =
            draft.plans.values().map(|record| Entered::Plan { plan: record.plan.id, state: record.state.kind() });
        jobs.chain(nodes).chain(allocations).chain(plans).collect()
    }

    /// A reply made early in a batch shows its subject as the whole batch left it.
    pub(crate) fn refreshed(&self, reply: Reply) -> Reply {
        let newest = |job: Arc<Job>| self.jobs.get(&job.id).map_or(job, Arc::clone);
        match reply {
            Reply::Submitted { jobs } => Reply::Submitted { jobs: jobs.into_iter().map(newest).collect() },
            Reply::Job(job) => Reply::Job(newest(job)),
            Reply::Node(node) => {
                let id = node.inventory.node;
                Reply::Node(self.nodes.get(&id).map_or(node, Arc::clone))
            }
            Reply::Array(done) => {
                let array = self.array(done.array.id).map_or(done.array, Arc::clone);
                Reply::Array(ArrayDone { array, ..done })
            }
            Reply::Reservation(one) => Reply::Reservation(self.reservations.get(&one.id).cloned().unwrap_or(one)),
            other => other,
        }
    }
}
