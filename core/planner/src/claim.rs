//! What a job is owed, what bounds it, and what it needs of its nodes. Values only; their meaning is in `guarantee`,
//! `value` and `rows`.

use std::collections::{BTreeMap, BTreeSet};

use headway_types::spec::{NodeResources, NodeSelector};
use headway_types::{GpuCount, GpuSeconds, GpuType, Layout, NodeId, Seconds, Timestamp};
use serde::{Deserialize, Serialize};

use crate::input::PlanNode;

/// Who a job belongs to, and what it is owed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Claim {
    pub project: String,
    pub user: String,
    /// What a site's rows may tell it by.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// GPUs it must have whenever that is possible (its own floor); zero: none.
    pub floor: GpuCount,
    /// How long it has waited, or had waited when it last started.
    pub waited: Seconds,
    /// How long it has run since then; zero while it waits.
    pub ran: Seconds,
    /// GPU-time it has had in its life.
    pub attained: GpuSeconds,
    /// How often it has been stopped and started again.
    pub restarts: u32,
    /// Most GPUs of each type that it ever ran on.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub most: BTreeMap<GpuType, GpuCount>,
    /// Since its GPUs last changed; `None`: never, or too long ago to matter.
    pub since_move: Option<Seconds>,
}

impl Claim {
    /// Who it belongs to, and nothing else.
    #[must_use]
    pub fn identity(&self) -> Self {
        let Self { project, user, labels, .. } = self.clone();
        Self { project, user, labels, ..Self::default() }
    }
}

/// Until when, and for how much, a job may run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bounds {
    /// Its target should be reached by then.
    pub deadline: Option<Timestamp>,
    /// GPU-time it may still use.
    pub budget_left: Option<GpuSeconds>,
    /// Running time until it is stopped.
    pub time_left: Option<Seconds>,
}

/// What a job needs of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Needs {
    /// Host resources on each of its nodes.
    pub per_node: NodeResources,
    /// Nodes it must not start on.
    pub avoid: BTreeSet<NodeId>,
    /// Of the others it starts on these only.
    #[serde(skip_serializing_if = "NodeSelector::is_any")]
    pub only: NodeSelector,
    pub spread: Spread,
    /// The layout its checkpoints are bound to, where its script cannot change layouts; while it runs, the present one
    /// counts instead.
    pub layout: Option<Layout>,
}

impl Needs {
    /// Whether a job may start on this node, as far as its name, its labels and its past with the job go.
    pub(crate) fn admit(&self, node: &PlanNode) -> bool {
        !self.avoid.contains(&node.node) && self.only.takes(&node.name, &node.labels)
    }

    /// Whether there are nodes that it must not start on.
    pub(crate) fn bind_nodes(&self) -> bool {
        !self.avoid.is_empty() || !self.only.is_any()
    }
}

/// How a job of several nodes takes fabric domains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// One domain where it can; more cost goodput.
    #[default]
    Prefer,
    /// Only within one domain.
    Require,
}
