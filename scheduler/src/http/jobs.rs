//! Reading jobs: the listing and one of them, live numbers joined from the snapshot.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use headway_api::v1;
use headway_types::{JobId, JobStateKind};
use serde::Deserialize;
use strum::VariantArray;
use uuid::Uuid;

use super::access::{Act, Seen};
use super::auth::Principal;
use super::extract::{Json, Path, Query, etag};
use super::problem::Problem;
use super::{HttpState, conversions, lookup, past};
use crate::store::JobFilter;

const JOBS_AT_MOST: u32 = 500;

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct JobsQuery {
    /// Comma-separated states; `live` stands for all that have not ended, `ended` for the others.
    state: Option<String>,
    project: Option<String>,
    /// Owner.
    user: Option<String>,
    /// Part of the name.
    q: Option<String>,
    /// A past moment: the reply is a `PastJobList` of the jobs that had not ended, with what is known of them.
    at: Option<DateTime<Utc>>,
    /// The `next_cursor` of the page before.
    cursor: Option<Uuid>,
    /// 100 if absent, 500 at most.
    limit: Option<u32>,
}

/// Jobs, newest first.
#[utoipa::path(get, path = "/jobs", tag = "jobs", params(JobsQuery),
    responses((status = 200, body = v1::JobList), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn list_jobs(
    State(state): State<HttpState>,
    caller: Principal,
    Query(query): Query<JobsQuery>,
) -> Result<Json<past::Reply<v1::JobList, v1::PastJobList>>, Problem> {
    let filter = JobFilter {
        states: states(query.state.as_deref())?,
        project: query.project,
        owner: query.user,
        name_contains: query.q,
        limit: query.limit.unwrap_or(100).clamp(1, JOBS_AT_MOST),
        cursor: query.cursor.map(JobId),
        among: None,
    };
    if let Some(at) = query.at {
        let mut then = past::jobs(&state.cluster, filter, at).await?;
        let view = state.cluster.view();
        then.items.retain(|job| caller.sees(&view, &job.project, &job.owner) != Seen::Nothing);
        return Ok(Json(past::Reply::Then(then)));
    }
    let page = state.cluster.store().list_jobs(&filter).await?;
    let view = state.cluster.view();
    let items = page.items.iter().filter_map(|job| {
        let shown = match view.jobs.get(&job.id) {
            Some(live) => conversions::live_job(live, &view),
            None => conversions::stored_job(job),
        };
        caller.sight(&view, shown)
    });
    let next_cursor = page.next.map(|job| job.to_string());
    Ok(Json(past::Reply::Now(v1::JobList { items: items.collect(), next_cursor })))
}

/// One job and what was asked for; the values of `run.env` are null to all but its owner, admins of its project, operators and admins; to whom its project is closed it is shown in outline, without a specification. `ETag` is its version. With `at`: a `PastJob`, also where it had ended.
#[utoipa::path(get, path = "/jobs/{id}", tag = "jobs", params(("id" = Uuid, Path), past::Moment, ("If-None-Match" = Option<String>, Header)),
    responses((status = 200, body = v1::JobDetail, headers(("ETag" = String))), (status = 304),
        (status = 404, body = v1::Problem, content_type = "application/problem+json")))]
pub async fn get_job(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    Query(past::Moment { at }): Query<past::Moment>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if let Some(at) = at {
        let record = lookup::record(&state.cluster, JobId(id)).await?;
        return Ok(Json(past::job(&state.cluster, &record, at).await?).into_response());
    }
    let job = lookup::job(&state.cluster, JobId(id)).await?;
    let tag = etag(job.version);
    // Live numbers change between versions, so only an ended job is worth a 304.
    let live = state.cluster.view().jobs.contains_key(&JobId(id));
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    if known && !live {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response());
    }
    let record = lookup::record(&state.cluster, JobId(id)).await?;
    let view = state.cluster.view();
    let spec = match caller.may_with_job(Act::ReadJob, &view, &record) {
        Ok(()) => {
            let environment = caller.may_with_job(Act::ReadEnvironment, &view, &record).is_ok();
            conversions::specification(&record, environment)
        }
        Err(_) => serde_json::Value::Null,
    };
    let job = caller.sight(&view, job).ok_or_else(|| lookup::no_job(record.id))?;
    Ok(([(header::ETAG, tag)], Json(v1::JobDetail { job, spec })).into_response())
}

fn states(text: Option<&str>) -> Result<Vec<JobStateKind>, Problem> {
    let group = |ended: bool| JobStateKind::VARIANTS.iter().copied().filter(move |state| state.is_final() == ended);
    let mut states = Vec::new();
    for name in text.unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty()) {
        match (name, name.parse()) {
            ("live", _) => states.extend(group(false)),
            ("ended", _) => states.extend(group(true)),
            (_, Ok(state)) => states.push(state),
            (_, Err(_)) => {
                let known: String = JobStateKind::VARIANTS.iter().map(|state| format!("{state}, ")).collect();
                let unknown = Problem::bad_request(format!("there is no state \"{name}\"")).field("state");
                return Err(unknown.hint(format!("states are {known}live, ended")));
            }
        }
    }
    Ok(states)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn states_are_named_one_by_one_or_by_group() {
        assert_eq!(states(Some("running,failed")).unwrap(), [JobStateKind::Running, JobStateKind::Failed]);
        assert_eq!(states(Some("ended")).unwrap().len(), 3);
        assert!(states(None).unwrap().is_empty());
        assert!(states(Some("runing")).is_err());
    }
}
