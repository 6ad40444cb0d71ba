//! What happened to a job: allocations, measurements and checkpoints. Read from the store, never changed here.

use axum::extract::State;
use chrono::{DateTime, Utc};
use headway_api::v1;
use headway_types::{JobId, NodeId};
use serde::Deserialize;
use uuid::Uuid;

use super::auth::Principal;
use super::extract::{Json, Path, Query};
use super::problem::Problem;
use super::{HttpState, conversions, lookup};

pub const POINTS_AT_MOST: u32 = 2_000;

/// What a job holds and held, oldest first, with cause.
#[utoipa::path(get, path = "/jobs/{id}/allocations", tag = "jobs", params(("id" = Uuid, Path)),
    responses((status = 200, body = v1::AllocationList), (status = 404, body = v1::Problem, content_type = "application/problem+json")))]
pub async fn allocations(
    State(state): State<HttpState>,
    _caller: Principal,
    Path(id): Path<Uuid>,
) -> Result<Json<v1::AllocationList>, Problem> {
    lookup::record(&state.cluster, JobId(id)).await?;
    let view = state.cluster.view();
    let stored = state.cluster.store().allocations(JobId(id)).await?;
    let mut items: Vec<_> = stored.iter().map(|each| conversions::allocation(each, &view)).collect();
    let unnamed = || stored.iter().flat_map(|each| each.placement.slices()).map(|slice| slice.node);
    let former = lookup::former_names(&state.cluster, unnamed()).await?;
    for slice in items.iter_mut().flat_map(|item| &mut item.slices).filter(|slice| slice.node_name.is_none()) {
        slice.node_name = former.get(&NodeId(slice.node_id)).cloned();
    }
    Ok(Json(v1::AllocationList { items }))
}

/// Committed checkpoints of a job, newest first.
///
/// The files of older ones are gone where the job keeps only some (`training.checkpoint.keep`).
#[utoipa::path(get, path = "/jobs/{id}/checkpoints", tag = "jobs", params(("id" = Uuid, Path)),
    responses((status = 200, body = v1::CheckpointList), (status = 404, body = v1::Problem, content_type = "application/problem+json")))]
pub async fn checkpoints(
    State(state): State<HttpState>,
    _caller: Principal,
    Path(id): Path<Uuid>,
) -> Result<Json<v1::CheckpointList>, Problem> {
    lookup::record(&state.cluster, JobId(id)).await?;
    let stored = state.cluster.store().checkpoints(JobId(id)).await?;
    Ok(Json(v1::CheckpointList { items: stored.iter().map(conversions::checkpoint).collect() }))
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SeriesQuery {
    from: Option<DateTime<Utc>>,
    to: Option<DateTime<Utc>>,
    /// 500 if absent, 2000 at most; neighbours are merged to fit.
    max_points: Option<u32>,
}

/// Goodput, throughput, efficiency, noise scale, batch, GPUs and loss over time.
#[utoipa::path(get, path = "/jobs/{id}/series", tag = "jobs", params(("id" = Uuid, Path), SeriesQuery),
    responses((status = 200, body = v1::Series), (status = 404, body = v1::Problem, content_type = "application/problem+json")))]
pub async fn series(
    State(state): State<HttpState>,
    _caller: Principal,
    Path(id): Path<Uuid>,
    Query(query): Query<SeriesQuery>,
) -> Result<Json<v1::Series>, Problem> {
    lookup::record(&state.cluster, JobId(id)).await?;
    let [from, to] = [query.from, query.to].map(|at| at.map(conversions::timestamp));
    let points = query.max_points.unwrap_or(500);
    let stored = state.cluster.store().series(JobId(id), from, to, points).await?;
    Ok(Json(v1::Series { points: stored.iter().map(conversions::series_point).collect() }))
}
