//! The cluster as a round would find it now: rows as the planner is told of them, and a whole round made of what readers
//! see, for those who ask what would be and must not wait for the loop. What only the engine knows of jobs (their rights,
//! and what they are free to do) is in the rounds it makes itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_planner::{Force, PlanInput, PlanJob, PlanNode, PlanProject, PlanWork, Premises};
use headway_types::spec::NodeResources;
use headway_types::{Gpu, GpuHealth, GpuSeconds, GpuType, IdSource, JobId, Move, NodeId, Plan, Timestamp};

use crate::record::{Node, Project, Reservation};
use crate::view::{JobView, NodeView, View};

impl Node {
    pub(crate) fn for_round(&self, usable: impl Fn(&Gpu) -> bool) -> PlanNode {
        let inventory = &self.inventory;
        let mut gpus: Vec<&Gpu> = inventory.gpus.iter().filter(|gpu| usable(gpu)).collect();
        gpus.sort_by_key(|gpu| gpu.index);
        PlanNode {
            node: inventory.node,
            name: inventory.name.clone(),
            class: inventory.class(),
            gpus: gpus.into_iter().map(|gpu| gpu.uuid.clone()).collect(),
            draining: self.is_draining(),
            host: NodeResources {
                cpus: Some(inventory.cpus),
                memory: Some(inventory.memory),
                shm: inventory.shm,
                local_disk: inventory.local_disk,
            },
            labels: self.labels(),
            tells_shares: inventory.tells_shares,
            account: inventory.account.clone(),
        }
    }
}

impl Project {
    pub(crate) fn for_round(&self, usages: &BTreeMap<String, GpuSeconds>) -> PlanProject {
        let rules = self.rules.clone();
        PlanProject {
            name: self.name.clone(),
            parent: rules.parent,
            quota: rules.quota,
            borrow: rules.borrow,
            floor: rules.floor,
            weight: rules.weight,
            usage: usages.get(&self.name).map_or(0.0, |used| used.0),
            max_per_user: rules.max_per_user,
        }
    }
}

impl Reservation {
    /// Nothing, once it is over.
    pub(crate) fn for_round(&self, now: Timestamp) -> Option<headway_planner::Reservation> {
        (self.until > now).then(|| headway_planner::Reservation {
            name: self.name.clone(),
            reason: self.reason.clone(),
            nodes: self.nodes.clone(),
            from: self.from,
            until: self.until,
            projects: self.projects.clone(),
            users: self.users.clone(),
            jobs: self.jobs.clone(),
        })
    }
}

impl View {
    /// The round that could be asked for now.
    #[must_use]
    pub fn round(&self) -> PlanInput {
        let empty = self.empty_round();
        let wanting = || self.jobs.values().filter(|shown| shown.job.wants_gpus(self.at));
        let premises = Premises::new(&empty.nodes, wanting().count());
        let jobs = wanting().map(|shown| self.plan_job(shown, premises)).collect();
        let usages = self.holdings().into_iter().map(|(name, holding)| (name, holding.used)).collect();
        let projects = self.projects.values().map(|project| project.for_round(&usages)).collect();
        PlanInput { jobs, projects, ..empty }
    }

    /// What gives the jobs that a plan moved what they had before it, those that live; `before`: the plan it was made from.
    #[must_use]
    pub fn undo(&self, plan: &Plan, before: Option<&Plan>) -> Vec<Force> {
        let gpu_type = |job: JobId| {
            let placement = &before?.assignments.get(&job)?.placement;
            let type_of = |node: NodeId| Some(self.nodes.get(&node)?.node.inventory.gpu_type.clone());
            GpuType::joined(placement.slices().iter().filter_map(|slice| type_of(slice.node)))
        };
        let moved = plan.report.moves.iter().filter(|one| one.kind.disturbs() && one.from_gpus.0 > 0);
        let lives = |job: JobId| self.jobs.get(&job).is_some_and(|shown| shown.job.wants_gpus(self.at));
        let back = |one: &Move| Force { job: one.job, gpus: Some(one.from_gpus), gpu_type: gpu_type(one.job) };
        moved.filter(|one| lives(one.job)).map(back).collect()
    }

    /// The same as if nobody were there or had ever been, which costs the nodes and not the queue.
    #[must_use]
    pub fn empty_round(&self) -> PlanInput {
        let unused = BTreeMap::new();
        PlanInput {
            plan: IdSource::seeded(0).plan(self.at),
            parent: self.target.as_ref().map(|target| target.plan.id),
            now: self.at,
            trigger: "somebody asks".into(),
            policy: self.policy.objective.clone(),
            jobs: Vec::new(),
            projects: self.projects.values().map(|project| project.for_round(&unused)).collect(),
            reservations: self.reservations.values().filter_map(|one| one.for_round(self.at)).collect(),
            nodes: self.nodes.values().map(|node| self.plan_node(node)).collect(),
            lessons: Arc::clone(&self.lessons),
            deferred: BTreeSet::new(),
            forced: Vec::new(),
        }
    }

    fn plan_job(&self, shown: &JobView, premises: Premises<'_>) -> PlanJob {
        let job = &shown.job;
        let work = shown.model.clone().map_or(PlanWork::Opaque, PlanWork::Model);
        PlanJob {
            capabilities: job.able(),
            departure: shown.departure,
            current: shown.allocation.as_ref().map(|held| held.assignment(self.target.as_deref())),
            ..premises.job(job.id, &job.spec, &job.owner, job.submitted_at, work)
        }
    }

    /// What is held stays usable to its holder where nothing new may start, unless the node drains; what is held under
    /// another node's name is that node's to offer.
    fn plan_node(&self, shown: &NodeView) -> PlanNode {
        let drains = shown.node.is_draining();
        let holder = |gpu: &Gpu| self.jobs.get(&shown.held.get(&gpu.uuid)?.0)?.allocation.as_ref();
        shown.node.for_round(|gpu| {
            let offered = match holder(gpu) {
                None => shown.takes_work(),
                Some(held) => {
                    let here = held.placement.slices().iter().any(|slice| slice.node == shown.node.inventory.node);
                    here && (shown.takes_work() || !drains)
                }
            };
            offered && gpu.health == GpuHealth::Healthy
        })
    }
}
