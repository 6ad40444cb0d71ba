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
    /// Whether the job may be started again once a process of it may have run. `Some(false)`: never. `Some(true)`: also
    /// to give its GPUs to other jobs, whether or not it can resume. `None`: after a failure, and for other jobs only if
    /// it can resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restartable: Option<bool>,
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
    /// Returns whether the job must never be started a second time.
    #[must_use]
    pub fn forbid_restart(&self) -> bool {
        self.restartable == Some(false)
    }

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
            restartable: None,
            deadline: None,
            budget: None,
            signal: None,
            stall_after: None,
            min_gpu_util: None,
        }
    }
}
