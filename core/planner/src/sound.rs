//! A round without the jobs and nodes whose own numbers nothing can be computed with, and without the jobs whose curves were not ready. One
//! bad job must not keep all others from being planned: where it holds GPUs it keeps them as they are, else it gets nothing, and the plan
//! names it either way. On a bad node nothing starts.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use headway_types::plan::{LeftOut, NodeLeftOut};
use headway_types::spec::GpuRange;
use headway_types::{Assignment, JobId, JobVerdict, NodeId, PlanReport, Reason, ReasonCode, Seconds};

use crate::candidate::unmeasured;
use crate::check::{PlanError, WrongField, check_job, check_node, check_round};
use crate::claim::{Bounds, Needs};
use crate::ending::Departure;
use crate::input::{Downtime, Freedom, PlanInput, PlanJob, PlanNode, PlanWork};

/// What can be planned with.
pub(crate) struct Sound<'a> {
    pub input: Cow<'a, PlanInput>,
    pub left_out: BTreeMap<JobId, Why>,
    nodes_left_out: BTreeMap<NodeId, WrongField>,
}

impl PlanNode {
    /// Whether rounds can plan with it. Who counts GPUs ahead of a round counts those of such nodes alone.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        check_node(self).is_ok()
    }
}

/// Why a job is left as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    #[error("{0}")]
    Wrong(WrongField),
    /// It holds GPUs of a node that cannot be planned with.
    #[error("node {node} cannot be planned with: {wrong}")]
    Node { node: String, wrong: WrongField },
    #[error("its goodput curve was not ready in time")]
    Deferred,
}

impl<'a> Sound<'a> {
    /// # Errors
    /// What is wrong with the round itself.
    pub fn of(input: &'a PlanInput) -> Result<Self, PlanError> {
        check_round(input)?;
        let wrong = |node: &PlanNode| check_node(node).err().map(|wrong| (node.node, wrong));
        let nodes_left_out: BTreeMap<NodeId, WrongField> = input.nodes.iter().filter_map(wrong).collect();
        let why = |job: &PlanJob| {
            let wrong = check_job(job).err().map(Why::Wrong);
            let deferred = || input.deferred.contains(&job.job).then_some(Why::Deferred);
            let why = wrong.or_else(|| on_a_wrong_node(input, job, &nodes_left_out)).or_else(deferred)?;
            Some((job.job, why))
        };
        let left_out: BTreeMap<JobId, Why> = input.jobs.iter().filter_map(why).collect();
        if left_out.is_empty() && nodes_left_out.is_empty() {
            return Ok(Self { input: Cow::Borrowed(input), left_out, nodes_left_out });
        }
        let kept = |job: &PlanJob| match left_out.get(&job.job) {
            None => Some(job.clone()),
            Some(why) => as_it_is(job, why),
        };
        let jobs = input.jobs.iter().filter_map(kept).collect();
        let sound = |node: &&PlanNode| !nodes_left_out.contains_key(&node.node);
        let nodes = input.nodes.iter().filter(sound).cloned().collect();
        let input = PlanInput { jobs, nodes, ..input.clone() };
        Ok(Self { input: Cow::Owned(input), left_out, nodes_left_out })
    }

    /// Names those left out in the account of the plan.
    pub fn account(&self, given: &PlanInput, report: &mut PlanReport) {
        for job in given.jobs.iter().filter(|job| self.left_out.contains_key(&job.job)) {
            let why = &self.left_out[&job.job];
            let (reason, deferred) = (why.to_string(), *why == Why::Deferred);
            let gpus = job.current.as_ref().map(|current| current.placement.gpus()).unwrap_or_default();
            let lot = if job.current.is_some() { "keeps what it has" } else { "waits" };
            let (headline, code) = if deferred {
                (format!("Left for the next round and {lot}: {reason}"), ReasonCode::NotReady)
            } else {
                (format!("Cannot be planned with and {lot}: {reason}"), ReasonCode::Malformed)
            };
            let reasons = vec![Reason { code, binding: true, detail: reason.clone() }];
            report.left_out.push(LeftOut { job: job.job, reason, deferred });
            let verdict = JobVerdict { headline, gpus, reasons, ..JobVerdict::default() };
            Arc::make_mut(&mut report.jobs).insert(job.job, verdict);
        }
        let named = given.nodes.iter().filter_map(|node| Some((node, self.nodes_left_out.get(&node.node)?)));
        report.nodes_left_out.extend(named.map(|(node, wrong)| NodeLeftOut {
            node: node.node,
            name: node.name.clone(),
            reason: wrong.to_string(),
        }));
    }
}

fn on_a_wrong_node(input: &PlanInput, job: &PlanJob, wrong: &BTreeMap<NodeId, WrongField>) -> Option<Why> {
    let mut slices = job.current.iter().flat_map(|current| current.placement.slices());
    let (id, wrong) = slices.find_map(|slice| Some((slice.node, wrong.get(&slice.node)?.clone())))?;
    let name = input.nodes.iter().find(|node| node.node == id).map(|node| node.name.clone());
    Some(Why::Node { node: name.unwrap_or_default(), wrong })
}

/// A job that holds GPUs, with nothing said of it but that it keeps them; `None` for one that holds none.
fn as_it_is(job: &PlanJob, why: &Why) -> Option<PlanJob> {
    let current = job.current.as_ref()?;
    let gpus = current.placement.gpus();
    let none = Seconds(0.0);
    Some(PlanJob {
        job: job.job,
        name: job.name.clone(),
        priority: job.priority,
        submitted_at: job.submitted_at,
        range: GpuRange { min: gpus, max: gpus, sizes: Vec::new(), types: Vec::new(), mixed: false },
        work: PlanWork::Opaque,
        capabilities: job.capabilities,
        current: Some(Assignment { predicted: unmeasured(), ..current.clone() }),
        downtime: Downtime { batch: none, micro_batch: none, layout: None, restart: none },
        rework: none,
        remaining: None,
        freedom: Freedom::Fixed { reason: why.to_string() },
        batch_bound: None,
        claim: job.claim.identity(),
        bounds: Bounds::default(),
        departure: Departure::default(),
        needs: Needs { per_node: job.needs.per_node, ..Needs::default() },
    })
}
