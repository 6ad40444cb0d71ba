//! Why a job cannot run in a given way, with the numbers, so that a user can do something about it.

use core::fmt;

use headway_types::spec::{self, BatchRange};
use headway_types::{Configuration, GpuCount, GpuType, Layout, NodeCount};
use serde::{Deserialize, Serialize};

/// The reason an allocation or a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "cause")]
pub enum Infeasible {
    #[error("GPU type {gpu_type} is not in the hardware catalog ({})", crate::catalog::names().collect::<Vec<_>>().join(", "))]
    UnknownGpuType { gpu_type: GpuType },
    #[error("{gpu_type} does not multiply in {precision}, which the job asks for")]
    Precision { gpu_type: GpuType, precision: spec::Precision },
    #[error("{} do not fit {} of {}", gpus.words(), nodes.words(), per_node.words())]
    NodesTooSmall { gpus: GpuCount, nodes: NodeCount, per_node: GpuCount },
    #[error("{} do not spread evenly over {}", gpus.words(), nodes.words())]
    Uneven { gpus: GpuCount, nodes: NodeCount },
    #[error("{configuration} occupies {}, not {gpus}", configuration.layout.gpus().words())]
    WrongSize { configuration: Configuration, gpus: GpuCount },
    #[error("layout {layout} is not possible: {detail}")]
    Layout { layout: Layout, detail: String },
    #[error("no product of the allowed tensor and pipeline degrees divides {} on {}", gpus.words(), nodes.words())]
    NoLayout { gpus: GpuCount, nodes: NodeCount },
    #[error("micro-batch {micro_batch} is above the allowed {largest}")]
    MicroBatch { micro_batch: u64, largest: u64 },
    #[error("global batch {global_batch} is not a multiple of {cycle} × micro-batch {micro_batch}")]
    Indivisible { global_batch: u64, cycle: Cycle, micro_batch: u64 },
    #[error(
        "{micro_batches} micro-batches per replica are no multiple of {multiple_of}, which interleaved stages need"
    )]
    Interleaving { micro_batches: u64, multiple_of: u64 },
    #[error("global batch {global_batch} is outside the allowed {} to {}", range.min, range.max)]
    BatchOutside { global_batch: u64, range: BatchRange },
    #[error("no global batch from {} to {} is a multiple of {cycle} × a micro-batch up to {largest_micro_batch}", range.min, range.max)]
    NoBatch { range: BatchRange, cycle: Cycle, largest_micro_batch: u64 },
    #[error("{configuration} needs {needed_mib} MiB per GPU ({detail}), {gpu_type} has {available_mib} MiB")]
    Memory { configuration: Configuration, gpu_type: GpuType, needed_mib: u64, available_mib: u64, detail: Box<str> },
    #[error(
        "{configuration} needs about {needed_mib} MiB per GPU, no less than {by}, which ran out of memory on {gpu_type}"
    )]
    Exhausted { configuration: Configuration, gpu_type: GpuType, by: Box<Configuration>, needed_mib: u64 },
    #[error("the measured curve has no usable point")]
    NoCurve,
    #[error("the script's own curve decides, there is no configuration to choose")]
    Opaque,
}

/// Of what a global batch is a multiple, in micro-batches: one of each replica, or of uneven shares as many as each takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cycle {
    micro_batches: u64,
    dp: u32,
}

impl Cycle {
    pub(crate) fn of(layout: Layout) -> Self {
        Self { micro_batches: layout.micro_batches(), dp: layout.dp }
    }
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cycle { micro_batches, dp } = *self;
        if micro_batches == u64::from(dp) {
            write!(f, "dp {dp}")
        } else {
            write!(f, "the {micro_batches} micro-batches that dp {dp} does in a cycle of uneven shares")
        }
    }
}

impl Infeasible {
    /// Whether more memory per GPU would lift it.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        self.needed_mib().is_some()
    }

    /// Whether another layout would lift it.
    #[must_use]
    pub fn is_layout(&self) -> bool {
        matches!(
            self,
            Infeasible::Layout { .. }
                | Infeasible::NoLayout { .. }
                | Infeasible::WrongSize { .. }
                | Infeasible::Uneven { .. }
        )
    }

    /// Whether another batch would lift it.
    #[must_use]
    pub fn is_batch(&self) -> bool {
        matches!(
            self,
            Infeasible::NoBatch { .. }
                | Infeasible::BatchOutside { .. }
                | Infeasible::Indivisible { .. }
                | Infeasible::Interleaving { .. }
                | Infeasible::MicroBatch { .. }
        )
    }

    /// Whether `other` tells a user more: lack of memory before anything else, and of those the smallest need. Of equals the least layout
    /// is told, or the answer would depend on the order of the search.
    pub(crate) fn yields_to(&self, other: &Infeasible) -> bool {
        match (self.needed_mib(), other.needed_mib()) {
            (Some(ours), Some(theirs)) => (theirs, other.subject()) < (ours, self.subject()),
            (None, None) => other.cycle() < self.cycle(),
            (ours, theirs) => theirs.is_some() && ours.is_none(),
        }
    }

    /// Memory needed over the device's, where that is all that is in the way.
    pub(crate) fn beyond(&self) -> Option<f64> {
        match self {
            Infeasible::Memory { needed_mib, available_mib, .. } => Some(*needed_mib as f64 / *available_mib as f64),
            _ => None,
        }
    }

    fn subject(&self) -> Option<Configuration> {
        match self {
            Infeasible::Memory { configuration, .. } | Infeasible::Exhausted { configuration, .. } => {
                Some(*configuration)
            }
            _ => None,
        }
    }

    fn cycle(&self) -> Option<Cycle> {
        if let Infeasible::NoBatch { cycle, .. } = self { Some(*cycle) } else { None }
    }

    fn needed_mib(&self) -> Option<u64> {
        match self {
            Infeasible::Memory { needed_mib, .. } | Infeasible::Exhausted { needed_mib, .. } => Some(*needed_mib),
            _ => None,
        }
    }
}
