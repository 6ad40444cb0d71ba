//! Messages of `GET /stream`, server-sent events.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{EventRecord, Job, Node, NodeGone, PlanSummary};

/// One message: the event name says which, the data is the content alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "event", content = "data")]
pub enum StreamMessage {
    /// The newest state of a job that changed.
    Job(Box<Job>),
    /// What has changed of a job that was told before: a JSON merge patch with its `id`. Only with `patch=true`.
    JobPatch(serde_json::Map<String, serde_json::Value>),
    /// The newest state of a node that changed.
    Node(Box<Node>),
    /// What has changed of a node that was told before: a JSON merge patch with its `id`. Only with `patch=true`.
    NodePatch(serde_json::Map<String, serde_json::Value>),
    /// A node was deleted.
    NodeGone(NodeGone),
    /// The newest state of a plan that changed.
    Plan(Box<PlanSummary>),
    /// One line of the event log; its `seq` is the id to resume from.
    Event(Box<EventRecord>),
    /// The reader is too far behind: fetch everything again.
    Reset,
    /// Another server leads now: the stream ends, and goes on there.
    NotLeading(NotLeading),
}

/// The last message of a stream whose server leads no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NotLeading {
    /// Where the server that leads is reached; absent where nobody names it.
    pub leader: Option<String>,
}
