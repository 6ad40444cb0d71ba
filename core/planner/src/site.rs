//! A site's own rules: rows that an administrator states, each "at most so many GPUs of this kind". Compiled once per
//! round into which jobs and which nodes each counts.
//!
//! Where a row counts all nodes of a class or none, a shape says how much it takes. Where it **divides** a class, because
//! it names a node, only a placement does: the integer program then counts what stays there and what cannot be had
//! elsewhere, a further row keeps it from promising more of the class than the row leaves, and `free` refuses the rest.
//! Giving such nodes a class of their own would be exact too, but would keep every gang from spanning them.

use std::collections::{BTreeMap, BTreeSet};

use headway_types::{GpuCount, GpuType, JobId, NodeId, NodeSlice};
use serde::{Deserialize, Serialize};

use crate::cluster::{Class, Cluster, Shape};
use crate::input::{PlanInput, PlanJob, PlanNode};
use crate::project::Tree;

/// A row that a site states.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteRow {
    /// Unique among the rows of a policy.
    pub name: String,
    pub amount: Amount,
    pub at_most: GpuCount,
}

/// Which GPUs a row counts: those of which everything holds that it names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Amount {
    pub gpu_type: Option<GpuType>,
    /// Held by jobs of this project or of one below it.
    pub project: Option<String>,
    /// Held by jobs with this label.
    pub label: Option<Label>,
    /// On the node of this name or id.
    pub node: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    pub key: String,
    pub value: String,
}

impl Amount {
    fn counts_job(&self, tree: &Tree<'_>, job: &PlanJob) -> bool {
        let project = self.project.as_ref();
        project.is_none_or(|of| tree.lineage(&job.claim.project).any(|name| name == of))
            && self.label.as_ref().is_none_or(|of| job.claim.labels.get(&of.key) == Some(&of.value))
    }

    /// Whether it counts GPUs of this node and no other.
    #[must_use]
    pub fn names(&self, node: NodeId, name: &str) -> bool {
        self.node.as_ref().is_some_and(|of| of == name || of.parse() == Ok(node))
    }

    /// The nodes it counts GPUs of, by index; `None`: all, those that the round does not know as well.
    fn nodes(&self, all: &[PlanNode]) -> Option<BTreeSet<usize>> {
        if self.gpu_type.is_none() && self.node.is_none() {
            return None;
        }
        let named = |node: &PlanNode| self.node.is_none() || self.names(node.node, &node.name);
        let of_type = |node: &PlanNode| self.gpu_type.as_ref().is_none_or(|of| node.class.gpu_type == *of);
        let counted = all.iter().enumerate().filter(|(_, node)| named(node) && of_type(node));
        Some(counted.map(|(node, _)| node).collect())
    }
}

/// What a row counts of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cover {
    All,
    Nothing,
    Part,
}

#[derive(Clone, Debug)]
struct Scope {
    /// `None`: everywhere, on nodes the round does not know as well.
    nodes: Option<BTreeSet<usize>>,
    /// By class.
    covers: Vec<Cover>,
    at_most: GpuCount,
}

/// The rows of a round that could bind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Site {
    /// By index into the policy's rows.
    scopes: BTreeMap<usize, Scope>,
    by_job: BTreeMap<JobId, Vec<usize>>,
    /// The same, of rows that divide a class.
    dividing: BTreeMap<JobId, Vec<usize>>,
}

impl Site {
    pub fn new(input: &PlanInput, cluster: &Cluster<'_>) -> Self {
        let mut site = Self::default();
        if input.policy.rows.is_empty() {
            return site;
        }
        let tree = Tree::new(&input.projects);
        for (row, of) in input.policy.rows.iter().enumerate() {
            let jobs: Vec<&PlanJob> = input.jobs.iter().filter(|job| of.amount.counts_job(&tree, job)).collect();
            let nodes = of.amount.nodes(&input.nodes);
            let scope = Scope { covers: covers(nodes.as_ref(), &cluster.classes), nodes, at_most: of.at_most };
            // What cannot bind is no row, so that it changes nothing.
            if scope.most(cluster, &jobs) <= u64::from(of.at_most.0) {
                continue;
            }
            let divides = scope.covers.contains(&Cover::Part);
            for job in jobs {
                site.by_job.entry(job.job).or_default().push(row);
                if divides {
                    site.dividing.entry(job.job).or_default().push(row);
                }
            }
            site.scopes.insert(row, scope);
        }
        site
    }

    pub fn rows(&self) -> impl Iterator<Item = (usize, GpuCount)> {
        self.scopes.iter().map(|(&row, scope)| (row, scope.at_most))
    }

    /// Rows that count the job's GPUs, somewhere.
    pub fn rows_of(&self, job: &PlanJob) -> &[usize] {
        self.by_job.get(&job.job).map_or(&[], Vec::as_slice)
    }

    /// Those of them that a shape does not decide.
    pub fn dividing_rows_of(&self, job: &PlanJob) -> &[usize] {
        self.dividing.get(&job.job).map_or(&[], Vec::as_slice)
    }

    /// Rows that divide a class.
    pub fn dividing_rows(&self, class: usize) -> impl Iterator<Item = usize> {
        self.scopes.iter().filter(move |(_, scope)| scope.covers[class] == Cover::Part).map(|(&row, _)| row)
    }

    pub fn divides(&self, row: usize, class: usize) -> bool {
        self.scopes[&row].covers[class] == Cover::Part
    }

    /// Whether a row counts the GPUs of a node, whoever holds them; `None`: one the round does not know.
    pub fn counts(&self, row: usize, node: Option<usize>) -> bool {
        self.scopes[&row].counts(node)
    }

    /// What a shape takes of a row wherever it is placed. `others` tells how many nodes of its class that the row does not
    /// count have room for a slice of it.
    pub fn least(&self, row: usize, shape: Shape, others: impl FnOnce() -> u32) -> u32 {
        match self.scopes[&row].covers[shape.class] {
            Cover::All => shape.gpus.0,
            Cover::Nothing => 0,
            Cover::Part => shape.nodes.0.saturating_sub(others()) * shape.per_node(),
        }
    }

    /// Whether a slice of so many GPUs may lie on a node, were nobody else there.
    pub fn admits(&self, job: &PlanJob, node: usize, gpus: u32) -> bool {
        let tight = |row: &&usize| self.counts(**row, Some(node)) && gpus > self.scopes[*row].at_most.0;
        !self.dividing_rows_of(job).iter().any(|row| tight(&row))
    }
}

impl Scope {
    fn counts(&self, node: Option<usize>) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| node.is_some_and(|node| nodes.contains(&node)))
    }

    /// The most GPUs the row could come to count: what its nodes offer and its jobs hold there besides, but no more than
    /// its jobs take.
    fn most(&self, cluster: &Cluster<'_>, jobs: &[&PlanJob]) -> u64 {
        let here = |slice: &&NodeSlice| self.counts(cluster.index_of(slice.node));
        let held = |job: &PlanJob| -> (u64, u64) {
            let slices = job.current.iter().flat_map(|at| at.placement.slices()).filter(here);
            slices.fold((0, 0), |(all, besides), slice| {
                let offered = cluster.node(slice.node).map_or(&[][..], |node| &node.gpus);
                let not_offered = slice.gpus.iter().filter(|gpu| !offered.contains(gpu)).count();
                (all + slice.gpus.len() as u64, besides + not_offered as u64)
            })
        };
        let (mut asked, mut most) = (0, 0);
        for job in jobs {
            let (all, besides) = held(job);
            asked += u64::from(job.range.max.0).max(all);
            most += besides;
        }
        let offers = |(node, of): (usize, &PlanNode)| if self.counts(Some(node)) { of.gpus.len() as u64 } else { 0 };
        most += cluster.nodes.iter().enumerate().map(offers).sum::<u64>();
        asked.min(most)
    }
}

fn covers(nodes: Option<&BTreeSet<usize>>, classes: &[Class]) -> Vec<Cover> {
    let cover = |class: &Class| {
        let inside = class.nodes.iter().filter(|node| nodes.is_none_or(|nodes| nodes.contains(node))).count();
        match inside {
            0 => Cover::Nothing,
            _ if inside == class.nodes.len() => Cover::All,
            _ => Cover::Part,
        }
    };
    classes.iter().map(cover).collect()
}
