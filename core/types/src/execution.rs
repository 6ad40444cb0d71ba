//! How the ranks of a layout execute a step, beyond dp, tp and pp: what a script that says so can be told too.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::shares::Shares;
use crate::word::words;

words! {
    /// Order of forward and backward passes in a pipeline.
    #[derive(Default)]
    pub enum Schedule {
        /// One forward, one backward (PipeDream-Flush; interleaved where a stage has several chunks, Narayanan et al. 2021).
        #[default]
        #[serde(rename = "1f1b")]
        #[strum(serialize = "1f1b")]
        OneForwardOneBackward,
        /// All forward passes first (Huang et al. 2019): the same time, all micro-batches in flight.
        #[serde(rename = "gpipe")]
        #[strum(serialize = "gpipe")]
        GPipe,
        /// All micro-batches of a chunk before the next chunk (Lamy-Poirier 2023): sharded parameters are gathered once per step.
        BreadthFirst,
    }

    /// What data-parallel replicas share instead of each holding it whole; each includes the ones before.
    #[derive(Default)]
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
    #[derive(Default)]
    pub enum Recompute {
        #[default]
        None,
        /// The attention matrix (Korthikanti et al. 2022); with fused attention, which keeps none, every second layer.
        Selective,
        Full,
    }

    /// Where optimizer states lie and are updated.
    #[derive(Default)]
    pub enum Offload {
        #[default]
        None,
        /// In host memory, updated by the CPU (ZeRO-Offload, Ren et al. 2021).
        Host,
        /// On local disks, streamed through the host (ZeRO-Infinity, Rajbhandari et al. 2021).
        Disk,
    }
}

/// Everything of a layout beyond dp, tp and pp. The default is what any script does that knows nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Execution {
    /// Context parallelism: ranks that share a sequence.
    pub cp: u32,
    /// Expert parallelism: ranks of a stage that share the experts; divides tp × cp × dp.
    pub ep: u32,
    /// Chunks of layers per pipeline stage; several are interleaved.
    pub vpp: u32,
    pub schedule: Schedule,
    pub sharding: Sharding,
    pub recompute: Recompute,
    /// Tensor-parallel ranks also split what they would all hold alike (Korthikanti et al. 2022).
    pub sequence_parallel: bool,
    pub offload: Offload,
    #[serde(skip_serializing_if = "Shares::are_even")]
    pub shares: Shares,
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
        offload: Offload::None,
        shares: Shares::EVEN,
    };

    #[must_use]
    pub fn is_plain(&self) -> bool {
        *self == Self::PLAIN
    }

    /// `None` where there is nothing to say.
    #[must_use]
    pub fn unless_plain(self) -> Option<Self> {
        (!self.is_plain()).then_some(self)
    }
}

impl Default for Execution {
    fn default() -> Self {
        Self::PLAIN
    }
}

/// What is not plain, each after a space: ` cp2 vpp2 zero1 full-recompute sp host-offload shares1:2`.
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
        f.write_str(if self.sequence_parallel { " sp" } else { "" })?;
        match self.offload {
            Offload::None => {}
            Offload::Host => f.write_str(" host-offload")?,
            Offload::Disk => f.write_str(" disk-offload")?,
        }
        let Shares { slower, faster, .. } = self.shares;
        if self.shares.are_even() { Ok(()) } else { write!(f, " shares{slower}:{faster}") }
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
            offload: Offload::Host,
            shares: Shares { slower: 1, faster: 2, of_faster: 4 },
        };
        assert_eq!(all.to_string(), " cp2 ep4 vpp2 breadth-first zero3 full-recompute sp host-offload shares1:2");
    }

    #[test]
    fn what_is_not_said_is_plain() {
        let read: Execution = serde_json::from_str(r#"{"sharding":"optimizer"}"#).expect("valid");
        assert_eq!(read, Execution { sharding: Sharding::Optimizer, ..Execution::PLAIN });
    }
}
