//! Pairs of classes that one gang may span. A mix is counted on from the classes: its index is one where a shape or a
//! placement is asked for its class, and none of its own rows, nodes or prices exist.
//!
//! Classes of two kinds of nodes are for jobs that say so (`resources.gpus.mix`). Classes of one kind are apart only because a
//! reservation divides the kind: a gang of whole nodes that both admit may span them. A gang never spans three classes:
//! where several reservations divide a kind so finely, it waits until two classes are enough.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use headway_goodput::JobModel;
use headway_types::{Execution, GpuCount, GpuType, Layout, NodeClass, NodeCount, NodeId, Placement};

use crate::cluster::{Class, Cluster, Reach, Shape, Slot};
use crate::input::{PlanInput, PlanNode};

/// Two classes as one gang finds them.
#[derive(Clone, Debug)]
pub(crate) struct Mix {
    /// What it is valued by.
    alike: NodeClass,
    /// Of one kind: the class that comes first.
    slower: usize,
    /// Of one kind: the other.
    faster: usize,
    /// Whether both are of one kind, which a reservation divides.
    one_kind: bool,
    /// Whether all its nodes' agents tell workers of uneven shares.
    tells_shares: bool,
}

/// Into how many classes reservations may divide a kind so that a gang may span any two of them. Beyond that one of the
/// two is the largest class, or rounds would have too much to try.
const FULLY_PAIRED: usize = 6;
/// Divisions of a gang's nodes between two classes of one kind that are tried: all up to so many, else evenly spaced. They
/// do not go by what is idle now, or what is promised to a gang would recede when a node is taken.
const DIVISIONS_OF_ONE_KIND: u32 = 16;
/// The same of two kinds: as few of the faster as there can be, as many, and half way.
const DIVISIONS_OF_TWO_KINDS: u32 = 3;

/// Returns the pairs of classes that jobs of the round may span.
pub(crate) fn mixes(input: &PlanInput, classes: &[Class]) -> Vec<Mix> {
    let mut mixes: Vec<Mix> = divided_pairs(classes).into_iter().map(|pair| of_one_kind(classes, pair)).collect();
    if input.jobs.iter().any(|job| job.range.mixed) {
        let pairs = (0..classes.len()).flat_map(|a| (a + 1..classes.len()).map(move |b| (a, b)));
        let unlike = pairs.filter(|&(a, b)| classes[a].alike != classes[b].alike);
        mixes.extend(unlike.filter_map(|pair| of_two_kinds(&input.nodes, classes, pair)));
    }
    mixes
}

/// Returns the pairs of classes of one kind, which a reservation divides.
fn divided_pairs(classes: &[Class]) -> Vec<(usize, usize)> {
    let mut kinds: BTreeMap<&NodeClass, Vec<usize>> = BTreeMap::new();
    for (class, of) in classes.iter().enumerate() {
        kinds.entry(&of.alike).or_default().push(class);
    }
    let pairs = kinds.into_values().flat_map(|kind| {
        let largest = kind.iter().copied().max_by_key(|&class| (classes[class].nodes.len(), Reverse(class)));
        let is_paired = |a: usize, b: usize| kind.len() <= FULLY_PAIRED || Some(a) == largest || Some(b) == largest;
        let firsts = kind.iter().enumerate();
        let pairs = firsts.flat_map(|(at, &a)| kind[at + 1..].iter().map(move |&b| (a, b)));
        pairs.filter(|&(a, b)| is_paired(a, b)).collect::<Vec<_>>()
    });
    pairs.collect()
}

fn of_one_kind(classes: &[Class], (first, second): (usize, usize)) -> Mix {
    let alike = classes[first].alike.clone();
    Mix { alike, slower: first, faster: second, one_kind: true, tells_shares: false }
}

/// Returns the mix of two kinds if they can be compared.
fn of_two_kinds(nodes: &[PlanNode], classes: &[Class], (a, b): (usize, usize)) -> Option<Mix> {
    let (first, second) = (&classes[a].alike, &classes[b].alike);
    let alike = headway_goodput::slowest([first, second])?;
    let second_is_slower = headway_goodput::ahead_of(second, first, NodeCount(1)).is_some();
    // Of equally fast ones the one that reports are of, and of one GPU type either.
    let in_order = !second_is_slower && alike.gpu_type == first.gpu_type;
    let (slower, faster) = if in_order { (a, b) } else { (b, a) };
    let tells_shares = [a, b].iter().flat_map(|class| &classes[*class].nodes).all(|node| nodes[*node].tells_shares);
    Some(Mix { alike, slower, faster, one_kind: false, tells_shares })
}

impl Mix {
    /// Returns its classes, ascending.
    fn members(&self) -> [usize; 2] {
        [self.slower.min(self.faster), self.slower.max(self.faster)]
    }

    /// Returns how many of `nodes` may be of the faster class, where the classes have room for so many each. `bound`: so
    /// many by a layout that the job cannot leave.
    fn divisions(&self, nodes: u32, slower: u32, faster: u32, bound: Option<u32>) -> Vec<u32> {
        let (least, most) = (nodes.saturating_sub(slower).max(1), faster.min(nodes.saturating_sub(1)));
        if most < least {
            return Vec::new();
        }
        let steps = if self.one_kind { DIVISIONS_OF_ONE_KIND } else { DIVISIONS_OF_TWO_KINDS } - 1;
        let mut divisions: Vec<u32> = (0..=steps).map(|step| least + (most - least) * step / steps).collect();
        divisions.extend(bound.filter(|of_faster| (least..=most).contains(of_faster)));
        divisions.sort_unstable();
        divisions.dedup();
        divisions
    }
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

    /// Whether the nodes of its faster class come last. Nodes of one kind may come in any order.
    pub fn is_in_rank_order(&self, placement: &Placement) -> bool {
        let class = self.class_of_placement(placement).filter(|class| self.is_of_two_kinds(*class));
        class.is_none_or(|class| placement.slices().is_sorted_by_key(|slice| self.is_faster(class, slice.node)))
    }

    fn is_of_two_kinds(&self, class: usize) -> bool {
        self.mix(class).is_some_and(|mix| !mix.one_kind)
    }

    /// Sorts the slots of a gang into the order of its ranks: by node, then index, those of a mix's faster class last.
    pub fn sort_by_rank(&self, slots: &mut [Slot]) {
        slots.sort_unstable();
        let classes = slots.iter().map(|slot| self.class_of(slot.node));
        let (Some(least), Some(most)) = (classes.clone().min(), classes.max()) else { return };
        if let Some(mix) = self.mixes.iter().find(|mix| mix.members() == [least, most] && !mix.one_kind) {
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
        match self.mix(class) {
            None => self.classes[class].has_domains(),
            Some(mix) => !mix.one_kind || self.classes[mix.slower].is_built_in_domains(),
        }
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
        let is_it = |mix: &Mix| mix.members() == [a, b];
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

    /// Returns the shapes of `gpus` over both classes of each of these mixes, by the nodes that each class has room for. A
    /// node gives as many GPUs as the smaller kind has. `bound`: a layout that the job cannot leave.
    pub fn mixed_shapes(
        &self,
        mixes: &[usize],
        gpus: GpuCount,
        bound: Option<Layout>,
        nodes_of: impl Fn(&Class, u32) -> u32,
    ) -> Vec<Shape> {
        let shapes = mixes.iter().flat_map(|&class| {
            let Some(mix) = self.mix(class) else { return Vec::new() };
            let per_node = mix.alike.gpus_per_node.0.max(1);
            let nodes = if gpus.0.is_multiple_of(per_node) { gpus.0 / per_node } else { 0 };
            let [slower, faster] = [mix.slower, mix.faster].map(|of| nodes_of(&self.classes[of], per_node));
            let bound = bound.map(|layout| faster_nodes(layout, per_node));
            let shape = |of_faster| Shape {
                class,
                gpus,
                nodes: NodeCount(nodes),
                reach: Reach::Class,
                of_faster: NodeCount(of_faster),
            };
            mix.divisions(nodes, slower, faster, bound).into_iter().map(shape).collect()
        });
        shapes.collect()
    }

    /// Returns the mixes of these classes that are of one kind, or of two.
    pub fn mixes_of(&self, classes: &[usize], one_kind: bool) -> Vec<usize> {
        let first = self.classes.len();
        let is_it = |mix: &Mix| mix.one_kind == one_kind && mix.members().iter().all(|of| classes.contains(of));
        let them = self.mixes.iter().zip(first..).filter(|(mix, _)| is_it(mix));
        them.map(|(_, class)| class).collect()
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
