//! Plans as those may have them who see that jobs exist and may not read them: which job gets and loses which GPUs stays, since it concerns
//! everybody; what was measured of it, what is expected of it, and why, does not.

use std::collections::BTreeSet;

use headway_api::v1;
use headway_types::{Assignment, JobId, Plan, Prediction, Seconds, TokensPerSecond};
use uuid::Uuid;

use super::Seen;
use crate::cluster::Cluster;
use crate::http::auth::Principal;
use crate::http::lookup;
use crate::store::StoreError;

const WHY: &str = "Why is told to members of its project";
const NOTHING: Prediction = Prediction {
    step_time: Seconds(0.0),
    throughput: TokensPerSecond(0.0),
    efficiency: 0.0,
    goodput: TokensPerSecond(0.0),
    speed_up: 0.0,
};

/// Jobs that a reader may not read.
pub struct Unread(BTreeSet<JobId>);

impl Principal {
    /// Those of plans that this reader may not read; whose is not known may nobody read who may not read all.
    pub async fn unread_of(&self, cluster: &Cluster, plans: &[&Plan]) -> Result<Unread, StoreError> {
        let view = cluster.view();
        if self.sees_all(&view) {
            return Ok(Unread(BTreeSet::new()));
        }
        let jobs: BTreeSet<JobId> = plans.iter().flat_map(|plan| jobs_of(plan)).collect();
        let whose = lookup::whose(cluster, jobs.iter().copied()).await?;
        let reads = |job: &JobId| {
            whose.get(job).is_some_and(|(project, owner)| self.sees(&view, project, owner) == Seen::Whole)
        };
        Ok(Unread(jobs.into_iter().filter(|job| !reads(job)).collect()))
    }
}

/// All that a plan tells anything of.
fn jobs_of(plan: &Plan) -> impl Iterator<Item = JobId> {
    let report = &plan.report;
    let told = plan.assignments.keys().chain(report.jobs.keys()).copied();
    let moved = report.moves.iter().map(|one| one.job).chain(report.unmoved.iter().map(|one| one.job));
    told.chain(moved).chain(report.left_out.iter().map(|one| one.job))
}

impl Unread {
    fn has(&self, job: Uuid) -> bool {
        self.0.contains(&JobId(job))
    }

    pub fn plan(&self, mut plan: v1::Plan) -> v1::Plan {
        if self.0.is_empty() {
            return plan;
        }
        // It may be the figure of one hidden job.
        if plan.moves.iter().any(|one| self.has(one.job_id)) {
            plan.goodput_change_pct = None;
        }
        plan.unmoved.retain(|one| !self.has(one.job_id));
        for one in plan.left_out.iter_mut().filter(|one| self.has(one.job_id)) {
            one.reason = WHY.into();
        }
        for one in plan.assignments.iter_mut().filter(|one| self.has(one.job_id)) {
            (one.configuration, one.predicted) = (None, (&NOTHING).into());
        }
        for one in plan.moves.iter_mut().filter(|one| self.has(one.job_id)) {
            *one = a_move(one);
        }
        for one in plan.verdicts.iter_mut().filter(|one| self.has(one.job_id)) {
            (one.headline, one.reasons) = (WHY.into(), Vec::new());
            (one.runner_up, one.marginal_speed_up) = (None, None);
        }
        plan
    }

    /// An assignment as far as it may be told.
    pub fn assignment(&self, job: JobId, of: &Assignment) -> Assignment {
        if !self.0.contains(&job) {
            return of.clone();
        }
        Assignment { configuration: None, predicted: NOTHING, ..of.clone() }
    }
}

fn a_move(of: &v1::Move) -> v1::Move {
    v1::Move {
        from_configuration: None,
        to_configuration: None,
        goodput_before_tokens_per_second: 0.0,
        goodput_after_tokens_per_second: 0.0,
        downtime_seconds: 0.0,
        pays_back_after_seconds: None,
        reason: WHY.into(),
        outcome: of.outcome.as_ref().map(|came| v1::MoveOutcome {
            state: came.state.clone(),
            downtime_seconds: None,
            goodput_before_tokens_per_second: None,
            goodput_after_tokens_per_second: None,
            measured_seconds: None,
        }),
        ..of.clone()
    }
}
