//! One batch of changes, committed together or not at all, under the newest term only.

use headway_engine::Change;
use headway_engine::record::{
    Allocation, Array, Checkpoint, Deed, EventRecord, IdempotencyRecord, Job, Node, Notice, NoticeId, PlanRecord,
    Project, Realised, Reservation,
};
use headway_types::{NodeId, ReservationId, Term, Timestamp};

use super::cluster::{self, ClusterChange};
use super::transitions::Transitions;
use super::{
    Store, StoreError, allocations, arrays, audit, checkpoints, deliveries, events, idempotency, jobs, nodes, plans,
    projects, realised_goodput, reservations, secrets,
};

impl Store {
    /// Commits the changes in one transaction. On `Fenced` and `Conflict` nothing was written; on `Database` that is
    /// unknown, and the caller must reload before it acts again.
    pub async fn commit(&self, term: Term, changes: &[Change]) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        changes.iter().for_each(|change| batch.add(change));
        let failed = StoreError::during;

        let mut tx = self.writer.begin().await.map_err(failed("opening a transaction"))?;
        // First of all, so that whoever holds an older term writes nothing and waits for nobody.
        if !cluster::update(&mut tx, term, &batch.cluster).await.map_err(failed("checking the term"))? {
            return Err(StoreError::Fenced { term });
        }
        if !jobs::upsert(&mut tx, &batch.jobs).await.map_err(failed("saving jobs"))? {
            return Err(StoreError::Conflict { row: "job" });
        }
        arrays::upsert(&mut tx, &batch.arrays).await.map_err(failed("saving arrays"))?;
        nodes::upsert(&mut tx, &batch.nodes).await.map_err(failed("saving nodes"))?;
        nodes::delete(&mut tx, &batch.nodes_gone).await.map_err(failed("deleting nodes"))?;
        plans::upsert(&mut tx, &batch.plans).await.map_err(failed("saving plans"))?;
        projects::upsert(&mut tx, &batch.projects).await.map_err(failed("saving projects"))?;
        projects::delete(&mut tx, &batch.projects_gone).await.map_err(failed("deleting projects"))?;
        secrets::delete_of_projects(&mut tx, &batch.projects_gone)
            .await
            .map_err(failed("deleting projects' secrets"))?;
        // A name that is free again may be taken in the same batch.
        reservations::delete(&mut tx, &batch.reservations_gone).await.map_err(failed("deleting reservations"))?;
        reservations::upsert(&mut tx, &batch.reservations).await.map_err(failed("saving reservations"))?;
        allocations::upsert(&mut tx, &batch.allocations).await.map_err(failed("saving allocations"))?;
        checkpoints::insert(&mut tx, &batch.checkpoints).await.map_err(failed("saving checkpoints"))?;
        idempotency::insert(&mut tx, &batch.idempotency).await.map_err(failed("saving idempotency keys"))?;
        events::insert(&mut tx, &batch.events).await.map_err(failed("saving events"))?;
        deliveries::insert(&mut tx, &batch.notices).await.map_err(failed("saving notices"))?;
        deliveries::give_up(&mut tx, &batch.notices_given_up).await.map_err(failed("giving notices up"))?;
        audit::insert_deeds(&mut tx, &batch.deeds).await.map_err(failed("saving the audit"))?;
        realised_goodput::insert(&mut tx, &batch.realised).await.map_err(failed("saving what came of predictions"))?;
        batch.transitions.write(&mut tx).await.map_err(failed("saving transitions"))?;
        tx.commit().await.map_err(failed("committing changes"))
    }
}

/// Changes by table; empty tables cost no round trip.
#[derive(Default)]
struct Batch<'a> {
    arrays: Vec<&'a Array>,
    jobs: Vec<&'a Job>,
    nodes: Vec<&'a Node>,
    nodes_gone: Vec<NodeId>,
    allocations: Vec<&'a Allocation>,
    checkpoints: Vec<&'a Checkpoint>,
    plans: Vec<&'a PlanRecord>,
    projects: Vec<&'a Project>,
    projects_gone: Vec<&'a str>,
    reservations: Vec<&'a Reservation>,
    reservations_gone: Vec<ReservationId>,
    events: Vec<&'a EventRecord>,
    idempotency: Vec<&'a IdempotencyRecord>,
    deeds: Vec<&'a Deed>,
    notices: Vec<&'a Notice>,
    notices_given_up: Vec<(NoticeId, Timestamp)>,
    cluster: ClusterChange<'a>,
    transitions: Transitions,
    realised: Vec<&'a Realised>,
}

impl<'a> Batch<'a> {
    fn add(&mut self, change: &'a Change) {
        match change {
            Change::Array(array) => self.arrays.push(array),
            Change::Job(job) => self.jobs.push(job),
            Change::Node(node) => self.nodes.push(node),
            Change::NodeGone(node) => self.nodes_gone.push(*node),
            Change::Allocation(allocation) => self.allocations.push(allocation),
            Change::Checkpoint(checkpoint) => self.checkpoints.push(checkpoint),
            Change::Plan(plan) => self.plans.push(plan),
            Change::Target(plan) => self.cluster.target = Some(*plan),
            Change::Term(term) => self.cluster.term = self.cluster.term.max(Some(*term)),
            Change::Returned => self.cluster.returned = true,
            Change::Policy(policy) => self.cluster.policy = Some(policy),
            Change::Project(project) => self.projects.push(project),
            Change::ProjectGone(name) => self.projects_gone.push(name),
            Change::Reservation(one) => self.reservations.push(one),
            Change::ReservationGone(id) => self.reservations_gone.push(*id),
            Change::Idempotency(record) => self.idempotency.push(record),
            Change::Deed(deed) => self.deeds.push(deed),
            Change::Event(event) => {
                self.cluster.last_event_seq = self.cluster.last_event_seq.max(Some(event.seq));
                self.cluster.last_at = self.cluster.last_at.max(Some(event.at));
                self.events.push(event);
            }
            Change::Notice(notice) => self.notices.push(notice),
            Change::NoticeGivenUp { notice, at } => self.notices_given_up.push((*notice, *at)),
            Change::Transition(transition) => {
                self.cluster.last_at = self.cluster.last_at.max(Some(transition.at));
                self.transitions.add(transition);
            }
            Change::Realised(one) => self.realised.push(one),
        }
    }
}
