//! What the log and the tables of the past keep.

use std::collections::BTreeMap;

use headway_types::{
    AvailabilityKind, Generation, JobId, JobStateKind, NodeId, NodePolicyKind, PlanId, PlanStateKind, StandingKind,
    Timestamp,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::allocation::AllocationPhase;
use crate::event::{Actor, IdempotencyKey};

/// One line of the event log: who did what to what, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Rises by one per event, over all terms.
    pub seq: u64,
    pub at: Timestamp,
    pub actor: Actor,
    /// "job.submitted", "job.batch_changed", "plan.adopted", …
    pub verb: String,
    pub job: Option<JobId>,
    pub node: Option<NodeId>,
    pub plan: Option<PlanId>,
    /// One sentence for people, with the reason.
    pub message: String,
    /// Numbers behind the sentence.
    pub detail: BTreeMap<String, String>,
}

/// A subject entered a state: it ends the subject's state before it. The whole history of the cluster's shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    pub at: Timestamp,
    pub entered: Entered,
}

/// Which subject entered which state; the words are those of the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "subject")]
pub enum Entered {
    Job {
        job: JobId,
        state: JobStateKind,
        generation: Generation,
    },
    Node {
        node: NodeId,
        availability: AvailabilityKind,
        policy: NodePolicyKind,
        standing: StandingKind,
        gpus: u32,
        healthy: u32,
    },
    /// It was deleted.
    NodeGone {
        node: NodeId,
    },
    Allocation {
        job: JobId,
        generation: Generation,
        phase: AllocationPhase,
        gpus: u32,
    },
    Plan {
        plan: PlanId,
        state: PlanStateKind,
    },
}

/// What a request with an idempotency key made or acted on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdempotencyRecord {
    pub key: IdempotencyKey,
    /// Jobs of a submission; else the one id of the subject that the route is about.
    pub subjects: Vec<Uuid>,
    pub at: Timestamp,
    /// The first reply, as the shell that sends it writes it before the commit. The engine neither reads nor keeps it.
    #[serde(default)]
    pub reply: Option<String>,
}
