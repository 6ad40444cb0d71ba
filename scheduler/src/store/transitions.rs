//! Which subject was in which state when: the four transition tables together.
//!
//! Each new row ends the row before it in the same transaction. Repeating a commit changes nothing.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use headway_engine::record::{Entered, Transition};
use headway_types::{Generation, JobId, NodeId, PlanId, Timestamp};
use sqlx::{Connection, PgConnection};

use super::column::time;
use super::{Store, StoreError, allocation_transitions, job_transitions, node_transitions, plan_transitions};

/// The shape of the cluster at one moment: what had begun and was not over for good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatesAt {
    pub jobs: BTreeMap<JobId, JobStateAt>,
    pub nodes: BTreeMap<NodeId, NodeStateAt>,
    pub allocations: BTreeMap<(JobId, Generation), AllocationStateAt>,
    pub plans: BTreeMap<PlanId, PlanStateAt>,
}

/// A job that had not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStateAt {
    pub since: Timestamp,
    pub state: String,
    pub generation: Generation,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStateAt {
    pub since: Timestamp,
    pub availability: String,
    pub policy: String,
    pub standing: String,
    pub gpus: u32,
    pub healthy_gpus: u32,
}

/// An allocation that had not ended, or whose GPUs were not all proven free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationStateAt {
    pub since: Timestamp,
    pub phase: String,
    pub gpus: u32,
}

/// A plan that was proposed or adopted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStateAt {
    pub since: Timestamp,
    pub state: String,
}

impl Store {
    /// What was in which state at this moment; at the very moment of a change, the state entered.
    pub async fn states_at(&self, moment: Timestamp) -> Result<StatesAt, StoreError> {
        let failed = StoreError::during;
        let at = time(moment);
        let mut connection = self.pool.acquire().await.map_err(failed("opening a connection"))?;
        let mut tx = connection.begin().await.map_err(failed("opening a transaction"))?;
        // One snapshot: a change between two of the queries must not show in half of them.
        sqlx::query!("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            .execute(&mut *tx)
            .await
            .map_err(failed("opening a snapshot"))?;
        Ok(StatesAt {
            jobs: job_transitions::at(&mut tx, at).await.map_err(failed("reading states of jobs"))?,
            nodes: node_transitions::at(&mut tx, at).await.map_err(failed("reading states of nodes"))?,
            allocations: allocation_transitions::at(&mut tx, at).await.map_err(failed("reading allocations"))?,
            plans: plan_transitions::at(&mut tx, at).await.map_err(failed("reading states of plans"))?,
        })
    }
}

/// New rows of one table, by subject and moment: of two at one moment the later stays.
type Spans<K, V> = BTreeMap<K, BTreeMap<Timestamp, V>>;

/// The rows of a table in the order of their subjects, each with the end that its successor gives it.
fn rows<K: Copy, V>(spans: &Spans<K, V>) -> Vec<Row<'_, K, V>> {
    let mut rows = Vec::new();
    for (key, moments) in spans {
        let ends = moments.keys().skip(1).map(|at| Some(time(*at))).chain([None]);
        let starts = moments.iter().map(|(at, state)| (time(*at), state));
        rows.extend(starts.zip(ends).map(|((from, state), to)| Row { key: *key, from, to, state }));
    }
    rows
}

/// One row to write.
pub(super) struct Row<'a, K, V> {
    pub key: K,
    pub from: DateTime<Utc>,
    pub to: Option<DateTime<Utc>>,
    pub state: &'a V,
}

/// Transitions of one batch by table.
#[derive(Default)]
pub(super) struct Transitions {
    jobs: Spans<JobId, job_transitions::Entry>,
    nodes: Spans<NodeId, node_transitions::Entry>,
    allocations: Spans<(JobId, Generation), allocation_transitions::Entry>,
    plans: Spans<PlanId, plan_transitions::Entry>,
}

impl Transitions {
    pub fn add(&mut self, transition: &Transition) {
        let at = transition.at;
        match transition.entered.clone() {
            Entered::Job { job, state, generation } => {
                self.jobs.entry(job).or_default().insert(at, job_transitions::Entry { state, generation });
            }
            Entered::Node { node, availability, policy, standing, gpus, healthy } => {
                let entry = node_transitions::Entry { availability, policy, standing, gpus, healthy };
                self.nodes.entry(node).or_default().insert(at, entry);
            }
            Entered::Allocation { job, generation, phase, gpus } => {
                let entry = allocation_transitions::Entry { phase, gpus };
                self.allocations.entry((job, generation)).or_default().insert(at, entry);
            }
            Entered::Plan { plan, state } => {
                self.plans.entry(plan).or_default().insert(at, plan_transitions::Entry { state });
            }
        }
    }

    pub async fn write(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        job_transitions::write(connection, &rows(&self.jobs)).await?;
        node_transitions::write(connection, &rows(&self.nodes)).await?;
        allocation_transitions::write(connection, &rows(&self.allocations)).await?;
        plan_transitions::write(connection, &rows(&self.plans)).await
    }
}
