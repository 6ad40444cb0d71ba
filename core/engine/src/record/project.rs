//! A project's row: its rules, its members, and what it has used.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_types::{GpuCount, GpuSeconds, ProjectRole, Timestamp};
use serde::{Deserialize, Serialize};

/// Who jobs count for. What its jobs and its sub-projects hold and use counts together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Project {
    pub name: String,
    pub rules: ProjectRules,
    #[serde(default)]
    pub access: ProjectAccess,
    /// GPU-time used until `used_at`, decayed to that moment. What allocations have used since then comes on top.
    pub used: GpuSeconds,
    pub used_at: Timestamp,
    /// Rises with every change of the rules and of who has access; the ETag.
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

/// To whom a project's jobs are open. What it says holds for all that is part of the project too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProjectAccess {
    /// Whether others are not even to see that its jobs exist.
    pub private: bool,
    /// By name of the user.
    pub members: BTreeMap<String, ProjectRole>,
}

/// How far a project is closed to those who are nothing in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Openness {
    /// It names no members: it is everybody's.
    Open,
    /// It is its members'; others see that its jobs exist.
    Closed,
    /// Others do not see that either.
    Private,
}

impl Openness {
    /// How far a project is closed, given it and all it is part of.
    pub fn of<'a>(line: impl IntoIterator<Item = &'a Project>) -> Self {
        let of = |project: &Project| match (project.access.private, project.access.members.is_empty()) {
            (true, _) => Self::Private,
            (false, false) => Self::Closed,
            (false, true) => Self::Open,
        };
        line.into_iter().map(of).max().unwrap_or(Self::Open)
    }
}

/// A project's name and those of all it is part of, itself first; nothing for one that is not known.
pub fn lineage<'a>(projects: &'a BTreeMap<String, Arc<Project>>, name: &str) -> Vec<&'a str> {
    let line = line(|name| projects.get(name).map(AsRef::as_ref), name);
    line.into_iter().map(|project| project.name.as_str()).collect()
}

/// A project and all it is part of, itself first; nothing for one that is not known.
pub fn line<'a>(find: impl Fn(&str) -> Option<&'a Project>, name: &str) -> Vec<&'a Project> {
    let mut line: Vec<&Project> = Vec::new();
    let mut next = find(name);
    while let Some(project) = next.filter(|project| !line.iter().any(|known| known.name == project.name)) {
        line.push(project);
        next = project.rules.parent.as_deref().and_then(&find);
    }
    line
}
