//! Plans, what became of them, and the policy under which they are made.

use std::collections::BTreeMap;
use std::sync::Arc;

pub use headway_types::PolicyMode;
use headway_types::{Plan, PlanId, PlanStateKind, Seconds, Timestamp};
use serde::{Deserialize, Serialize};

use super::consent::{AutoApprove, MoveWindow, proposals_last};
use super::quota::{OwnQuota, UserQuota};
use crate::event::{Actor, Rebalancing};

/// A plan and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanRecord {
    pub plan: Arc<Plan>,
    pub state: PlanState,
    pub decided_at: Option<Timestamp>,
    pub decided_by: Option<Actor>,
    /// When it became the target, and by whom: the last decision on a plan that was carried out is that another took its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<Adoption>,
    /// What somebody asked of it; `None`: the scheduler made it of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Arc<Rebalancing>>,
}

/// When a plan became the target, and by whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Adoption {
    pub at: Timestamp,
    pub by: Actor,
}

/// A plan in one line, as lists show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanSummary {
    pub id: PlanId,
    pub parent: Option<PlanId>,
    pub made_at: Timestamp,
    pub state: PlanState,
    pub decided_at: Option<Timestamp>,
    pub decided_by: Option<Actor>,
    /// Nothing of a plan that an earlier release made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<Adoption>,
    pub trigger: String,
    pub objective_before: f64,
    pub objective: f64,
    pub bound: Option<f64>,
    pub gap: Option<f64>,
    pub moves: u32,
    /// Whether somebody forced an allocation on a job.
    #[serde(default)]
    pub forced: bool,
    /// The plan whose moves it takes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<PlanId>,
}

impl PlanRecord {
    #[must_use]
    pub fn summary(&self) -> PlanSummary {
        let report = &self.plan.report;
        PlanSummary {
            id: self.plan.id,
            parent: self.plan.parent,
            made_at: self.plan.made_at,
            state: self.state.clone(),
            decided_at: self.decided_at,
            decided_by: self.decided_by.clone(),
            adopted: self.adopted.clone(),
            trigger: report.trigger.clone(),
            objective_before: report.objective_before,
            objective: report.objective,
            bound: report.bound,
            gap: report.gap,
            moves: report.moves.len() as u32,
            forced: self.terms.as_ref().is_some_and(|terms| terms.is_forced()),
            undoes: self.terms.as_ref().and_then(|terms| terms.undoes),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum PlanState {
    /// Waits for approval.
    Proposed,
    /// The target.
    Adopted,
    /// Was the target.
    Superseded,
    Rejected {
        reason: Option<String>,
    },
    /// A newer proposal, or another target, came before anybody approved it.
    Stale,
}

/// What may happen to a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanEvent {
    Adopt,
    Supersede,
    Reject { reason: Option<String> },
    Expire,
}

impl PlanState {
    /// The whole transition table; `None` for every pair it does not list.
    #[must_use]
    pub fn apply(self, event: PlanEvent) -> Option<Self> {
        use {PlanEvent as E, PlanState as S};
        Some(match (self, event) {
            (S::Proposed, E::Adopt) => S::Adopted,
            (S::Proposed, E::Reject { reason }) => S::Rejected { reason },
            (S::Proposed, E::Expire) => S::Stale,
            (S::Adopted, E::Supersede) => S::Superseded,
            _ => return None,
        })
    }

    /// Which of them it is, without what it carries.
    #[must_use]
    pub fn kind(&self) -> PlanStateKind {
        match self {
            PlanState::Proposed => PlanStateKind::Proposed,
            PlanState::Adopted => PlanStateKind::Adopted,
            PlanState::Superseded => PlanStateKind::Superseded,
            PlanState::Rejected { .. } => PlanStateKind::Rejected,
            PlanState::Stale => PlanStateKind::Stale,
        }
    }
}

/// What an operator may change while Headway runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicySettings {
    pub mode: PolicyMode,
    pub objective: headway_planner::Policy,
    /// Longest time between rounds while jobs run.
    pub round_every: Seconds,
    /// Shortest time between rounds, and for how long one waits for the next arrival.
    pub round_pause: Seconds,
    /// After this long GPU-time counts half in what a project has used.
    #[serde(default = "week")]
    pub usage_half_life: Seconds,
    /// Proposals that nobody decides for so long expire.
    #[serde(default = "proposals_last")]
    pub proposals_last: Seconds,
    /// What needs no approval in advisory mode; `None`: every move of a running job needs it.
    #[serde(default)]
    pub auto_approve: Option<AutoApprove>,
    /// Running jobs are moved only at these times, unless somebody asks for it; none: at any time.
    #[serde(default)]
    pub move_windows: Vec<MoveWindow>,
    /// What each user may have at most …
    #[serde(default)]
    pub user_quota: UserQuota,
    /// … but for these.
    #[serde(default)]
    pub user_quotas: Arc<BTreeMap<String, OwnQuota>>,
    /// While it is paused: the mode that it had.
    #[serde(default)]
    pub resumes: Option<PolicyMode>,
    /// Rises with each change.
    #[serde(default = "first")]
    pub version: u64,
    /// Who changed it last, and what.
    #[serde(default)]
    pub last_change: Option<String>,
}

impl PolicySettings {
    /// What this user may have at most.
    #[must_use]
    pub fn quota_of(&self, user: &str) -> UserQuota {
        self.user_quotas.get(user).copied().unwrap_or_default().over(self.user_quota)
    }
}

fn first() -> u64 {
    1
}

fn week() -> Seconds {
    Seconds(7.0 * 86_400.0)
}

impl Default for PolicySettings {
    fn default() -> Self {
        Self {
            mode: PolicyMode::Auto,
            objective: headway_planner::Policy::default(),
            round_every: Seconds(60.0),
            round_pause: Seconds(1.0),
            usage_half_life: week(),
            proposals_last: proposals_last(),
            auto_approve: None,
            move_windows: Vec::new(),
            user_quota: UserQuota::default(),
            user_quotas: Arc::default(),
            resumes: None,
            version: first(),
            last_change: None,
        }
    }
}
