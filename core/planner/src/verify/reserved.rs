//! Nodes that are set aside: while a reservation lasts only its members run there, and before it begins only what will
//! have left by then starts there.

use headway_types::NodeId;

use super::delta::Delta;
use super::{Scene, Violation};
use crate::reservation::Reservation;

pub(super) fn check(scene: &Scene<'_>, delta: &Delta<'_>) -> Result<(), Violation> {
    let Some(to) = delta.to.filter(|_| !delta.is_fixed()) else { return Ok(()) };
    for slice in to.placement.slices() {
        for reservation in lasting(scene, slice.node).filter(|one| !is_member(scene, delta, one)) {
            let (job, node, name) = (delta.job.job, slice.node, reservation.name.clone());
            if delta.stays() {
                if reservation.from <= scene.input.now {
                    return Err(Violation::Overstays { job, node, reservation: name });
                }
            } else if !leaves_before(scene, delta, reservation) {
                return Err(Violation::Reserved { job, node, reservation: name });
            }
        }
    }
    Ok(())
}

fn lasting<'a>(scene: &Scene<'a>, node: NodeId) -> impl Iterator<Item = &'a Reservation> {
    let now = scene.input.now;
    scene.input.reservations.iter().filter(move |one| one.until > now && one.nodes.contains(&node))
}

fn is_member(scene: &Scene<'_>, delta: &Delta<'_>, reservation: &Reservation) -> bool {
    let claim = &delta.job.claim;
    reservation.jobs.contains(&delta.job.job)
        || reservation.users.contains(&claim.user)
        || reservation.projects.contains(&claim.project)
        || scene.lineages.of(&claim.project).iter().any(|project| reservation.projects.contains(&project.name))
}

fn leaves_before(scene: &Scene<'_>, delta: &Delta<'_>, reservation: &Reservation) -> bool {
    let now = scene.input.now;
    reservation.from > now && delta.job.bounds.time_left.is_some_and(|left| now + left <= reservation.from)
}

/// Whether an active reservation takes what the job has from it.
pub(super) fn must_leave(scene: &Scene<'_>, delta: &Delta<'_>) -> bool {
    let slices = delta.from.iter().flat_map(|from| from.placement.slices());
    slices.flat_map(|slice| lasting(scene, slice.node)).any(|one| {
        let active = one.from <= scene.input.now;
        active && !is_member(scene, delta, one)
    })
}
