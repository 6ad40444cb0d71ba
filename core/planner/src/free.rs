//! What is left of the nodes while a plan is being placed: GPUs, host resources and what the site's rows leave, and where
//! a shape finds room. It knows no values.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use headway_types::Placement;
use headway_types::spec::{HostResource, NodeResources};

use crate::cluster::{Cluster, Reach, Shape, Slot};
use crate::input::PlanJob;

/// What a job must not be put on, and where it is: the nearer, the better.
#[derive(Clone, Copy)]
pub(crate) struct Seeker<'a> {
    pub job: &'a PlanJob,
    /// Usable slots it holds now.
    pub current: &'a [Slot],
    /// Whether the job would still be there at the promised moment.
    pub outlasts_promise: bool,
}

#[derive(Clone)]
pub(crate) struct Free<'c> {
    cluster: &'c Cluster<'c>,
    /// Per node, per position.
    free: Vec<Vec<bool>>,
    count: Vec<u32>,
    /// Nodes of each class by number of free GPUs.
    by_count: Vec<Vec<BTreeSet<usize>>>,
    hosts: Vec<Host>,
    /// What rows of the site that divide a class leave; less than nothing where what stays is beyond them.
    site: BTreeMap<usize, i64>,
    /// GPUs of each kept node that are left to jobs that outlast the promised moment.
    kept: BTreeMap<usize, i64>,
}

/// What a host has left; less than nothing where what runs there already needs more than it has. What it does not say
/// is not counted.
#[derive(Clone, Copy)]
struct Host([Option<i128>; HostResource::ALL.len()]);

impl Host {
    fn new(host: NodeResources) -> Self {
        Self(HostResource::ALL.map(|of| host.amount(of).map(i128::from)))
    }

    /// Before or after a slice that needs so much.
    fn exchange(&mut self, needs: NodeResources, back: bool) {
        let sign = if back { 1 } else { -1 };
        for (of, left) in HostResource::ALL.into_iter().zip(&mut self.0) {
            if let (Some(left), Some(need)) = (left, needs.amount(of)) {
                *left += sign * i128::from(need);
            }
        }
    }

    /// What it has too little left of.
    fn lacks(&self, needs: NodeResources) -> impl Iterator<Item = HostResource> {
        let left = HostResource::ALL.into_iter().zip(self.0);
        let short = move |(of, left): &(HostResource, Option<i128>)| {
            needs.amount(*of).zip(*left).is_some_and(|(need, left)| need > 0 && i128::from(need) > left)
        };
        left.filter(short).map(|(of, _)| of)
    }
}

impl<'c> Free<'c> {
    pub fn new(cluster: &'c Cluster<'c>) -> Self {
        let free: Vec<Vec<bool>> = cluster.nodes.iter().map(|node| vec![!node.draining; node.gpus.len()]).collect();
        let count: Vec<u32> = (0..cluster.nodes.len()).map(|node| cluster.open_on(node)).collect();
        let mut by_count: Vec<Vec<BTreeSet<usize>>> = Vec::new();
        for class in &cluster.classes {
            let most = class.nodes.iter().map(|&node| cluster.nodes[node].gpus.len()).max().unwrap_or(0);
            let mut buckets = vec![BTreeSet::new(); most + 1];
            for &node in &class.nodes {
                buckets[count[node] as usize].insert(node);
            }
            by_count.push(buckets);
        }
        let hosts = cluster.nodes.iter().map(|node| Host::new(node.host)).collect();
        let site = cluster.site.rows().map(|(row, at_most)| (row, i64::from(at_most.0))).collect();
        Self { cluster, free, count, by_count, hosts, site, kept: BTreeMap::new() }
    }

    /// Keeps so many GPUs of each node from jobs that outlast the promised moment.
    pub fn keep_nodes(&mut self, nodes: &BTreeMap<usize, u32>) {
        let left = |(&node, &kept): (&usize, &u32)| (node, i64::from(self.cluster.open_on(node)) - i64::from(kept));
        self.kept = nodes.iter().map(left).collect();
    }

    pub fn take(&mut self, job: &PlanJob, slots: &[Slot], outlasts_promise: bool) {
        self.exchange(job, slots, outlasts_promise, false);
    }

    pub fn give_back(&mut self, job: &PlanJob, slots: &[Slot], outlasts_promise: bool) {
        self.exchange(job, slots, outlasts_promise, true);
    }

    fn exchange(&mut self, job: &PlanJob, slots: &[Slot], outlasts_promise: bool, back: bool) {
        let mut nodes = BTreeMap::<usize, u32>::new();
        for slot in slots.iter().filter(|slot| !self.cluster.nodes[slot.node].draining) {
            if self.free[slot.node][slot.position] != back {
                self.free[slot.node][slot.position] = back;
                *nodes.entry(slot.node).or_default() += 1;
            }
        }
        for (node, gpus) in nodes {
            let (class, before) = (self.cluster.class_of(node), self.count[node]);
            let after = if back { before + gpus } else { before - gpus };
            self.by_count[class][before as usize].remove(&node);
            self.by_count[class][after as usize].insert(node);
            self.count[node] = after;
            self.hosts[node].exchange(job.needs.per_node, back);
            let taken = if back { -i64::from(gpus) } else { i64::from(gpus) };
            self.count_for_site(job, node, taken);
            if outlasts_promise {
                self.kept.entry(node).and_modify(|left| *left -= taken);
            }
        }
    }

    fn count_for_site(&mut self, job: &PlanJob, node: usize, gpus: i64) {
        let site = &self.cluster.site;
        for &row in site.dividing_rows_of(job).iter().filter(|row| site.counts(**row, Some(node))) {
            *self.site.entry(row).or_default() -= gpus;
        }
    }

    /// What a job in flight takes besides its usable slots: of hosts where none of its GPUs is usable any more, and of the
    /// site's rows, which count all of them.
    pub fn take_unusable(&mut self, job: &PlanJob, placement: &Placement, slots: &[Slot]) {
        for slice in placement.slices() {
            let Some(node) = self.cluster.index_of(slice.node) else { continue };
            let usable = slots.iter().filter(|slot| slot.node == node).count();
            if usable == 0 {
                self.hosts[node].exchange(job.needs.per_node, false);
            }
            let open = if self.cluster.nodes[node].draining { 0 } else { usable };
            self.count_for_site(job, node, slice.gpus.len() as i64 - open as i64);
        }
    }

    /// Whether a job may have back what it held.
    pub fn all(&self, seeker: Seeker<'_>) -> bool {
        let (job, slots, site) = (seeker.job, seeker.current, &self.cluster.site);
        let mut nodes = BTreeMap::<usize, u32>::new();
        slots.iter().for_each(|slot| *nodes.entry(slot.node).or_default() += 1);
        let fits = |row: &usize| {
            let counted = slots.iter().filter(|slot| site.counts(*row, Some(slot.node))).count();
            counted as i64 <= self.site[row]
        };
        !slots.is_empty()
            && slots.iter().all(|slot| self.free[slot.node][slot.position])
            && site.dividing_rows_of(job).iter().all(fits)
            && nodes.into_iter().all(|(node, gpus)| !self.is_kept_from(seeker.outlasts_promise, node, gpus))
    }

    pub fn count(&self, node: usize) -> u32 {
        self.count[node]
    }

    /// Whether a node may take a slice of `gpus` of a job.
    pub fn has_room(&self, seeker: Seeker<'_>, node: usize, gpus: u32) -> bool {
        self.count[node] >= gpus && self.suits(seeker, node, gpus)
    }

    fn suits(&self, seeker: Seeker<'_>, node: usize, gpus: u32) -> bool {
        let job = seeker.job;
        self.hosts[node].lacks(job.needs.per_node).next().is_none()
            && job.needs.admit(&self.cluster.nodes[node])
            && self.rows_against(job, node, gpus).next().is_none()
            && !self.is_kept_from(seeker.outlasts_promise, node, gpus)
    }

    /// Whether the promise leaves a job that outlasts it fewer GPUs of a node.
    fn is_kept_from(&self, outlasts_promise: bool, node: usize, gpus: u32) -> bool {
        outlasts_promise && self.kept.get(&node).is_some_and(|left| i64::from(gpus) > *left)
    }

    /// Whether a node is kept and the job leaves it by the promised moment. Such a job is put on kept nodes first, because
    /// the others are all that is left to jobs that outlast that moment.
    fn leaves_kept_in_time(&self, seeker: Seeker<'_>, node: usize) -> bool {
        !seeker.outlasts_promise && self.kept.contains_key(&node)
    }

    /// Rows of the site that do not leave the job so many GPUs on a node.
    fn rows_against(&self, job: &PlanJob, node: usize, gpus: u32) -> impl Iterator<Item = usize> {
        let site = &self.cluster.site;
        let against = move |row: &usize| site.counts(*row, Some(node)) && i64::from(gpus) > self.site[row];
        site.dividing_rows_of(job).iter().copied().filter(against)
    }

    /// What the hosts lack that keep a job from nodes of a class with enough GPUs left.
    pub fn lacking(&self, job: &PlanJob, class: usize, gpus: u32) -> BTreeSet<HostResource> {
        let roomy = self.by_count[class].iter().skip(gpus as usize).flatten();
        roomy.flat_map(|&node| self.hosts[node].lacks(job.needs.per_node)).collect()
    }

    /// Rows of the site that keep the job from nodes of a class with enough GPUs left.
    pub fn rows_in_the_way(&self, job: &PlanJob, class: usize, gpus: u32) -> BTreeSet<usize> {
        let roomy = self.by_count[class].iter().skip(gpus as usize).flatten();
        roomy.flat_map(|&node| self.rows_against(job, node, gpus)).collect()
    }

    /// Leaves out nodes beyond those that a row of the site leaves slices for, where it counts several together.
    fn heed_site(&self, job: &PlanJob, nodes: &mut Vec<usize>, gpus: u32) {
        for &row in self.cluster.site.dividing_rows_of(job) {
            let mut left = self.site[&row];
            nodes.retain(|&node| {
                let counted = self.cluster.site.counts(row, Some(node));
                left -= if counted { i64::from(gpus) } else { 0 };
                !counted || left >= 0
            });
        }
    }

    /// Slots for a shape: nodes where the job already is, then kept ones that it leaves in time, then the fullest that have
    /// room, then by id; for several nodes, out of the domain where that is so, or out of as few domains as hold them.
    pub fn find(&self, shape: Shape, seeker: Seeker<'_>) -> Option<Vec<Slot>> {
        let of_parts = self.cluster.parts(shape).map(|part| self.nodes_for(part, seeker));
        let nodes: Vec<Vec<usize>> = of_parts.collect::<Option<_>>()?;
        let per_node = shape.per_node() as usize;
        Some(nodes.concat().into_iter().flat_map(|node| self.pick(node, per_node, seeker.current)).collect())
    }

    fn nodes_for(&self, shape: Shape, seeker: Seeker<'_>) -> Option<Vec<usize>> {
        if shape.nodes.0 == 1 { Some(vec![self.single(shape, seeker)?]) } else { self.several(shape, seeker) }
    }

    fn single(&self, shape: Shape, seeker: Seeker<'_>) -> Option<usize> {
        let gpus = shape.per_node();
        let of_class = |node: &usize| self.cluster.class_of(*node) == shape.class;
        let own = seeker.current.iter().map(|slot| slot.node).filter(of_class);
        let own = own
            .filter(|&node| self.has_room(seeker, node, gpus))
            .min_by_key(|&node| (Reverse(self.owned(node, seeker.current)), self.count[node], node));
        own.or_else(|| self.kept_node(shape, seeker)).or_else(|| {
            let buckets = self.by_count[shape.class].iter().skip(gpus as usize);
            buckets.flatten().copied().find(|&node| self.suits(seeker, node, gpus))
        })
    }

    /// Returns the fullest kept node with room for a job that leaves it in time.
    fn kept_node(&self, shape: Shape, seeker: Seeker<'_>) -> Option<usize> {
        if seeker.outlasts_promise {
            return None;
        }
        let gpus = shape.per_node();
        let of_class = self.kept.keys().copied().filter(|&node| self.cluster.class_of(node) == shape.class);
        of_class.filter(|&node| self.has_room(seeker, node, gpus)).min_by_key(|&node| (self.count[node], node))
    }

    fn several(&self, shape: Shape, seeker: Seeker<'_>) -> Option<Vec<usize>> {
        let (gpus, wanted) = (shape.per_node(), shape.nodes.0 as usize);
        let roomy = self.by_count[shape.class].iter().skip(gpus as usize).flatten().copied();
        let mut roomy: Vec<usize> = roomy.filter(|&node| self.suits(seeker, node, gpus)).collect();
        self.heed_site(seeker.job, &mut roomy, gpus);
        if roomy.len() < wanted {
            return None;
        }
        let mut domains: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for node in roomy {
            domains.entry(self.cluster.domain_of(node)).or_default().push(node);
        }
        let own = |nodes: &[usize]| nodes.iter().filter(|&&node| self.owned(node, seeker.current) > 0).count();
        let ranked = |nodes: &mut Vec<usize>| {
            nodes.sort_by_key(|&node| {
                let others = (!self.leaves_kept_in_time(seeker, node), self.count[node], node);
                (Reverse(self.owned(node, seeker.current)), others)
            });
        };
        // Within one domain: where the job already has most, then the tightest fit.
        let within = domains.iter().filter(|(_, nodes)| nodes.len() >= wanted);
        let best = within.min_by_key(|(domain, nodes)| (Reverse(own(nodes)), nodes.len(), **domain));
        let mut chosen = match best {
            Some((_, nodes)) => {
                let mut nodes = nodes.clone();
                ranked(&mut nodes);
                nodes
            }
            None if shape.reach == Reach::Domain && self.cluster.classes[shape.class].has_domains() => return None,
            None => {
                let mut order: Vec<&Vec<usize>> = domains.values().collect();
                order.sort_by_key(|nodes| (Reverse(own(nodes)), Reverse(nodes.len()), nodes[0]));
                let mut all = Vec::new();
                for nodes in order {
                    let mut nodes = nodes.clone();
                    ranked(&mut nodes);
                    all.extend(nodes);
                }
                all
            }
        };
        chosen.truncate(wanted);
        chosen.sort_unstable();
        Some(chosen)
    }

    /// Free slots of a node that the job holds now.
    fn owned(&self, node: usize, current: &[Slot]) -> usize {
        current.iter().filter(|slot| slot.node == node && self.free[node][slot.position]).count()
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
