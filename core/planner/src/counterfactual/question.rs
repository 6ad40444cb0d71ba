//! What may be asked, and how it reads.

use headway_types::spec::Priority;
use headway_types::{GpuCount, GpuType, JobId, NodeId, NodeSlice, Plan, Seconds};
use serde::{Deserialize, Serialize};

use crate::explain::{gpus, span};
use crate::force::Force;
use crate::input::{PlanInput, PlanJob};

/// Suppositions, and what is forced on top of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Question {
    pub suppose: Vec<Supposition>,
    pub force: Option<Force>,
}

/// Something that is not so. The planner decides freely what to make of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Supposition {
    Priority {
        job: JobId,
        priority: Priority,
    },
    /// A smaller minimum; a size it would not allow otherwise is allowed.
    Accepts {
        job: JobId,
        gpus: GpuCount,
    },
    /// It may run so long from its next start on.
    TimeLimit {
        job: JobId,
        limit: Seconds,
    },
    AcceptsType {
        job: JobId,
        gpu_type: GpuType,
    },
    /// Other bounds of its size; nothing keeps it from being moved.
    Resized {
        job: JobId,
        min: GpuCount,
        max: GpuCount,
    },
    /// `None`: no quota.
    Quota {
        project: String,
        quota: Option<GpuCount>,
    },
    /// A row of the site; `None`: no such row.
    Row {
        row: String,
        at_most: Option<GpuCount>,
    },
    /// All GPUs of a node are usable, and it takes jobs.
    NodeBack {
        node: NodeId,
    },
    NodeGone {
        node: NodeId,
    },
    /// More nodes like one there is.
    NodesLike {
        node: NodeId,
        count: u32,
    },
    /// One more job. Its id must be nobody else's.
    Job {
        job: Box<PlanJob>,
    },
    JobGone {
        job: JobId,
    },
}

impl Question {
    #[must_use]
    pub fn force(force: Force) -> Self {
        Self { suppose: Vec::new(), force: Some(force) }
    }

    #[must_use]
    pub fn suppose(supposition: Supposition) -> Self {
        Self { suppose: vec![supposition], force: None }
    }

    /// Whose fate is asked about: the job forced, else the first that a supposition names.
    #[must_use]
    pub fn about(&self) -> Option<JobId> {
        let of = |one: &Supposition| match one {
            Supposition::Priority { job, .. }
            | Supposition::Accepts { job, .. }
            | Supposition::AcceptsType { job, .. }
            | Supposition::TimeLimit { job, .. }
            | Supposition::Resized { job, .. } => Some(*job),
            Supposition::Job { job } => Some(job.job),
            _ => None,
        };
        self.force.as_ref().map(|force| force.job).or_else(|| self.suppose.iter().find_map(of))
    }

    /// Whether changing what is supposed changes what plans are worth: then objectives do not compare.
    pub(super) fn changes_values(&self) -> bool {
        !self.suppose.iter().all(|one| matches!(one, Supposition::Quota { .. } | Supposition::Row { .. }))
    }

    /// Whether the plan is already what is forced, and nothing else is asked.
    pub(super) fn holds_already(&self, input: &PlanInput, plan: &Plan) -> bool {
        let Some(force) = self.force.as_ref().filter(|_| self.suppose.is_empty()) else { return false };
        let Some(has) = plan.assignments.get(&force.job) else { return false };
        let node_of = |slice: &NodeSlice| input.nodes.iter().find(|node| node.node == slice.node);
        let types = has.placement.slices().iter().filter_map(node_of).map(|node| node.class.gpu_type.clone());
        let held = GpuType::joined(types);
        let size = force.gpus.is_none_or(|gpus| gpus == has.placement.gpus());
        size && (force.gpu_type.is_none() || force.gpu_type == held)
    }

    /// "if it were forced to 8 GPUs", "if its priority were 75".
    #[must_use]
    pub fn in_words(&self, input: &PlanInput) -> String {
        let mut parts: Vec<String> = self.suppose.iter().map(|one| one.in_words(input)).collect();
        parts.extend(self.force.as_ref().map(Force::in_words));
        format!("if {}", parts.join(" and "))
    }
}

impl Force {
    fn in_words(&self) -> String {
        let of_type = self.gpu_type.as_ref().map_or(String::new(), |of| format!(" of {of}"));
        match self.gpus {
            Some(count) => format!("it were forced to {}{of_type}", gpus(count)),
            None if self.gpu_type.is_some() => format!("it were forced to GPUs{of_type}"),
            None => "it were forced to start now".into(),
        }
    }
}

impl Supposition {
    fn in_words(&self, input: &PlanInput) -> String {
        let name = |id: &NodeId| input.nodes.iter().find(|one| one.node == *id).map_or("?", |one| one.name.as_str());
        match self {
            Self::Priority { priority, .. } => format!("its priority were {}", priority.0),
            Self::Accepts { gpus: count, .. } => format!("it accepted {}", gpus(*count)),
            Self::TimeLimit { limit, .. } => format!("it had a time limit that leaves it {}", span(*limit)),
            Self::AcceptsType { gpu_type, .. } => format!("it accepted {gpu_type}"),
            Self::Resized { min, max, .. } if min == max => format!("it were resized to {}", gpus(*max)),
            Self::Resized { min, max, .. } => format!("it were resized to {min} to {}", gpus(*max)),
            Self::Quota { project, quota: Some(quota) } => format!("the quota of {project} were {}", gpus(*quota)),
            Self::Quota { project, quota: None } => format!("{project} had no quota"),
            Self::Row { row, at_most: Some(most) } => format!("the row {row} allowed {}", gpus(*most)),
            Self::Row { row, at_most: None } => format!("there were no row {row}"),
            Self::NodeBack { node } => format!("node {} were back", name(node)),
            Self::NodeGone { node } => format!("node {} were gone", name(node)),
            Self::NodesLike { node, count: 1 } => format!("there were one more node like {}", name(node)),
            Self::NodesLike { node, count } => format!("there were {count} more nodes like {}", name(node)),
            Self::Job { job } => format!("{} were submitted", job.name),
            Self::JobGone { job } => {
                let of = input.jobs.iter().find(|one| one.job == *job);
                format!("{} were gone", of.map_or("?", |one| one.name.as_str()))
            }
        }
    }
}
