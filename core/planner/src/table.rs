//! Goodput told instead of modelled: for each allocation what it brings, in a unit of the job's own.

use headway_types::{GpuCount, GpuType, NodeCount};
use serde::{Deserialize, Serialize};

/// A job's goodput by allocation. Sizes it does not name cannot be run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GoodputTable {
    pub rows: Vec<TableRow>,
}

/// One way to run. Several rows may name the same allocation, when they differ in what else they take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableRow {
    pub gpu_type: GpuType,
    pub gpus: GpuCount,
    /// `None`: on as few nodes as hold it.
    #[serde(default)]
    pub nodes: Option<NodeCount>,
    /// Reference tokens per second, or any rate that is the same for all rows of the job.
    pub goodput: f64,
    /// Power it draws per GPU; `None`: what the policy says of the GPU type.
    #[serde(default)]
    pub watts_per_gpu: Option<f64>,
    /// What the caller calls it; it comes back with the decision.
    #[serde(default)]
    pub label: Option<String>,
}
