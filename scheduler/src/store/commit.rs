//! One batch of changes, committed together or not at all, under the newest term only.

mod guard;
mod history;

use std::time::Duration;

use headway_engine::Change;
use headway_engine::record::{
    Allocation, Array, Checkpoint, Deed, EventRecord, IdempotencyRecord, Job, Node, Notice, NoticeId, PlanRecord,
    Project, Realised, Reservation,
};
use headway_types::{NodeId, ReservationId, Term, Timestamp};
use sqlx::{Connection as _, Postgres, Transaction};

use self::guard::Guarded;
use self::history::History;
use super::cluster::ClusterChange;
use super::transitions::Transitions;
use super::{
    Store, StoreError, allocations, arrays, checkpoints, deliveries, nodes, plans, projects, realised_goodput,
    reservations, secrets,
};

/// How long the beginning of a transaction is waited for on one connection, which may be dead.
const BEGIN_TIME: Duration = Duration::from_secs(2);
/// Connections that one commit tries.
const CONNECTIONS: u32 = 3;

impl Store {
    /// Commits the changes in one transaction. On `Fenced` and `Conflict` nothing was written; on `Database` that is
    /// unknown, and the caller must reload before it acts again.
    pub async fn commit(&self, term: Term, changes: &[Change]) -> Result<(), StoreError> {
        let committed = self.commit_changes(term, changes).await;
        match &committed {
            Ok(()) => self.disk.note_room(),
            Err(StoreError::DiskFull { .. }) => self.disk.note_full(),
            Err(_) => {}
        }
        committed
    }

    async fn commit_changes(&self, term: Term, changes: &[Change]) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        for change in changes {
            batch.add(change);
        }
        let opening = || StoreError::during("opening a transaction");
        // The beginning of the transaction shows whether the connection lives, so no round trip is spent on that.
        let mut error = StoreError::Unanswered;
        for _ in 0..CONNECTIONS {
            let mut connection = self.commits.acquire().await.map_err(opening())?;
            match tokio::time::timeout(BEGIN_TIME, connection.begin()).await {
                Ok(Ok(tx)) => return batch.write(tx, term).await,
                Ok(Err(failed)) => error = opening()(failed),
                Err(_) => error = StoreError::Unanswered,
            }
            connection.close_on_drop();
        }
        Err(error)
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
    /// Tables that a submit does not touch come between the two statements for those that it does.
    async fn write(&self, mut tx: Transaction<'_, Postgres>, term: Term) -> Result<(), StoreError> {
        let failed = StoreError::during;
        // First of all, so that a server with an older term writes nothing and waits for no lock.
        let guarded = guard::write(&mut tx, term, &self.cluster, &self.jobs).await;
        match guarded.map_err(failed("checking the term and saving jobs"))? {
            Guarded::Written => {}
            Guarded::Fenced => return Err(StoreError::Fenced { term }),
            Guarded::Conflict => return Err(StoreError::Conflict { row: "job" }),
        }
        arrays::upsert(&mut tx, &self.arrays).await.map_err(failed("saving arrays"))?;
        nodes::upsert(&mut tx, &self.nodes).await.map_err(failed("saving nodes"))?;
        nodes::delete(&mut tx, &self.nodes_gone).await.map_err(failed("deleting nodes"))?;
        plans::upsert(&mut tx, &self.plans).await.map_err(failed("saving plans"))?;
        projects::upsert(&mut tx, &self.projects).await.map_err(failed("saving projects"))?;
        projects::delete(&mut tx, &self.projects_gone).await.map_err(failed("deleting projects"))?;
        secrets::delete_of_projects(&mut tx, &self.projects_gone)
            .await
            .map_err(failed("deleting projects' secrets"))?;
        // A name that is free again may be taken in the same batch.
        reservations::delete(&mut tx, &self.reservations_gone).await.map_err(failed("deleting reservations"))?;
        reservations::upsert(&mut tx, &self.reservations).await.map_err(failed("saving reservations"))?;
        allocations::upsert(&mut tx, &self.allocations).await.map_err(failed("saving allocations"))?;
        checkpoints::insert(&mut tx, &self.checkpoints).await.map_err(failed("saving checkpoints"))?;
        deliveries::insert(&mut tx, &self.notices).await.map_err(failed("saving notices"))?;
        deliveries::give_up(&mut tx, &self.notices_given_up).await.map_err(failed("giving notices up"))?;
        realised_goodput::insert(&mut tx, &self.realised).await.map_err(failed("saving what came of predictions"))?;
        let history = History {
            events: &self.events,
            keys: &self.idempotency,
            deeds: &self.deeds,
            transitions: &self.transitions,
        };
        history::write(&mut tx, &history, &self.jobs).await.map_err(failed("saving events, keys and the audit"))?;
        tx.commit().await.map_err(failed("committing changes"))
    }

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
