//! The account of one job's GPU-time: what every GPU-second it was granted went into.

use axum::extract::State;
use headway_api::v1;
use headway_engine::GpuTime;
use headway_types::{GpuSeconds, JobId};
use uuid::Uuid;

use super::auth::Principal;
use super::extract::{Json, Path};
use super::problem::Problem;
use super::{HttpState, lookup};

/// What the GPU-time of a job went into. The parts add up to the total.
#[utoipa::path(get, path = "/jobs/{id}/goodput", tag = "jobs", params(("id" = Uuid, Path)),
    responses((status = 200, body = v1::GpuTime), (status = 404, body = v1::Problem, content_type = "application/problem+json")))]
pub async fn gpu_time(
    State(state): State<HttpState>,
    _caller: Principal,
    Path(id): Path<Uuid>,
) -> Result<Json<v1::GpuTime>, Problem> {
    let job = lookup::record(&state.cluster, JobId(id)).await?;
    let now = state.cluster.now();
    let mut time = GpuTime::default();
    for allocation in state.cluster.store().allocations(job.id).await? {
        time += GpuTime::of(&allocation, now);
    }
    let hours = |part: GpuSeconds| part.0 / 3_600.0;
    Ok(Json(v1::GpuTime {
        job_id: id,
        total_gpu_hours: hours(time.total()),
        starting_gpu_hours: hours(time.starting),
        training_gpu_hours: hours(time.training),
        rework_gpu_hours: hours(time.rework),
        idle_gpu_hours: hours(time.idle),
        stopping_gpu_hours: hours(time.stopping),
    }))
}
