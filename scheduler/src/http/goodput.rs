//! Goodput now against a static split, over time against each baseline, and one job's curve.

pub mod calibration;
mod history;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use chrono::{DateTime, Utc};
use headway_api::v1;
use headway_engine::record::Job;
use headway_engine::view::{JobView, View};
use headway_planner::{CurveCache, PlanInput, sizes};
use headway_types::spec::Work;
use headway_types::{GpuType, JobId, NodeId};
use serde::Deserialize;
use tokio::sync::{Semaphore, SemaphorePermit};
use uuid::Uuid;

use super::access::{Act, Seen};
use super::auth::Principal;
use super::extract::{Json, Path, Query};
use super::problem::Problem;
use super::{HttpState, conversions, lookup};
use crate::baseline::{self, JOBS_AT_MOST, asked_about};

/// Curves and splits that are computed at once: the processors belong to rounds.
static SLOTS: Semaphore = Semaphore::const_new(2);
/// How long a request waits for its turn; then the caller hears why.
const TURN_TIME: Duration = Duration::from_secs(5);

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct GoodputQuery {
    /// Comma-separated ids of the jobs to compare with a static split among them; the live jobs if absent.
    jobs: Option<String>,
    /// With the `history` from then on; a day before `to` if absent, where `to`, `step` or `group` is given.
    from: Option<DateTime<Utc>>,
    to: Option<DateTime<Utc>>,
    /// How long each point of the history is the mean of ("5m"); whole minutes. If absent, what gives about 288 points.
    step: Option<String>,
    /// Whose history: `cluster`, `project` or `job` (those that made the most, or `jobs`). `cluster` if absent, `job` with `jobs`.
    group: Option<String>,
}

impl GoodputQuery {
    fn asks_for_history(&self) -> bool {
        self.from.is_some() || self.to.is_some() || self.step.is_some() || self.group.is_some()
    }
}

/// Goodput now, job by job as far as the caller may read them, and what a static split of the cluster is predicted to give; with `from`, `to`, `step` or `group` also over
/// time, beside what three rules that know nothing of goodput were predicted to give; the split of single jobs is then left out.
#[utoipa::path(get, path = "/goodput", tag = "cluster", params(GoodputQuery),
    responses((status = 200, body = v1::Goodput), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn goodput(
    State(state): State<HttpState>,
    caller: Principal,
    Query(query): Query<GoodputQuery>,
) -> Result<Json<v1::Goodput>, Problem> {
    let view = state.cluster.view();
    let ids: Vec<JobId> = match query.jobs.as_deref().filter(|jobs| !jobs.is_empty()) {
        Some(text) => text.split(',').map(job_id).collect::<Result<_, _>>()?,
        None => view.jobs.keys().copied().collect(),
    };
    if ids.len() > JOBS_AT_MOST && query.jobs.is_some() {
        return Err(Problem::bad_request(format!("at most {JOBS_AT_MOST} jobs at once")).field("jobs"));
    }
    let seen = |job: &Job| caller.sees(&view, &job.spec.project, &job.owner);
    let mut records = Vec::new();
    for id in ids.into_iter().take(JOBS_AT_MOST) {
        let record = lookup::record(&state.cluster, id).await?;
        match (seen(&record), &query.jobs) {
            (_, Some(_)) => {
                caller.may_with_job(Act::ReadJob, &view, &record)?;
                records.push(record);
            }
            // Among whom the cluster is split, whoever may read it.
            (Seen::Whole | Seen::Outline, None) => records.push(record),
            (Seen::Nothing, None) => {}
        }
    }
    let readable: BTreeSet<JobId> =
        records.iter().filter(|record| seen(record) == Seen::Whole).map(|record| record.id).collect();
    let asked: Option<Vec<JobId>> = query.jobs.is_some().then(|| records.iter().map(|record| record.id).collect());
    let history = history::history(&state, &caller, &view, &query, asked.as_deref()).await?;
    let pulse = view.pulse();
    let jobs = view.jobs.values().filter(|live| live.allocation.as_ref().is_some_and(|held| held.holds()));
    let jobs = jobs.filter(|live| seen(&live.job) == Seen::Whole).map(|live| job_goodput(live, &view)).collect();
    let at = conversions::time(view.at);
    let items = match history {
        Some(_) => Vec::new(),
        None => {
            let mut items = off_the_reactor(&SLOTS, move || baselines(&view, &records)).await?;
            items.retain(|one| readable.contains(&JobId(one.job_id)));
            items
        }
    };
    Ok(Json(v1::Goodput {
        at,
        goodput_tokens_per_second: pulse.goodput.0,
        throughput_tokens_per_second: pulse.throughput.0,
        speed_up_sum: pulse.speed_up,
        items,
        jobs,
        history,
    }))
}

fn job_id(text: &str) -> Result<JobId, Problem> {
    text.trim().parse().map_err(|_| Problem::bad_request(format!("\"{text}\" is no job id")).field("jobs"))
}

fn baselines(view: &View, records: &[Arc<Job>]) -> Vec<v1::Baseline> {
    let told = |(job, share): (JobId, baseline::Share)| v1::Baseline {
        job_id: job.0,
        gpus: share.gpus.0,
        goodput_tokens_per_second: share.goodput.0,
    };
    baseline::static_split(view, records).into_iter().map(told).collect()
}

fn job_goodput(live: &JobView, view: &View) -> v1::JobGoodput {
    v1::JobGoodput {
        job_id: live.job.id.0,
        job_name: live.job.spec.name.clone(),
        gpus: live.allocation.as_ref().map_or(0, |held| held.placement.gpus().0),
        throughput_tokens_per_second: live.live.throughput.map(|rate| rate.0),
        efficiency: live.live.efficiency,
        goodput_tokens_per_second: live.live.goodput.map(|rate| rate.0),
        credit_tokens_per_second: live.live.credit_rate().map(|rate| rate.0),
        predicted_goodput_tokens_per_second: live.allocation.as_ref().map(|held| held.predicted_goodput),
        speed_up: view.speed_up(live),
    }
}

/// What more or fewer GPUs would bring a job, on the present nodes.
#[utoipa::path(get, path = "/jobs/{id}/curve", tag = "jobs", params(("id" = Uuid, Path)),
    responses((status = 200, body = v1::Curve), (status = 404, body = v1::Problem, content_type = "application/problem+json")))]
pub async fn curve(
    State(state): State<HttpState>,
    _caller: Principal,
    Path(id): Path<Uuid>,
) -> Result<Json<v1::Curve>, Problem> {
    let record = lookup::record(&state.cluster, JobId(id)).await?;
    let view = state.cluster.view();
    Ok(Json(off_the_reactor(&SLOTS, move || curve_of(&view, &record)).await?))
}

/// Of a job that runs on the GPU types it has, else on whichever serves a size best.
fn curve_of(view: &View, record: &Job) -> v1::Curve {
    let round = view.round();
    let mut job = asked_about(view, &round, record);
    let held: BTreeSet<NodeId> =
        job.current.iter().flat_map(|current| current.placement.slices()).map(|slice| slice.node).collect();
    let types = round.nodes.iter().filter(|node| held.contains(&node.node)).map(|node| node.class.gpu_type.clone());
    let types: BTreeSet<GpuType> = types.collect();
    if !types.is_empty() {
        job.range.types = types.into_iter().collect();
    }
    let others = round.jobs.iter().filter(|other| other.job != job.job).cloned().collect();
    let round = PlanInput { jobs: others, ..round }.with([job.clone()]);
    let of = sizes(&round, &[job.job], &mut CurveCache::new()).remove(&job.job).unwrap_or_default();
    let points = conversions::curve_points(&job, &of.points);
    let modelled = job.work.model().filter(|model| matches!(model.training.work, Work::Model(_)));
    let first = points.first().and_then(|point| point.gpu_type.clone());
    v1::Curve {
        job_id: job.job.0,
        gpu_type: first.filter(|first| points.iter().all(|point| point.gpu_type.as_ref() == Some(first))),
        batch_policy: modelled.map(|model| model.training.batch_policy.to_string()),
        points,
        reason: of.obstacle,
    }
}

/// Curves are milliseconds of arithmetic per job, seconds of many: not for a thread that answers others meanwhile, and for
/// few callers at a time. The slot goes with the work, which goes on when its caller has given up.
pub async fn off_the_reactor<T: Send + 'static>(
    slots: &'static Semaphore,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let slot = turn(slots, TURN_TIME).await?;
    let work = move || {
        let _slot = slot;
        work()
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "work off the reactor failed");
        Problem::internal()
    })
}

async fn turn(slots: &Semaphore, wait: Duration) -> Result<SemaphorePermit<'_>, Problem> {
    let slot = tokio::time::timeout(wait, slots.acquire()).await;
    let slot = slot.map_err(|_| Problem::unavailable("too much is being computed for others"))?;
    Ok(slot.expect("nobody closes it"))
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;

    #[tokio::test]
    async fn whoever_waits_too_long_for_a_turn_is_told() {
        let slots = Semaphore::new(1);
        let held = turn(&slots, Duration::ZERO).await.expect("it is free");
        let refused = turn(&slots, Duration::ZERO).await.expect_err("it is held");
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(held);
        assert!(turn(&slots, Duration::ZERO).await.is_ok());
    }

    #[test]
    fn a_list_of_jobs_is_read_id_by_id() {
        assert!(job_id(" 01920000-0000-7000-8000-000000000001").is_ok());
        assert!(job_id("llama").is_err());
    }
}
