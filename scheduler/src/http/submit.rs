//! Submitting jobs: one, or a batch that is admitted as a whole or not at all; and checking without submitting.

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headway_api::{spec, v1};
use headway_engine::event::{IdempotencyKey, Request};
use headway_engine::outcome::Reply;
use headway_engine::view::View;
use headway_goodput::JobModel;
use headway_types::{GpuCount, JobSpec};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::auth::{Principal, UserPrincipal};
use super::extract::{Json, Query, too_large, unsupported_media};
use super::problem::Problem;
use super::{HttpState, conversions, curve, goodput, lookup, mismatched};

const JOBS_AT_ONCE: usize = 1_000;
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SubmitQuery {
    /// Check only; nothing is stored.
    #[serde(default)]
    dry_run: bool,
}

/// Submit one job, or `jobs: [...]` of up to 1000 that are admitted together or not at all.
#[utoipa::path(post, path = "/jobs", tag = "jobs",
    params(SubmitQuery, ("Idempotency-Key" = Option<String>, Header, description = "Repeating the request with the same key and body submits nothing again")),
    request_body(content((v1::JobSubmission = "application/json"), (String = "application/yaml"))),
    responses(
        (status = 201, description = "Admitted and stored", body = v1::Submitted, headers(("Location" = String), ("Idempotency-Replayed" = bool))),
        (status = 200, description = "Checked (dry run)", body = v1::Validation),
        (status = "4XX", body = v1::Problem, content_type = "application/problem+json"),
    ))]
pub async fn submit(
    State(state): State<HttpState>,
    UserPrincipal(caller): UserPrincipal,
    Query(query): Query<SubmitQuery>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let body = body.map_err(|_| too_large())?;
    let jobs = read(&headers, &body)?;
    if query.dry_run {
        return Ok(Json(verdicts(&state, jobs).await?).into_response());
    }
    let idempotency = idempotency(&headers, &caller, &body)?;
    match state.ask(caller.actor(), Request::Submit { jobs, idempotency }).await? {
        Reply::Submitted { jobs } => {
            Ok(submitted(jobs.iter().map(|job| conversions::stored_job(job)).collect(), false))
        }
        Reply::Replayed { jobs } => {
            let mut items = Vec::with_capacity(jobs.len());
            for id in jobs {
                let record = lookup::record(&state.cluster, id).await?;
                items.push(conversions::stored_job(&record));
            }
            Ok(submitted(items, true))
        }
        other => Err(mismatched(&other)),
    }
}

fn submitted(jobs: Vec<v1::Job>, replayed: bool) -> Response {
    let location = match jobs.as_slice() {
        [only] => format!("/api/v1/jobs/{}", only.id),
        _ => "/api/v1/jobs".into(),
    };
    let replayed = HeaderValue::from_static(if replayed { "true" } else { "false" });
    let headers = [
        (header::LOCATION, HeaderValue::from_str(&location).expect("a path of ASCII is a header value")),
        (IDEMPOTENCY_REPLAYED, replayed),
    ];
    (StatusCode::CREATED, headers, Json(v1::Submitted { jobs })).into_response()
}

/// Check a specification and say which sizes the job could run at on the present nodes. Nothing is stored.
#[utoipa::path(post, path = "/jobs/validate", tag = "jobs",
    request_body(content((v1::JobSubmission = "application/json"), (String = "application/yaml"))),
    responses((status = 200, body = v1::Validation), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn validate(
    State(state): State<HttpState>,
    _caller: Principal,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<v1::Validation>, Problem> {
    let body = body.map_err(|_| too_large())?;
    let jobs = read(&headers, &body)?;
    Ok(Json(verdicts(&state, jobs).await?))
}

async fn verdicts(state: &HttpState, jobs: Vec<JobSpec>) -> Result<v1::Validation, Problem> {
    let view = state.cluster.view();
    goodput::off_the_reactor(move || v1::Validation { jobs: jobs.iter().map(|job| verdict(job, &view)).collect() })
        .await
}

/// What a job would find if the present nodes were empty.
fn verdict(job: &JobSpec, view: &View) -> v1::JobValidation {
    let range = &job.role().gpus;
    let stock = curve::stocks(view).into_iter().find(|stock| range.accepts(&stock.class.gpu_type));
    let points = match (&stock, job.training()) {
        (None, _) => Vec::new(),
        (Some(stock), None) => curve::unmodelled(range, stock, GpuCount(0)),
        (Some(stock), Some(training)) => {
            let fair = curve::fair_share(view, range, view.jobs.len() + 1);
            curve::points(&JobModel::new(training.clone()), range, stock, fair, GpuCount(0))
        }
    };
    let feasible = points.iter().any(|point| point.infeasible.is_none());
    let reason = match (feasible, points.first(), &stock) {
        (true, ..) => None,
        (_, _, None) => Some("no available node has a GPU type it accepts".into()),
        (_, None, Some(stock)) => {
            Some(format!("needs at least {} GPUs, and {} {} are there", range.min, stock.gpus, stock.class.gpu_type))
        }
        (_, Some(point), _) => point.infeasible.clone(),
    };
    v1::JobValidation { name: job.name.clone(), feasible, points, reason }
}

/// The specifications of a body, JSON or YAML by its content type.
fn read(headers: &HeaderMap, body: &[u8]) -> Result<Vec<JobSpec>, Problem> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let jobs = match content_type.split(';').next().unwrap_or_default().trim() {
        "application/json" => {
            let value = serde_json::from_slice(body)
                .map_err(|error| Problem::bad_request(format!("the body is no JSON: {error}")))?;
            spec::read_submission_json(&value)
        }
        "application/yaml" | "application/x-yaml" | "text/yaml" => {
            let text = std::str::from_utf8(body).map_err(|_| Problem::bad_request("the body is not UTF-8"))?;
            spec::read_submission_yaml(text)
        }
        _ => return Err(unsupported_media()),
    };
    let jobs = jobs.map_err(|error| {
        // One finding is told by field and message; several are told line by line.
        let detail = if error.more.is_empty() { error.message.clone() } else { error.to_string() };
        let problem = Problem::invalid(detail).field(error.field.clone());
        match error.hint {
            Some(hint) => problem.hint(hint),
            None => problem,
        }
    })?;
    match jobs.len() {
        0 => Err(Problem::invalid("no job to submit").field("jobs")),
        1..=JOBS_AT_ONCE => Ok(jobs),
        many => Err(Problem::invalid(format!("{many} jobs at once; at most {JOBS_AT_ONCE}")).field("jobs")),
    }
}

fn idempotency(headers: &HeaderMap, caller: &Principal, body: &[u8]) -> Result<Option<IdempotencyKey>, Problem> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let key = value.to_str().ok().filter(|key| !key.is_empty() && key.len() <= 255);
    let key = key.ok_or_else(|| {
        Problem::bad_request("an Idempotency-Key has 1 to 255 printable characters").field("Idempotency-Key")
    })?;
    Ok(Some(IdempotencyKey {
        principal: caller.name().to_owned(),
        route: "POST /api/v1/jobs".into(),
        key: key.to_owned(),
        request_hash: hex::encode(Sha256::digest(body)),
    }))
}
