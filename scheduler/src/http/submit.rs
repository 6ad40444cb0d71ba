//! Submitting jobs: one, or a batch that is admitted as a whole or not at all; and checking without submitting.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headway_api::{spec, v1};
use headway_engine::event::Request;
use headway_engine::outcome::Reply;
use headway_engine::record::{Project, lineage};
use headway_engine::view::{Holding, View};
use headway_goodput::JobModel;
use headway_planner::{Claim, PlanJob};
use headway_types::{GpuCount, IdSource, JobSpec};
use serde::Deserialize;

use super::auth::{Principal, UserPrincipal};
use super::extract::{Json, Query, too_large, unsupported_media};
use super::once::{self, REPLAYED};
use super::problem::Problem;
use super::simulate::hypothetical;
use super::{HttpState, conversions, curve, goodput, lookup, mismatched};
use crate::asking::Trial;

const JOBS_AT_ONCE: usize = 1_000;
/// A prediction that takes longer is left out.
const TRIAL_TIME: Duration = Duration::from_secs(15);

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
        return Ok(Json(verdicts(&state, &caller, jobs).await?).into_response());
    }
    let idempotency = once::key(caller.name());
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
        (REPLAYED, replayed),
    ];
    (StatusCode::CREATED, headers, Json(v1::Submitted { jobs })).into_response()
}

/// Check a specification and say which sizes the job could run at on the present nodes, what its project's quota says to
/// that, and when it would start. Nothing is stored.
#[utoipa::path(post, path = "/jobs/validate", tag = "jobs",
    request_body(content((v1::JobSubmission = "application/json"), (String = "application/yaml"))),
    responses((status = 200, body = v1::Validation), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn validate(
    State(state): State<HttpState>,
    caller: Principal,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<v1::Validation>, Problem> {
    let body = body.map_err(|_| too_large())?;
    let jobs = read(&headers, &body)?;
    Ok(Json(verdicts(&state, &caller, jobs).await?))
}

async fn verdicts(state: &HttpState, caller: &Principal, jobs: Vec<JobSpec>) -> Result<v1::Validation, Problem> {
    let view = state.cluster.view();
    let asked = jobs.clone();
    let lookup = Arc::clone(&view);
    let verdicts = goodput::off_the_reactor(move || {
        let holdings = lookup.holdings();
        asked.iter().map(|job| verdict(job, &lookup, &holdings)).collect::<Vec<_>>()
    });
    let mut verdicts = verdicts.await?;
    let Some(trial) = trial(state, caller, &jobs).await else { return Ok(v1::Validation { jobs: verdicts }) };
    for (verdict, id) in verdicts.iter_mut().zip(&trial.jobs) {
        verdict.starts_with_gpus = trial.plan.assignments.get(id).map(|one| one.placement.gpus().0);
        let start = trial.forecast.starts.get(id);
        verdict.predicted_start =
            start.map(|start| conversions::predicted_start(start, trial.forecast.method, state.cluster.now()));
    }
    Ok(v1::Validation { jobs: verdicts })
}

/// The newest round solved with the jobs in it; `None` where there is none yet, or where it takes too long.
async fn trial(state: &HttpState, caller: &Principal, jobs: &[JobSpec]) -> Option<Trial> {
    let round = state.asking.round()?;
    let mut ids = IdSource::seeded(round.input.jobs.len() as u64);
    let made = jobs.iter().map(|job| {
        let job = hypothetical(ids.job(round.input.now), job, &round.input);
        let claim = Claim { user: caller.name().to_owned(), ..job.claim };
        PlanJob { claim, ..job }
    });
    let made = made.collect();
    tokio::time::timeout(TRIAL_TIME, state.asking.trial(round, made)).await.ok().flatten()
}

/// What a job would find if the present nodes were empty, and what quotas say.
fn verdict(job: &JobSpec, view: &View, holdings: &BTreeMap<String, Holding>) -> v1::JobValidation {
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
    v1::JobValidation {
        name: job.name.clone(),
        feasible,
        sizes: points.iter().filter(|point| point.infeasible.is_none()).map(|point| point.gpus).collect(),
        points,
        reason,
        quota: quota(&job.project, range.min, view, holdings),
        starts_with_gpus: None,
        predicted_start: None,
    }
}

/// The tightest quota on the way up from a job's project: the one that leaves it least.
fn quota(
    project: &str,
    needed: GpuCount,
    view: &View,
    holdings: &BTreeMap<String, Holding>,
) -> Option<v1::QuotaVerdict> {
    let known: BTreeMap<String, Arc<Project>> =
        view.projects.iter().map(|(name, project)| (name.clone(), project.clone())).collect();
    let of = |name: &str| {
        let rules = &known[name].rules;
        let (quota, borrow) = (rules.quota?.0, rules.borrow.0);
        let gpus = holdings.get(name).map_or(0, |holding| holding.gpus.0);
        let after = u64::from(gpus) + u64::from(needed.0);
        let most = u64::from(quota) + u64::from(borrow);
        let (rank, verdict) = match () {
            () if u64::from(needed.0) > most => (3, "never"),
            () if after > most => (2, "exceeds_now"),
            () if after > u64::from(quota) => (1, "borrows"),
            () => (0, "within"),
        };
        let (project, verdict, needed_gpus) = (name.to_owned(), verdict.into(), needed.0);
        Some((rank, v1::QuotaVerdict { project, verdict, quota_gpus: quota, borrow_gpus: borrow, gpus, needed_gpus }))
    };
    // Of equals the nearest: projects come from the job's own upwards.
    let tightest = lineage(&known, project).into_iter().filter_map(of).rev().max_by_key(|(rank, _)| *rank);
    tightest.map(|(_, verdict)| verdict)
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
