//! Table `transitions`: which subject was in which state when.
//!
//! Each new row ends the row before it in the same transaction. A subject that is over for good ends as it enters that
//! state. Repeating a commit changes nothing.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use headway_engine::record::{AllocationPhase, Entered, Transition};
use headway_types::{
    AvailabilityKind, Generation, JobId, JobStateKind, NodeId, NodePolicyKind, PlanId, PlanStateKind, StandingKind,
    Timestamp,
};
use sqlx::types::Json;
use uuid::Uuid;

use super::column::{document, integer, moment, time};
use super::{Store, StoreError};

/// The shape of the cluster at one moment: what had begun and was not over for good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatesAt {
    pub jobs: BTreeMap<JobId, JobStateAt>,
    pub nodes: BTreeMap<NodeId, NodeStateAt>,
    pub allocations: BTreeMap<(JobId, Generation), AllocationStateAt>,
    pub plans: BTreeMap<PlanId, PlanStateAt>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStateAt {
    pub since: Timestamp,
    pub state: JobStateKind,
    pub generation: Generation,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStateAt {
    pub since: Timestamp,
    pub availability: AvailabilityKind,
    pub policy: NodePolicyKind,
    pub standing: StandingKind,
    pub gpus: u32,
    pub healthy_gpus: u32,
}

/// An allocation that had not ended, or whose GPUs were not all proven free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationStateAt {
    pub since: Timestamp,
    pub phase: AllocationPhase,
    pub gpus: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStateAt {
    pub since: Timestamp,
    pub state: PlanStateKind,
}

impl StatesAt {
    fn of(rows: impl Iterator<Item = (DateTime<Utc>, Entered)>) -> Self {
        let mut states = Self::default();
        for (since, entered) in rows {
            states.add(moment(since), entered);
        }
        states
    }

    fn add(&mut self, since: Timestamp, entered: Entered) {
        match entered {
            Entered::Job { job, state, generation } => {
                self.jobs.insert(job, JobStateAt { since, state, generation });
            }
            Entered::Node { node, availability, policy, standing, gpus, healthy } => {
                let state = NodeStateAt { since, availability, policy, standing, gpus, healthy_gpus: healthy };
                self.nodes.insert(node, state);
            }
            // Over as it began: no moment shows it.
            Entered::NodeGone { .. } => {}
            Entered::Allocation { job, generation, phase, gpus } => {
                self.allocations.insert((job, generation), AllocationStateAt { since, phase, gpus });
            }
            Entered::Plan { plan, state } => {
                self.plans.insert(plan, PlanStateAt { since, state });
            }
        }
    }
}

impl Store {
    /// What was in which state at this moment; at the very moment of a change, the state entered.
    pub async fn states_at(&self, at: Timestamp) -> Result<StatesAt, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT valid_from, entered AS "entered: Json<Entered>" FROM transitions
            WHERE tstzrange(valid_from, valid_to, '[]') @> $1::timestamptz AND (valid_to IS NULL OR $1 < valid_to)"#,
            time(at),
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("reading a past moment"))?;
        Ok(StatesAt::of(rows.into_iter().map(|row| (row.valid_from, row.entered.0))))
    }

    /// The same of one job and what it held, also where it had ended.
    pub async fn job_at(&self, job: JobId, at: Timestamp) -> Result<StatesAt, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT DISTINCT ON (subject, generation) valid_from, entered AS "entered: Json<Entered>" FROM transitions
            WHERE subject IN ('job', 'allocation') AND subject_id = $1 AND valid_from <= $2
                AND (subject = 'job' OR valid_to IS NULL OR valid_to > $2)
            ORDER BY subject, generation, valid_from DESC"#,
            job.0,
            time(at),
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("reading the past of a job"))?;
        Ok(StatesAt::of(rows.into_iter().map(|row| (row.valid_from, row.entered.0))))
    }

    /// When the history of this cluster begins, as far as it is not pruned; `None` before its first event.
    pub async fn first_moment(&self) -> Result<Option<Timestamp>, StoreError> {
        let first = sqlx::query_scalar!("SELECT happened_at FROM events ORDER BY seq LIMIT 1")
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::during("reading the first event"))?;
        Ok(first.map(moment))
    }

    /// Forgets what had ended before this moment; returns how many rows.
    pub async fn prune_transitions(&self, before: Timestamp) -> Result<u64, StoreError> {
        let done = sqlx::query!(
            "DELETE FROM transitions WHERE tstzrange(valid_from, valid_to, '[]') << tstzrange($1, NULL)",
            time(before)
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::during("pruning the past"))?;
        Ok(done.rows_affected())
    }
}

/// Transitions of one batch, by subject and moment: of two at one moment the later stays.
#[derive(Default)]
pub(super) struct Transitions(BTreeMap<Key, BTreeMap<Timestamp, Entered>>);

/// Kind and id of a subject; the generation of an allocation, 0 of others.
type Key = (&'static str, Uuid, u64);

impl Transitions {
    pub fn add(&mut self, transition: &Transition) {
        self.0.entry(key(&transition.entered)).or_default().insert(transition.at, transition.entered.clone());
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn to_columns(&self) -> TransitionColumns {
        let mut columns = TransitionColumns::default();
        for ((subject, id, generation), moments) in &self.0 {
            let next = moments.keys().skip(1).map(|at| Some(*at)).chain([None]);
            for ((from, entered), next) in moments.iter().zip(next) {
                columns.subjects.push((*subject).to_owned());
                columns.ids.push(*id);
                columns.generations.push(integer(*generation));
                columns.starts.push(time(*from));
                columns.ends.push(next.or_else(|| is_over(entered).then_some(*from)).map(time));
                columns.states.push(document(entered));
            }
        }
        columns
    }
}

/// The columns of transitions. Each ends its subject's former row; a row that is there already keeps its end.
#[derive(Default)]
pub(super) struct TransitionColumns {
    pub subjects: Vec<String>,
    pub ids: Vec<Uuid>,
    pub generations: Vec<i64>,
    pub starts: Vec<DateTime<Utc>>,
    pub ends: Vec<Option<DateTime<Utc>>>,
    pub states: Vec<String>,
}

fn key(entered: &Entered) -> Key {
    match entered {
        Entered::Job { job, .. } => ("job", job.0, 0),
        Entered::Node { node, .. } | Entered::NodeGone { node } => ("node", node.0, 0),
        Entered::Allocation { job, generation, .. } => ("allocation", job.0, generation.0),
        Entered::Plan { plan, .. } => ("plan", plan.0, 0),
    }
}

/// Whether nothing can follow.
fn is_over(entered: &Entered) -> bool {
    match entered {
        Entered::Job { state, .. } => state.is_final(),
        Entered::Node { .. } => false,
        // Should it come back, that is another beginning.
        Entered::NodeGone { .. } => true,
        Entered::Allocation { phase, gpus, .. } => *phase == AllocationPhase::Ended && *gpus == 0,
        Entered::Plan { state, .. } => !matches!(state, PlanStateKind::Proposed | PlanStateKind::Adopted),
    }
}
