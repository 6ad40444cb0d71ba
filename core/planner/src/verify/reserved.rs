//! Reserved nodes: while a reservation lasts, only its members run there. Before it begins, another job starts there only
//! if its time limit ends it before, or if it saves and what it does until then is worth its start; and it leaves so
//! early that the nodes are free when the reservation begins.

use headway_types::{NodeId, Seconds};

use super::delta::Delta;
use super::{Scene, Violation};
use crate::ending::{FAR, LEAST_USEFUL};
use crate::reservation::Reservation;

pub(super) fn check(scene: &Scene<'_>, delta: &Delta<'_>) -> Result<(), Violation> {
    let Some(to) = delta.to.filter(|_| !delta.is_fixed()) else { return Ok(()) };
    for slice in to.placement.slices() {
        for reservation in lasting(scene, slice.node).filter(|one| !is_member(scene, delta, one)) {
            let (job, node, name) = (delta.job.job, slice.node, reservation.name.clone());
            if delta.stays() {
                if is_due(scene, delta, reservation) {
                    return Err(Violation::Overstays { job, node, reservation: name });
                }
            } else if !may_start(scene, delta, reservation) {
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

fn time_until(scene: &Scene<'_>, reservation: &Reservation) -> Seconds {
    Seconds((reservation.from.0 - scene.input.now.0) as f64 / 1e6)
}

fn may_start(scene: &Scene<'_>, delta: &Delta<'_>, reservation: &Reservation) -> bool {
    let (job, left) = (delta.job, time_until(scene, reservation).0);
    if left <= 0.0 {
        return false;
    }
    let start = job.start_cost().0;
    let within_its_limit = job.bounds.time_left.is_some_and(|limit| limit.0 <= left - start);
    let lost = start + leaving(delta);
    let leaves_whole = job.departure.saves && !job.departure.never;
    let worth_its_start = leaves_whole && left - lost >= LEAST_USEFUL.0 && left - lost >= lost;
    left >= FAR.0 || within_its_limit || worth_its_start
}

/// Whether a job that stays would not have left when the reservation begins. A job that must not run twice never leaves.
fn is_due(scene: &Scene<'_>, delta: &Delta<'_>, reservation: &Reservation) -> bool {
    let left = time_until(scene, reservation).0;
    let ended_by_its_limit = delta.job.bounds.time_left.is_some_and(|limit| limit.0 <= left);
    !delta.job.departure.never && left <= if ended_by_its_limit { 0.0 } else { leaving(delta) }
}

/// How long a job takes to leave; a day at most.
fn leaving(delta: &Delta<'_>) -> f64 {
    delta.job.departure.takes.0.clamp(0.0, 86_400.0)
}

/// Whether a reservation takes what the job has from it.
pub(super) fn must_leave(scene: &Scene<'_>, delta: &Delta<'_>) -> bool {
    let slices = delta.from.iter().flat_map(|from| from.placement.slices());
    slices
        .flat_map(|slice| lasting(scene, slice.node))
        .any(|one| is_due(scene, delta, one) && !is_member(scene, delta, one))
}
