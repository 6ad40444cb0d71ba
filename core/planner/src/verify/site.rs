//! The site's own rows: of the GPUs that a row names, jobs that it names hold at most so many together.

use headway_types::{Assignment, NodeSlice};

use super::delta::Delta;
use super::limits::Load;
use super::{Scene, Violation};
use crate::site::{Amount, SiteRow};

pub(super) fn check(scene: &Scene<'_>) -> Result<(), Violation> {
    scene.input.policy.rows.iter().try_for_each(|row| load(scene, row).check(scene))
}

fn load(scene: &Scene<'_>, row: &SiteRow) -> Load {
    let rule = format!("the row {}", row.name);
    let mut load = Load { rule, used: 0.0, limit: f64::from(row.at_most.0), added_by: None };
    for delta in scene.deltas.iter().filter(|delta| names_job(scene, &row.amount, delta)) {
        let held = |at: Option<&Assignment>| at.map_or(0, |at| counted(scene, &row.amount, at));
        let (before, after) = (held(delta.from), held(delta.to));
        load.used += after as f64;
        if after > before {
            load.added_by.get_or_insert(delta.job.job);
        }
    }
    load
}

fn names_job(scene: &Scene<'_>, amount: &Amount, delta: &Delta<'_>) -> bool {
    let claim = &delta.job.claim;
    let above = |project: &String| scene.lineages.of(&claim.project).iter().any(|one| one.name == *project);
    let project = amount.project.as_ref().is_none_or(|project| *project == claim.project || above(project));
    project && amount.label.as_ref().is_none_or(|label| claim.labels.get(&label.key) == Some(&label.value))
}

fn counted(scene: &Scene<'_>, amount: &Amount, at: &Assignment) -> usize {
    let named = |slice: &&NodeSlice| {
        let node = scene.nodes.get(&slice.node);
        let of_type = |gpu_type| node.is_some_and(|node| node.class.gpu_type == gpu_type);
        let is = |name: &String| node.is_some_and(|node| node.name == *name || node.node.to_string() == *name);
        amount.gpu_type.clone().is_none_or(of_type) && amount.node.as_ref().is_none_or(is)
    };
    at.placement.slices().iter().filter(named).map(|slice| slice.gpus.len()).sum()
}
