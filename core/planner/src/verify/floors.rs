//! What is owed from below: the floors of projects and of jobs are reached, or nobody they are for asks for more, or the
//! plan says that it could not.

use std::collections::BTreeMap;

use headway_types::GpuCount;

use super::turn::Turn;
use super::{Scene, Violation};

pub(super) fn check(scene: &Scene<'_>) -> Result<(), Violation> {
    check_projects(scene)?;
    scene.turns.iter().try_for_each(|turn| check_job(scene, turn))
}

fn check_projects(scene: &Scene<'_>) -> Result<(), Violation> {
    let mut members = BTreeMap::<&str, (GpuCount, Vec<&Turn<'_>>)>::new();
    for turn in &scene.turns {
        for project in scene.lineages.of(&turn.job.claim.project).iter().filter(|one| one.floor > GpuCount(0)) {
            members.entry(&project.name).or_insert((project.floor, Vec::new())).1.push(turn);
        }
    }
    for (project, (floor, members)) in members {
        let has: u64 = members.iter().map(|turn| u64::from(turn.gpus_after().0)).sum();
        let rule = format!("the floor of project {project}");
        if has >= u64::from(floor.0) || scene.relaxed.contains(rule.as_str()) {
            continue;
        }
        if let Some(turn) = members.iter().find(|turn| turn.asks_for_more()) {
            return Err(Violation::BelowFloor { rule, has, floor, job: turn.job.job });
        }
    }
    Ok(())
}

fn check_job(scene: &Scene<'_>, turn: &Turn<'_>) -> Result<(), Violation> {
    let (floor, has) = (turn.job.claim.floor, turn.gpus_after());
    let rule = format!("the floor of job {}", turn.job.name);
    if has >= floor || !turn.asks_for_more() || scene.relaxed.contains(rule.as_str()) {
        return Ok(());
    }
    Err(Violation::BelowFloor { rule, has: u64::from(has.0), floor, job: turn.job.job })
}
