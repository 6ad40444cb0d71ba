//! What a plan leaves of the nodes, and how large a job would find room there at once. It looks where a round looks when it places, for a job of which
//! nothing is known but its size; what quotas leave it is another matter. Asked by people, not by rounds.

use std::collections::{BTreeMap, BTreeSet};

use headway_types::spec::GpuRange;
use headway_types::{GpuCount, GpuType, IdSource, Plan};

use crate::cluster::{Cluster, Shape};
use crate::free::{Free, Seeker};
use crate::input::{PlanInput, PlanJob, PlanWork};
use crate::project::Tree;
use crate::round::Round;
use crate::sound::Sound;

/// Of one GPU type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// GPUs that the plan leaves free for every job.
    pub free: GpuCount,
    /// The largest size that would find room.
    pub largest: GpuCount,
    /// GPUs that the plan leaves free on nodes that are reserved, now or too soon for a job without a time limit that
    /// does not save.
    pub reserved: GpuCount,
    /// Names of these reservations.
    pub reserved_by: BTreeSet<String>,
}

/// What `plan` leaves of the round it was made of; nothing of a round that contradicts itself.
#[must_use]
pub fn room(input: &PlanInput, plan: &Plan) -> BTreeMap<GpuType, Room> {
    let Ok(sound) = Sound::of(input) else { return BTreeMap::new() };
    let input = &*sound.input;
    let (cluster, tree) = (Cluster::new(input), Tree::new(&input.projects));
    let round = Round::new(input, &cluster, &tree);
    let mut free = Free::new(&cluster);
    for job in &input.jobs {
        if let Some(at) = plan.assignments.get(&job.job) {
            free.take(job, &cluster.known_slots(&at.placement), false);
        }
    }
    let any =
        GpuRange { min: GpuCount(1), max: GpuCount(u32::MAX), sizes: Vec::new(), types: Vec::new(), mixed: false };
    let id = IdSource::seeded(0).job(input.now);
    let anybody = PlanJob::new(id, String::new(), input.now, any, PlanWork::Opaque);
    let mut rooms: BTreeMap<GpuType, Room> = BTreeMap::new();
    for (class, of) in cluster.classes.iter().enumerate() {
        let left = of_class(&cluster, &free, class, &anybody);
        let room = rooms.entry(of.alike.gpu_type.clone()).or_default();
        match round.closed_by(&anybody, class) {
            None => {
                room.free += left.free;
                room.largest = room.largest.max(left.largest);
            }
            Some(by) if left.free > GpuCount(0) => {
                room.reserved += left.free;
                room.reserved_by.insert(by.name.clone());
            }
            Some(_) => {}
        }
    }
    rooms
}

fn of_class(cluster: &Cluster<'_>, free: &Free<'_>, class: usize, job: &PlanJob) -> Room {
    let of = &cluster.classes[class];
    let left: Vec<u32> = of.nodes.iter().map(|&node| free.count(node)).collect();
    // Nodes that so many GPUs are left on, so that most sizes cost a look.
    let with: Vec<u32> =
        (0..=of.whole()).map(|gpus| left.iter().filter(|count| **count >= gpus).count() as u32).collect();
    let total = GpuCount(left.iter().sum());
    let enough = |shape: &Shape| with.get(shape.per_node() as usize).is_some_and(|nodes| *nodes >= shape.nodes.0);
    let seeker = Seeker { job, current: &[], outlasts_promise: false };
    let fits = |gpus: &GpuCount| {
        let mut shapes = cluster.shapes(class, *gpus).into_iter().filter(enough);
        shapes.any(|shape| free.find(shape, seeker).is_some())
    };
    let largest = (1..=total.0).rev().map(GpuCount).find(fits).unwrap_or_default();
    Room { free: total, largest, ..Room::default() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::builder::{NOW, after, node, reservation, rigid, round};
    use crate::curves::CurveCache;
    use crate::plan;

    fn told(input: &PlanInput) -> Vec<(String, u32, u32)> {
        let made = plan(input, &mut CurveCache::new()).unwrap();
        room(input, &made).into_iter().map(|(of, room)| (of.0, room.free.0, room.largest.0)).collect()
    }

    #[test]
    fn what_lies_scattered_has_room_for_less_than_is_free() {
        let nodes = vec![node(1, "alpha", 8), node(2, "alpha", 8), node(3, "beta", 4)];
        let mut jobs = vec![rigid(1, 5), rigid(2, 6)];
        jobs.iter_mut().for_each(|job| job.range.types = vec![GpuType("alpha".into())]);
        let told = told(&round(nodes, jobs));
        assert_eq!(told, [("alpha".into(), 5, 4), ("beta".into(), 4, 4)]);
    }

    #[test]
    fn a_job_of_the_largest_size_starts_at_once_and_one_larger_does_not() {
        let start = round(vec![node(1, "alpha", 8), node(2, "alpha", 8)], vec![rigid(1, 3)]);
        let first = plan(&start, &mut CurveCache::new()).unwrap();
        let before = after(&start, &first);
        let largest = room(&before, &first)[&GpuType("alpha".into())].largest;
        for (size, starts) in [(largest.0, true), (largest.0 + 1, false)] {
            let asked = before.clone().with([rigid(2, size)]);
            let made = plan(&asked, &mut CurveCache::new()).unwrap();
            assert_eq!(made.assignments.contains_key(&asked.jobs[1].job), starts, "{size}");
        }
    }

    #[test]
    fn free_gpus_of_reserved_nodes_are_counted_apart() {
        let until = headway_types::Timestamp(NOW.0 + 60_000_000);
        let nodes = vec![node(1, "alpha", 8), node(2, "alpha", 8), node(3, "beta", 4)];
        let reservations = vec![reservation("exam", &[1, 3], NOW, until)];
        let input = PlanInput { reservations, ..round(nodes, vec![]) };
        assert_eq!(told(&input), [("alpha".into(), 8, 8), ("beta".into(), 0, 0)]);
        let made = plan(&input, &mut CurveCache::new()).unwrap();
        let rooms = room(&input, &made);
        let reserved = |of: &str| (rooms[&GpuType(of.into())].reserved.0, rooms[&GpuType(of.into())].reserved_by.len());
        assert_eq!((reserved("alpha"), reserved("beta")), ((8, 1), (4, 1)));
    }
}
