//! What has been seen of a job, over what its specification says it is owed, bounded by and in need of.

use std::collections::{BTreeMap, BTreeSet};

use headway_planner::{Bounds, Claim, Needs};
use headway_types::{GpuCount, GpuSeconds, NodeId};

use super::RoundRequest;
use crate::record::{Job, JobState, Node, SUSPICION};

impl RoundRequest {
    pub(super) fn claim(&self, job: &Job, told: Claim) -> Claim {
        let turn = job.turn_at(self.frame.now);
        Claim {
            waited: turn.waited,
            ran: turn.ran,
            attained: self.attained(job),
            restarts: job.reconfigurations.saturating_add(job.preemptions).saturating_add(job.restarts),
            most: job.most_gpus.clone(),
            since_move: job.moved_at.last().map(|at| self.frame.now.since(*at)),
            ..told
        }
    }

    pub(super) fn bounds(&self, job: &Job, told: Bounds) -> Bounds {
        let left = |budget: GpuSeconds| GpuSeconds((budget.0 - self.attained(job).0).max(0.0));
        Bounds { budget_left: told.budget_left.map(left), time_left: job.time_left(self.frame.now), ..told }
    }

    pub(super) fn needs(&self, job: &Job, told: Needs) -> Needs {
        // Not for long: another attempt on a node that failed it beats waiting for ever.
        let mut mistrusted: BTreeSet<NodeId> = told.avoid.union(&job.suspects).copied().collect();
        mistrusted.extend(job.lacking);
        let healthy = |_: &NodeId, node: &Node| node.inventory.healthy();
        let waited = matches!(job.state, JobState::Queued { since } if self.frame.now.since(since).0 > SUSPICION.0);
        let beside = mistrusted.len() > told.avoid.len() && !waited && self.could_run_beside(job, &mistrusted, healthy);
        let mut avoid = if beside { mistrusted } else { told.avoid };
        avoid.extend(self.accused_to(job, &avoid));
        Needs { avoid, layout: job.layout, ..told }
    }

    /// Nodes that another job of its owner speaks against, to a job that waits and finds free GPUs beside them: not all of them need to find
    /// out what is wrong there. Nobody is moved for that, and nobody waits.
    fn accused_to(&self, job: &Job, avoid: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        let Some(accused) = self.accused.as_ref().filter(|_| matches!(job.state, JobState::Queued { .. })) else {
            return BTreeSet::new();
        };
        let accuser = |id: &NodeId| self.rows.get(id)?.health.accuser(&job.owner, self.frame.now);
        let by_another = |id: &&NodeId| accuser(id).is_some_and(|by| by != job.id);
        let to_it: BTreeSet<NodeId> = accused.nodes.iter().filter(by_another).copied().collect();
        let mistrusted = to_it.union(avoid).copied().collect();
        let free = |id: &NodeId, _: &Node| accused.free.get(id).copied().unwrap_or(GpuCount(0));
        if !to_it.is_empty() && self.could_run_beside(job, &mistrusted, free) { to_it } else { BTreeSet::new() }
    }

    /// Whether one node that is not to be avoided, or enough that are alike, has room for the job's least size.
    fn could_run_beside(&self, job: &Job, avoid: &BTreeSet<NodeId>, room: impl Fn(&NodeId, &Node) -> GpuCount) -> bool {
        let (range, only, least) = (&job.spec.role().gpus, &job.spec.role().nodes.only, job.least());
        let mut alike: BTreeMap<GpuCount, u32> = BTreeMap::new();
        for (id, node) in &self.rows {
            let inventory = &node.inventory;
            let asked = || only.is_any() || only.takes(&inventory.name, &node.labels());
            if !avoid.contains(id) && node.takes_work() && range.accepts(&inventory.gpu_type) && asked() {
                *alike.entry(room(id, node)).or_default() += 1;
            }
        }
        alike.into_iter().any(|(gpus, nodes)| {
            gpus >= least || (gpus.0 > 0 && least.0.is_multiple_of(gpus.0) && least.0 / gpus.0 <= nodes)
        })
    }
}
