//! Reading one job, live numbers joined from the snapshot.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use headway_api::v1;
use headway_types::JobId;
use uuid::Uuid;

use super::access::Act;
use super::auth::Principal;
use super::extract::{Json, Path, Query, etag};
use super::problem::Problem;
use super::{HttpState, conversions, dependencies, lookup, past};

/// One job and what was asked for; the values of `run.env` and the addresses of webhooks are null to all but its owner, admins of its project, operators and admins; to whom its project is closed it is shown in outline, without a specification. `ETag` is its version. With `at`: a `PastJob`, also where it had ended.
#[utoipa::path(get, path = "/jobs/{id}", tag = "jobs", params(("id" = Uuid, Path), past::Moment),
    responses((status = 200, body = v1::JobDetail, headers(("ETag" = String))),
        (status = 404, body = v1::Problem, content_type = "application/problem+json")))]
pub async fn get_job(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    Query(past::Moment { at }): Query<past::Moment>,
) -> Result<Response, Problem> {
    if let Some(at) = at {
        let record = lookup::record(&state.cluster, JobId(id)).await?;
        return Ok(Json(past::job(&state.cluster, &record, at).await?).into_response());
    }
    let job = lookup::job(&state.cluster, &state.asking.foretold(), JobId(id)).await?;
    let tag = etag(job.version);
    let record = lookup::record(&state.cluster, JobId(id)).await?;
    let view = state.cluster.view();
    let may = |act| caller.may_with_job(act, &view, &record).is_ok();
    let (spec, report, (after, dependents)) = match may(Act::ReadJob) {
        true => {
            let spec = conversions::specification(&record, may(Act::ReadEnvironment));
            let around = dependencies::of_job(&state, &caller, &record).await?;
            (spec, conversions::efficiency_report(&record), around)
        }
        false => Default::default(),
    };
    let job = caller.sight(&view, job).ok_or_else(|| lookup::no_job(record.id))?;
    Ok(([(header::ETAG, tag)], Json(v1::JobDetail { job, spec, report, after, dependents })).into_response())
}
