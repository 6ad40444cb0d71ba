//! From shapes to GPUs: the present placement where it can stay, buddy-aligned inside a node, the fullest nodes first.
//! It decides nothing about sizes; where a shape does not fit it says whose.

use std::collections::BTreeSet;

use headway_types::{NodeSlice, Placement};

use crate::candidate::{Candidate, Options};
use crate::cluster::{Cluster, Shape, Slot};

/// The job (by index) whose chosen shape has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom {
    pub job: usize,
}

/// Places every job's chosen candidate. `evicted` jobs must not simply get back what they hold.
pub(crate) fn place(
    cluster: &Cluster<'_>,
    options: &[Options<'_>],
    choice: &[usize],
    evicted: &BTreeSet<usize>,
) -> Result<Vec<Option<Placement>>, NoRoom> {
    let chosen = |job: usize| &options[job].candidates[choice[job]];
    let mut free = Free::new(cluster);
    let mut placements: Vec<Option<Placement>> = vec![None; options.len()];
    let mut open = Vec::new();
    for job in 0..options.len() {
        let candidate = chosen(job);
        let current = options[job].job.current.as_ref().map(|current| &current.placement);
        let in_place = candidate.stays || (!evicted.contains(&job) && same_shape(cluster, candidate, current));
        match current.filter(|_| in_place) {
            Some(current) => {
                free.take(&cluster.known_slots(current));
                placements[job] = Some(current.clone());
            }
            None if candidate.shape.is_some() => open.push(job),
            None => {}
        }
    }
    // Large slices first: what is left then is small enough for the small ones.
    open.sort_by_key(|&job| {
        let shape = chosen(job).shape.expect("only candidates with a shape are open");
        (std::cmp::Reverse(shape.per_node()), std::cmp::Reverse(shape.nodes), options[job].job.job)
    });
    for job in open {
        let shape = chosen(job).shape.expect("only candidates with a shape are open");
        let current = options[job].job.current.as_ref().and_then(|current| cluster.slots(&current.placement));
        let slots = free.find(shape, &current.unwrap_or_default()).ok_or(NoRoom { job })?;
        free.take(&slots);
        placements[job] = Some(placement(cluster, &slots));
    }
    Ok(placements)
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

/// Slots in rank order: by node, then index.
fn placement(cluster: &Cluster<'_>, slots: &[Slot]) -> Placement {
    let mut slices: Vec<NodeSlice> = Vec::new();
    for slot in slots {
        let node = &cluster.nodes[slot.node];
        let gpu = node.gpus[slot.position].clone();
        match slices.last_mut() {
            Some(last) if last.node == node.node => last.gpus.push(gpu),
            _ => slices.push(NodeSlice { node: node.node, gpus: vec![gpu] }),
        }
    }
    Placement::try_new(slices).expect("slots are distinct and grouped by node")
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
            (std::cmp::Reverse(own), self.count(node), node)
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
                (std::cmp::Reverse(mine), open, window.start)
            })
            .unwrap_or(0..free.len());
        let mut positions: Vec<usize> = window.filter(|&position| free[position]).collect();
        positions.sort_by_key(|&position| (!own(position), position));
        positions.truncate(count);
        positions.sort_unstable();
        positions.into_iter().map(|position| Slot { node, position }).collect()
    }
}
