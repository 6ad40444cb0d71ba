//! The nodes of a round by class, and the shapes a size can take on them. It never looks at jobs' values.
//!
//! To the planner a class is the nodes that are alike but for their fabric domain, and that the same jobs may start on:
//! reserved nodes form classes of their own. Domains matter to shapes of several nodes only.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_types::{GpuCount, GpuUuid, NodeClass, NodeCount, NodeId, Placement};

use crate::claim::{Needs, Spread};
use crate::input::{PlanInput, PlanJob, PlanNode};
use crate::mixes::{self, Mix};
use crate::reservation::{self, Gate};
use crate::site::Site;

/// Beyond this many nodes a class offers multi-node jobs whole nodes only; smaller clusters may split evenly.
const SMALL_CLASS_NODES: u32 = 8;
/// Alternative node counts per size, fewest nodes first.
const SHAPES_PER_SIZE: usize = 3;

/// How a size spreads over nodes of one class, or of the two of a mix: the same number of GPUs on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape {
    /// Index into [`Cluster::classes`], or counted on from there into [`Cluster::mixes`].
    pub class: usize,
    pub gpus: GpuCount,
    pub nodes: NodeCount,
    pub reach: Reach,
    /// Of a mix, how many of the nodes are of its faster class.
    pub of_faster: NodeCount,
}

/// Which nodes of its class a shape may combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// Nodes of one fabric domain.
    Domain,
    /// Any.
    Class,
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

/// Nodes that are alike, domains apart.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    /// With an empty domain.
    pub alike: NodeClass,
    pub gate: Gate,
    /// Ascending.
    pub nodes: Vec<usize>,
    /// Nodes per domain, each ascending.
    pub domains: Vec<Vec<usize>>,
    /// Nodes with at least so many open GPUs, by number of GPUs from 0 to a whole node.
    with_room: Vec<u32>,
    /// The same in the domain that has most of them.
    with_room_in_domain: Vec<u32>,
    /// All nodes like these, whatever is reserved.
    built: Arc<Built>,
    /// How many kinds of GPUs of the cluster are faster.
    pub faster: u32,
}

/// The nodes of one kind as they were built. A reservation divides them into classes, and passes.
#[derive(Clone, Debug, Default)]
struct Built {
    nodes: Vec<usize>,
    /// Nodes per domain, each ascending.
    domains: Vec<Vec<usize>>,
}

impl Class {
    fn new(alike: NodeClass, gate: Gate, built: Arc<Built>) -> Self {
        let sizes = alike.gpus_per_node.0 as usize + 1;
        let (with_room, with_room_in_domain) = (vec![0; sizes], vec![0; sizes]);
        Self { alike, gate, nodes: Vec::new(), domains: Vec::new(), with_room, with_room_in_domain, built, faster: 0 }
    }

    /// GPUs of a whole node.
    pub fn whole(&self) -> u32 {
        self.alike.gpus_per_node.0
    }

    /// GPUs of the class, broken and closed ones included.
    pub fn gpus(&self) -> GpuCount {
        GpuCount(self.nodes.len() as u32 * self.whole())
    }

    /// GPUs as the nodes of this kind were built, broken, closed and reserved ones included.
    pub fn nominal(&self) -> GpuCount {
        GpuCount(self.built.nodes.len() as u32 * self.whole())
    }

    /// Nodes of the domain that has most, as it was built.
    pub fn largest_domain(&self) -> u32 {
        self.built.domains.iter().map(Vec::len).max().unwrap_or(0) as u32
    }

    /// Whether domains can make a difference.
    pub fn has_domains(&self) -> bool {
        self.domains.len() > 1
    }

    /// Whether all nodes like these lie in several domains.
    pub fn is_built_in_domains(&self) -> bool {
        self.built.domains.len() > 1
    }
}

/// By peak; what no catalog knows is taken for slower than what one does.
fn rank(classes: &mut [Class]) {
    let peak = |class: &Class| headway_goodput::catalog::peak_flop_per_second(&class.alike).map_or(0.0, |peak| peak.0);
    let mut peaks: Vec<f64> = classes.iter().map(peak).collect();
    peaks.sort_by(|a, b| b.total_cmp(a));
    peaks.dedup();
    for class in classes {
        class.faster = peaks.partition_point(|other| *other > peak(class)) as u32;
    }
}

/// Nodes of a class by domain.
type Domains<'a> = BTreeMap<&'a str, Vec<usize>>;

/// Puts the nodes together again that reservations divide.
fn built(classes: &BTreeMap<(NodeClass, &Gate), Domains<'_>>) -> BTreeMap<NodeClass, Arc<Built>> {
    let mut by_kind: BTreeMap<&NodeClass, Domains<'_>> = BTreeMap::new();
    for ((alike, _), domains) in classes {
        let kind = by_kind.entry(alike).or_default();
        for (domain, nodes) in domains {
            kind.entry(domain).or_default().extend(nodes);
        }
    }
    let of_kind = |domains: Domains<'_>| {
        let mut domains: Vec<Vec<usize>> = domains.into_values().collect();
        domains.iter_mut().for_each(|nodes| nodes.sort_unstable());
        let mut nodes = domains.concat();
        nodes.sort_unstable();
        Arc::new(Built { nodes, domains })
    };
    by_kind.into_iter().map(|(alike, domains)| (alike.clone(), of_kind(domains))).collect()
}

pub(crate) struct Cluster<'a> {
    pub nodes: &'a [PlanNode],
    /// In an order of their own content, so that an index means the same class in every run.
    pub classes: Vec<Class>,
    /// Pairs of classes that a gang may span.
    pub mixes: Vec<Mix>,
    /// The site's own rows, by the jobs and nodes they count.
    pub site: Site,
    class_of: Vec<usize>,
    /// Index into the domains of its class.
    domain_of: Vec<usize>,
    slots: BTreeMap<&'a GpuUuid, Slot>,
    index_of: BTreeMap<NodeId, usize>,
}

impl<'a> Cluster<'a> {
    pub fn new(input: &'a PlanInput) -> Self {
        let nodes = &input.nodes[..];
        let gates = reservation::gates(input);
        let mut by_kind: BTreeMap<(NodeClass, &Gate), Domains<'_>> = BTreeMap::new();
        for (node, (entry, gate)) in nodes.iter().zip(&gates).enumerate() {
            let mut alike = entry.class.clone();
            let domain = std::mem::take(&mut alike.fabric.domain);
            debug_assert_eq!(domain, entry.class.fabric.domain);
            by_kind.entry((alike, gate)).or_default().entry(&entry.class.fabric.domain).or_default().push(node);
        }
        let (mut class_of, mut domain_of) = (vec![0; nodes.len()], vec![0; nodes.len()]);
        let mut classes = Vec::new();
        let mut built = built(&by_kind);
        for ((alike, gate), domains) in by_kind {
            let of_kind = Arc::clone(built.entry(alike.clone()).or_default());
            let mut class = Class::new(alike, gate.clone(), of_kind);
            for (domain, members) in domains.into_values().enumerate() {
                for &node in &members {
                    (class_of[node], domain_of[node]) = (classes.len(), domain);
                }
                class.add_domain(members, |node| open_on(&nodes[node]));
            }
            class.nodes.sort_unstable();
            classes.push(class);
        }
        rank(&mut classes);
        let slots = nodes
            .iter()
            .enumerate()
            .flat_map(|(node, entry)| {
                entry.gpus.iter().enumerate().map(move |(position, gpu)| (gpu, Slot { node, position }))
            })
            .collect();
        let index_of = nodes.iter().enumerate().map(|(index, node)| (node.node, index)).collect();
        let mixes = mixes::mixes(input, &classes);
        let mut cluster = Self { nodes, classes, mixes, site: Site::default(), class_of, domain_of, slots, index_of };
        cluster.site = Site::new(input, &cluster);
        cluster
    }

    pub fn class_of(&self, node: usize) -> usize {
        self.class_of[node]
    }

    pub fn domain_of(&self, node: usize) -> usize {
        self.domain_of[node]
    }

    pub fn index_of(&self, id: NodeId) -> Option<usize> {
        self.index_of.get(&id).copied()
    }

    pub fn node(&self, id: NodeId) -> Option<&'a PlanNode> {
        self.index_of(id).map(|index| &self.nodes[index])
    }

    /// GPUs of a node that something new may start on.
    pub fn open_on(&self, node: usize) -> u32 {
        open_on(&self.nodes[node])
    }

    /// GPUs of a class that something new may start on.
    pub fn open(&self, class: usize) -> GpuCount {
        GpuCount(self.classes[class].nodes.iter().map(|&node| self.open_on(node)).sum())
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

    /// GPUs of a placement that a row of the site counts.
    pub fn counted(&self, row: usize, placement: &Placement) -> GpuCount {
        let counted = placement.slices().iter().filter(|slice| self.site.counts(row, self.index_of(slice.node)));
        GpuCount(counted.map(|slice| slice.gpus.len() as u32).sum())
    }

    /// Fabric domains a placement touches, at least 1.
    pub fn domains_of(&self, placement: &Placement) -> u32 {
        let nodes = placement.slices().iter().filter_map(|slice| self.node(slice.node));
        let mut domains: Vec<&NodeClass> = nodes.map(|node| &node.class).collect();
        domains.sort_unstable();
        domains.dedup();
        (domains.len() as u32).max(1)
    }

    pub fn touches_draining(&self, placement: &Placement) -> bool {
        placement.slices().iter().any(|slice| self.node(slice.node).is_some_and(|node| node.draining))
    }

    /// Whether a slice of a job may lie on a node as far as its host, the site's rows and the nodes the job avoids go, were
    /// nobody else there.
    fn suits(&self, job: &PlanJob, needs: &Needs, node: usize, gpus: u32) -> bool {
        let entry = &self.nodes[node];
        let suits = entry.host.lacks(needs.per_node).next().is_none() && needs.admit(entry);
        suits && self.site.admits(job, node, gpus)
    }

    /// Whether enough nodes suit a job with such needs for a shape that fits the class.
    pub fn could_hold(&self, job: &PlanJob, needs: &Needs, shape: Shape) -> bool {
        self.parts(shape).all(|part| self.could_hold_part(job, needs, part))
    }

    fn could_hold_part(&self, job: &PlanJob, needs: &Needs, shape: Shape) -> bool {
        let class = &self.classes[shape.class];
        let undemanding = *needs == (Needs { spread: needs.spread, layout: needs.layout, ..Needs::default() });
        if undemanding && self.site.dividing_rows_of(job).is_empty() {
            return true;
        }
        let gpus = shape.per_node();
        let suited = |nodes: &[usize]| {
            let suited = nodes.iter().filter(|&&node| self.open_on(node) >= gpus && self.suits(job, needs, node, gpus));
            suited.take(shape.nodes.0 as usize).count() == shape.nodes.0 as usize
        };
        match shape.reach {
            Reach::Domain if shape.nodes.0 > 1 => class.domains.iter().any(|domain| suited(domain)),
            Reach::Domain | Reach::Class => suited(&class.nodes),
        }
    }

    /// Ways to spread `gpus` over nodes of `class` that now are open, fewest nodes first; within a domain before across.
    pub fn shapes(&self, class: usize, gpus: GpuCount) -> Vec<Shape> {
        let of = &self.classes[class];
        let room = |counts: &[u32], nodes: u32| counts[(gpus.0 / nodes) as usize] >= nodes;
        self.splits(class, gpus, of.nodes.len() as u32)
            .filter(|&nodes| room(&of.with_room, nodes))
            .take(SHAPES_PER_SIZE)
            .flat_map(|nodes| {
                let shape = |reach| Shape { class, gpus, nodes: NodeCount(nodes), reach, of_faster: NodeCount(0) };
                let matters = nodes > 1 && of.has_domains();
                let within = (!matters || room(&of.with_room_in_domain, nodes)).then(|| shape(Reach::Domain));
                within.into_iter().chain(matters.then(|| shape(Reach::Class)))
            })
            .collect()
    }

    /// As [`Self::shapes`], as if every node were whole and open. One domain is enough where one is large enough.
    pub fn nominal_shapes(&self, class: usize, gpus: GpuCount) -> Vec<Shape> {
        let largest = self.classes[class].largest_domain();
        let reach = |nodes: u32| if nodes <= largest { Reach::Domain } else { Reach::Class };
        let of_faster = NodeCount(0);
        let shape = |nodes| Shape { class, gpus, nodes: NodeCount(nodes), reach: reach(nodes), of_faster };
        let built = self.classes[class].built.nodes.len() as u32;
        self.splits(class, gpus, built).take(SHAPES_PER_SIZE).map(shape).collect()
    }

    /// Whether nodes enough of a shape are among those it asks for and have what it needs on their hosts, were all of them there.
    pub fn hosts_as_built(&self, needs: &Needs, shape: Shape) -> bool {
        self.parts(shape).all(|part| self.has_hosts_as_built(needs, part))
    }

    fn has_hosts_as_built(&self, needs: &Needs, shape: Shape) -> bool {
        let class = &self.classes[shape.class];
        let enough = |nodes: &[usize]| {
            let suits = |node: &PlanNode| {
                needs.only.takes(&node.name, &node.labels) && node.host.lacks(needs.per_node).next().is_none()
            };
            nodes.iter().filter(|&&node| suits(&self.nodes[node])).count() >= shape.nodes.0 as usize
        };
        match needs.spread {
            Spread::Require => class.built.domains.iter().any(|domain| enough(domain)),
            Spread::Prefer => enough(&class.built.nodes),
        }
    }

    /// Numbers of nodes, of `count` at most, over which `gpus` divide evenly. Small classes may split as they like; in
    /// large ones a job of several nodes takes whole ones, or as many even parts as it must.
    fn splits(&self, class: usize, gpus: GpuCount, count: u32) -> impl Iterator<Item = u32> {
        let whole = self.classes[class].whole().max(1);
        let even = move |nodes: &u32| gpus.0.is_multiple_of(*nodes) && gpus.0 / nodes <= whole;
        let least = gpus.0.div_ceil(whole).max(1);
        let most = if gpus.0 == 0 {
            0
        } else if count <= SMALL_CLASS_NODES {
            count.min(gpus.0)
        } else {
            // The first even split is the only one: few parts of a size that has no divisor are no use either.
            (least..=(2 * least).min(count)).find(|nodes| even(nodes)).unwrap_or(0)
        };
        (least..=most).filter(even)
    }
}

impl Class {
    fn add_domain(&mut self, nodes: Vec<usize>, open: impl Fn(usize) -> u32) {
        for gpus in 0..=self.whole() {
            let with_room = nodes.iter().filter(|&&node| open(node) >= gpus).count() as u32;
            self.with_room[gpus as usize] += with_room;
            let most = &mut self.with_room_in_domain[gpus as usize];
            *most = (*most).max(with_room);
        }
        self.nodes.extend(&nodes);
        self.domains.push(nodes);
    }

    /// Nodes with at least `gpus` open.
    pub fn with_room(&self, gpus: u32) -> u32 {
        self.with_room.get(gpus as usize).copied().unwrap_or(0)
    }
}

fn open_on(node: &PlanNode) -> u32 {
    if node.draining { 0 } else { node.gpus.len() as u32 }
}
