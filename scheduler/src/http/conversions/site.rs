//! The site's own rows on the wire, both ways.

use headway_api::v1;
use headway_engine::View;
use headway_planner::{Amount, Label, SiteRow, check_rows};
use headway_types::{GpuCount, GpuType};

use crate::http::problem::Problem;

pub fn row(of: &SiteRow) -> v1::SiteRow {
    let Amount { gpu_type, project, label, node } = of.amount.clone();
    let label = label.map(|Label { key, value }| v1::JobLabel { key, value });
    let amount = v1::Amount { gpu_type: gpu_type.map(|of| of.0), project, label, node };
    v1::SiteRow { name: of.name.clone(), amount, at_most: of.at_most.0 }
}

/// Rows that can be kept to: what is wrong is named.
pub fn rows(of: &[v1::SiteRow]) -> Result<Vec<SiteRow>, Problem> {
    let row = |of: &v1::SiteRow| {
        let v1::Amount { gpu_type, project, label, node } = of.amount.clone();
        let label = label.map(|v1::JobLabel { key, value }| Label { key, value });
        let amount = Amount { gpu_type: gpu_type.map(GpuType), project, label, node };
        SiteRow { name: of.name.clone(), amount, at_most: GpuCount(of.at_most) }
    };
    let rows: Vec<SiteRow> = of.iter().map(row).collect();
    check_rows(&rows).map_err(|wrong| Problem::invalid(wrong.to_string()).field(wrong.field))?;
    Ok(rows)
}

/// Whether what new rows name is there. Those in force already may outlive what they name: a node that is gone must not
/// keep anybody from changing another setting.
pub fn known(rows: &[SiteRow], in_force: &[SiteRow], view: &View) -> Result<(), Problem> {
    let missing = |row: &SiteRow, field: &str, what: String| {
        Err(Problem::invalid(format!("row {}: {what}", row.name)).field(format!("rows.amount.{field}")))
    };
    for row in rows.iter().filter(|row| !in_force.contains(row)) {
        let Amount { gpu_type, project, node, .. } = &row.amount;
        let mut inventories = view.nodes.values().map(|node| &node.node.inventory);
        if let Some(of) = gpu_type.as_ref().filter(|of| !inventories.any(|one| one.class().gpu_type == **of)) {
            return missing(row, "gpu_type", format!("no node has GPUs of type {of}"));
        }
        let is_project =
            |name: &str| view.projects.contains_key(name) || view.jobs.values().any(|job| job.job.spec.project == name);
        if let Some(name) = project.as_ref().filter(|name| !is_project(name)) {
            return missing(row, "project", format!("no project {name}"));
        }
        let is_node =
            |text: &str| view.nodes.iter().any(|(id, one)| one.node.inventory.name == text || id.to_string() == text);
        if let Some(text) = node.as_ref().filter(|text| !is_node(text)) {
            return missing(row, "node", format!("no node {text}"));
        }
    }
    Ok(())
}
