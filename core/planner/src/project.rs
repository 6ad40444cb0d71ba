//! Projects of a round: a tree with quotas, floors and weights. Values only; their rows are in `rows`, their rights in
//! `guarantee`.

use headway_types::GpuCount;
use serde::{Deserialize, Serialize};

/// One project. What its jobs and its sub-projects hold counts together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanProject {
    pub name: String,
    /// The project it is part of.
    pub parent: Option<String>,
    /// GPUs it may use of right; `None`: no limit.
    pub quota: Option<GpuCount>,
    /// GPUs beyond the quota it may use while nobody with a right to them waits.
    pub borrow: GpuCount,
    /// GPUs its jobs are sure of while they ask for them.
    pub floor: GpuCount,
    /// Share of the cluster it should have relative to its siblings.
    pub weight: f64,
    /// GPU-time it has used, decayed, in any unit that is the same for all projects.
    pub usage: f64,
    /// Most GPUs one of its users may hold.
    pub max_per_user: Option<GpuCount>,
}

impl Default for PlanProject {
    fn default() -> Self {
        Self {
            name: String::new(),
            parent: None,
            quota: None,
            borrow: GpuCount(0),
            floor: GpuCount(0),
            weight: 1.0,
            usage: 0.0,
            max_per_user: None,
        }
    }
}
