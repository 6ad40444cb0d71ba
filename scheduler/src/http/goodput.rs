//! The cluster at a glance, goodput now against a static split, and one job's curve.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use headway_api::v1;
use headway_engine::record::{Availability, Job, JobState};
use headway_engine::view::{JobView, View};
use headway_goodput::{catalog, training_flops_per_token};
use headway_planner::{CurveCache, PlanInput, PlanJob, PlanWork, Premises, sizes};
use headway_types::JobId;
use headway_types::spec::Work;
use serde::Deserialize;
use tokio::sync::{Semaphore, SemaphorePermit};
use uuid::Uuid;

use super::auth::Principal;
use super::extract::{Json, Path, Query};
use super::problem::Problem;
use super::{HttpState, conversions, lookup, past};
use crate::store::EventFilter;

const BASELINES_AT_MOST: usize = 200;
/// Curves and splits that are computed at once: the processors belong to rounds.
static SLOTS: Semaphore = Semaphore::const_new(2);
/// How long a request waits for its turn; then the caller hears why.
const TURN_TIME: Duration = Duration::from_secs(5);

/// Is the cluster doing useful work? With `at`: a `PastOverview`, what is known of that moment.
#[utoipa::path(get, path = "/overview", tag = "cluster", params(past::Moment),
    responses((status = 200, body = v1::Overview), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn overview(
    State(state): State<HttpState>,
    _caller: Principal,
    Query(past::Moment { at }): Query<past::Moment>,
) -> Result<Json<past::Reply<v1::Overview, v1::PastOverview>>, Problem> {
    if let Some(at) = at {
        return Ok(Json(past::Reply::Then(past::overview(&state.cluster, at).await?)));
    }
    // Read before the snapshot: what the stream repeats is harmless, what it skips is not.
    let newest = state.cluster.store().events(&EventFilter { limit: 1, ..EventFilter::default() }).await?;
    let seq = newest.items.first().map_or(0, |event| event.seq);
    Ok(Json(past::Reply::Now(summary(&state.cluster.view(), seq))))
}

fn summary(view: &View, seq: u64) -> v1::Overview {
    let nodes = || view.nodes.values();
    let mut jobs_by_state = BTreeMap::new();
    let mut waited_for = 0;
    for live in view.jobs.values() {
        *jobs_by_state.entry(live.job.state.kind().to_string()).or_default() += 1;
        if matches!(live.job.state, JobState::Queued { .. }) && !live.job.is_blocked() {
            waited_for += live.job.spec.role().gpus.min.0;
        }
    }
    let total = totals(view);
    v1::Overview {
        at: conversions::time(view.at),
        nodes_total: view.nodes.len() as u32,
        nodes_available: nodes().filter(|node| node.node.availability == Availability::Available).count() as u32,
        gpus_total: nodes().map(|node| node.node.inventory.gpus.len() as u32).sum(),
        gpus_healthy: nodes().map(|node| node.node.inventory.healthy().0).sum(),
        gpus_busy: nodes().map(|node| node.held.len() as u32).sum(),
        gpus_by_activity: view.census().into_iter().map(|(what, gpus)| (<&str>::from(what).into(), gpus.0)).collect(),
        jobs_by_state,
        gpus_waited_for: waited_for,
        goodput_tokens_per_second: total.goodput,
        throughput_tokens_per_second: total.throughput,
        speed_up_sum: total.speed_up,
        goodput_mfu: goodput_mfu(view),
        plan_id: view.target.as_ref().map(|target| target.plan.id.0),
        plans_waiting: view.proposals.keys().map(|plan| plan.0).collect(),
        policy_mode: view.policy.mode,
        planning_trouble: view.trouble.as_ref().map(|trouble| v1::PlanningTrouble {
            rounds_given_up: trouble.rounds,
            since: conversions::time(trouble.since),
            message: trouble.message.clone(),
            again_at: trouble.again_at.map(conversions::time),
        }),
        seq,
    }
}

/// Useful model FLOP/s over the peak of all healthy GPUs; unknown where the catalog does not know a device or a job has no shape.
fn goodput_mfu(view: &View) -> Option<f64> {
    let mut peak = 0.0;
    for node in view.nodes.values().filter(|node| node.node.availability == Availability::Available) {
        let inventory = &node.node.inventory;
        peak += catalog::peak_flop_per_second(&inventory.class()).ok()?.0 * f64::from(inventory.healthy().0);
    }
    let mut useful = 0.0;
    for live in view.jobs.values() {
        let Some(goodput) = live.live.goodput else { continue };
        let Work::Model(shape) = &live.job.spec.training()?.work else { return None };
        useful += goodput.0 * training_flops_per_token(shape);
    }
    (peak > 0.0).then_some(useful / peak)
}

#[derive(Default)]
struct Totals {
    goodput: f64,
    throughput: f64,
    speed_up: f64,
}

fn totals(view: &View) -> Totals {
    view.jobs.values().filter(|live| matches!(live.job.state, JobState::Running { .. })).fold(
        Totals::default(),
        |sum, live| Totals {
            goodput: sum.goodput + live.live.goodput.map_or(0.0, |rate| rate.0),
            throughput: sum.throughput + live.live.throughput.map_or(0.0, |rate| rate.0),
            speed_up: sum.speed_up + speed_up(live, view).unwrap_or(0.0),
        },
    )
}

/// What the plan expects, scaled by how measured goodput compares with the plan's.
fn speed_up(live: &JobView, view: &View) -> Option<f64> {
    let predicted = view.target.as_ref()?.plan.assignments.get(&live.job.id)?.predicted;
    let scale = match live.live.goodput {
        Some(measured) if predicted.goodput.0 > 0.0 => measured.0 / predicted.goodput.0,
        _ => 1.0,
    };
    Some(predicted.speed_up * scale).filter(|value| value.is_finite())
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct GoodputQuery {
    /// Comma-separated ids of the jobs to compare with a static split among them; the live jobs if absent.
    jobs: Option<String>,
}

/// Goodput now, job by job, and what a static split of the cluster is predicted to give.
#[utoipa::path(get, path = "/goodput", tag = "cluster", params(GoodputQuery),
    responses((status = 200, body = v1::Goodput), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn goodput(
    State(state): State<HttpState>,
    _caller: Principal,
    Query(query): Query<GoodputQuery>,
) -> Result<Json<v1::Goodput>, Problem> {
    let view = state.cluster.view();
    let ids: Vec<JobId> = match query.jobs.as_deref().filter(|jobs| !jobs.is_empty()) {
        Some(text) => text.split(',').map(job_id).collect::<Result<_, _>>()?,
        None => view.jobs.keys().copied().collect(),
    };
    if ids.len() > BASELINES_AT_MOST && query.jobs.is_some() {
        return Err(Problem::bad_request(format!("at most {BASELINES_AT_MOST} jobs at once")).field("jobs"));
    }
    let mut records = Vec::new();
    for id in ids.into_iter().take(BASELINES_AT_MOST) {
        records.push(lookup::record(&state.cluster, id).await?);
    }
    let total = totals(&view);
    let jobs = view.jobs.values().filter(|live| live.allocation.as_ref().is_some_and(|held| held.holds()));
    let jobs = jobs.map(|live| job_goodput(live, &view)).collect();
    let at = conversions::time(view.at);
    let items = off_the_reactor(&SLOTS, move || static_split(&view, &records)).await?;
    Ok(Json(v1::Goodput {
        at,
        goodput_tokens_per_second: total.goodput,
        throughput_tokens_per_second: total.throughput,
        speed_up_sum: total.speed_up,
        items,
        jobs,
    }))
}

fn job_id(text: &str) -> Result<JobId, Problem> {
    text.trim().parse().map_err(|_| Problem::bad_request(format!("\"{text}\" is no job id")).field("jobs"))
}

/// A job of the round, or one that has ended or is held as if it were submitted again; with what has been learnt of it.
fn asked_about(view: &View, round: &PlanInput, record: &Job) -> PlanJob {
    let known = round.jobs.iter().find(|job| job.job == record.id);
    known.cloned().unwrap_or_else(|| {
        let learnt = view.jobs.get(&record.id).and_then(|live| live.model.clone()).map(PlanWork::Model);
        let work = learnt.unwrap_or_else(|| PlanWork::of(&record.spec));
        let premises = Premises::new(&round.nodes, round.jobs.len() + 1);
        premises.job(record.id, &record.spec, &record.owner, record.submitted_at, work)
    })
}

/// What each job would do on an equal share of the present nodes, at the batch its recipe was validated at.
fn static_split(view: &View, records: &[Arc<Job>]) -> Vec<v1::Baseline> {
    let round = view.round();
    let jobs = records.iter().map(|record| PlanJob { current: None, ..asked_about(view, &round, record) });
    let jobs: BTreeMap<JobId, PlanJob> = jobs.filter(|job| !job.work.is_opaque()).map(|job| (job.job, job)).collect();
    let ids: Vec<JobId> = jobs.keys().copied().collect();
    let split = headway_forecast::static_split(round, jobs.into_values().collect()).unwrap_or_else(|error| {
        tracing::warn!(error = &error as &dyn std::error::Error, "the static split failed");
        BTreeMap::new()
    });
    let told = |job: &JobId| {
        let share = split.get(job);
        v1::Baseline {
            job_id: job.0,
            gpus: share.map_or(0, |one| one.placement.gpus().0),
            goodput_tokens_per_second: share.map_or(0.0, |one| one.predicted.goodput.0),
        }
    };
    ids.iter().map(told).collect()
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
        speed_up: speed_up(live, view),
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

/// Of a job that runs on the GPU type it has, else on whichever serves a size best.
fn curve_of(view: &View, record: &Job) -> v1::Curve {
    let round = view.round();
    let mut job = asked_about(view, &round, record);
    let first = job.current.as_ref().map(|current| current.placement.first_node());
    if let Some(node) = first.and_then(|first| round.nodes.iter().find(|node| node.node == first)) {
        job.range.types = vec![node.class.gpu_type.clone()];
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
        tracing::error!(%error, "computing a curve failed");
        Problem::internal()
    })
}

async fn turn(slots: &Semaphore, wait: Duration) -> Result<SemaphorePermit<'_>, Problem> {
    let slot = tokio::time::timeout(wait, slots.acquire()).await;
    let slot = slot.map_err(|_| Problem::unavailable("goodput is being computed for others"))?;
    Ok(slot.expect("nobody closes it"))
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;
    use crate::http::fixtures;

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
    fn the_overview_counts_what_the_snapshot_holds() {
        let overview = summary(&fixtures::running(), 7);
        assert_eq!((overview.gpus_total, overview.gpus_healthy, overview.gpus_busy), (4, 3, 2));
        assert_eq!(overview.jobs_by_state, BTreeMap::from([("running".into(), 1)]));
        assert_eq!((overview.goodput_tokens_per_second, overview.seq), (900.0, 7));
    }

    #[test]
    fn a_list_of_jobs_is_read_id_by_id() {
        assert!(job_id(" 01920000-0000-7000-8000-000000000001").is_ok());
        assert!(job_id("llama").is_err());
    }
}
