//! What is limited over many jobs: quotas of projects with what they may borrow, GPUs per user, and the number of moves.
//! A limit that the plan says it could not keep may be exceeded by what is already there, and by nothing else.

use std::collections::BTreeMap;

use headway_types::JobId;

use super::delta::Delta;
use super::{Scene, Violation, reserved};

/// How much of a limit is used.
pub(super) struct Load {
    pub rule: String,
    pub used: f64,
    pub limit: f64,
    /// A job that has more of it than before.
    pub added_by: Option<JobId>,
}

impl Load {
    pub fn check(self, scene: &Scene<'_>) -> Result<(), Violation> {
        let Self { rule, used, limit, added_by } = self;
        if used <= limit {
            return Ok(());
        }
        if !scene.relaxed.contains(rule.as_str()) {
            return Err(Violation::Exceeded { rule, used, limit });
        }
        added_by.map_or(Ok(()), |job| Err(Violation::AddedTo { rule, used, limit, job }))
    }

    fn add(&mut self, delta: &Delta<'_>) {
        self.used += f64::from(delta.gpus_after().0);
        if delta.gpus_after() > delta.gpus_before() {
            self.added_by.get_or_insert(delta.job.job);
        }
    }
}

pub(super) fn check(scene: &Scene<'_>) -> Result<(), Violation> {
    let mut loads = BTreeMap::<(&str, Option<&str>), Load>::new();
    for delta in scene.deltas.iter().filter(|delta| delta.to.is_some()) {
        for project in scene.lineages.of(&delta.job.claim.project) {
            if let Some(quota) = project.quota {
                let load = loads.entry((&project.name, None)).or_insert_with(|| Load {
                    rule: format!("the quota of project {}", project.name),
                    used: 0.0,
                    limit: f64::from(quota.0) + f64::from(project.borrow.0),
                    added_by: None,
                });
                load.add(delta);
            }
            if let Some(most) = project.max_per_user {
                let user = delta.job.claim.user.as_str();
                let load = loads.entry((&project.name, Some(user))).or_insert_with(|| Load {
                    rule: format!("what user {user} may hold in project {}", project.name),
                    used: 0.0,
                    limit: f64::from(most.0),
                    added_by: None,
                });
                load.add(delta);
            }
        }
    }
    loads.into_values().try_for_each(|load| load.check(scene))?;
    check_moves(scene)
}

fn check_moves(scene: &Scene<'_>) -> Result<(), Violation> {
    let Some(allowed) = scene.input.policy.max_moves else { return Ok(()) };
    let moves = scene.deltas.iter().filter(|delta| is_a_move(scene, delta)).count();
    if moves > allowed as usize { Err(Violation::TooManyMoves { moves, allowed }) } else { Ok(()) }
}

/// Whether a job loses GPUs that it could have kept.
fn is_a_move(scene: &Scene<'_>, delta: &Delta<'_>) -> bool {
    let Some(from) = delta.from else { return false };
    let usable = from.placement.ranks().all(|(node, gpu)| {
        let node = scene.nodes.get(&node);
        node.is_some_and(|node| !node.draining && node.gpus.contains(gpu))
    });
    !delta.stays() && usable && !reserved::must_leave(scene, delta)
}
