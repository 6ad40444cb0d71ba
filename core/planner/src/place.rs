//! From shapes to GPUs: the present placement where it can stay, buddy-aligned inside a node, the fullest nodes first.
//! It decides about sizes only where
//! a shape finds no room: that job then gets its next best that does.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use headway_types::{NodeSlice, Placement};

use crate::candidate::{Candidate, Options};
use crate::cluster::{Cluster, Shape, Slot};

/// Where everything goes.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    /// What was asked for, but the next best of a job that found no room for it.
    pub choice: Vec<usize>,
    pub placements: Vec<Option<Placement>>,
    /// The first job (by index) that found no room for its choice.
    pub no_room: Option<usize>,
}

/// Places every job's chosen candidate. `evicted` jobs must not simply get back what they hold.
pub(crate) fn place(
    cluster: &Cluster<'_>,
    options: &[Options<'_>],
    choice: &[usize],
    evicted: &BTreeSet<usize>,
) -> Placed {
    let mut free = Free::new(cluster);
    let mut placed = Placed { choice: choice.to_vec(), placements: vec![None; options.len()], no_room: None };
    let mut open = Vec::new();
    for (job, entry) in options.iter().enumerate() {
        let candidate = &entry.candidates[choice[job]];
        let current = entry.job.current.as_ref().map(|current| &current.placement);
        let in_place = candidate.stays || (!evicted.contains(&job) && same_shape(cluster, candidate, current));
        match current.filter(|_| in_place) {
            Some(current) => {
                free.take(&cluster.known_slots(current));
                placed.placements[job] = Some(current.clone());
            }
            None => open.extend(candidate.shape.map(|shape| (job, shape))),
        }
    }
    // Large slices first: what is left then is small enough for the small ones.
    open.sort_by_key(|&(job, shape)| (Reverse(shape.per_node()), Reverse(shape.nodes), options[job].job.job));
    for (job, shape) in open {
        let current = options[job].job.current.as_ref().and_then(|current| cluster.slots(&current.placement));
        let current = current.unwrap_or_default();
        let slots = match free.find(shape, &current) {
            Some(slots) => slots,
            None => {
                placed.no_room.get_or_insert(job);
                let (at, slots) = next_best(&options[job], &free, &current);
                placed.choice[job] = at;
                slots
            }
        };
        free.take(&slots);
        placed.placements[job] = placement(cluster, &slots);
    }
    placed
}

/// The most valuable candidate that has room in what is left, and where; having nothing always has.
fn next_best(options: &Options<'_>, free: &Free<'_>, current: &[Slot]) -> (usize, Vec<Slot>) {
    let mut order: Vec<usize> = (0..options.candidates.len()).collect();
    order.sort_by_key(|&at| (Reverse(options.candidates[at].value), at));
    let fits = order.into_iter().find_map(|at| {
        let candidate = &options.candidates[at];
        match candidate.shape {
            Some(shape) => free.find(shape, current).map(|slots| (at, slots)),
            None if candidate.stays => free.all(current).then(|| (at, current.to_vec())),
            None => Some((at, Vec::new())),
        }
    });
    fits.expect("a job that may move may also have nothing")
}

/// Whether a move keeps class, size and spread (a layout change), on GPUs that still may be used for it.
fn same_shape(cluster: &Cluster<'_>, candidate: &Candidate, current: Option<&Placement>) -> bool {
    let (Some(shape), Some(current)) = (candidate.shape, current) else { return false };
    cluster.class_of_placement(current) == Some(shape.class)
        && current.gpus() == shape.gpus
        && current.nodes() == shape.nodes
        && cluster.slots(current).is_some()
        && !cluster.touches_draining(current)
}

/// Slots in rank order (by node, then index); `None` where there are none.
fn placement(cluster: &Cluster<'_>, slots: &[Slot]) -> Option<Placement> {
    let mut slices: Vec<NodeSlice> = Vec::new();
    for slot in slots {
        let node = &cluster.nodes[slot.node];
        let gpu = node.gpus[slot.position].clone();
        match slices.last_mut() {
            Some(last) if last.node == node.node => last.gpus.push(gpu),
            _ => slices.push(NodeSlice { node: node.node, gpus: vec![gpu] }),
        }
    }
    Placement::try_new(slices).ok()
}

struct Free<'c> {
    cluster: &'c Cluster<'c>,
    /// Per node, per position.
    free: Vec<Vec<bool>>,
}

impl<'c> Free<'c> {
    fn new(cluster: &'c Cluster<'c>) -> Self {
        let free = cluster.nodes.iter().map(|node| vec![!node.draining; node.gpus.len()]).collect();
        Self { cluster, free }
    }

    fn take(&mut self, slots: &[Slot]) {
        for slot in slots {
            self.free[slot.node][slot.position] = false;
        }
    }

    fn all(&self, slots: &[Slot]) -> bool {
        !slots.is_empty() && slots.iter().all(|slot| self.free[slot.node][slot.position])
    }

    fn count(&self, node: usize) -> u32 {
        self.free[node].iter().filter(|free| **free).count() as u32
    }

    /// Slots for a shape: nodes where the job already is, then the fullest that have room, then by id.
    fn find(&self, shape: Shape, current: &[Slot]) -> Option<Vec<Slot>> {
        let per_node = shape.per_node();
        let mut nodes: Vec<usize> =
            self.cluster.nodes_of(shape.class).filter(|&node| self.count(node) >= per_node).collect();
        nodes.sort_by_key(|&node| {
            let own = current.iter().filter(|slot| slot.node == node && self.free[node][slot.position]).count();
            (Reverse(own), self.count(node), node)
        });
        nodes.truncate(shape.nodes.0 as usize);
        nodes.sort_unstable();
        (nodes.len() == shape.nodes.0 as usize)
            .then(|| nodes.into_iter().flat_map(|node| self.pick(node, per_node as usize, current)).collect())
    }

    /// `count` free positions of a node: in the buddy-aligned window that holds most of the job's own GPUs, then the
    /// fullest; without such a window the lowest.
    fn pick(&self, node: usize, count: usize, current: &[Slot]) -> Vec<Slot> {
        let free = &self.free[node];
        let own = |position: usize| current.contains(&Slot { node, position });
        let width = count.next_power_of_two();
        let window = (0..free.len())
            .step_by(width)
            .map(|start| start..(start + width).min(free.len()))
            .filter(|window| free[window.clone()].iter().filter(|free| **free).count() >= count)
            .min_by_key(|window| {
                let mine = window.clone().filter(|&position| free[position] && own(position)).count();
                let open = free[window.clone()].iter().filter(|free| **free).count();
                (Reverse(mine), open, window.start)
            })
            .unwrap_or(0..free.len());
        let mut positions: Vec<usize> = window.filter(|&position| free[position]).collect();
        positions.sort_by_key(|&position| (!own(position), position));
        positions.truncate(count);
        positions.sort_unstable();
        positions.into_iter().map(|position| Slot { node, position }).collect()
    }
}
