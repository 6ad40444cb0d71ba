//! Pairs of classes that one gang may span, where its job says so. A mix is counted on from the classes: its index is one where a shape or a
//! placement is asked for its class, and none of its own rows, nodes or prices exist. Two classes are enough: three would be three clusters.

use std::borrow::Cow;

use headway_goodput::JobModel;
use headway_types::{Execution, GpuCount, GpuType, Layout, NodeClass, NodeCount, NodeId, Placement};

use crate::cluster::{Class, Cluster, Reach, Shape, Slot};
use crate::input::PlanNode;

/// Two classes as one gang finds them.
#[derive(Clone, Debug)]
pub(crate) struct Mix {
    /// What it is valued by.
    alike: NodeClass,
    slower: usize,
    faster: usize,
    /// Whether all its nodes' agents tell workers of uneven shares.
    tells_shares: bool,
}

/// Every pair that can be compared.
pub(crate) fn mixes(classes: &[Class], nodes: &[PlanNode]) -> Vec<Mix> {
    let pairs = (0..classes.len()).flat_map(|a| (a + 1..classes.len()).map(move |b| (a, b)));
    let mix = |(a, b): (usize, usize)| {
        let (first, second) = (&classes[a].alike, &classes[b].alike);
        let alike = headway_goodput::slowest([first, second])?;
        let second_is_slower = headway_goodput::ahead_of(second, first, NodeCount(1)).is_some();
        // Of equally fast ones the one that reports are of, and of one GPU type either.
        let in_order = !second_is_slower && alike.gpu_type == first.gpu_type;
        let (slower, faster) = if in_order { (a, b) } else { (b, a) };
        let tells_shares = [a, b].iter().flat_map(|class| &classes[*class].nodes).all(|node| nodes[*node].tells_shares);
        Some(Mix { alike, slower, faster, tells_shares })
    };
    pairs.filter_map(mix).collect()
}

impl Cluster<'_> {
    fn mix(&self, class: usize) -> Option<&Mix> {
        self.mixes.get(class.checked_sub(self.classes.len())?)
    }

    /// The class, or what a mix is valued by.
    pub fn alike(&self, class: usize) -> &NodeClass {
        self.mix(class).map_or_else(|| &self.classes[class].alike, |mix| &mix.alike)
    }

    /// What a gang of a shape is valued by: the class, and where a job's replicas may do unequal shares of a step, which nodes are faster.
    pub fn valued_by(&self, shape: Shape, model: &JobModel) -> Cow<'_, NodeClass> {
        let alike = self.alike(shape.class);
        let shares = model.training.layouts.on(shape.gpus).2.uneven_shares;
        let Some(mix) = self.mix(shape.class).filter(|mix| shares && mix.tells_shares) else {
            return Cow::Borrowed(alike);
        };
        let [slower, faster] = [mix.slower, mix.faster].map(|class| &self.classes[class].alike);
        let ahead = headway_goodput::ahead_of(slower, faster, shape.of_faster);
        Cow::Owned(NodeClass { ahead, ..alike.clone() })
    }

    /// The same of a placement, where its nodes are known.
    pub fn placement_valued_by(&self, placement: &Placement, model: &JobModel) -> Option<Cow<'_, NodeClass>> {
        let class = self.class_of_placement(placement)?;
        let of_faster =
            NodeCount(placement.slices().iter().filter(|slice| self.is_faster(class, slice.node)).count() as u32);
        if !self.is_in_rank_order(placement) {
            return Some(Cow::Borrowed(self.alike(class)));
        }
        let (gpus, nodes) = (placement.gpus(), placement.nodes());
        Some(self.valued_by(Shape { class, gpus, nodes, reach: Reach::Class, of_faster }, model))
    }

    /// Whether a node is of the faster class of a mix.
    fn is_faster(&self, class: usize, node: NodeId) -> bool {
        let Some(mix) = self.mix(class) else { return false };
        self.index_of(node).is_some_and(|node| self.class_of(node) == mix.faster)
    }

    /// Whether the nodes of its faster class come last.
    pub fn is_in_rank_order(&self, placement: &Placement) -> bool {
        let class = self.class_of_placement(placement);
        class.is_none_or(|class| placement.slices().is_sorted_by_key(|slice| self.is_faster(class, slice.node)))
    }

    /// Sorts the slots of a gang into the order of its ranks: by node, then index, those of a mix's faster class last.
    pub fn sort_by_rank(&self, slots: &mut [Slot]) {
        slots.sort_unstable();
        let classes = slots.iter().map(|slot| self.class_of(slot.node));
        let (Some(least), Some(most)) = (classes.clone().min(), classes.max()) else { return };
        let mix =
            self.mixes.iter().find(|mix| [mix.slower.min(mix.faster), mix.slower.max(mix.faster)] == [least, most]);
        if let Some(mix) = mix {
            slots.sort_by_key(|slot| self.class_of(slot.node) == mix.faster);
        }
    }

    /// The classes whose nodes it has; of a class that one, twice.
    pub fn members(&self, class: usize) -> [usize; 2] {
        self.mix(class).map_or([class, class], |mix| [mix.slower, mix.faster])
    }

    pub fn is_mix(&self, class: usize) -> bool {
        class >= self.classes.len()
    }

    /// "H100-80G"; of a mix of two types "A100-80G+H100-80G".
    pub fn gpu_type(&self, class: usize) -> GpuType {
        let types = self.members(class).map(|one| self.classes[one].alike.gpu_type.clone());
        GpuType::joined(types).unwrap_or_else(|| self.alike(class).gpu_type.clone())
    }

    /// Whether some of its nodes are further from each other than others.
    pub fn has_domains(&self, class: usize) -> bool {
        self.is_mix(class) || self.classes[class].has_domains()
    }

    /// How many kinds of GPUs of the cluster are faster.
    pub fn faster_kinds(&self, class: usize) -> u32 {
        self.classes[self.members(class)[0]].faster
    }

    /// What a shape is in each class; of one in a class that alone.
    pub fn parts(&self, shape: Shape) -> impl Iterator<Item = Shape> + use<> {
        let part = |class: usize, nodes: NodeCount| Shape {
            class,
            gpus: GpuCount(shape.per_node() * nodes.0),
            nodes,
            reach: if self.is_mix(shape.class) { Reach::Class } else { shape.reach },
            of_faster: NodeCount(0),
        };
        let [slower, faster] = self.members(shape.class);
        let first = part(slower, NodeCount(shape.nodes.0 - shape.of_faster.0));
        let second = part(faster, shape.of_faster);
        [first, second].into_iter().filter(|part| part.nodes.0 > 0)
    }

    /// The class that all nodes of a placement have, or the mix of the two that they have, where they are known.
    pub fn class_of_placement(&self, placement: &Placement) -> Option<usize> {
        let mut found: Option<[usize; 2]> = None;
        for slice in placement.slices() {
            let class = self.class_of(self.index_of(slice.node)?);
            found = match found {
                None => Some([class, class]),
                Some([a, b]) if class == a || class == b => found,
                Some([a, b]) if a == b => Some([a.min(class), a.max(class)]),
                Some(_) => return None,
            };
        }
        let [a, b] = found?;
        let is_it = |mix: &Mix| [mix.slower.min(mix.faster), mix.slower.max(mix.faster)] == [a, b];
        if a == b { Some(a) } else { Some(self.classes.len() + self.mixes.iter().position(is_it)?) }
    }

    /// Whether a placement is what a shape describes, wherever its nodes lie.
    pub fn has_shape(&self, placement: &Placement, shape: Shape) -> bool {
        let of_faster = placement.slices().iter().filter(|slice| self.is_faster(shape.class, slice.node));
        self.class_of_placement(placement) == Some(shape.class)
            && placement.gpus() == shape.gpus
            && placement.nodes() == shape.nodes
            && of_faster.count() == shape.of_faster.0 as usize
    }

    /// Shapes of `gpus` over both classes of each mix of these classes, by the nodes that each class has room for. A node gives as many GPUs
    /// as the smaller kind has. `bound`: a layout that the job cannot leave.
    pub fn mixed_shapes(
        &self,
        classes: &[usize],
        gpus: GpuCount,
        bound: Option<Layout>,
        nodes_of: impl Fn(&Class, u32) -> u32,
    ) -> Vec<Shape> {
        let open = self
            .mixes
            .iter()
            .enumerate()
            .filter(|(_, mix)| classes.contains(&mix.slower) && classes.contains(&mix.faster));
        open.flat_map(|(at, mix)| {
            let per_node = mix.alike.gpus_per_node.0.max(1);
            let nodes = if gpus.0.is_multiple_of(per_node) { gpus.0 / per_node } else { 0 };
            let [slower, faster] = [mix.slower, mix.faster].map(|class| nodes_of(&self.classes[class], per_node));
            // As few of the faster as there can be, as many, and half way.
            let (least, most) = (nodes.saturating_sub(slower).max(1), faster.min(nodes.saturating_sub(1)));
            let mut divisions = vec![least, least.midpoint(most), most];
            divisions.extend(bound.map(|layout| faster_nodes(layout, per_node)));
            divisions.sort_unstable();
            divisions.retain(|of_faster| (least..=most).contains(of_faster));
            divisions.dedup();
            let class = self.classes.len() + at;
            let shape = move |of_faster| Shape {
                class,
                gpus,
                nodes: NodeCount(nodes),
                reach: Reach::Class,
                of_faster: NodeCount(of_faster),
            };
            divisions.into_iter().map(shape).collect::<Vec<_>>()
        })
        .collect()
    }
}

/// Nodes that replicas of a layout do more on than on others.
fn faster_nodes(layout: Layout, per_node: u32) -> u32 {
    let Execution { cp, shares, .. } = layout.execution;
    shares.of_faster.saturating_mul(layout.tp).saturating_mul(cp) / per_node
}

#[cfg(test)]
#[path = "mixes_tests.rs"]
mod tests;
