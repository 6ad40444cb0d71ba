//! The states of a job, what carries a job from one to the next against its will, and what a user wants meanwhile. The transition
//! table is in `job.rs` of the crate.

use headway_types::{Generation, NodeId, Seconds, Timestamp};
use serde::{Deserialize, Serialize};

/// What a user wants of a job that cannot have it at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    Held {
        reason: Option<String>,
    },
    Cancelled {
        by: String,
        reason: Option<String>,
        /// Instead of the job's own grace time.
        #[serde(default)]
        grace: Option<Seconds>,
    },
}

/// A state carries exactly the data valid in it. The transition table is in `job.rs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum JobState {
    Queued { since: Timestamp },
    Held { since: Timestamp, reason: Option<String> },
    Starting { generation: Generation, since: Timestamp },
    Running { generation: Generation, since: Timestamp },
    Stopping { generation: Generation, since: Timestamp, cause: StopCause },
    Succeeded { at: Timestamp },
    Failed { at: Timestamp, message: String },
    Cancelled { at: Timestamp, by: String, reason: Option<String> },
}

/// Why a generation ends before its job does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "cause")]
pub enum StopCause {
    /// Other GPUs or another layout.
    Rescale,
    Preempt,
    Drain,
    /// Its owner puts it back into the queue.
    Requeue,
    Cancel,
    Hold,
    /// A rank died or a node did not start: the rest of the gang goes down too.
    GangBroken {
        message: String,
    },
    /// Its specification names what is not there, or cannot be run: it ends.
    Mistaken {
        message: String,
    },
    /// The processes live, but no step has come for far too long.
    Hung {
        message: String,
    },
    /// A node's lease ran out.
    NodeLost {
        node: NodeId,
    },
    /// Has done what its target counts.
    TargetReached,
    TimeLimit,
    /// Its GPU-time is used up.
    BudgetSpent,
    /// It uses its GPUs less than it says it must: it ends.
    IdleGpus {
        message: String,
    },
}
