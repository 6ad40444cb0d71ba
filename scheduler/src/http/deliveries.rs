//! What a job's webhooks were told, and what they answered.

use std::time::Instant;

use axum::extract::State;
use axum::http::StatusCode;
use headway_api::v1;
use headway_types::JobId;
use serde::Deserialize;
use uuid::Uuid;

use super::auth::Principal;
use super::extract::{Json, Path, Query};
use super::problem::Problem;
use super::{HttpState, conversions, lookup, parameters};
use crate::webhooks::notices;

pub const MOST: u32 = 500;
const USUAL: u32 = 50;

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DeliveriesQuery {
    /// The newest so many; 50 if absent, 500 at most.
    pub limit: Option<u32>,
}

/// Notices to a job's webhooks, newest first: delivered, waiting for the next attempt, or given up. Of addresses the host alone is shown.
#[utoipa::path(get, path = "/jobs/{id}/deliveries", tag = "jobs", params(("id" = Uuid, Path), DeliveriesQuery),
    responses((status = 200, body = v1::DeliveryList), (status = 404, body = v1::Problem, content_type = "application/problem+json")))]
pub async fn deliveries(
    State(state): State<HttpState>,
    _caller: Principal,
    Path(id): Path<Uuid>,
    Query(query): Query<DeliveriesQuery>,
) -> Result<Json<v1::DeliveryList>, Problem> {
    lookup::record(&state.cluster, JobId(id)).await?;
    let limit = query.limit.unwrap_or(USUAL);
    let rows = state.cluster.store().deliveries(JobId(id), limit).await?;
    Ok(Json(v1::DeliveryList { items: rows.into_iter().map(conversions::delivery).collect() }))
}

/// Call a job's webhooks now, each once, with a notice that is told to be a test (`test: true`, `Headway-Event: webhook.test`), and tell what came of it. It is signed and
/// held to the same addresses as every other, and tried once. A user may ask for one every ten seconds; a dry run calls nobody.
#[utoipa::path(post, path = "/jobs/{id}/deliveries", tag = "jobs", params(("id" = Uuid, Path)),
    responses((status = 200, body = v1::DeliveryTest), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn test_delivery(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
) -> Result<Json<v1::DeliveryTest>, Problem> {
    let job = lookup::record(&state.cluster, JobId(id)).await?;
    if job.spec.notify.is_empty() {
        return Err(Problem::new(StatusCode::CONFLICT, "no_webhook", format!("job {} has no webhook", job.spec.name))
            .field("notify")
            .hint(
                "a specification names webhooks: notify: {webhook: https://hooks.example/x, on: [failed, finished]}",
            ));
    }
    if parameters::is_dry_run() {
        let items = notices(&job, state.cluster.now()).into_iter().map(conversions::untried).collect();
        return Ok(Json(v1::DeliveryTest { items }));
    }
    if let Err(wait) = state.trials.admit(caller.name(), Instant::now()) {
        let detail = "a user may have webhooks called once in ten seconds";
        return Err(Problem::too_many("too_many_tests", detail, wait));
    }
    // Before the call: nobody is called whom the audit does not know of.
    if let Some(deed) = state.deed() {
        state.cluster.store().add_to_audit(&[deed]).await?;
    }
    let tried = state.trials.call(&state.cluster, &job).await;
    Ok(Json(v1::DeliveryTest { items: tried.into_iter().map(conversions::tried).collect() }))
}
