//! When a job is stopped, and how it hears of that before.

use serde::{Deserialize, Serialize};

use super::{LeastUse, Notice};
use crate::time::Timestamp;
use crate::unit::{GpuSeconds, Seconds};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Running time after which the job is stopped.
    pub time: Option<Seconds>,
    /// Failures of its own after which the job has failed.
    pub max_restarts: u32,
    /// By when the target should be reached; it raises the job's worth, and stops nothing.
    #[serde(default)]
    pub deadline: Option<Timestamp>,
    /// GPU-time after which the job is stopped.
    #[serde(default)]
    pub budget: Option<GpuSeconds>,
    /// How it hears that its time limit is near.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<Notice>,
    /// Without a step, or without output of a job that tells of none, it counts as hanging.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_after: Option<Seconds>,
    /// Below it the job is warned, and then stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_gpu_util: Option<LeastUse>,
}

impl Limits {
    /// Whether nodes have to watch what the job does.
    #[must_use]
    pub fn watch(&self) -> bool {
        self.stall_after.is_some() || self.min_gpu_util.is_some()
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            time: None,
            max_restarts: 20,
            deadline: None,
            budget: None,
            signal: None,
            stall_after: None,
            min_gpu_util: None,
        }
    }
}
