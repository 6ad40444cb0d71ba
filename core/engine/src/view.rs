//! What readers see: a consistent snapshot of the live cluster, published by the shell after each commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_goodput::JobModel;
use headway_types::{
    Generation, GpuCount, GpuUuid, JobId, JobVerdict, NodeId, PlanId, Reason, ReasonCode, Seconds, Sequences, Term,
    Timestamp, Tokens, TokensPerSecond,
};

use crate::record::{Allocation, Job, JobState, Node, PlanRecord, PolicySettings};
use crate::state::{Engine, JobEntry};

/// Live jobs only; ended ones are read from the store.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    pub at: Timestamp,
    pub term: Term,
    pub jobs: BTreeMap<JobId, JobView>,
    pub nodes: BTreeMap<NodeId, NodeView>,
    /// The adopted plan.
    pub target: Option<Arc<PlanRecord>>,
    /// Plans that wait for approval.
    pub proposals: BTreeMap<PlanId, Arc<PlanRecord>>,
    pub policy: PolicySettings,
}

/// A live job with its newest numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct JobView {
    pub job: Arc<Job>,
    /// Of the newest generation, while it holds GPUs.
    pub allocation: Option<Arc<Allocation>>,
    /// From the newest plan made, adopted or not.
    pub verdict: Option<JobVerdict>,
    pub model: Option<Arc<JobModel>>,
    pub live: LiveNumbers,
}

/// Newest measurements; `None` where nothing has been measured yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveNumbers {
    pub reported_at: Option<Timestamp>,
    pub step: u64,
    pub samples_seen: Sequences,
    pub loss: Option<f64>,
    /// Raw tokens per second, smoothed.
    pub throughput: Option<TokensPerSecond>,
    pub efficiency: Option<f64>,
    pub goodput: Option<TokensPerSecond>,
    /// GNS φ in tokens.
    pub noise_scale: Option<f64>,
    /// Relative standard error of φ.
    pub noise_error: Option<f64>,
    /// Reference tokens, including those since the last checkpoint.
    pub progress: Tokens,
    /// Until the target at the present goodput.
    pub remaining: Option<Seconds>,
}

/// A node and who holds its GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeView {
    pub node: Arc<Node>,
    pub heard_at: Option<Timestamp>,
    pub held: BTreeMap<GpuUuid, (JobId, Generation)>,
}

impl Engine {
    /// A snapshot for readers; shares rows, copies none.
    #[must_use]
    pub fn view(&self, now: Timestamp) -> View {
        let held = self.holders();
        let jobs = self.jobs.iter().filter(|(_, entry)| !entry.job.state.is_final()).map(|(id, entry)| {
            let allocation = self.allocations.get(&(*id, entry.job.generation)).filter(|one| one.holds()).cloned();
            let view = JobView {
                job: entry.job.clone(),
                allocation,
                verdict: self.verdict_of(entry, now),
                model: entry.model.clone(),
                live: entry.live.clone(),
            };
            (*id, view)
        });
        let nodes = self.nodes.iter().map(|(id, entry)| {
            let gpus = entry.node.inventory.gpus.iter();
            let held = gpus.filter_map(|gpu| Some((gpu.uuid.clone(), *held.get(&gpu.uuid)?))).collect();
            (*id, NodeView { node: entry.node.clone(), heard_at: entry.heard_at, held })
        });
        View {
            at: now,
            term: self.term(),
            jobs: jobs.collect(),
            nodes: nodes.collect(),
            target: self.target.clone(),
            proposals: self.proposals.clone(),
            policy: self.policy.clone(),
        }
    }

    /// The planner's verdict, or the engine's own where the planner was not asked.
    fn verdict_of(&self, entry: &JobEntry, now: Timestamp) -> Option<JobVerdict> {
        let job = &entry.job;
        let own = |code, headline: String| JobVerdict {
            headline: headline.clone(),
            gpus: GpuCount(0),
            runner_up: None,
            marginal_speed_up: None,
            reasons: vec![Reason { code, binding: true, detail: headline }],
        };
        match (&job.state, job.not_before) {
            (JobState::Held { reason, .. }, _) => {
                let why = reason.as_deref().map_or(String::new(), |reason| format!(": {reason}"));
                Some(own(ReasonCode::Held, format!("on hold until it is released{why}")))
            }
            (JobState::Queued { .. }, Some(moment)) if moment > now => {
                let wait = moment.since(now).0;
                let headline = format!("waits {wait:.0} s after {} failures in a row", job.failures);
                Some(own(ReasonCode::BackOff, headline))
            }
            _ => self.verdicts.get(&job.id).cloned(),
        }
    }
}
