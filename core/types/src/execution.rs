//! How the ranks of a layout execute a step, beyond dp, tp and pp: what a script that says so can be told too.

use core::fmt;

use serde::{Deserialize, Serialize};

/// Order of forward and backward passes in a pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// One forward, one backward (PipeDream-Flush; interleaved where a stage has several chunks, Narayanan et al. 2021).
    #[default]
    #[serde(rename = "1f1b")]
    OneForwardOneBackward,
    /// All forward passes first (Huang et al. 2019): the same time, all micro-batches in flight.
    #[serde(rename = "gpipe")]
    GPipe,
    /// All micro-batches of a chunk before the next chunk (Lamy-Poirier 2023): sharded parameters are gathered once per step.
    BreadthFirst,
}

/// What data-parallel replicas share instead of each holding it whole; each includes the ones before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharding {
    #[default]
    None,
    /// Optimizer states (ZeRO-1, distributed optimizer).
    Optimizer,
    /// Gradients; parameters are gathered once per micro-batch (ZeRO-2).
    Gradients,
    /// Parameters, gathered for each pass (ZeRO-3, FSDP2).
    Parameters,
}

/// What of the forward pass is done again in the backward pass instead of being kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recompute {
    #[default]
    None,
    /// The attention matrix (Korthikanti et al. 2022); with fused attention, which keeps none, every second layer.
    Selective,
    Full,
}

macro_rules! named {
    ($type:ty, $($value:path => $name:literal),+) => {
        impl $type {
            /// Every value, in order.
            pub const ALL: &'static [Self] = &[$($value),+];

            /// The name it has in specifications, protocols and environments.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $($value => $name),+ }
            }

            /// The value of a name.
            #[must_use]
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.name() == name)
            }
        }
    };
}

named!(
    Schedule,
    Schedule::OneForwardOneBackward => "1f1b",
    Schedule::GPipe => "gpipe",
    Schedule::BreadthFirst => "breadth_first"
);
named!(
    Sharding,
    Sharding::None => "none",
    Sharding::Optimizer => "optimizer",
    Sharding::Gradients => "gradients",
    Sharding::Parameters => "parameters"
);
named!(
    Recompute,
    Recompute::None => "none",
    Recompute::Selective => "selective",
    Recompute::Full => "full"
);

/// Everything of a layout beyond dp, tp and pp. The default is what any script does that knows nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Execution {
    /// Context parallelism: ranks that share a sequence.
    pub cp: u32,
    /// Expert parallelism: replicas that share the experts; divides dp.
    pub ep: u32,
    /// Chunks of layers per pipeline stage; several are interleaved.
    pub vpp: u32,
    pub schedule: Schedule,
    pub sharding: Sharding,
    pub recompute: Recompute,
    /// Tensor-parallel ranks also split what they would all hold alike (Korthikanti et al. 2022).
    pub sequence_parallel: bool,
}

impl Execution {
    pub const PLAIN: Execution = Execution {
        cp: 1,
        ep: 1,
        vpp: 1,
        schedule: Schedule::OneForwardOneBackward,
        sharding: Sharding::None,
        recompute: Recompute::None,
        sequence_parallel: false,
    };

    #[must_use]
    pub fn is_plain(&self) -> bool {
        *self == Self::PLAIN
    }
}

impl Default for Execution {
    fn default() -> Self {
        Self::PLAIN
    }
}

/// What is not plain, each after a space: ` cp2 vpp2 zero1 full-recompute sp`.
impl fmt::Display for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, degree) in [("cp", self.cp), ("ep", self.ep), ("vpp", self.vpp)] {
            if degree != 1 {
                write!(f, " {name}{degree}")?;
            }
        }
        match self.schedule {
            Schedule::OneForwardOneBackward => {}
            Schedule::GPipe => f.write_str(" gpipe")?,
            Schedule::BreadthFirst => f.write_str(" breadth-first")?,
        }
        match self.sharding {
            Sharding::None => {}
            Sharding::Optimizer => f.write_str(" zero1")?,
            Sharding::Gradients => f.write_str(" zero2")?,
            Sharding::Parameters => f.write_str(" zero3")?,
        }
        match self.recompute {
            Recompute::None => {}
            Recompute::Selective => f.write_str(" selective-recompute")?,
            Recompute::Full => f.write_str(" full-recompute")?,
        }
        f.write_str(if self.sequence_parallel { " sp" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_plain_is_shown() {
        assert_eq!(Execution::PLAIN.to_string(), "");
        let all = Execution {
            cp: 2,
            ep: 4,
            vpp: 2,
            schedule: Schedule::BreadthFirst,
            sharding: Sharding::Parameters,
            recompute: Recompute::Full,
            sequence_parallel: true,
        };
        assert_eq!(all.to_string(), " cp2 ep4 vpp2 breadth-first zero3 full-recompute sp");
    }

    #[test]
    fn names_are_those_on_the_wire() {
        let name = |value: serde_json::Value| value.as_str().map(str::to_owned);
        for schedule in Schedule::ALL {
            assert_eq!(name(serde_json::json!(schedule)).as_deref(), Some(schedule.name()));
            assert_eq!(Schedule::named(schedule.name()), Some(*schedule));
        }
        for sharding in Sharding::ALL {
            assert_eq!(name(serde_json::json!(sharding)).as_deref(), Some(sharding.name()));
        }
        for recompute in Recompute::ALL {
            assert_eq!(name(serde_json::json!(recompute)).as_deref(), Some(recompute.name()));
        }
    }

    #[test]
    fn what_is_not_said_is_plain() {
        let read: Execution = serde_json::from_str(r#"{"sharding":"optimizer"}"#).expect("valid");
        assert_eq!(read, Execution { sharding: Sharding::Optimizer, ..Execution::PLAIN });
    }
}
