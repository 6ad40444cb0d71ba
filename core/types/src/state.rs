//! Names of the states that jobs, nodes and plans are in: one word each for columns, the wire, metrics, filters and people.
//! What a state carries stands in the engine's records; here is only which one it is.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// Where a job is in its life.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum JobStateKind {
    Queued,
    Held,
    Starting,
    Running,
    Stopping,
    Succeeded,
    Failed,
    Cancelled,
}

impl JobStateKind {
    /// Whether the job is over for good.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// What has become of a plan.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum PlanStateKind {
    Proposed,
    Adopted,
    Superseded,
    Rejected,
    Stale,
}

/// What users want of a node.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum NodePolicyKind {
    Schedulable,
    Cordoned,
    Draining,
}

/// What is seen of a node.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AvailabilityKind {
    Registering,
    Available,
    Unreachable,
    Lost,
}

/// What the scheduler has come to think of a node.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum StandingKind {
    #[default]
    Good,
    Quarantined,
    Probation,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_on_the_wire_is_the_word_in_columns() {
        for state in JobStateKind::VARIANTS {
            assert_eq!(serde_json::json!(state), state.to_string());
            assert_eq!(state.to_string().parse(), Ok(*state));
        }
        assert!("runing".parse::<JobStateKind>().is_err());
    }
}
