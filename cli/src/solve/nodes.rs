//! Groups of like nodes become nodes with GPUs, each with a name.

use std::collections::{BTreeMap, BTreeSet};

use headway_api::solve::NodeGroup;
use headway_planner::{PlanJob, PlanNode};
use headway_types::spec::NodeResources;
use headway_types::{Bytes, Fabric, GpuCount, GpuType, GpuUuid, NodeClass, NodeId};
use uuid::Uuid;

use super::check::{Findings, MOST};

const MOST_PER_NODE: u32 = 1 << 12;
const MOST_NODES: usize = 1 << 18;

/// The nodes of a round, by number and by name.
#[derive(Debug, Default)]
pub struct Nodes {
    list: Vec<PlanNode>,
    by_name: BTreeMap<String, usize>,
    /// GPUs built, over all nodes.
    built: u64,
}

/// A GPU's identity: its node's name and its index there.
pub fn gpu(node: &str, index: u32) -> GpuUuid {
    GpuUuid(format!("{node}/{index}"))
}

/// The index in a GPU's identity.
pub fn index(gpu: &GpuUuid) -> Option<u32> {
    gpu.0.rsplit_once('/')?.1.parse().ok()
}

pub fn nodes(groups: Vec<NodeGroup>, findings: &mut Findings) -> Nodes {
    let mut nodes = Nodes::default();
    for (at, group) in groups.into_iter().enumerate() {
        nodes.add(group, &format!("nodes[{at}]"), findings);
    }
    nodes
}

impl Nodes {
    /// Number of the node of this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// As [`Self::find`], reporting a name that is none.
    pub fn known(&self, name: &str, field: impl std::fmt::Display, findings: &mut Findings) -> Option<usize> {
        let found = self.find(name);
        if found.is_none() {
            findings.add(field, format!("no node is called \"{name}\""));
        }
        found
    }

    pub fn get(&self, number: usize) -> &PlanNode {
        &self.list[number]
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// GPU types of the round, ascending.
    pub fn types(&self) -> Vec<GpuType> {
        let types: BTreeSet<&GpuType> = self.list.iter().map(|node| &node.class.gpu_type).collect();
        types.into_iter().cloned().collect()
    }

    pub fn into_list(self) -> Vec<PlanNode> {
        self.list
    }

    /// A draining node offers only what jobs hold there.
    pub fn offer_what_draining_nodes_may_keep(&mut self, jobs: &[PlanJob]) {
        if !self.list.iter().any(|node| node.draining) {
            return;
        }
        let held: BTreeSet<&GpuUuid> = jobs
            .iter()
            .flat_map(|job| job.current.iter().flat_map(|current| current.placement.ranks().map(|(_, gpu)| gpu)))
            .collect();
        for node in self.list.iter_mut().filter(|node| node.draining) {
            node.gpus.retain(|gpu| held.contains(gpu));
        }
    }

    fn add(&mut self, group: NodeGroup, field: &str, findings: &mut Findings) {
        if group.gpu_type.is_empty() {
            findings.hint(format!("{field}.gpu_type"), "is empty", "name the type as jobs do, for instance H100-80G");
        }
        let per_node = findings.whole(group.gpus_per_node, 1..=MOST_PER_NODE, format!("{field}.gpus_per_node"));
        let Some(names) = self.names(&group, per_node, field, findings) else { return };
        let class = NodeClass {
            gpu_type: GpuType(group.gpu_type),
            gpus_per_node: GpuCount(per_node),
            emulated: None,
            fabric: Fabric { domain: group.domain.unwrap_or_default() },
            stated: None,
            ahead: None,
        };
        let host = NodeResources {
            cpus: group.cpus,
            memory: group.memory_bytes.map(Bytes),
            shm: group.shm_bytes.map(Bytes),
            local_disk: group.local_disk_bytes.map(Bytes),
        };
        let first = self.list.len();
        for name in names {
            let number = self.list.len();
            if self.by_name.insert(name.clone(), number).is_some() {
                let hint = "give each group its own name";
                findings.hint(field, format!("a second node is called \"{name}\""), hint);
            }
            self.list.push(PlanNode {
                node: NodeId(Uuid::from_u128(number as u128 + 1)),
                gpus: (0..per_node).map(|index| gpu(&name, index)).collect(),
                name,
                class: class.clone(),
                draining: false,
                host,
                labels: BTreeMap::new(),
                tells_shares: true,
                account: None,
            });
        }
        let of_group = |nodes: &Self, name: &str| nodes.find(name).filter(|number| *number >= first);
        for (name, indices) in &group.broken {
            let place = format!("{field}.broken.{name}");
            match of_group(self, name) {
                Some(number) => self.breaks(number, indices, per_node, &place, findings),
                None => findings.add(place, "no node of this group is called that"),
            }
        }
        for (at, name) in group.draining.iter().enumerate() {
            match of_group(self, name) {
                Some(number) => self.list[number].draining = true,
                None => findings
                    .add(format!("{field}.draining[{at}]"), format!("no node of this group is called \"{name}\"")),
            }
        }
    }

    fn breaks(&mut self, number: usize, indices: &[u32], per_node: u32, field: &str, findings: &mut Findings) {
        if let Some(index) = indices.iter().find(|index| **index >= per_node) {
            findings.add(field, format!("a node of {per_node} GPUs has no GPU {index}"));
        }
        let node = &mut self.list[number];
        let broken: BTreeSet<GpuUuid> = indices.iter().map(|index| gpu(&node.name, *index)).collect();
        node.gpus.retain(|gpu| !broken.contains(gpu));
    }

    /// Names of a group's nodes; `None` where there are too many to go on.
    fn names(&mut self, group: &NodeGroup, per_node: u32, field: &str, findings: &mut Findings) -> Option<Vec<String>> {
        if group.names.is_some() && (group.count.is_some() || group.name.is_some()) {
            findings.hint(format!("{field}.names"), "stands instead of count and name", "leave one of them out");
        }
        let count = group.names.as_ref().map_or(group.count.unwrap_or(1) as usize, Vec::len);
        self.built += count as u64 * u64::from(per_node);
        if self.built > u64::from(MOST) {
            findings.add(field, format!("a round has {MOST} GPUs at most; with this group it has {}", self.built));
            return None;
        }
        if self.list.len() + count > MOST_NODES {
            findings.add(field, format!("a round has {MOST_NODES} nodes at most"));
            return None;
        }
        if let Some(names) = &group.names {
            if let Some(at) = names.iter().position(String::is_empty) {
                findings.add(format!("{field}.names[{at}]"), "is empty");
            }
            return Some(names.clone());
        }
        let name = group.name.clone().unwrap_or_else(|| match &group.domain {
            Some(domain) => format!("{}-{domain}", group.gpu_type),
            None => group.gpu_type.clone(),
        });
        Some((0..count).map(|number| format!("{name}-{number}")).collect())
    }
}
