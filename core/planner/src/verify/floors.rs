//! What is owed from below: the floors of projects and of jobs are reached, or nobody they are for asks for more, or the
//! plan says that it could not.

use std::collections::BTreeMap;

use headway_types::GpuCount;

use super::delta::Delta;
use super::{Scene, Violation};

pub(super) fn check(scene: &Scene<'_>) -> Result<(), Violation> {
    check_projects(scene)?;
    scene.deltas.iter().try_for_each(|delta| check_job(scene, delta))
}

fn check_projects(scene: &Scene<'_>) -> Result<(), Violation> {
    let mut members = BTreeMap::<&str, (GpuCount, Vec<&Delta<'_>>)>::new();
    for delta in &scene.deltas {
        for project in scene.lineages.of(&delta.job.claim.project).iter().filter(|one| one.floor > GpuCount(0)) {
            members.entry(&project.name).or_insert((project.floor, Vec::new())).1.push(delta);
        }
    }
    for (project, (floor, members)) in members {
        let has: u64 = members.iter().map(|delta| u64::from(delta.gpus_after().0)).sum();
        let rule = format!("the floor of project {project}");
        if has >= u64::from(floor.0) || scene.relaxed.contains(rule.as_str()) {
            continue;
        }
        if let Some(delta) = members.iter().find(|delta| delta.asks_for_more()) {
            return Err(Violation::BelowFloor { rule, has, floor, job: delta.job.job });
        }
    }
    Ok(())
}

fn check_job(scene: &Scene<'_>, delta: &Delta<'_>) -> Result<(), Violation> {
    let (floor, has) = (delta.job.claim.floor, delta.gpus_after());
    let rule = format!("the floor of job {}", delta.job.name);
    if has >= floor || !delta.asks_for_more() || scene.relaxed.contains(rule.as_str()) {
        return Ok(());
    }
    Err(Violation::BelowFloor { rule, has: u64::from(has.0), floor, job: delta.job.job })
}
