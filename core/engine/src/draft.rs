//! The outcome in the making: which rows a batch has touched, and what is to be answered and sent.
//! Rows are gathered once, at the end, so that an outcome holds each subject once and at its newest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_types::{AgentCommand, ArrayId, Generation, JobId, NodeId, PlanId, ReservationId, Term, Timestamp};

use crate::event::{Actor, RequestId, SessionId};
use crate::outcome::{Observation, Reply};
use crate::record::{Checkpoint, Deed, EventRecord, IdempotencyRecord, Notice, NoticeId, PlanRecord, Realised};

/// Everything one batch has done so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draft {
    pub jobs: BTreeSet<JobId>,
    pub nodes: BTreeSet<NodeId>,
    pub allocations: BTreeSet<(JobId, Generation)>,
    pub checkpoints: BTreeMap<JobId, Vec<Arc<Checkpoint>>>,
    pub plans: BTreeMap<PlanId, Arc<PlanRecord>>,
    pub target: Option<PlanId>,
    pub policy: bool,
    /// What the next term is to be above.
    pub term: Option<Term>,
    /// Nobody is waited for any longer after a restore.
    pub returned: bool,
    pub projects: BTreeSet<String>,
    pub arrays: BTreeSet<ArrayId>,
    pub reservations: BTreeSet<ReservationId>,
    pub idempotency: Vec<IdempotencyRecord>,
    pub events: Vec<EventRecord>,
    pub deeds: Vec<Deed>,
    /// Why what is being done is done, while a request that says so is answered.
    pub because: Option<String>,
    /// What came of expectations that are over.
    pub realised: Vec<Realised>,
    pub notices: Vec<Notice>,
    pub notices_given_up: Vec<NoticeId>,
    /// What has entered another state.
    pub entered: EnteredSubjects,
    /// What readers see anew beyond the rows touched.
    pub shown_jobs: BTreeSet<JobId>,
    pub shown_nodes: BTreeSet<NodeId>,
    /// Of which an element does something else.
    pub shown_arrays: BTreeSet<ArrayId>,
    pub replies: Vec<(RequestId, Reply)>,
    pub refused: Vec<(NodeId, SessionId, String)>,
    pub commands: Vec<(NodeId, AgentCommand)>,
    pub observations: Vec<Observation>,
    /// When the earliest unacknowledged command is due again.
    pub repeat_at: Option<Timestamp>,
}

/// Subjects whose history goes on with this batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct EnteredSubjects {
    pub jobs: BTreeSet<JobId>,
    pub nodes: BTreeSet<NodeId>,
    pub allocations: BTreeSet<(JobId, Generation)>,
}

/// Who and what an event is about; everything but the sentence.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    pub actor: Actor,
    pub verb: &'static str,
    pub job: Option<JobId>,
    pub node: Option<NodeId>,
    pub plan: Option<PlanId>,
    pub message: String,
    pub detail: BTreeMap<String, String>,
}

impl Note {
    /// An event of the scheduler's own.
    pub fn new(verb: &'static str, message: impl Into<String>) -> Self {
        Self {
            actor: Actor::Scheduler,
            verb,
            job: None,
            node: None,
            plan: None,
            message: message.into(),
            detail: BTreeMap::new(),
        }
    }

    pub fn by(mut self, actor: Actor) -> Self {
        self.actor = actor;
        self
    }

    pub fn job(mut self, job: JobId) -> Self {
        self.job = Some(job);
        self
    }

    pub fn node(mut self, node: NodeId) -> Self {
        self.node = Some(node);
        self
    }

    pub fn plan(mut self, plan: PlanId) -> Self {
        self.plan = Some(plan);
        self
    }

    pub fn with(mut self, key: &str, value: impl ToString) -> Self {
        self.detail.insert(key.into(), value.to_string());
        self
    }
}
