//! Which server leads, and which stand by.

use axum::extract::State;
use headway_api::v1;

use super::HttpState;
use super::auth::Principal;
use super::conversions::time;
use super::extract::Json;
use super::problem::Problem;
use crate::store::KnownServer;

/// Which server leads since when, and which have told of themselves within the last minute. Any server answers it.
#[utoipa::path(get, path = "/leader", tag = "cluster",
    responses((status = 200, body = v1::Leadership), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn leader(State(state): State<HttpState>, _caller: Principal) -> Result<Json<v1::Leadership>, Problem> {
    let known = state.cluster.store().leadership().await?;
    Ok(Json(v1::Leadership {
        term: known.term.0,
        since: known.since.map(time),
        leader: known.leader.map(server),
        standbys: known.others.into_iter().map(server).collect(),
    }))
}

fn server(known: KnownServer) -> v1::Server {
    v1::Server {
        id: known.server.id,
        url: known.server.url,
        agents_url: known.server.agents,
        version: known.server.version,
        started_at: time(known.started_at),
        silent_seconds: known.silent.0,
    }
}
