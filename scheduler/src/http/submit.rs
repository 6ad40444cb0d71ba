//! Submitting jobs: one, or a batch that is admitted as a whole or not at all.

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headway_api::spec::MOST_JOBS;
use headway_api::{spec, v1};
use headway_engine::event::{Known, Request};
use headway_engine::outcome::Reply;
use headway_types::JobSpec;
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::auth::Principal;
use super::extract::{Json, Query, too_large, unsupported_media};
use super::goodput::off_the_reactor;
use super::once::REPLAYED;
use super::problem::Problem;
use super::validation::verdicts;
use super::{HttpState, admission, conversions, dependencies, once, parameters, secrets};
use crate::shown::Shown;

/// Bodies up to this many bytes are read in less time than it takes to hand them over.
const READ_AT_ONCE: usize = 8 << 10;
/// Long bodies that are read at once, whoever sent them.
static READERS: Semaphore = Semaphore::const_new(2);

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SubmitQuery {
    /// Also take jobs that the cluster as built can never run, and GPU types that nobody knows: they wait for nodes to come.
    #[serde(default)]
    wait_for_nodes: bool,
}

/// Submit one job, or `jobs: [...]` of up to 1000 that are admitted together or not at all. A priority above 75 (high) is for admins to give.
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
    caller: Principal,
    Query(query): Query<SubmitQuery>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let body = body.map_err(|_| too_large())?;
    let mut jobs = read(&headers, body).await?;
    admission::check_projects(&caller, &state.cluster.view(), &jobs)?;
    let named = admission::name_types(&state.cluster.view(), &mut jobs, query.wait_for_nodes);
    let allowed = named.and_then(|()| admission::check_priorities(&caller, &jobs));
    let allowed = match allowed {
        Ok(()) => secrets::check_named(&state, &caller, &jobs).await,
        refused => refused,
    };
    if parameters::is_dry_run() {
        allowed?;
        admission::check_quota(&caller, &state.cluster.view(), &jobs)?;
        return Ok(Json(verdicts(&state, &caller, jobs).await?).into_response());
    }
    let looked_at = match allowed {
        Err(problem) => Err(problem),
        // Whoever says that nodes will come asks nobody whether it fits those that are there.
        Ok(()) if query.wait_for_nodes => Ok(jobs.len()),
        Ok(()) => admission::refusal(&state, &jobs, caller.name()).await,
    };
    let named = match looked_at {
        Err(problem) => Err(problem),
        Ok(looked_at) => {
            dependencies::named(&state, &caller, &jobs).await.map(|named| (elements(&jobs[..looked_at]), named))
        }
    };
    let problem = match named {
        Ok((checked, named)) => {
            let request = Request::Submit { jobs, idempotency: None, known: named.known };
            return state.answer(&caller, request, move |reply, _| shown(reply, checked)).await;
        }
        Err(problem) => problem,
    };
    // What was admitted under this key stays admitted, whatever became of the nodes since.
    let Some(key) = once::key(caller.name()) else { return Err(problem) };
    let again = Request::Submit { jobs: Vec::new(), idempotency: Some(key.clone()), known: Known::default() };
    match state.ask(caller.actor(), again).await {
        Ok(Reply::Replayed { .. }) => once::first_reply(&state.cluster, &key).await,
        Err(reused) if reused.status() == StatusCode::CONFLICT => Err(reused),
        _ => Err(problem),
    }
}

/// `checked`: of how many jobs, from the first on, it is known that the cluster can run them.
fn shown(reply: &Reply, checked: usize) -> Option<Shown> {
    let Reply::Submitted { jobs } = reply else { return None };
    let jobs: Vec<v1::Job> = jobs.iter().map(|job| conversions::stored_job(job)).collect();
    let notes = jobs.iter().skip(checked).map(not_checked).collect();
    let array = |job: &v1::Job| job.array.as_ref().map(|of| of.array_id);
    let location = match jobs.as_slice() {
        [first, others @ ..] => match array(first) {
            Some(id) if others.iter().all(|job| array(job) == Some(id)) => format!("/api/v1/arrays/{id}"),
            None if others.is_empty() => format!("/api/v1/jobs/{}", first.id),
            _ => "/api/v1/jobs".into(),
        },
        [] => "/api/v1/jobs".into(),
    };
    let shown = Shown::new(StatusCode::CREATED, &v1::Submitted { jobs, notes });
    Some(shown.with(header::LOCATION, location).with(REPLAYED, "false".into()))
}

fn not_checked(job: &v1::Job) -> v1::SubmissionNote {
    let name = &job.name;
    let detail = format!(
        "whether the cluster as it is could ever run {name} was not found out in time; `headway why {name}` tells once a round has"
    );
    v1::SubmissionNote { job_id: job.id, code: "not_checked".into(), detail }
}

/// Jobs that these specifications become.
fn elements(of: &[JobSpec]) -> usize {
    of.iter().map(|spec| spec.array.as_ref().map_or(1, |array| array.indices.count() as usize)).sum()
}

/// The specifications of a body, JSON or YAML by its content type. Long ones are read off the reactor, few at a time.
pub async fn read(headers: &HeaderMap, body: Bytes) -> Result<Vec<JobSpec>, Problem> {
    let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim().to_owned();
    if body.len() <= READ_AT_ONCE {
        return parse(&media, &body);
    }
    off_the_reactor(&READERS, move || parse(&media, &body)).await?
}

fn parse(media: &str, body: &[u8]) -> Result<Vec<JobSpec>, Problem> {
    let jobs = match media {
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
    match elements(&jobs) {
        0 => Err(Problem::invalid("no job to submit").field("jobs")),
        1..=MOST_JOBS => Ok(jobs),
        many => Err(Problem::invalid(format!("{many} jobs at once; at most {MOST_JOBS}, elements of arrays counted"))
            .field("jobs")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use headway_engine::record::Job;
    use headway_types::{IdSource, Timestamp};

    use super::*;

    #[test]
    fn whoever_is_admitted_without_a_look_is_told_so() {
        let specs = spec::read_submission_yaml(
            "jobs:\n- {version: 1, name: a, resources: {gpus: 1}, run: {command: x}}\n- {version: 1, name: b, resources: {gpus: 1}, run: {command: x}}",
        );
        let (mut ids, now) = (IdSource::seeded(1), Timestamp(0));
        let jobs = specs.unwrap().into_iter().map(|spec| Arc::new(Job::new(ids.job(now), spec, "ada".into(), now)));
        let reply = Reply::Submitted { jobs: jobs.collect() };
        let notes = |checked: usize| {
            let told: v1::Submitted = serde_json::from_str(&shown(&reply, checked).unwrap().body).unwrap();
            told.notes.iter().map(|note| (note.code.clone(), note.job_id == told.jobs[1].id)).collect::<Vec<_>>()
        };
        let said = |of_second: bool| ("not_checked".to_owned(), of_second);
        assert_eq!((notes(0), notes(1), notes(2)), (vec![said(false), said(true)], vec![said(true)], vec![]));
        assert!(!shown(&reply, 2).unwrap().body.contains("notes"));
    }
}
