//! Arrays: what their elements have in common, how far they are, and what is done with all of them at once. Whoever may do it with a job of the array's
//! owner and project may do it with the array.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headway_api::spec::COUNT_AT_MOST;
use headway_api::v1;
use headway_engine::event::{ArrayDeed, Request};
use headway_engine::outcome::Reply;
use headway_engine::record::Awaited;
use headway_engine::view::View;
use headway_types::ArrayId;
use serde::Deserialize;
use uuid::Uuid;

use super::access::Seen;
use super::auth::Principal;
use super::extract::{Json, Path, Query, etag, if_match, reason};
use super::listing::id_end;
use super::problem::Problem;
use super::{HttpState, actions, conversions, cursor, dependencies, lookup, waiting};
use crate::shown::Shown;
use crate::store::ArrayFilter;

pub const ARRAYS_AT_MOST: u32 = 500;
pub const ELEMENTS_AT_MOST: u32 = 1_000;

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ArraysQuery {
    project: Option<String>,
    /// Owner.
    user: Option<String>,
    /// Part of the name, in any case.
    q: Option<String>,
    /// The whole name.
    name: Option<String>,
    /// The beginning or the end of the id, such as the eight digits that lists show.
    id: Option<String>,
    /// Only arrays of which an element has not ended, or with `false` only the others.
    live: Option<bool>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
    /// 100 if absent, 500 at most.
    limit: Option<u32>,
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ElementsQuery {
    /// The `next_cursor` of the page before.
    cursor: Option<u32>,
    /// Elements: 100 if absent, 1000 at most.
    limit: Option<u32>,
}

/// The array that a cursor of the list of arrays names.
fn position(given: &str) -> Result<ArrayId, Problem> {
    cursor::position(given)?.parse().map_err(|_| cursor::unknown())
}

/// Arrays, the newest first.
#[utoipa::path(get, path = "/arrays", tag = "arrays", params(ArraysQuery),
    responses((status = 200, body = v1::ArrayList), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn list_arrays(
    State(state): State<HttpState>,
    caller: Principal,
    Query(query): Query<ArraysQuery>,
) -> Result<Json<v1::ArrayList>, Problem> {
    let filter = ArrayFilter {
        project: query.project,
        owner: query.user,
        name: query.name,
        id: query.id.as_deref().map(id_end).transpose()?,
        name_contains: query.q.filter(|part| !part.is_empty()),
        live: query.live,
        out_of_sight: caller.out_of_sight(&state.cluster.view()),
        limit: query.limit.unwrap_or(100),
        cursor: query.cursor.as_deref().map(position).transpose()?,
    };
    let page = state.cluster.store().arrays(&filter).await?;
    let view = state.cluster.view();
    let seen = page.items.iter().filter(|array| caller.sees(&view, &array.project, &array.owner) != Seen::Nothing);
    let items = seen.map(|array| {
        let newest = view.arrays.get(&array.id).map_or(array, |live| &*live.array);
        conversions::array(newest, &view)
    });
    Ok(Json(v1::ArrayList { items: items.collect(), next_cursor: page.next.map(cursor::bind) }))
}

/// One array: how far its elements are, and a page of them. `ETag` is its version.
#[utoipa::path(get, path = "/arrays/{id}", tag = "arrays", params(("id" = Uuid, Path), ElementsQuery),
    responses((status = 200, body = v1::ArrayDetail, headers(("ETag" = String))),
        (status = 404, body = v1::Problem, content_type = "application/problem+json")))]
pub async fn get_array(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    Query(query): Query<ElementsQuery>,
) -> Result<Response, Problem> {
    let id = ArrayId(id);
    let limit = query.limit.unwrap_or(100);
    let page = state.cluster.store().elements(id, query.cursor, limit).await?;
    let array = lookup::array(&state.cluster, id).await?;
    let (view, foretold) = (state.cluster.view(), state.asking.foretold());
    let element = |job: headway_engine::record::Job| {
        let shown = match view.jobs.get(&job.id) {
            Some(live) => waiting::live_job(live, &view, &foretold),
            None => conversions::stored_job(&job),
        };
        caller.sight(&view, shown)
    };
    let elements = page.items.into_iter().filter_map(element).collect();
    let dependents = match caller.sees(&view, &array.project, &array.owner) {
        Seen::Whole => dependencies::dependents(&state, &caller, Awaited::Array(id)).await?,
        Seen::Outline | Seen::Nothing => Vec::new(),
    };
    let detail = v1::ArrayDetail {
        array: conversions::array(&array, &view),
        elements,
        next_cursor: page.next.map(|place| place.to_string()),
        dependents,
    };
    Ok(([(header::ETAG, etag(array.version))], Json(detail)).into_response())
}

/// Change how many elements run at once. Those that run go on where fewer are allowed. With `If-Match`, only if the array still is what its ETag says.
#[utoipa::path(patch, path = "/arrays/{id}", tag = "arrays", params(("id" = Uuid, Path), ("If-Match" = Option<String>, Header)),
    request_body = v1::ArrayPatch,
    responses((status = 200, body = v1::ArrayDone), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn update_array(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    headers: HeaderMap,
    Json(patch): Json<v1::ArrayPatch>,
) -> Result<Response, Problem> {
    if patch.parallel == Some(0) {
        let problem = Problem::invalid("at least one element runs at once").field("parallel");
        return Err(problem.hint("to keep all from running hold the array; null lets all run at once"));
    }
    if patch.parallel.is_some_and(|parallel| parallel > COUNT_AT_MOST) {
        let problem = Problem::invalid(format!("at most {COUNT_AT_MOST} elements run at once")).field("parallel");
        return Err(problem.hint("null lets all run at once"));
    }
    let expected = if_match(&headers)?;
    let request = Request::ChangeArray { array: ArrayId(id), parallel: patch.parallel, expected };
    state.answer(&caller, request, shown).await
}

/// Stop all elements of an array that have not ended for good.
#[utoipa::path(post, path = "/arrays/{id}/cancel", tag = "arrays", params(("id" = Uuid, Path)),
    request_body = Option<v1::CancelRequest>,
    responses((status = 200, body = v1::ArrayDone), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn cancel_array(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    body: Option<Json<v1::CancelRequest>>,
) -> Result<Response, Problem> {
    let Json(body) = body.unwrap_or_default();
    let grace = actions::grace(&body)?;
    run(&state, &caller, id, ArrayDeed::Cancel { reason: body.reason, grace }).await
}

/// Keep all elements of an array from running until they are released; those that run save and stop.
#[utoipa::path(post, path = "/arrays/{id}/hold", tag = "arrays", params(("id" = Uuid, Path)),
    request_body = Option<v1::ReasonRequest>,
    responses((status = 200, body = v1::ArrayDone), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn hold_array(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    body: Option<Json<v1::ReasonRequest>>,
) -> Result<Response, Problem> {
    run(&state, &caller, id, ArrayDeed::Hold { reason: reason(body) }).await
}

/// Let all held elements of an array run again.
#[utoipa::path(post, path = "/arrays/{id}/release", tag = "arrays", params(("id" = Uuid, Path)),
    request_body = Option<v1::ReasonRequest>,
    responses((status = 200, body = v1::ArrayDone), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn release_array(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    body: Option<Json<v1::ReasonRequest>>,
) -> Result<Response, Problem> {
    let request = Request::Array { array: ArrayId(id), deed: ArrayDeed::Release };
    state.answer(&caller, request.because(reason(body)), shown).await
}

async fn run(state: &HttpState, caller: &Principal, id: Uuid, deed: ArrayDeed) -> Result<Response, Problem> {
    state.answer(caller, Request::Array { array: ArrayId(id), deed }, shown).await
}

fn shown(reply: &Reply, view: &View) -> Option<Shown> {
    let Reply::Array(done) = reply else { return None };
    let body = conversions::array_done(done, view);
    Some(Shown::new(StatusCode::OK, &body).with(header::ETAG, etag(done.array.version)))
}

/// What a list with one row per array says of those on its page, in the order of the rows.
pub async fn of_page(
    state: &HttpState,
    ids: impl Iterator<Item = ArrayId>,
) -> Result<std::collections::BTreeMap<ArrayId, v1::Array>, Problem> {
    let view = state.cluster.view();
    let ids: Vec<ArrayId> = ids.collect();
    let ended: Vec<ArrayId> = ids.iter().copied().filter(|id| !view.arrays.contains_key(id)).collect();
    let stored = state.cluster.store().arrays_among(&ended).await?;
    let live = ids.iter().filter_map(|id| view.arrays.get(id)).map(|live| Arc::clone(&live.array));
    let all = live.chain(stored.into_iter().map(Arc::new));
    Ok(all.map(|array| (array.id, conversions::array(&array, &view))).collect())
}
