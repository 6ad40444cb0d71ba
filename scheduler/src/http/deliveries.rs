//! What a job's webhooks were told, and what they answered.

use axum::extract::State;
use headway_api::v1;
use headway_types::JobId;
use serde::Deserialize;
use uuid::Uuid;

use super::auth::Principal;
use super::extract::{Json, Path, Query};
use super::problem::Problem;
use super::{HttpState, conversions, lookup};

const MOST: u32 = 500;
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
    let limit = query.limit.unwrap_or(USUAL).clamp(1, MOST);
    let rows = state.cluster.store().deliveries(JobId(id), limit).await?;
    Ok(Json(v1::DeliveryList { items: rows.into_iter().map(conversions::delivery).collect() }))
}
