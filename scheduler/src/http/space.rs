//! What the database takes: which tables are large, how far back they go, and what bounds them.

use std::path::Path;

use axum::extract::State;
use headway_api::v1;

use super::HttpState;
use super::auth::Principal;
use super::conversions::time;
use super::extract::Json;
use super::problem::Problem;
use crate::store::TableSpace;

/// What each table of the database takes, the largest first, and what bounds it. Numbers of rows are estimates.
#[utoipa::path(get, path = "/space", tag = "cluster",
    responses((status = 200, body = v1::Space), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn space(State(state): State<HttpState>, _caller: Principal) -> Result<Json<v1::Space>, Problem> {
    let space = state.cluster.store().space().await?;
    Ok(Json(v1::Space {
        at: time(state.cluster.now()),
        tables: space.tables.into_iter().map(table).collect(),
        bytes: space.bytes,
        disk_free_bytes: space.directory.as_deref().and_then(free_bytes),
    }))
}

fn table(of: TableSpace) -> v1::TableSpace {
    v1::TableSpace {
        table: of.table,
        rows: of.rows,
        bytes: of.bytes,
        oldest_at: of.oldest.map(time),
        option: of.bound.and_then(|bound| bound.option).map(str::to_owned),
        bound: of.bound.map(|bound| bound.bound.to_owned()),
    }
}

/// Returns the free bytes of the disk of Postgres' data; `None` where this process does not see that directory, as when
/// Postgres runs in a container or as another user.
fn free_bytes(directory: &Path) -> Option<u64> {
    if !directory.join("PG_VERSION").exists() {
        return None;
    }
    let stat = rustix::fs::statvfs(directory).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}
