//! Projects: who jobs count for, and what each may have.

use headway_types::ProjectRole;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A project, its rules, and what its jobs have. What its sub-projects hold and use counts too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Project {
    pub name: String,
    #[serde(flatten)]
    pub rules: ProjectRules,
    /// Whether only members see that its jobs exist.
    #[serde(default)]
    pub private: bool,
    /// How many members it names itself; with none, by itself or above, it is everybody's.
    #[serde(default)]
    pub members: u32,
    /// GPUs its jobs hold.
    pub gpus: u32,
    /// GPU-time used; what was used a half-life (see the policy) ago counts half.
    pub decayed_gpu_hours: f64,
    /// Rises with every change of the rules and of the members; the ETag.
    pub version: u64,
}

/// Body of `PUT /projects/{project}`: it replaces all rules; what is absent has its default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProjectRequest {
    #[serde(default)]
    pub parent: Option<String>,
    #[serde(default)]
    pub quota_gpus: Option<u32>,
    #[serde(default)]
    pub borrow_gpus: u32,
    #[serde(default)]
    pub floor_gpus: u32,
    /// 1 if absent.
    #[serde(default = "one")]
    pub weight: f64,
    #[serde(default)]
    pub max_per_user_gpus: Option<u32>,
}

/// What an operator has set for a project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProjectRules {
    /// The project it is part of.
    pub parent: Option<String>,
    /// GPUs it may use of right; `null`: no limit.
    pub quota_gpus: Option<u32>,
    /// GPUs beyond the quota it may use while nobody with a right to them waits.
    pub borrow_gpus: u32,
    /// GPUs its jobs are sure of while they ask for them.
    pub floor_gpus: u32,
    /// Share of the cluster relative to its siblings.
    pub weight: f64,
    /// Most GPUs one of its users may hold; `null`: no limit.
    pub max_per_user_gpus: Option<u32>,
}

impl Default for ProjectRequest {
    fn default() -> Self {
        Self { parent: None, quota_gpus: None, borrow_gpus: 0, floor_gpus: 0, weight: one(), max_per_user_gpus: None }
    }
}

impl From<ProjectRules> for ProjectRequest {
    fn from(rules: ProjectRules) -> Self {
        let ProjectRules { parent, quota_gpus, borrow_gpus, floor_gpus, weight, max_per_user_gpus } = rules;
        Self { parent, quota_gpus, borrow_gpus, floor_gpus, weight, max_per_user_gpus }
    }
}

pub(super) fn one() -> f64 {
    1.0
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProjectList {
    pub items: Vec<Project>,
}

/// Body of `PATCH /projects/{project}`: what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProjectPatch {
    /// Whether only members see that its jobs exist.
    #[serde(default)]
    pub private: Option<bool>,
}

/// Somebody who has a role in a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Member {
    pub user: String,
    /// `viewer` reads its jobs, `user` also submits to it, `admin` also acts on its jobs and names its members.
    pub role: ProjectRole,
    /// The project that names the member: this one, or one that it is part of.
    pub project: String,
    /// Whether groups of the identity provider gave the role, and each login sets it anew; else somebody gave it by hand.
    #[serde(default)]
    pub from_groups: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemberList {
    /// The project's own first, then those of what it is part of.
    pub items: Vec<Member>,
}

/// Body of `PUT /projects/{project}/members/{user}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MemberRequest {
    pub role: ProjectRole,
}
