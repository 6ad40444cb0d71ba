//! What has been seen of a job, over what its specification says it is owed, bounded by and in need of.

use std::collections::{BTreeMap, BTreeSet};

use headway_planner::{Bounds, Claim, Needs};
use headway_types::{GpuCount, GpuSeconds, NodeId, Seconds};

use super::RoundRequest;
use crate::record::{Job, JobState, SUSPICION};

impl RoundRequest {
    pub(super) fn claim(&self, job: &Job, told: Claim) -> Claim {
        let turn = job.turn_at(self.frame.now);
        Claim {
            waited: turn.waited,
            ran: turn.ran,
            attained: self.attained(job),
            restarts: job.reconfigurations.saturating_add(job.restarts),
            most: job.most_gpus.clone(),
            since_move: job.moved_at.last().map(|at| self.frame.now.since(*at)),
            ..told
        }
    }

    pub(super) fn bounds(&self, job: &Job, told: Bounds) -> Bounds {
        let left = |budget: GpuSeconds| GpuSeconds((budget.0 - self.attained(job).0).max(0.0));
        Bounds { budget_left: told.budget_left.map(left), time_left: self.time_left(job), ..told }
    }

    /// Running time until `limits.time` stops the job.
    fn time_left(&self, job: &Job) -> Option<Seconds> {
        let now = match job.state {
            JobState::Running { since, .. } => self.frame.now.since(since),
            _ => Seconds(0.0),
        };
        job.spec.limits.time.map(|limit| Seconds((limit.0 - job.ran.0 - now.0).max(0.0)))
    }

    pub(super) fn needs(&self, job: &Job, told: Needs) -> Needs {
        let mut mistrusted: BTreeSet<NodeId> = told.avoid.union(&job.suspects).copied().collect();
        mistrusted.extend(job.lacking);
        mistrusted.extend(self.accused_to(job));
        let beside = mistrusted.len() > told.avoid.len() && self.could_run_beside(job, &mistrusted);
        Needs { avoid: if beside { mistrusted } else { told.avoid }, layout: job.layout, ..told }
    }

    /// Nodes that another job of its owner speaks against, to a job that waits: not all of them need to find out what is wrong there.
    fn accused_to(&self, job: &Job) -> impl Iterator<Item = NodeId> {
        let waits = matches!(job.state, JobState::Queued { .. });
        let accuser = |id: &NodeId| self.rows.get(id)?.health.accuser(&job.owner, self.frame.now);
        let by_another = move |id: &&NodeId| waits && accuser(id).is_some_and(|by| by != job.id);
        self.accused.iter().filter(by_another).copied()
    }

    /// Whether the job could soon run without the nodes that failed it: another one of them, or enough that are alike,
    /// could hold its least size, and it has not waited for them for long. Where not, another attempt on a node that
    /// failed it beats waiting for ever.
    fn could_run_beside(&self, job: &Job, avoid: &BTreeSet<NodeId>) -> bool {
        if matches!(job.state, JobState::Queued { since } if self.frame.now.since(since).0 > SUSPICION.0) {
            return false;
        }
        let (range, only, least) = (&job.spec.role().gpus, &job.spec.role().nodes.only, job.least());
        let mut alike: BTreeMap<GpuCount, u32> = BTreeMap::new();
        for (id, node) in &self.rows {
            let inventory = &node.inventory;
            let asked = || only.is_any() || only.takes(&inventory.name, &node.labels());
            if !avoid.contains(id) && node.takes_work() && range.accepts(&inventory.gpu_type) && asked() {
                *alike.entry(inventory.healthy()).or_default() += 1;
            }
        }
        alike.into_iter().any(|(gpus, nodes)| {
            gpus >= least || (gpus.0 > 0 && least.0.is_multiple_of(gpus.0) && least.0 / gpus.0 <= nodes)
        })
    }
}
