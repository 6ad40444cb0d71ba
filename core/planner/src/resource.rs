//! What the integer program shares out: per class its GPUs, its nodes for slices of more than half a node (each node
//! holds one such), and its whole nodes. The last two keep the program from promising what fragmentation forbids.

use std::collections::BTreeMap;

use headway_types::Placement;

use crate::cluster::{Cluster, Shape};

/// An amount of one of the solver's resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub resource: usize,
    pub amount: u32,
}

pub(crate) const PER_CLASS: usize = 3;

/// The class whose GPUs a resource counts, if it counts GPUs.
pub(crate) fn gpus_of_class(resource: usize) -> Option<usize> {
    resource.is_multiple_of(PER_CLASS).then_some(resource / PER_CLASS)
}

/// Capacity per resource, in the order of [`Use::resource`].
pub(crate) fn capacities(cluster: &Cluster<'_>) -> Vec<u32> {
    (0..cluster.classes.len())
        .flat_map(|class| {
            let whole = cluster.classes[class].gpus_per_node.0;
            let count = |at_least: u32| {
                cluster.nodes_of(class).filter(|&node| cluster.open_on(node) >= at_least).count() as u32
            };
            [cluster.open(class).0, count(whole / 2 + 1), count(whole.max(1))]
        })
        .collect()
}

/// What a new placement of this shape takes.
pub(crate) fn of_shape(cluster: &Cluster<'_>, shape: Shape) -> Vec<Use> {
    uses(cluster, shape.class, std::iter::repeat_n(shape.per_node(), shape.nodes.0 as usize))
}

/// What a present placement takes. GPUs on draining nodes are nobody else's, so they do not count.
pub(crate) fn of_placement(cluster: &Cluster<'_>, placement: &Placement) -> Vec<Use> {
    let mut per_node = BTreeMap::<usize, u32>::new();
    for slot in cluster.known_slots(placement).into_iter().filter(|slot| !cluster.nodes[slot.node].draining) {
        *per_node.entry(slot.node).or_default() += 1;
    }
    let Some((&first, _)) = per_node.first_key_value() else { return Vec::new() };
    uses(cluster, cluster.class_of(first), per_node.into_values())
}

fn uses(cluster: &Cluster<'_>, class: usize, slices: impl Iterator<Item = u32>) -> Vec<Use> {
    let whole = cluster.classes[class].gpus_per_node.0;
    let mut amounts = [0; PER_CLASS];
    for gpus in slices {
        amounts[0] += gpus;
        amounts[1] += u32::from(gpus > whole / 2);
        amounts[2] += u32::from(gpus >= whole);
    }
    amounts
        .into_iter()
        .enumerate()
        .filter(|(_, amount)| *amount > 0)
        .map(|(kind, amount)| Use { resource: class * PER_CLASS + kind, amount })
        .collect()
}
