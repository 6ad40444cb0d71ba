//! What a job is owed, what bounds it and what it needs, as the planner is told. Reads rows; changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use headway_planner::{Bounds, Claim, Needs, PlanJob, PlanNode, Spread};
use headway_types::spec::Topology;
use headway_types::{GpuCount, GpuSeconds, NodeId, Seconds};

use crate::facts::Facts;
use crate::record::{Job, JobState, Node, StopCause, Turn};

/// How long a job that waits avoids the nodes that failed it.
const SUSPICION: Seconds = Seconds(60.0);

impl Facts {
    pub fn claim(&self, job: &Job) -> Claim {
        let turn = self.turn(job);
        Claim {
            restarts: job.reconfigurations.saturating_add(job.restarts),
            project: job.spec.project.clone(),
            user: job.owner.clone(),
            // Known only once all jobs and nodes of the round are.
            floor: GpuCount(0),
            waited: turn.waited,
            ran: turn.ran,
            attained: self.attained(job),
            since_move: job.moved_at.last().map(|at| self.now.since(*at)),
        }
    }

    /// The job's turn as of now: waiting lengthens it, running uses it up.
    fn turn(&self, job: &Job) -> Turn {
        let turn = job.turn;
        match &job.state {
            JobState::Queued { since } => Turn { waited: turn.waited + self.now.since(*since), ..turn },
            JobState::Running { since, .. } => Turn { ran: turn.ran + self.now.since(*since), ..turn },
            JobState::Stopping { cause: StopCause::Preempt, .. } => Turn::default(),
            _ => turn,
        }
    }

    pub fn bounds(&self, job: &Job) -> Bounds {
        let limits = &job.spec.limits;
        Bounds {
            deadline: limits.deadline,
            budget_left: limits.budget.map(|budget| GpuSeconds((budget.0 - self.attained(job).0).max(0.0))),
            time_left: self.time_left(job),
        }
    }

    /// Running time until `limits.time` stops the job.
    fn time_left(&self, job: &Job) -> Option<Seconds> {
        let now = match job.state {
            JobState::Running { since, .. } => self.now.since(since),
            _ => Seconds(0.0),
        };
        job.spec.limits.time.map(|limit| Seconds((limit.0 - job.ran.0 - now.0).max(0.0)))
    }

    pub fn needs(&self, job: &Job) -> Needs {
        let role = job.spec.role();
        let excluded = |node: &Node| role.nodes.exclude.contains(&node.inventory.name);
        let mut avoid = BTreeSet::new();
        if !role.nodes.exclude.is_empty() {
            avoid.extend(self.nodes.iter().filter(|(_, node)| excluded(node)).map(|(id, _)| *id));
        }
        let mistrusted: BTreeSet<NodeId> = avoid.union(&job.suspects).copied().collect();
        if !job.suspects.is_empty() && self.could_run_beside(job, &mistrusted) {
            avoid = mistrusted;
        }
        Needs {
            per_node: role.per_node,
            avoid,
            spread: match role.nodes.topology {
                Topology::PreferRack => Spread::Prefer,
                Topology::RequireRack => Spread::Require,
            },
            layout: job.layout,
        }
    }

    /// Whether the job could soon run without the nodes that failed it: another one of them, or enough that are alike,
    /// could hold its least size, and it has not waited for them for long. Where not, another attempt on a node that
    /// failed it beats waiting for ever.
    fn could_run_beside(&self, job: &Job, avoid: &BTreeSet<NodeId>) -> bool {
        if matches!(job.state, JobState::Queued { since } if self.now.since(since).0 > SUSPICION.0) {
            return false;
        }
        let range = &job.spec.role().gpus;
        let least = if job.spec.training().is_some() { range.min } else { range.max };
        let mut alike: BTreeMap<GpuCount, u32> = BTreeMap::new();
        for (id, node) in &self.nodes {
            let inventory = &node.inventory;
            if !avoid.contains(id) && node.takes_work() && range.accepts(&inventory.gpu_type) {
                *alike.entry(inventory.healthy()).or_default() += 1;
            }
        }
        alike.into_iter().any(|(gpus, nodes)| {
            gpus >= least || (gpus.0 > 0 && least.0.is_multiple_of(gpus.0) && least.0 / gpus.0 <= nodes)
        })
    }
}

/// What `elastic.min_share` makes jobs sure of: that part of the fair share, which is an equal split of the usable GPUs
/// among the jobs of the round, but at least the job's minimum; rounded up to a size the job allows.
pub(super) fn set_floors(facts: &Facts, jobs: &mut [PlanJob], nodes: &[PlanNode]) {
    let usable: usize = nodes.iter().filter(|node| !node.draining).map(|node| node.gpus.len()).sum();
    let fair = GpuCount((usable / jobs.len().max(1)) as u32);
    for job in jobs {
        let spec = facts.jobs.get(&job.job).map(|job| &job.spec);
        let Some(share) = spec.and_then(|spec| spec.elastic.min_share) else { continue };
        let wanted = share * f64::from(fair.max(job.range.min).0);
        job.claim.floor = job.range.size_from(GpuCount(libm::ceil(wanted - 1e-9) as u32));
    }
}
