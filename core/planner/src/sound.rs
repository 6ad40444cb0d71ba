//! A round without the jobs whose own numbers nothing can be computed with. One bad job must not keep all others from
//! being planned: where it holds GPUs it keeps them as they are, else it gets nothing, and the plan names it either way.

use std::borrow::Cow;
use std::collections::BTreeMap;

use headway_types::plan::LeftOut;
use headway_types::spec::GpuRange;
use headway_types::{Assignment, JobId, JobVerdict, PlanReport, Reason, ReasonCode, Seconds};

use crate::candidate::unmeasured;
use crate::check::{PlanError, WrongField, check_job, check_round};
use crate::claim::{Bounds, Needs};
use crate::input::{Downtime, Freedom, PlanInput, PlanJob, PlanWork};

/// What can be planned with.
pub(crate) struct Sound<'a> {
    pub input: Cow<'a, PlanInput>,
    pub left_out: BTreeMap<JobId, WrongField>,
}

impl<'a> Sound<'a> {
    /// # Errors
    /// What is wrong with the round itself.
    pub fn of(input: &'a PlanInput) -> Result<Self, PlanError> {
        check_round(input)?;
        let wrong = |job: &PlanJob| check_job(job).err().map(|wrong| (job.job, wrong));
        let left_out: BTreeMap<JobId, WrongField> = input.jobs.iter().filter_map(wrong).collect();
        if left_out.is_empty() {
            return Ok(Self { input: Cow::Borrowed(input), left_out });
        }
        let kept = |job: &PlanJob| match left_out.get(&job.job) {
            None => Some(job.clone()),
            Some(wrong) => as_it_is(job, wrong),
        };
        let jobs = input.jobs.iter().filter_map(kept).collect();
        Ok(Self { input: Cow::Owned(PlanInput { jobs, ..input.clone() }), left_out })
    }

    /// Names those left out in the account of the plan.
    pub fn account(&self, given: &PlanInput, report: &mut PlanReport) {
        for job in given.jobs.iter().filter(|job| self.left_out.contains_key(&job.job)) {
            let wrong = self.left_out[&job.job].to_string();
            report.left_out.push(LeftOut { job: job.job, reason: wrong.clone() });
            let gpus = job.current.as_ref().map(|current| current.placement.gpus()).unwrap_or_default();
            let lot = if job.current.is_some() { "keeps what it has" } else { "waits" };
            let headline = format!("Cannot be planned with and {lot}: {wrong}");
            let reasons = vec![Reason { code: ReasonCode::Malformed, binding: true, detail: wrong }];
            report.jobs.insert(job.job, JobVerdict { headline, gpus, reasons, ..JobVerdict::default() });
        }
    }
}

/// A job that holds GPUs, with nothing said of it but that it keeps them; `None` for one that holds none.
fn as_it_is(job: &PlanJob, wrong: &WrongField) -> Option<PlanJob> {
    let current = job.current.as_ref()?;
    let gpus = current.placement.gpus();
    let none = Seconds(0.0);
    Some(PlanJob {
        job: job.job,
        name: job.name.clone(),
        priority: job.priority,
        submitted_at: job.submitted_at,
        range: GpuRange { min: gpus, max: gpus, sizes: Vec::new(), types: Vec::new() },
        work: PlanWork::Opaque,
        capabilities: job.capabilities,
        current: Some(Assignment { predicted: unmeasured(), ..current.clone() }),
        downtime: Downtime { batch: none, micro_batch: none, layout: None, restart: none },
        rework: none,
        remaining: None,
        freedom: Freedom::Fixed { reason: wrong.to_string() },
        claim: job.claim.identity(),
        bounds: Bounds::default(),
        needs: Needs { per_node: job.needs.per_node, ..Needs::default() },
    })
}
