//! The audit: who did what, and what was refused, for operators and admins.

use axum::extract::State;
use chrono::{DateTime, Utc};
use headway_api::v1;
use serde::Deserialize;

use super::auth::Principal;
use super::extract::{Json, Query};
use super::problem::Problem;
use super::{HttpState, conversions};
use crate::store::AuditFilter;

const LINES_AT_MOST: u32 = 1_000;

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Who: a user's name, or as lines tell it ("user:ada").
    actor: Option<String>,
    /// The id of an operation of this interface: `cancel_job`.
    action: Option<String>,
    /// What: "job:ID", "project:NAME", "node:ID", "user:NAME", "token:ID" or "policy".
    subject: Option<String>,
    /// `done` or `refused`.
    result: Option<String>,
    since: Option<DateTime<Utc>>,
    until: Option<DateTime<Utc>>,
    /// 100 if absent, 1000 at most.
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<i64>,
}

/// What was done and refused, newest first: by whom, from where, to what, why, and what has changed. Lines are never changed or removed.
#[utoipa::path(get, path = "/audit", tag = "auth", params(AuditQuery),
    responses((status = 200, body = v1::AuditList), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn audit(
    State(state): State<HttpState>,
    _caller: Principal,
    Query(query): Query<AuditQuery>,
) -> Result<Json<v1::AuditList>, Problem> {
    let unknown = || Problem::bad_request("a result is done or refused").field("result");
    let filter = AuditFilter {
        actor: query.actor.map(|actor| if actor.contains(':') { actor } else { format!("user:{actor}") }),
        action: query.action,
        subject: query.subject,
        result: query.result.map(|result| result.parse()).transpose().map_err(|_| unknown())?,
        since: query.since.map(conversions::timestamp),
        until: query.until.map(conversions::timestamp),
        limit: query.limit.unwrap_or(100).clamp(1, LINES_AT_MOST),
        before: query.cursor,
    };
    let page = state.cluster.store().audit(&filter).await?;
    Ok(Json(v1::AuditList {
        items: page.items.iter().map(conversions::audit_line).collect(),
        next_cursor: page.next.map(|id| id.to_string()),
    }))
}
