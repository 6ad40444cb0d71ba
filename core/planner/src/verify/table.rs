//! Goodput tables: what a job is given anew is a row of its table.

use headway_types::{Assignment, GpuType, NodeCount};

use super::delta::Delta;
use super::{Scene, Violation};
use crate::input::PlanWork;
use crate::table::TableRow;

pub(super) fn check(scene: &Scene<'_>, delta: &Delta<'_>) -> Result<(), Violation> {
    let (Some(to), PlanWork::Table(_)) = (delta.fresh(), &delta.job.work) else { return Ok(()) };
    let runs = |row: &TableRow| row.label == to.label && row.goodput.is_finite() && row.goodput > 0.0;
    if rows(scene, delta, to).into_iter().any(runs) {
        return Ok(());
    }
    let gpu_type = scene.nodes.get(&to.placement.first_node()).map(|node| node.class.gpu_type.clone());
    Err(Violation::NoRow {
        job: delta.job.job,
        gpu_type: gpu_type.unwrap_or(GpuType("an unknown node".into())),
        gpus: to.placement.gpus(),
        nodes: to.placement.nodes(),
        label: to.label.clone(),
    })
}

/// What the job's table says it draws per GPU: the least of the rows it may mean, those of its label before others.
pub(super) fn watts(scene: &Scene<'_>, delta: &Delta<'_>, at: &Assignment) -> Option<f64> {
    let rows = rows(scene, delta, at);
    let named = rows.iter().any(|row| row.label == at.label);
    let meant = rows.into_iter().filter(|row| !named || row.label == at.label);
    meant.filter_map(|row| row.watts_per_gpu).min_by(f64::total_cmp)
}

/// Rows for the GPUs, nodes and type of an assignment, whatever their label.
fn rows<'a>(scene: &Scene<'a>, delta: &Delta<'a>, at: &Assignment) -> Vec<&'a TableRow> {
    let (PlanWork::Table(table), Some(node)) = (&delta.job.work, scene.nodes.get(&at.placement.first_node())) else {
        return Vec::new();
    };
    let (gpus, nodes) = (at.placement.gpus(), at.placement.nodes());
    let fewest = NodeCount(gpus.0.div_ceil(node.class.gpus_per_node.0.max(1)));
    let fits = |row: &&TableRow| {
        row.gpu_type == node.class.gpu_type && row.gpus == gpus && row.nodes.unwrap_or(fewest) == nodes
    };
    table.rows.iter().filter(fits).collect()
}
