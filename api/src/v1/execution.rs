//! What a layout is beyond dp, tp and pp.

use headway_types as domain;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Order of forward and backward passes in a pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    #[default]
    #[serde(rename = "1f1b")]
    OneForwardOneBackward,
    #[serde(rename = "gpipe")]
    GPipe,
    BreadthFirst,
}

/// What data-parallel replicas share: ZeRO stages 0 to 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sharding {
    #[default]
    None,
    Optimizer,
    Gradients,
    Parameters,
}

/// What of the forward pass is done again in the backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Recompute {
    #[default]
    None,
    Selective,
    Full,
}

/// Absent where all of it is as here by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Execution {
    /// Context parallelism: ranks that share a sequence.
    pub cp: u32,
    /// Expert parallelism.
    pub ep: u32,
    /// Chunks of layers per pipeline stage.
    pub vpp: u32,
    pub schedule: Schedule,
    pub sharding: Sharding,
    pub recompute: Recompute,
    pub sequence_parallel: bool,
}

impl Default for Execution {
    fn default() -> Self {
        domain::Execution::PLAIN.into()
    }
}

impl Execution {
    /// `None` where there is nothing to say.
    #[must_use]
    pub fn unless_plain(execution: domain::Execution) -> Option<Self> {
        (!execution.is_plain()).then(|| execution.into())
    }
}

impl From<domain::Execution> for Execution {
    fn from(of: domain::Execution) -> Self {
        Self {
            cp: of.cp,
            ep: of.ep,
            vpp: of.vpp,
            schedule: match of.schedule {
                domain::Schedule::OneForwardOneBackward => Schedule::OneForwardOneBackward,
                domain::Schedule::GPipe => Schedule::GPipe,
                domain::Schedule::BreadthFirst => Schedule::BreadthFirst,
            },
            sharding: match of.sharding {
                domain::Sharding::None => Sharding::None,
                domain::Sharding::Optimizer => Sharding::Optimizer,
                domain::Sharding::Gradients => Sharding::Gradients,
                domain::Sharding::Parameters => Sharding::Parameters,
            },
            recompute: match of.recompute {
                domain::Recompute::None => Recompute::None,
                domain::Recompute::Selective => Recompute::Selective,
                domain::Recompute::Full => Recompute::Full,
            },
            sequence_parallel: of.sequence_parallel,
        }
    }
}

impl From<Execution> for domain::Execution {
    fn from(of: Execution) -> Self {
        Self {
            cp: of.cp,
            ep: of.ep,
            vpp: of.vpp,
            schedule: match of.schedule {
                Schedule::OneForwardOneBackward => domain::Schedule::OneForwardOneBackward,
                Schedule::GPipe => domain::Schedule::GPipe,
                Schedule::BreadthFirst => domain::Schedule::BreadthFirst,
            },
            sharding: match of.sharding {
                Sharding::None => domain::Sharding::None,
                Sharding::Optimizer => domain::Sharding::Optimizer,
                Sharding::Gradients => domain::Sharding::Gradients,
                Sharding::Parameters => domain::Sharding::Parameters,
            },
            recompute: match of.recompute {
                Recompute::None => domain::Recompute::None,
                Recompute::Selective => domain::Recompute::Selective,
                Recompute::Full => domain::Recompute::Full,
            },
            sequence_parallel: of.sequence_parallel,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_in_the_vocabulary_and_comes_back() {
        for schedule in domain::Schedule::ALL {
            for sharding in domain::Sharding::ALL {
                for recompute in domain::Recompute::ALL {
                    let (schedule, sharding, recompute) = (*schedule, *sharding, *recompute);
                    let of = domain::Execution { vpp: 2, schedule, sharding, recompute, ..domain::Execution::PLAIN };
                    let wire = Execution::from(of);
                    assert_eq!(serde_json::json!(wire), serde_json::json!(of));
                    assert_eq!(domain::Execution::from(wire), of);
                }
            }
        }
        assert_eq!(Execution::unless_plain(domain::Execution::PLAIN), None);
    }
}
