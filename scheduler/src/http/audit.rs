//! The audit: who did what, and what was refused, for operators and admins; and its chain, to be verified and exported.

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use futures::Stream;
use headway_api::v1;
use serde::Deserialize;

use super::access::Live;
use super::auth::Principal;
use super::extract::{Json, Query};
use super::problem::Problem;
use super::{HttpState, conversions};
use crate::audit::{Anchor, Broken, Form};
use crate::store::{AuditFilter, Store, StoreError};

pub const LINES_AT_MOST: u32 = 1_000;
/// Verified by one request.
pub const VERIFIED_AT_MOST: u32 = 20_000;
/// Read at once for an export.
const PIECE: u32 = 500;

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

/// Actions that were done or refused, newest first: by whom, from where, to what, why, and what has changed. Lines are never changed, and removed only when they are older than --audit-days.
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
        limit: query.limit.unwrap_or(100),
        before: query.cursor,
    };
    let page = state.cluster.store().audit(&filter).await?;
    Ok(Json(v1::AuditList {
        items: page.items.iter().map(v1::AuditLine::from).collect(),
        next_cursor: page.next.map(|id| id.to_string()),
    }))
}

/// Where the chain of the audit ends. Kept elsewhere, its anchor tells later whether the end was cut off.
#[utoipa::path(get, path = "/audit/head", tag = "auth",
    responses((status = 200, body = v1::AuditHead), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn audit_head(State(state): State<HttpState>, _caller: Principal) -> Result<Json<v1::AuditHead>, Problem> {
    let store = state.cluster.store();
    let (head, unsealed) = (store.audit_head().await?, store.unsealed_audit().await?);
    let start = store.audit_start().await?;
    let by_role = store.audit_is_kept_by_role().await?;
    Ok(Json(v1::AuditHead {
        anchor: head.map(|head| head.anchor.to_string()),
        sealed: head.map_or(0, |head| head.position),
        sealed_at: head.map(|head| conversions::time(head.sealed_at)),
        begins_after: start.map(|start| start.anchor.to_string()),
        unsealed: unsealed.rows,
        lag_seconds: unsealed.lag.0,
        kept_by: if by_role { "role" } else { "triggers" }.into(),
    }))
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct VerifyQuery {
    /// Only lines from this moment on (RFC 3339); what precedes them is taken on trust.
    since: Option<DateTime<Utc>>,
    /// "ID:HASH", as `GET /audit/head` gave it: the chain must hold it.
    head: Option<String>,
    /// Lines to verify: 20000 if absent, which is the most.
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<u64>,
}

/// Whether the lines of the audit are what was sealed, page by page; the first that is not.
#[utoipa::path(get, path = "/audit/verify", tag = "auth", params(VerifyQuery),
    responses((status = 200, body = v1::AuditVerification), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn verify_audit(
    State(state): State<HttpState>,
    _caller: Principal,
    Query(query): Query<VerifyQuery>,
) -> Result<Json<v1::AuditVerification>, Problem> {
    let head = query.head.map(|text| text.parse::<Anchor>()).transpose();
    let head = head.map_err(|wrong| Problem::bad_request(wrong.to_string()).field("head"))?;
    let store = state.cluster.store();
    if let Some(head) = head
        && let Some(broken) = store.verify_anchor(head).await?
    {
        return Ok(Json(v1::AuditVerification { lines: 0, last: None, broken: Some(told(broken)), next_cursor: None }));
    }
    let after = match query.cursor {
        Some(cursor) => cursor,
        None => store.audit_since(query.since.map(conversions::timestamp)).await?,
    };
    let found = store.verify_audit(after, query.limit.unwrap_or(VERIFIED_AT_MOST)).await?;
    Ok(Json(v1::AuditVerification {
        lines: found.rows,
        last: found.last.map(|last| last.to_string()),
        next_cursor: found.next.filter(|_| found.broken.is_none()).map(|next| next.to_string()),
        broken: found.broken.map(told),
    }))
}

fn told(broken: Broken) -> v1::AuditBroken {
    v1::AuditBroken { id: broken.id, what: <&str>::from(broken.fault).into(), detail: broken.detail }
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ExportQuery {
    /// Only lines from this moment on (RFC 3339).
    since: Option<DateTime<Utc>>,
    /// Only lines of before this moment.
    until: Option<DateTime<Utc>>,
    /// `jsonl` (a line of JSON each, if absent) or `csv`.
    form: Option<String>,
}

/// All sealed lines, in the order of the chain, as they are read. Between `since` and `until` no line is left out; some may be of other moments, since lines are sealed in the order of their commits. A reply that breaks off is not whole, as where lines were pruned before they were read: begin anew.
#[utoipa::path(get, path = "/audit/export", tag = "auth", params(ExportQuery),
    responses((status = 200, content((v1::SealedAuditLine = "application/x-ndjson"), (String = "text/csv"))),
        (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn export_audit(
    State(state): State<HttpState>,
    _caller: Principal,
    Query(query): Query<ExportQuery>,
) -> Result<Response, Problem> {
    let form = query.form.as_deref().map(str::parse::<Form>).transpose();
    let form = form.map_err(|_| Problem::bad_request("a form is jsonl or csv").field("form"))?.unwrap_or_default();
    let store = state.cluster.store().clone();
    let begins_after = store.audit_start().await?.map_or(0, |start| start.position);
    let after = store.audit_since(query.since.map(conversions::timestamp)).await?.max(begins_after);
    let until = match query.until {
        Some(until) => store.last_audit_position_before(conversions::timestamp(until), after).await?,
        None => store.audit_head().await?.map_or(0, |head| head.position),
    };
    let media = [(header::CONTENT_TYPE, HeaderValue::from_static(form.media()))];
    Ok((Extension(Live), media, Body::from_stream(written(store, form, after, until))).into_response())
}

/// Why an export breaks off.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("lines of the audit were pruned before this export had read them: begin anew")]
    Pruned,
}

/// The links after a position up to another. Each piece is read once the one before was taken.
fn written(store: Store, form: Form, after: u64, until: u64) -> impl Stream<Item = Result<Bytes, ExportError>> {
    async_stream::try_stream! {
        yield form.head().into();
        let mut after = after;
        while after < until {
            let most = u32::try_from(until - after).unwrap_or(PIECE).min(PIECE);
            let mut links = store.audit_links(after, most).await?;
            if store.audit_start().await?.is_some_and(|start| start.position > after) {
                tracing::warn!("an export of the audit breaks off: lines were pruned before it had read them");
                Err(ExportError::Pruned)?;
            }
            // Of a chain with gaps more may have been read.
            links.retain(|link| link.seal.position <= until);
            let Some(last) = links.last() else { break };
            after = last.seal.position;
            yield form.rows(&links).into();
        }
    }
}
