//! What a user does to a job that exists: changes, cancel, hold, release, requeue, checkpoint, pin. Whether the caller may is settled in `access`.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use headway_api::v1;
use headway_engine::event::Request;
use headway_engine::outcome::Reply;
use headway_engine::view::View;
use headway_types::{GpuCount, JobId, Seconds};
use uuid::Uuid;

use super::access::Act;
use super::auth::Principal;
use super::extract::{Json, Path, reason};
use super::problem::Problem;
use super::{HttpState, admission, conversions, dependencies, extract, lookup};
use crate::shown::Shown;

/// Change a job's priority, sizes, time limit, labels or how often it may be moved; what the body does not name stays. A priority above 75 (high) is for admins to give. With `If-Match`, only if the job still is what its ETag says.
#[utoipa::path(patch, path = "/jobs/{id}", tag = "jobs", params(("id" = Uuid, Path), ("If-Match" = Option<String>, Header)),
    request_body = v1::JobPatch,
    responses((status = 200, body = v1::Job), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn update_job(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    headers: HeaderMap,
    Json(patch): Json<v1::JobPatch>,
) -> Result<Response, Problem> {
    let job = lookup::record(&state.cluster, JobId(id)).await?;
    let expected = extract::if_match(&headers)?;
    let change = conversions::job_change(patch)?;
    if let Some(priority) = change.priority {
        admission::check_priority(&caller, priority, &job.spec.name)?;
    }
    state.answer(&caller, Request::Change { job: JobId(id), change, expected }, shown).await
}

/// Stop a job for good: checkpoint, SIGTERM, and SIGKILL after the grace time.
#[utoipa::path(post, path = "/jobs/{id}/cancel", tag = "jobs", params(("id" = Uuid, Path)),
    request_body = Option<v1::CancelRequest>,
    responses((status = 200, body = v1::Job), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn cancel_job(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    body: Option<Json<v1::CancelRequest>>,
) -> Result<Response, Problem> {
    let Json(body) = body.unwrap_or_default();
    let grace = grace(&body)?.map(Seconds);
    let request = Request::Cancel { job: JobId(id), reason: body.reason, grace };
    state.answer(&caller, request, shown).await
}

/// The grace time that a cancellation asks for, in seconds.
pub fn grace(of: &v1::CancelRequest) -> Result<Option<f64>, Problem> {
    match of.grace_s {
        Some(grace) if !(0.0..=86_400.0).contains(&grace) => {
            Err(Problem::invalid("grace_s must be between 0 and 86400 seconds").field("grace_s"))
        }
        grace => Ok(grace),
    }
}

/// Have a job run on another number of GPUs, as soon as a round finds a place for it: whatever keeps it from being moved too often keeps it from no move in
/// the next round. Where to is the planner's to say; a dry run tells what it foresees. What the job, its checkpoints, its project or the cluster can never
/// have is refused with the closest sizes.
#[utoipa::path(post, path = "/jobs/{id}/resize", tag = "jobs", params(("id" = Uuid, Path)),
    request_body = v1::ResizeRequest,
    responses((status = 200, body = v1::Job), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn resize_job(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    Json(body): Json<v1::ResizeRequest>,
) -> Result<Response, Problem> {
    let (min, max) = match (body.gpus, body.min, body.max) {
        (Some(gpus), None, None) => (gpus, gpus),
        (None, Some(min), Some(max)) => (min, max),
        _ => return Err(Problem::invalid("give either gpus, or min and max").field("gpus")),
    };
    let (min, max) = (GpuCount(min), GpuCount(max));
    let request = Request::Resize { job: JobId(id), min, max, reason: body.reason };
    // Whether it could ever be so is asked of the planner with the job as it would be.
    let supposed = state.supposed(caller.actor(), request.clone()).await?;
    let Reply::Job(job) = supposed else { return Err(super::mismatched(&supposed)) };
    if let Some(problem) = admission::never_at(&state, &job.spec, &job.owner).await {
        return Err(problem);
    }
    state.answer(&caller, request, shown).await
}

/// Keep a job from running until it is released; a running one saves and stops.
#[utoipa::path(post, path = "/jobs/{id}/hold", tag = "jobs", params(("id" = Uuid, Path)),
    request_body = Option<v1::ReasonRequest>,
    responses((status = 200, body = v1::Job), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn hold_job(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    body: Option<Json<v1::ReasonRequest>>,
) -> Result<Response, Problem> {
    let job = JobId(id);
    state.answer(&caller, Request::Hold { job, reason: reason(body) }, shown).await
}

/// Let a held job run again.
#[utoipa::path(post, path = "/jobs/{id}/release", tag = "jobs", params(("id" = Uuid, Path)),
    request_body = Option<v1::ReasonRequest>,
    responses((status = 200, body = v1::Job), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn release_job(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    body: Option<Json<v1::ReasonRequest>>,
) -> Result<Response, Problem> {
    let job = JobId(id);
    state.answer(&caller, Request::Release { job }.because(reason(body)), shown).await
}

/// Put a job back into the queue: a running one saves and gives up its GPUs; one that failed or was cancelled goes on from its checkpoint, its history kept
/// and its attempts counted anew. Whoever waited for it stays as it is.
#[utoipa::path(post, path = "/jobs/{id}/requeue", tag = "jobs", params(("id" = Uuid, Path)),
    request_body = Option<v1::ReasonRequest>,
    responses((status = 200, body = v1::Job), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn requeue_job(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    body: Option<Json<v1::ReasonRequest>>,
) -> Result<Response, Problem> {
    let (job, reason) = (JobId(id), reason(body));
    let known = dependencies::known_of(&state, JobId(id)).await?;
    let row = lookup::record(&state.cluster, job).await?;
    if row.state.is_final() {
        // It is admitted anew.
        caller.may_in(Act::Submit, &state.cluster.view(), &row.spec.project)?;
        admission::check_priority(&caller, row.spec.priority, &row.spec.name)?;
    }
    state.answer(&caller, Request::Requeue { job, reason, known }, shown).await
}

/// Have a running job save now and go on.
#[utoipa::path(post, path = "/jobs/{id}/checkpoint", tag = "jobs", params(("id" = Uuid, Path)),
    request_body = Option<v1::ReasonRequest>,
    responses((status = 200, body = v1::Job), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn checkpoint_job(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    body: Option<Json<v1::ReasonRequest>>,
) -> Result<Response, Problem> {
    let job = JobId(id);
    state.answer(&caller, Request::Checkpoint { job }.because(reason(body)), shown).await
}

/// Keep a job on the GPUs it has, or on those it will have next. It still leaves nodes that drain or break.
#[utoipa::path(post, path = "/jobs/{id}/pin", tag = "jobs", params(("id" = Uuid, Path)),
    request_body = Option<v1::ReasonRequest>,
    responses((status = 200, body = v1::Job), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn pin_job(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    body: Option<Json<v1::ReasonRequest>>,
) -> Result<Response, Problem> {
    let job = JobId(id);
    state.answer(&caller, Request::Pin { job, reason: reason(body) }, shown).await
}

/// Let plans move a pinned job again.
#[utoipa::path(post, path = "/jobs/{id}/unpin", tag = "jobs", params(("id" = Uuid, Path)),
    request_body = Option<v1::ReasonRequest>,
    responses((status = 200, body = v1::Job), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn unpin_job(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    body: Option<Json<v1::ReasonRequest>>,
) -> Result<Response, Problem> {
    let job = JobId(id);
    state.answer(&caller, Request::Unpin { job }.because(reason(body)), shown).await
}

fn shown(reply: &Reply, view: &View) -> Option<Shown> {
    let Reply::Job(job) = reply else { return None };
    let body = conversions::job_in(job, view);
    Some(Shown::new(StatusCode::OK, &body).with(header::ETAG, extract::etag(job.version)))
}
