//! The nodes of a round by class, and the shapes a size can take on them. It never looks at jobs' values.

use std::collections::BTreeMap;

use headway_types::{GpuCount, GpuUuid, NodeClass, NodeCount, NodeId, Placement};

use crate::input::PlanNode;

/// Beyond this many nodes a class offers multi-node jobs whole nodes only; smaller clusters may split evenly.
const SMALL_CLASS_NODES: usize = 8;
/// Alternative node counts per size, fewest nodes first.
const SHAPES_PER_SIZE: usize = 3;

/// How a size spreads over nodes of one class: the same number of GPUs on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape {
    /// Index into [`Cluster::classes`].
    pub class: usize,
    pub gpus: GpuCount,
    pub nodes: NodeCount,
}

impl Shape {
    pub fn per_node(self) -> u32 {
        self.gpus.0 / self.nodes.0
    }
}

/// Where a GPU is: node index and position in the node's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot {
    pub node: usize,
    pub position: usize,
}

pub(crate) struct Cluster<'a> {
    pub nodes: &'a [PlanNode],
    /// Ascending, so that an index means the same class in every run.
    pub classes: Vec<&'a NodeClass>,
    class_of: Vec<usize>,
    slots: BTreeMap<&'a GpuUuid, Slot>,
    index_of: BTreeMap<NodeId, usize>,
}

impl<'a> Cluster<'a> {
    pub fn new(nodes: &'a [PlanNode]) -> Self {
        let mut classes: Vec<&NodeClass> = nodes.iter().map(|node| &node.class).collect();
        classes.sort();
        classes.dedup();
        let class_of = nodes
            .iter()
            .map(|node| classes.binary_search(&&node.class).expect("the list was made from these nodes"))
            .collect();
        let slots = nodes
            .iter()
            .enumerate()
            .flat_map(|(node, entry)| {
                entry.gpus.iter().enumerate().map(move |(position, gpu)| (gpu, Slot { node, position }))
            })
            .collect();
        let index_of = nodes.iter().enumerate().map(|(index, node)| (node.node, index)).collect();
        Self { nodes, classes, class_of, slots, index_of }
    }

    pub fn class_of(&self, node: usize) -> usize {
        self.class_of[node]
    }

    pub fn node(&self, id: NodeId) -> Option<&'a PlanNode> {
        self.index_of.get(&id).map(|&index| &self.nodes[index])
    }

    pub fn nodes_of(&self, class: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.nodes.len()).filter(move |&node| self.class_of[node] == class)
    }

    /// GPUs of a node that something new may start on.
    pub fn open_on(&self, node: usize) -> u32 {
        if self.nodes[node].draining { 0 } else { self.nodes[node].gpus.len() as u32 }
    }

    /// GPUs of a class that something new may start on.
    pub fn open(&self, class: usize) -> GpuCount {
        GpuCount(self.nodes_of(class).map(|node| self.open_on(node)).sum())
    }

    /// GPUs of a class as its nodes were built, broken and cordoned ones included.
    pub fn nominal(&self, class: usize) -> GpuCount {
        GpuCount(self.nodes_of(class).count() as u32 * self.classes[class].gpus_per_node.0)
    }

    /// The slots of a placement, or `None` where a GPU of it is not usable any more.
    pub fn slots(&self, placement: &Placement) -> Option<Vec<Slot>> {
        placement
            .ranks()
            .map(|(id, gpu)| {
                let slot = *self.slots.get(gpu)?;
                (self.nodes[slot.node].node == id).then_some(slot)
            })
            .collect()
    }

    /// The slots of a placement that are usable; of a job in flight some may not be.
    pub fn known_slots(&self, placement: &Placement) -> Vec<Slot> {
        placement.ranks().filter_map(|(_, gpu)| self.slots.get(gpu).copied()).collect()
    }

    /// The class all nodes of a placement share, where they do and are known.
    pub fn class_of_placement(&self, placement: &Placement) -> Option<usize> {
        let mut classes =
            placement.slices().iter().map(|slice| self.index_of.get(&slice.node).map(|&node| self.class_of[node]));
        let first = classes.next()??;
        classes.all(|class| class == Some(first)).then_some(first)
    }

    pub fn touches_draining(&self, placement: &Placement) -> bool {
        placement.slices().iter().any(|slice| self.node(slice.node).is_some_and(|node| node.draining))
    }

    /// Ways to spread `gpus` over nodes of `class` that now are open, fewest nodes first.
    pub fn shapes(&self, class: usize, gpus: GpuCount) -> Vec<Shape> {
        self.shapes_where(class, gpus, |node| self.open_on(node))
    }

    /// As [`Self::shapes`], as if every node were whole and open.
    pub fn nominal_shapes(&self, class: usize, gpus: GpuCount) -> Vec<Shape> {
        let whole = self.classes[class].gpus_per_node.0;
        self.shapes_where(class, gpus, |_| whole)
    }

    fn shapes_where(&self, class: usize, gpus: GpuCount, room: impl Fn(usize) -> u32) -> Vec<Shape> {
        let whole = self.classes[class].gpus_per_node.0;
        let rooms: Vec<u32> = self.nodes_of(class).map(room).collect();
        let small = rooms.len() <= SMALL_CLASS_NODES;
        (1..=rooms.len() as u32)
            .filter(|nodes| gpus.0 > 0 && gpus.0.is_multiple_of(*nodes) && gpus.0 / nodes <= whole)
            .filter(|nodes| small || *nodes == 1 || gpus.0 / nodes == whole)
            .filter(|nodes| rooms.iter().filter(|&&room| room >= gpus.0 / nodes).count() as u32 >= *nodes)
            .take(SHAPES_PER_SIZE)
            .map(|nodes| Shape { class, gpus, nodes: NodeCount(nodes) })
            .collect()
    }
}
