//! Goodput told instead of modelled: for each allocation what it brings, in a unit of the job's own.

use headway_types::{
    Assignment, GpuCount, GpuType, NodeClass, NodeCount, Placement, Prediction, Seconds, TokensPerSecond,
};
use serde::{Deserialize, Serialize};

use crate::candidate::Way;
use crate::cluster::Shape;
use crate::curves::Offer;

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

impl GoodputTable {
    /// The sizes it names, ascending.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = GpuCount> {
        let mut sizes: Vec<GpuCount> = self.rows.iter().map(|row| row.gpus).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes.into_iter()
    }

    fn rows_for(&self, class: &NodeClass, gpus: GpuCount, nodes: NodeCount) -> impl Iterator<Item = &TableRow> {
        let least = NodeCount(gpus.0.div_ceil(class.gpus_per_node.0.max(1)));
        let gpu_type = class.gpu_type.clone();
        self.rows.iter().filter(move |row| {
            row.gpu_type == gpu_type && row.gpus == gpus && row.nodes.unwrap_or(least) == nodes && row.is_usable()
        })
    }

    fn row_of(&self, class: &NodeClass, at: &Assignment) -> Option<&TableRow> {
        let placement: &Placement = &at.placement;
        let rows = self.rows_for(class, placement.gpus(), placement.nodes());
        // Rows without names of their own are told apart by what they promised.
        rows.min_by_key(|row| (row.label != at.label, row.goodput != at.predicted.goodput.0))
    }
}

impl TableRow {
    /// Only a positive, finite goodput can be run at.
    pub(crate) fn is_usable(&self) -> bool {
        self.goodput.is_finite() && self.goodput > 0.0 && self.watts_per_gpu.is_none_or(f64::is_finite)
    }

    fn prediction(&self) -> Prediction {
        Prediction {
            step_time: Seconds(0.0),
            throughput: TokensPerSecond(self.goodput),
            efficiency: 1.0,
            goodput: TokensPerSecond(self.goodput),
            speed_up: 0.0,
        }
    }
}

/// How the table says the job runs on a shape.
pub(crate) fn ways(table: &GoodputTable, class: &NodeClass, shape: Shape) -> Vec<Way> {
    table
        .rows_for(class, shape.gpus, shape.nodes)
        .map(|row| Way {
            shape,
            offer: Offer::likely(None, row.prediction()),
            label: row.label.clone(),
            watts_per_gpu: row.watts_per_gpu,
        })
        .collect()
}

/// What the table says of what a job does now.
pub(crate) fn present(table: &GoodputTable, class: &NodeClass, at: &Assignment) -> Option<Prediction> {
    table.row_of(class, at).map(TableRow::prediction)
}

/// The power per GPU of what a job does now.
pub(crate) fn watts(table: &GoodputTable, class: &NodeClass, at: &Assignment) -> Option<f64> {
    table.row_of(class, at)?.watts_per_gpu
}
