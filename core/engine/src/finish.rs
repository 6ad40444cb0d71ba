//! The end of a batch: every touched row is gathered once, its history is written on, readers get a fresh view, and
//! what is over is let go.

use std::collections::BTreeSet;
use std::sync::Arc;

use headway_planner::PlanInput;
use headway_types::{Generation, JobId, NodeId, Timestamp};
use uuid::Uuid;

use crate::draft::Draft;
use crate::outcome::{Change, Outcome, Reply};
use crate::record::{Entered, Job, Transition};
use crate::state::Engine;

impl Engine {
    pub(crate) fn finish(&mut self, plan_request: Option<Arc<PlanInput>>, wake_at: Option<Timestamp>) -> Outcome {
        let mut draft = std::mem::take(&mut self.draft);
        for id in &draft.jobs {
            if let Some(entry) = self.jobs.get_mut(id) {
                Arc::make_mut(&mut entry.job).version += 1;
            }
        }
        for id in &draft.nodes {
            if let Some(entry) = self.nodes.get_mut(id) {
                Arc::make_mut(&mut entry.node).version += 1;
            }
        }
        self.settle_released(&mut draft);
        let changes = self.changes(&mut draft);
        let replies = std::mem::take(&mut draft.replies);
        let replies = replies.into_iter().map(|(id, reply)| (id, self.refreshed(reply))).collect();
        self.drop_ended(&draft);
        self.show(&draft);
        Outcome {
            changes,
            replies,
            commands: draft.commands,
            refused: draft.refused,
            plan_request,
            wake_at,
            observations: draft.observations,
        }
    }

    /// Parents before children, so that the store may hold references between rows.
    fn changes(&self, draft: &mut Draft) -> Vec<Change> {
        let mut changes = Vec::new();
        changes.extend(draft.nodes.iter().filter_map(|id| Some(Change::Node(self.nodes.get(id)?.node.clone()))));
        changes.extend(draft.jobs.iter().filter_map(|id| Some(Change::Job(self.jobs.get(id)?.job.clone()))));
        changes.extend(draft.plans.values().cloned().map(Change::Plan));
        changes.extend(draft.target.map(Change::Target));
        let allocations = draft.allocations.iter();
        changes.extend(allocations.filter_map(|key| Some(Change::Allocation(self.allocations.get(key)?.clone()))));
        changes.extend(std::mem::take(&mut draft.checkpoints).into_values().flatten().map(Change::Checkpoint));
        changes.extend(draft.policy.then(|| Change::Policy(self.policy.clone())));
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
        let entered = self.entered(draft).into_iter();
        changes.extend(entered.map(|entered| Change::Transition(Transition { at: self.now, entered })));
        changes
    }

    /// The states that subjects have entered in this batch.
    fn entered(&self, draft: &Draft) -> Vec<Entered> {
        let jobs = draft.entered.jobs.iter().filter_map(|id| {
            let job = &self.jobs.get(id)?.job;
            Some(Entered::Job { job: *id, state: job.state.name().into(), generation: job.generation })
        });
        let nodes = draft.entered.nodes.iter().filter_map(|id| {
            let node = &self.nodes.get(id)?.node;
            Some(Entered::Node {
                node: *id,
                availability: node.availability.name().into(),
                policy: node.policy.name().into(),
                standing: node.health.standing.name().into(),
                gpus: node.inventory.gpus.len() as u32,
                healthy: node.inventory.healthy().0,
            })
        });
        let allocations = draft.entered.allocations.iter().filter_map(|key| {
            let allocation = self.allocations.get(key)?;
            let phase = allocation.phase().name().into();
            Some(Entered::Allocation { job: key.0, generation: key.1, phase, gpus: allocation.held_gpus().0 })
        });
        let plans = draft
            .plans
            .values()
            .map(|record| Entered::Plan { plan: record.plan.id, state: record.state.name().into() });
        jobs.chain(nodes).chain(allocations).chain(plans).collect()
    }

    /// A reply made early in a batch shows its subject as the whole batch left it.
    fn refreshed(&self, reply: Reply) -> Reply {
        let newest = |job: Arc<Job>| self.jobs.get(&job.id).map_or(job, |entry| entry.job.clone());
        match reply {
            Reply::Submitted { jobs } => Reply::Submitted { jobs: jobs.into_iter().map(newest).collect() },
            Reply::Job(job) => Reply::Job(newest(job)),
            Reply::Node(node) => {
                let id = node.inventory.node;
                Reply::Node(self.nodes.get(&id).map_or(node, |entry| entry.node.clone()))
            }
            Reply::Reservation(one) => Reply::Reservation(self.reservations.get(&one.id).cloned().unwrap_or(one)),
            other => other,
        }
    }

    /// Lets go of jobs and allocations that are over. Only what this batch touched can be.
    fn drop_ended(&mut self, draft: &Draft) {
        let touched = draft.jobs.iter().copied().chain(draft.allocations.iter().map(|(job, _)| *job));
        for id in touched.collect::<BTreeSet<JobId>>() {
            let live = self.jobs.get(&id).filter(|entry| !entry.job.state.is_final()).map(|entry| entry.job.generation);
            let over: Vec<(JobId, Generation)> = self
                .allocations
                .range((id, Generation(0))..=(id, Generation(u64::MAX)))
                .filter(|((_, generation), one)| !one.holds() && live != Some(*generation))
                .map(|(key, _)| *key)
                .collect();
            for key in over {
                self.allocations.remove(&key);
                self.forget_sent(key);
            }
            if live.is_none() && !self.still_holds(id) {
                self.jobs.remove(&id);
                self.verdicts.remove(&id);
            }
        }
    }

    /// Nothing will be repeated to a group that is over.
    pub(crate) fn forget_sent(&mut self, (job, generation): (JobId, Generation)) {
        let of_group = self.sent.range((job, generation, NodeId(Uuid::nil()), "", 0)..);
        let keys: Vec<_> =
            of_group.map(|(key, _)| *key).take_while(|key| (key.0, key.1) == (job, generation)).collect();
        for key in keys {
            self.sent.remove(&key);
        }
    }
}
