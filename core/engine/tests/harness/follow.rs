//! What several test files say of jobs and of time passing.

use std::collections::BTreeMap;

use headway_engine::event::{JobChange, Request};
use headway_engine::record::{Availability, JobState, Node, NodeHealth, NodePolicy};
use headway_types::{GpuCount, GroupOutcome, GroupPhase, JobId, JobSpec, NodeInventory};

use super::{Cluster, spec, training};

pub fn of(project: &str, spec: JobSpec) -> JobSpec {
    JobSpec { project: project.into(), ..spec }
}

pub fn elastic(name: &str, most: u32) -> JobSpec {
    spec(name, 1, most, Some(training(true)))
}

/// Its owner wants it to run on so many GPUs.
pub fn resize(cluster: &mut Cluster, job: JobId, gpus: u32) {
    let gpus = Some(GpuCount(gpus));
    let change = JobChange { min: gpus, max: gpus, ..JobChange::default() };
    cluster.request(Request::Change { job, change, expected: None });
}

pub fn gpus(cluster: &Cluster, job: JobId) -> u32 {
    match cluster.state(job) {
        JobState::Starting { .. } | JobState::Running { .. } => cluster.allocation(job).placement.gpus().0,
        _ => 0,
    }
}

/// Jobs that were asked to stop do so, and jobs that were granted GPUs start, until nothing moves.
pub fn follow(cluster: &mut Cluster, nodes: &[u64]) {
    for _ in 0..20 {
        let states: Vec<(JobId, JobState)> = cluster.jobs.iter().map(|(id, job)| (*id, job.state.clone())).collect();
        for (job, state) in &states {
            match state {
                JobState::Stopping { .. } => cluster.end(*job, &GroupOutcome::Stopped),
                JobState::Starting { .. } => launch(cluster, *job),
                _ => {}
            }
        }
        cluster.pass_beating(2.0, nodes);
        if cluster.jobs.iter().all(|(id, job)| states.iter().any(|(one, state)| one == id && *state == job.state)) {
            return;
        }
    }
}

/// Takes a granted job through both phases; it may be moved on as soon as it runs.
fn launch(cluster: &mut Cluster, job: JobId) {
    let nodes = cluster.nodes_of(job);
    for phase in [GroupPhase::Prepared { rendezvous_port: Some(29_500) }, GroupPhase::Running] {
        nodes.iter().for_each(|node| cluster.group(*node, job, phase.clone()));
    }
}

impl Cluster {
    /// The scheduler comes up anew, and finds a node stored that has not been heard since: of an earlier release, maybe.
    pub fn keep(&mut self, inventory: NodeInventory) {
        let node = Node {
            boot: inventory.boot.clone(),
            policy: NodePolicy::Schedulable,
            availability: Availability::Available,
            health: NodeHealth::default(),
            registered_at: self.now,
            labels: BTreeMap::new(),
            version: 1,
            inventory,
        };
        let others: Vec<NodeInventory> = self.nodes.values().map(|node| node.inventory.clone()).collect();
        self.nodes.insert(node.inventory.node, node);
        self.restart();
        others.into_iter().for_each(|inventory| self.register(inventory, Vec::new()));
    }
}
