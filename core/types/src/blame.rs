//! Whose fault a failure is: it decides what is counted, who waits and which node is avoided.

use serde::{Deserialize, Serialize};

use crate::checkpoint::{CheckpointRef, MissingCheckpoint};
use crate::word::words;

words! {
    /// Who answers for a failure.
    pub enum Blame {
        /// The job's own: its command, its script, its data. Counts against its restart budget.
        Job,
        /// The node's: hardware, disk, driver, missing user. Counts against the node's health, never against the job.
        Node,
        /// Headway's or the network's: an agent that restarted, a message that was late. Counts against nobody.
        Infrastructure,
    }
}

/// A failure in words, with who answers for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    pub blame: Blame,
    pub message: String,
    /// The job ran out of device memory: its goodput model learns from it.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub out_of_memory: bool,
    /// What the specification names is not there or cannot be run: whoever tries again fails again.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub mistake: bool,
    /// The node's disk is full: whatever else fails there, or on another node with a full disk, proves nothing about the job.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub full_disk: bool,
    /// The checkpoint to resume from is not on disk, though the node could look for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_checkpoint: Option<MissingCheckpoint>,
}

impl Fault {
    /// Of a failure that was written down before faults were.
    #[must_use]
    pub fn unstated() -> Self {
        Self::of_infrastructure("not recorded")
    }

    #[must_use]
    pub fn of_job(message: impl Into<String>) -> Self {
        Self {
            blame: Blame::Job,
            message: message.into(),
            out_of_memory: false,
            mistake: false,
            full_disk: false,
            missing_checkpoint: None,
        }
    }

    /// The specification names what is not there, or cannot be run.
    #[must_use]
    pub fn of_mistake(message: impl Into<String>) -> Self {
        Self { mistake: true, ..Self::of_job(message) }
    }

    /// The job needed more device memory than there is.
    #[must_use]
    pub fn out_of_memory() -> Self {
        Self { out_of_memory: true, ..Self::of_job("it ran out of device memory") }
    }

    #[must_use]
    pub fn of_node(message: impl Into<String>) -> Self {
        Self { blame: Blame::Node, ..Self::of_job(message) }
    }

    /// The checkpoint to resume from is not on disk. A scheduler of a former release blames the node.
    #[must_use]
    pub fn of_missing_checkpoint(message: impl Into<String>, newest: Option<CheckpointRef>) -> Self {
        Self { missing_checkpoint: Some(MissingCheckpoint { newest }), ..Self::of_node(message) }
    }

    /// The node has no room on its disk.
    #[must_use]
    pub fn of_full_disk(message: impl Into<String>) -> Self {
        Self { full_disk: true, ..Self::of_node(message) }
    }

    #[must_use]
    pub fn of_infrastructure(message: impl Into<String>) -> Self {
        Self { blame: Blame::Infrastructure, ..Self::of_job(message) }
    }
}
