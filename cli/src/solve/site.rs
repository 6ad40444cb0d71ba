//! A site's own rows of a document: what they name must be in it.

use headway_api::solve::SiteRow as WireRow;
use headway_planner::{Amount, Label, PlanJob, PlanProject, SiteRow, check_rows};
use headway_types::{GpuCount, GpuType};

use super::check::Findings;
use super::nodes::Nodes;

pub fn rows(
    of: Vec<WireRow>,
    nodes: &Nodes,
    jobs: &[PlanJob],
    projects: &[PlanProject],
    findings: &mut Findings,
) -> Vec<SiteRow> {
    let rows: Vec<SiteRow> = of.into_iter().map(row).collect();
    if let Err(wrong) = check_rows(&rows) {
        findings.add("policy.rows", wrong.to_string());
        return rows;
    }
    let types = nodes.types();
    for (at, amount) in rows.iter().map(|row| &row.amount).enumerate() {
        let field = |name: &str| format!("policy.rows[{at}].amount.{name}");
        if let Some(gpu_type) = amount.gpu_type.as_ref().filter(|of| !types.contains(of)) {
            findings.add(field("gpu_type"), format!("no node has GPUs of type \"{gpu_type}\""));
        }
        if let Some(node) = &amount.node {
            nodes.known(node, field("node"), findings);
        }
        let exists = |name: &str| {
            projects.iter().any(|one| one.name == name) || jobs.iter().any(|job| job.claim.project == name)
        };
        if let Some(project) = amount.project.as_ref().filter(|name| !exists(name)) {
            findings.add(field("project"), format!("no project is called \"{project}\", and no job is of it"));
        }
    }
    rows
}

fn row(of: WireRow) -> SiteRow {
    let WireRow { name, amount, at_most } = of;
    let label = amount.label.map(|label| Label { key: label.key, value: label.value });
    let gpu_type = amount.gpu_type.map(GpuType);
    let amount = Amount { gpu_type, project: amount.project, label, node: amount.node };
    SiteRow { name, amount, at_most: GpuCount(at_most) }
}
