//! A project's row: its rules, and what it has used.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_types::{GpuCount, GpuSeconds, Timestamp};
use serde::{Deserialize, Serialize};

/// Who jobs count for. What its jobs and its sub-projects hold and use counts together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Project {
    pub name: String,
    pub rules: ProjectRules,
    /// GPU-time used until `used_at`, decayed to that moment. What allocations have used since then comes on top.
    pub used: GpuSeconds,
    pub used_at: Timestamp,
    /// Rises with every change of the rules; the ETag.
    pub version: u64,
}

/// What an operator sets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProjectRules {
    /// The project it is part of.
    pub parent: Option<String>,
    /// GPUs it may use of right; `None`: no limit.
    pub quota: Option<GpuCount>,
    /// GPUs beyond the quota, while nobody with a right to them waits.
    pub borrow: GpuCount,
    /// GPUs its jobs are sure of while they ask for them.
    pub floor: GpuCount,
    /// Share of the cluster relative to its siblings.
    pub weight: f64,
    /// Most GPUs one of its users may hold.
    pub max_per_user: Option<GpuCount>,
}

impl Default for ProjectRules {
    fn default() -> Self {
        Self { parent: None, quota: None, borrow: GpuCount(0), floor: GpuCount(0), weight: 1.0, max_per_user: None }
    }
}

/// A project's name and those of all it is part of, itself first; nothing for one that is not known.
pub fn lineage<'a>(projects: &'a BTreeMap<String, Arc<Project>>, name: &str) -> Vec<&'a str> {
    let mut lineage: Vec<&str> = Vec::new();
    let mut next = projects.get(name);
    while let Some(project) = next.filter(|project| !lineage.contains(&project.name.as_str())) {
        lineage.push(&project.name);
        next = project.rules.parent.as_ref().and_then(|parent| projects.get(parent));
    }
    lineage
}
