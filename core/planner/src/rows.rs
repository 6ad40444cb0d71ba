//! What the integer program shares out, one row each: GPUs and blocks of GPUs per class, nodes within fabric domains,
//! host resources, the quotas and floors of projects, the site's own rows, power, and the number of moves.
//!
//! **Blocks** keep the program from promising what fragmentation forbids. A node with f open GPUs holds ⌊f/2ᵏ⌋ blocks of
//! 2ᵏ, and a slice of g GPUs takes ⌊g/2ᵏ⌋ of them, since ⌊x⌋ + ⌊y⌋ ≤ ⌊x + y⌋. The rows are necessary for every mix of
//! slices, and sufficient where slices are powers of two. The same holds for whole nodes within domains.

use std::collections::BTreeMap;

use headway_solver::Use;
use headway_types::spec::HostResource;
use headway_types::{GpuCount, GpuType, NodeSlice, Placement};

use crate::cluster::{Class, Cluster, Reach, Shape};
use crate::input::{PlanInput, PlanJob};
use crate::project::Tree;
use crate::reservation::Gate;

/// What a GPU draws whose type the policy does not name.
const WATTS: f64 = 700.0;
/// Bytes of hosts are counted in units of 16 MiB, so that sums stay far from overflow.
const BYTES_UNIT: u64 = 16 << 20;

/// What a row counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowKind {
    /// Blocks of 2^level GPUs on one node; level 0 counts GPUs.
    Blocks {
        class: usize,
        level: u32,
    },
    /// Slices of more than half a node: each node holds one.
    Halves {
        class: usize,
    },
    /// Blocks of 2^level whole nodes (or halves) within one domain.
    Domains {
        class: usize,
        level: u32,
    },
    /// CPUs, or bytes in units of 16 MiB, of all hosts of a class.
    Host {
        class: usize,
        of: HostResource,
    },
    /// GPUs of a project and those below it.
    Quota {
        project: usize,
    },
    /// The same from below, with negative amounts.
    Floor {
        project: usize,
    },
    User {
        project: usize,
        user: String,
    },
    /// GPUs that a row of the site counts, as far as a choice decides them.
    Site {
        row: usize,
    },
    /// GPUs of a class that such a row divides, for the jobs it counts: what it denies them on some nodes, and what others
    /// keep on the rest, nobody can promise them.
    Under {
        row: usize,
        class: usize,
    },
    Power,
    Moves,
    /// What a row will have at the moment promised to a job that is due, less what that job will take.
    Promised {
        job: usize,
        of: u32,
    },
}

#[derive(Clone, Debug, Default)]
struct ClassRows {
    blocks: Vec<u32>,
    halves: u32,
    domains: Vec<(u32, u32)>,
    hosts: Vec<(HostResource, u32)>,
}

/// The rows of a round, and what takes how much of them.
pub(crate) struct Rows<'a> {
    input: &'a PlanInput,
    cluster: &'a Cluster<'a>,
    tree: &'a Tree<'a>,
    pub kinds: Vec<RowKind>,
    pub capacity: Vec<i64>,
    classes: Vec<ClassRows>,
    named: BTreeMap<RowKind, u32>,
}

impl<'a> Rows<'a> {
    pub fn new(input: &'a PlanInput, cluster: &'a Cluster<'a>, tree: &'a Tree<'a>) -> Self {
        let (kinds, capacity, named) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut rows = Self { input, cluster, tree, kinds, capacity, classes: Vec::new(), named };
        for class in 0..cluster.classes.len() {
            let of = rows.class(class);
            rows.classes.push(of);
        }
        for (project, of) in tree.projects.iter().enumerate() {
            if let Some(quota) = of.quota {
                rows.add(RowKind::Quota { project }, i64::from(quota.0) + i64::from(of.borrow.0));
            }
            if of.floor > GpuCount(0) {
                rows.add(RowKind::Floor { project }, -i64::from(of.floor.0));
            }
        }
        for job in &input.jobs {
            for &project in tree.lineage_of(&job.claim.project) {
                if let Some(most) = tree.projects[project].max_per_user {
                    let kind = RowKind::User { project, user: job.claim.user.clone() };
                    rows.add(kind, i64::from(most.0));
                }
            }
        }
        for (row, at_most) in cluster.site.rows() {
            rows.add(RowKind::Site { row }, i64::from(at_most.0));
            for class in (0..cluster.classes.len()).filter(|&class| cluster.site.divides(row, class)) {
                rows.add(RowKind::Under { row, class }, rows.under(row, class, at_most));
            }
        }
        if let Some(cap) = &input.policy.power_cap {
            let gpus: usize = cluster.nodes.iter().map(|node| node.gpus.len()).sum();
            rows.add(RowKind::Power, -watts(cap.idle.max(0.0) * gpus as f64 - cap.watts).min(0));
        }
        if let Some(most) = input.policy.max_moves {
            rows.add(RowKind::Moves, i64::from(most));
        }
        rows
    }

    fn add(&mut self, kind: RowKind, capacity: i64) -> u32 {
        if let Some(&row) = self.named.get(&kind) {
            return row;
        }
        let row = self.kinds.len() as u32;
        self.named.insert(kind.clone(), row);
        self.kinds.push(kind);
        self.capacity.push(capacity);
        row
    }

    /// Open GPUs of a class that a row of the site leaves to the jobs it counts.
    fn under(&self, row: usize, class: usize, at_most: GpuCount) -> i64 {
        let nodes = self.cluster.classes[class].nodes.iter();
        let (mut counted, mut others) = (0, 0);
        for &node in nodes {
            let open = i64::from(self.cluster.open_on(node));
            *(if self.cluster.site.counts(row, Some(node)) { &mut counted } else { &mut others }) += open;
        }
        others + counted.min(i64::from(at_most.0))
    }

    fn class(&mut self, class: usize) -> ClassRows {
        let cluster = self.cluster;
        let of = &cluster.classes[class];
        let open: Vec<u32> = of.nodes.iter().map(|&node| cluster.open_on(node)).collect();
        let levels = 0..=of.whole().max(1).ilog2();
        let blocks = levels
            .map(|level| {
                let held = open.iter().map(|open| i64::from(open >> level)).sum();
                self.add(RowKind::Blocks { class, level }, held)
            })
            .collect();
        let halves = self.add(RowKind::Halves { class }, i64::from(of.with_room(of.whole() / 2 + 1)));
        let domains = if of.has_domains() { self.domains(class) } else { Vec::new() };
        let hosts = HostResource::ALL.into_iter().filter_map(|of| Some((of, self.host(class, of)?))).collect();
        ClassRows { blocks, halves, domains, hosts }
    }

    /// What all hosts of a class have together, where some job needs it and all of them say.
    fn host(&mut self, class: usize, resource: HostResource) -> Option<u32> {
        let (input, cluster) = (self.input, self.cluster);
        if !input.jobs.iter().any(|job| job.needs.per_node.amount(resource).is_some()) {
            return None;
        }
        let open = cluster.classes[class].nodes.iter().filter(|&&node| cluster.open_on(node) > 0);
        let has = |&node: &usize| cluster.nodes[node].host.amount(resource).map(u128::from);
        let all = open.map(has).sum::<Option<u128>>()?;
        Some(self.add(RowKind::Host { class, of: resource }, host_units(resource, all)))
    }

    fn domains(&mut self, class: usize) -> Vec<(u32, u32)> {
        let cluster = self.cluster;
        let of = &cluster.classes[class];
        let roomy = |node: &&usize| cluster.open_on(**node) > of.whole() / 2;
        let nodes: Vec<u32> = of.domains.iter().map(|domain| domain.iter().filter(roomy).count() as u32).collect();
        let largest = nodes.iter().copied().max().unwrap_or(0);
        (1..=largest.max(1).ilog2())
            .map(|level| {
                let held = nodes.iter().map(|nodes| i64::from(nodes >> level)).sum();
                (level, self.add(RowKind::Domains { class, level }, held))
            })
            .collect()
    }

    /// A row for each of which so much is promised to a job: what is left of it to others. Tells the first of them.
    pub fn promise(&mut self, job: usize, wanted: &[Use]) -> u32 {
        let first = self.kinds.len() as u32;
        for part in wanted {
            self.add(RowKind::Promised { job, of: part.row }, self.capacity[part.row as usize] - part.amount);
        }
        first
    }

    /// The row of a kind, where there is one.
    pub fn row(&self, kind: &RowKind) -> Option<u32> {
        self.named.get(kind).copied()
    }

    /// Whether the row is a rule that people made, not what nodes have.
    pub fn is_rule(&self, row: usize) -> bool {
        self.is_limit(row) || matches!(self.kinds[row], RowKind::Under { .. })
    }

    /// Whether the row bounds what jobs hold wherever that is, so that what runs may be beyond it.
    pub fn is_limit(&self, row: usize) -> bool {
        let kind = &self.kinds[row];
        matches!(kind, RowKind::Quota { .. } | RowKind::User { .. } | RowKind::Site { .. } | RowKind::Power)
    }

    /// The row that counts the GPUs of a class.
    pub fn gpus(&self, class: usize) -> u32 {
        self.classes[class].blocks[0]
    }

    /// What a new placement of this shape takes.
    pub fn of_shape(&self, job: &PlanJob, shape: Shape, watts_per_gpu: Option<f64>, moves: bool) -> Vec<Use> {
        let mut taken = Taken::default();
        for part in self.cluster.parts(shape) {
            let class = &self.cluster.classes[part.class];
            self.slices(&mut taken, part.class, job, part.per_node(), i64::from(part.nodes.0));
            if part.reach == Reach::Domain && part.per_node() > class.whole() / 2 {
                self.within_domain(&mut taken, part.class, part.nodes.0);
            }
            self.site(&mut taken, job, part);
            self.common(&mut taken, job, part.gpus, Some(&class.alike.gpu_type), watts_per_gpu);
        }
        if moves && let Some(row) = self.row(&RowKind::Moves) {
            taken.add(row, 1);
        }
        taken.uses()
    }

    /// What a present placement takes. GPUs on draining nodes are nobody else's, so they do not count there.
    pub fn of_placement(&self, job: &PlanJob, placement: &Placement, watts_per_gpu: Option<f64>) -> Vec<Use> {
        let mut per_node = BTreeMap::<usize, u32>::new();
        for slot in self.cluster.known_slots(placement) {
            *per_node.entry(slot.node).or_default() += 1;
        }
        let mut taken = Taken::default();
        let mut per_domain = BTreeMap::<(usize, usize), u32>::new();
        for (node, gpus) in per_node.into_iter().filter(|(node, _)| !self.cluster.nodes[*node].draining) {
            let at = self.cluster.class_of(node);
            self.slices(&mut taken, at, job, gpus, 1);
            self.under_rows(&mut taken, job, node, gpus);
            if gpus > self.cluster.classes[at].whole() / 2 {
                *per_domain.entry((at, self.cluster.domain_of(node))).or_default() += 1;
            }
        }
        for ((class, _), nodes) in per_domain {
            self.within_domain(&mut taken, class, nodes);
        }
        for &row in self.cluster.site.rows_of(job) {
            taken.add(self.named[&RowKind::Site { row }], i64::from(self.cluster.counted(row, placement).0));
        }
        // GPUs of a job in flight count for its project even where they are not usable now.
        for (gpu_type, gpus) in self.by_type(placement) {
            self.common(&mut taken, job, gpus, gpu_type, watts_per_gpu);
        }
        taken.uses()
    }

    /// GPUs of a placement by type; those of nodes that are gone count as of the first that is known.
    fn by_type(&self, placement: &Placement) -> BTreeMap<Option<&GpuType>, GpuCount> {
        let type_of = |slice: &NodeSlice| self.cluster.node(slice.node).map(|node| &node.class.gpu_type);
        let known = placement.slices().iter().find_map(type_of);
        let mut gpus: BTreeMap<Option<&GpuType>, GpuCount> = BTreeMap::new();
        for slice in placement.slices() {
            gpus.entry(type_of(slice).or(known)).or_default().0 += slice.gpus.len() as u32;
        }
        gpus
    }

    /// What having nothing takes, of a job that must give up what it holds for it.
    pub fn of_nothing(&self, moves: bool) -> Vec<Use> {
        let row = self.row(&RowKind::Moves).filter(|_| moves);
        row.map(|row| Use { row, amount: 1 }).into_iter().collect()
    }

    /// What the row shares out, in words.
    pub fn describe(&self, row: usize) -> String {
        let class = |class: usize| self.describe_class(class);
        let project = |project: usize| &self.tree.projects[project].name;
        match &self.kinds[row] {
            RowKind::Blocks { class: of, level: 0 } => format!("GPUs of {}", class(*of)),
            RowKind::Blocks { class: of, level } => {
                format!("blocks of {} GPUs on one node of {}", 1 << level, class(*of))
            }
            RowKind::Halves { class: of } => format!("nodes of {}", class(*of)),
            RowKind::Domains { class: of, level } => {
                format!("groups of {} nodes of {} in one fabric domain", 1 << level, class(*of))
            }
            RowKind::Host { class: of, of: resource } => {
                format!("{} of nodes of {}", resource.in_words(), class(*of))
            }
            RowKind::Quota { project: of } => format!("the quota of project {}", project(*of)),
            RowKind::Floor { project: of } => format!("the floor of project {}", project(*of)),
            RowKind::User { project: of, user } => format!("what user {user} may hold in project {}", project(*of)),
            RowKind::Site { row } => describe_site(&self.input.policy.rows[*row].name),
            RowKind::Under { row, class: of } => {
                format!("GPUs of {} under {}", class(*of), describe_site(&self.input.policy.rows[*row].name))
            }
            RowKind::Power => "the power cap".into(),
            RowKind::Promised { job, of } => {
                format!("what is kept for {} of {}", self.input.jobs[*job].name, self.describe(*of as usize))
            }
            RowKind::Moves => "the number of moves in one round".into(),
        }
    }

    /// "H100-80G", or with the reservation that sets it apart.
    pub fn describe_class(&self, class: usize) -> String {
        let of = &self.cluster.classes[class];
        let alike = |other: &Class| other.alike.gpu_type == of.alike.gpu_type && other.alike != of.alike;
        let mut name = of.alike.gpu_type.to_string();
        if self.cluster.classes.iter().any(alike) {
            name = format!("{name} ({} per node)", of.whole());
        }
        if let Gate::Reserved { by } = &of.gate {
            let names: Vec<&str> = by.iter().map(|&one| self.input.reservations[one].name.as_str()).collect();
            name = format!("{name} reserved for {}", names.join(" and "));
        }
        name
    }

    /// What one more GPU of a class is worth at these prices, as part of a whole node; of a mix, in the dearer class.
    pub fn price_per_gpu(&self, class: usize, prices: &[f64]) -> f64 {
        let [slower, faster] = self.cluster.members(class).map(|of| self.price_in_class(of, prices));
        slower.max(faster)
    }

    fn price_in_class(&self, class: usize, prices: &[f64]) -> f64 {
        let (rows, whole) = (&self.classes[class], self.cluster.classes[class].whole().max(1));
        let blocks = rows.blocks.iter().enumerate();
        let of_blocks: f64 = blocks.map(|(level, &row)| prices[row as usize] * f64::from(whole >> level)).sum();
        (of_blocks + prices[rows.halves as usize]) / f64::from(whole)
    }

    fn slices(&self, taken: &mut Taken, class: usize, job: &PlanJob, gpus: u32, count: i64) {
        let rows = &self.classes[class];
        for (level, &row) in rows.blocks.iter().enumerate() {
            taken.add(row, i64::from(gpus >> level) * count);
        }
        taken.add(rows.halves, i64::from(gpus > self.cluster.classes[class].whole() / 2) * count);
        for &(of, row) in &rows.hosts {
            let need = job.needs.per_node.amount(of).map_or(0, |need| host_units(of, need.into()));
            taken.add(row, need * count);
        }
    }

    fn within_domain(&self, taken: &mut Taken, class: usize, nodes: u32) {
        for &(level, row) in &self.classes[class].domains {
            taken.add(row, i64::from(nodes >> level));
        }
    }

    /// Rows of the site, as far as a shape decides what it takes of them.
    fn site(&self, taken: &mut Taken, job: &PlanJob, shape: Shape) {
        let (cluster, class) = (self.cluster, &self.cluster.classes[shape.class]);
        for &row in cluster.site.rows_of(job) {
            let roomy = |node: &&usize| cluster.open_on(**node) >= shape.per_node();
            let others = |node: &&usize| !cluster.site.counts(row, Some(**node)) && roomy(node);
            let least = cluster.site.least(row, shape, || class.nodes.iter().filter(others).count() as u32);
            taken.add(self.named[&RowKind::Site { row }], i64::from(least));
        }
        let divided = |row: &&usize| cluster.site.divides(**row, shape.class);
        for &row in cluster.site.dividing_rows_of(job).iter().filter(divided) {
            taken.add(self.named[&RowKind::Under { row, class: shape.class }], i64::from(shape.gpus.0));
        }
    }

    /// GPUs that a job keeps on a node: of those a row counts, and of those that others leave it beside its nodes.
    fn under_rows(&self, taken: &mut Taken, job: &PlanJob, node: usize, gpus: u32) {
        let (site, class) = (&self.cluster.site, self.cluster.class_of(node));
        for row in site.dividing_rows(class) {
            if site.dividing_rows_of(job).contains(&row) || !site.counts(row, Some(node)) {
                taken.add(self.named[&RowKind::Under { row, class }], i64::from(gpus));
            }
        }
    }

    /// Rows of projects and power.
    fn common(
        &self,
        taken: &mut Taken,
        job: &PlanJob,
        gpus: GpuCount,
        gpu_type: Option<&GpuType>,
        watts_per_gpu: Option<f64>,
    ) {
        let amount = i64::from(gpus.0);
        for &project in self.tree.lineage_of(&job.claim.project) {
            let user = || RowKind::User { project, user: job.claim.user.clone() };
            let quota = self.row(&RowKind::Quota { project });
            let capped = self.tree.projects[project].max_per_user.and_then(|_| self.row(&user()));
            for row in quota.into_iter().chain(capped) {
                taken.add(row, amount);
            }
            if let Some(row) = self.row(&RowKind::Floor { project }) {
                taken.add(row, -amount);
            }
        }
        if let Some(row) = self.row(&RowKind::Power) {
            let per_gpu = watts_per_gpu.unwrap_or_else(|| self.busy_watts(gpu_type));
            let idle = self.input.policy.power_cap.as_ref().map_or(0.0, |cap| cap.idle.max(0.0));
            taken.add(row, watts((per_gpu - idle).max(0.0) * f64::from(gpus.0)));
        }
    }

    fn busy_watts(&self, gpu_type: Option<&GpuType>) -> f64 {
        let cap = self.input.policy.power_cap.as_ref();
        cap.and_then(|cap| cap.busy.get(gpu_type?).copied()).unwrap_or(WATTS)
    }
}

/// A row of the site by its name in reports.
pub(crate) fn describe_site(name: &str) -> String {
    format!("the row {name}")
}

/// Rounded down on both sides: what fits in bytes then fits in units, and where it is placed counts in bytes.
fn host_units(of: HostResource, amount: u128) -> i64 {
    let units = match of {
        HostResource::Cpus => amount,
        HostResource::Memory | HostResource::Shm | HostResource::LocalDisk => amount / u128::from(BYTES_UNIT),
    };
    i64::try_from(units).unwrap_or(i64::MAX >> 8).min(i64::MAX >> 8)
}

/// Whole watts, rounded up and kept within what sums of many jobs can hold.
fn watts(exact: f64) -> i64 {
    if exact.is_finite() { libm::ceil(exact).clamp(-1e12, 1e12) as i64 } else { 0 }
}

#[derive(Default)]
struct Taken(Vec<Use>);

impl Taken {
    fn add(&mut self, row: u32, amount: i64) {
        if amount == 0 {
            return;
        }
        match self.0.iter_mut().find(|part| part.row == row) {
            Some(part) => part.amount += amount,
            None => self.0.push(Use { row, amount }),
        }
    }

    fn uses(mut self) -> Vec<Use> {
        self.0.retain(|part| part.amount != 0);
        self.0.sort_unstable_by_key(|part| part.row);
        self.0
    }
}
