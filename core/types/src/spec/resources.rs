//! What a job runs on: how many GPUs of which types, and what of their hosts.

use serde::{Deserialize, Serialize};

use crate::hardware::GpuType;
use crate::unit::{Bytes, GpuCount};

/// Which sizes a job accepts. `min == max` makes it rigid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuRange {
    pub min: GpuCount,
    pub max: GpuCount,
    /// Allowed sizes, ascending; empty means every size from `min` to `max`.
    pub sizes: Vec<GpuCount>,
    /// Accepted GPU types; empty means any.
    pub types: Vec<GpuType>,
    /// Whether one gang may have nodes of two classes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mixed: bool,
}

impl GpuRange {
    /// Whether the job may run on this many GPUs.
    #[must_use]
    pub fn allows(&self, gpus: GpuCount) -> bool {
        self.min <= gpus && gpus <= self.max && (self.sizes.is_empty() || self.sizes.contains(&gpus))
    }

    /// The smallest allowed size that is at least this, or the largest there is.
    #[must_use]
    pub fn size_from(&self, least: GpuCount) -> GpuCount {
        let fits = |size: &&GpuCount| **size >= least && self.allows(**size);
        match self.sizes.as_slice() {
            [] => least.clamp(self.min, self.max),
            sizes => sizes.iter().find(fits).copied().unwrap_or(self.max),
        }
    }

    /// Whether the job may run on this GPU type.
    #[must_use]
    pub fn accepts(&self, gpu_type: &GpuType) -> bool {
        self.types.is_empty() || self.types.contains(gpu_type)
    }
}

/// Host resources a job needs on each of its nodes, or a host has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeResources {
    pub cpus: Option<u32>,
    pub memory: Option<Bytes>,
    /// Shared memory (`/dev/shm`).
    #[serde(default)]
    pub shm: Option<Bytes>,
    /// On a disk of the node's own.
    #[serde(default)]
    pub local_disk: Option<Bytes>,
}

impl NodeResources {
    /// How much of one of them, in its unit: CPUs or bytes.
    #[must_use]
    pub fn amount(&self, of: HostResource) -> Option<u64> {
        match of {
            HostResource::Cpus => self.cpus.map(u64::from),
            HostResource::Memory => self.memory.map(|bytes| bytes.0),
            HostResource::Shm => self.shm.map(|bytes| bytes.0),
            HostResource::LocalDisk => self.local_disk.map(|bytes| bytes.0),
        }
    }

    /// What a host of these lacks for the needs; what a host does not say is not counted.
    pub fn lacks(self, needs: NodeResources) -> impl Iterator<Item = HostResource> {
        let short =
            move |of: &HostResource| needs.amount(*of).zip(self.amount(*of)).is_some_and(|(need, has)| need > has);
        HostResource::ALL.into_iter().filter(short)
    }
}

/// What is counted on a host besides GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostResource {
    Cpus,
    Memory,
    Shm,
    LocalDisk,
}

impl HostResource {
    pub const ALL: [HostResource; 4] =
        [HostResource::Cpus, HostResource::Memory, HostResource::Shm, HostResource::LocalDisk];

    /// "CPUs", "shared memory".
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            HostResource::Cpus => "CPUs",
            HostResource::Memory => "memory",
            HostResource::Shm => "shared memory",
            HostResource::LocalDisk => "local disk",
        }
    }
}
