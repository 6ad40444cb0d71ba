//! Nodes: what they offer, who holds their GPUs, and the admin's switches.

pub mod insight;
pub mod leaving;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headway_api::v1;
use headway_engine::event::Request;
use headway_engine::outcome::{NodeDeleted, Reply};
use headway_engine::view::{NodeView, View};
use headway_types::spec::check_node_label;
use headway_types::{Seconds, Timestamp};
use serde::Deserialize;

use super::auth::Principal;
use super::extract::{Json, Path, Query, reason};
use super::problem::Problem;
use super::{HttpState, conversions, extract, labels, lookup, parameters, past};
use crate::authority::wall;
use crate::shown::Shown;

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct NodesQuery {
    /// Comma-separated labels that a node has, all of them: `name=value`, or `name` with any value. Not with `at`.
    label: Option<String>,
}

/// All nodes. With `at`: a `PastNodeList` of those that had registered, with what is known of them.
#[utoipa::path(get, path = "/nodes", tag = "nodes", params(past::Moment, NodesQuery),
    responses((status = 200, body = v1::NodeList), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn list_nodes(
    State(state): State<HttpState>,
    _caller: Principal,
    Query(past::Moment { at }): Query<past::Moment>,
    Query(NodesQuery { label }): Query<NodesQuery>,
) -> Result<Json<past::Reply<v1::NodeList, v1::PastNodeList>>, Problem> {
    let wanted = labels::wanted(label.as_deref())?;
    if let Some(at) = at {
        if !wanted.is_empty() {
            let problem = Problem::bad_request("the labels that nodes had are not kept").field("label");
            return Err(problem.hint("leave label or at out"));
        }
        return Ok(Json(past::Reply::Then(past::nodes(&state.cluster, at).await?)));
    }
    let view = state.cluster.view();
    let labelled = |node: &&Arc<NodeView>| wanted.is_empty() || labels::meet(&node.node.labels(), &wanted);
    let items = view.nodes.values().filter(labelled).map(|node| conversions::node(node, &view)).collect();
    Ok(Json(past::Reply::Now(v1::NodeList { items })))
}

/// One node, by id or name. `ETag` is its version. With `at`: a `PastNode`.
#[utoipa::path(get, path = "/nodes/{node}", tag = "nodes", params(("node" = String, Path), past::Moment),
    responses((status = 200, body = v1::Node, headers(("ETag" = String))), (status = 404, body = v1::Problem, content_type = "application/problem+json")))]
pub async fn get_node(
    State(state): State<HttpState>,
    _caller: Principal,
    Path(name): Path<String>,
    Query(past::Moment { at }): Query<past::Moment>,
) -> Result<Response, Problem> {
    if let Some(at) = at {
        let id = lookup::node_ever(&state.cluster, &name).await?;
        let then = past::nodes(&state.cluster, at).await?.items.into_iter().find(|node| node.id == id.0);
        let then = then.ok_or_else(|| Problem::not_found(format!("node {name} was not registered then")))?;
        return Ok(Json(then).into_response());
    }
    let id = lookup::node(&state.cluster, &name)?;
    let view = state.cluster.view();
    let node = view.nodes.get(&id).ok_or_else(|| lookup::no_node(&name))?;
    let tag = [(header::ETAG, extract::etag(node.node.version))];
    Ok((tag, Json(conversions::node(node, &view))).into_response())
}

/// Change a node's labels, by which jobs choose nodes; what the body does not name stays. What runs there stays too. With `If-Match`, only if the node still is what its ETag says.
#[utoipa::path(patch, path = "/nodes/{node}", tag = "nodes", params(("node" = String, Path), ("If-Match" = Option<String>, Header)),
    request_body = v1::NodePatch,
    responses((status = 200, body = v1::Node, headers(("ETag" = String))), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn update_node(
    State(state): State<HttpState>,
    caller: Principal,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(v1::NodePatch { labels }): Json<v1::NodePatch>,
) -> Result<Response, Problem> {
    let node = lookup::node(&state.cluster, &name)?;
    let expected = extract::if_match(&headers)?;
    for (label, value) in &labels {
        // The value of one that goes does not matter.
        check_node_label(label, value.as_deref().unwrap_or("gone"))
            .map_err(|why| Problem::invalid(why).field(format!("labels.{label}")))?;
    }
    state.answer(&caller, Request::LabelNode { node, labels, expected }, shown).await
}

/// Have what runs on a node save and leave; nothing new starts there.
#[utoipa::path(post, path = "/nodes/{node}/drain", tag = "nodes", params(("node" = String, Path)),
    request_body = Option<v1::DrainRequest>,
    responses((status = 200, body = v1::Node), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn drain_node(
    State(state): State<HttpState>,
    caller: Principal,
    Path(name): Path<String>,
    body: Option<Json<v1::DrainRequest>>,
) -> Result<Response, Problem> {
    let node = lookup::node(&state.cluster, &name)?;
    let Json(v1::DrainRequest { reason, deadline, within_seconds }) = body.unwrap_or_default();
    let deadline = match (deadline, within_seconds) {
        (at, None) => at.map(|at| Timestamp(at.timestamp_micros())),
        (None, Some(time)) if (0.0..=1e9).contains(&time) => Some(state.cluster.now() + Seconds(time)),
        (None, Some(_)) => return Err(Problem::invalid("a drain takes 0 s to 1e9 s").field("within_seconds")),
        (Some(_), Some(_)) => {
            return Err(Problem::invalid("give either deadline or within_seconds").field("within_seconds"));
        }
    };
    state.answer(&caller, Request::Drain { node, reason, deadline }, shown).await
}

/// End a drain.
#[utoipa::path(post, path = "/nodes/{node}/undrain", tag = "nodes", params(("node" = String, Path)),
    request_body = Option<v1::ReasonRequest>,
    responses((status = 200, body = v1::Node), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn undrain_node(
    state: State<HttpState>,
    caller: Principal,
    name: Path<String>,
    body: Option<Json<v1::ReasonRequest>>,
) -> Result<Response, Problem> {
    uncordon_node(state, caller, name, body).await
}

/// Start nothing new on a node; what runs there stays.
#[utoipa::path(post, path = "/nodes/{node}/cordon", tag = "nodes", params(("node" = String, Path)),
    request_body = Option<v1::ReasonRequest>,
    responses((status = 200, body = v1::Node), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn cordon_node(
    State(state): State<HttpState>,
    caller: Principal,
    Path(name): Path<String>,
    body: Option<Json<v1::ReasonRequest>>,
) -> Result<Response, Problem> {
    let node = lookup::node(&state.cluster, &name)?;
    state.answer(&caller, Request::Cordon { node, reason: reason(body) }, shown).await
}

/// Take a node back into service.
#[utoipa::path(post, path = "/nodes/{node}/uncordon", tag = "nodes", params(("node" = String, Path)),
    request_body = Option<v1::ReasonRequest>,
    responses((status = 200, body = v1::Node), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn uncordon_node(
    State(state): State<HttpState>,
    caller: Principal,
    Path(name): Path<String>,
    body: Option<Json<v1::ReasonRequest>>,
) -> Result<Response, Problem> {
    let node = lookup::node(&state.cluster, &name)?;
    state.answer(&caller, Request::Uncordon { node }.because(reason(body)), shown).await
}

/// Vouch that nothing runs on an unreachable node any more, so that its jobs may go on elsewhere.
#[utoipa::path(post, path = "/nodes/{node}/lost", tag = "nodes", params(("node" = String, Path)),
    request_body = Option<v1::ReasonRequest>,
    responses((status = 200, body = v1::Node), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn lose_node(
    State(state): State<HttpState>,
    caller: Principal,
    Path(name): Path<String>,
    body: Option<Json<v1::ReasonRequest>>,
) -> Result<Response, Problem> {
    let node = lookup::node(&state.cluster, &name)?;
    state.answer(&caller, Request::MarkLost { node, reason: reason(body) }, shown).await
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DeletionQuery {
    /// Why, for the event log.
    reason: Option<String>,
}

/// Forget a node that is gone for good, or was registered wrongly. Refused while its agent is connected or jobs hold GPUs there; the
/// reply says what named it. Its certificate opens nothing any more; an agent that comes back joins as a new node.
#[utoipa::path(delete, path = "/nodes/{node}", tag = "nodes", params(("node" = String, Path), DeletionQuery),
    responses((status = 200, body = v1::DeletedNode), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn delete_node(
    State(state): State<HttpState>,
    caller: Principal,
    Path(name): Path<String>,
    Query(DeletionQuery { reason }): Query<DeletionQuery>,
) -> Result<Response, Problem> {
    let node = lookup::node(&state.cluster, &name)?;
    let answer = state.answer(&caller, Request::DeleteNode { node, reason }, shown_deleted).await?;
    // Gone for good is its certificate as well: whoever comes back joins as a new node.
    if !parameters::is_dry_run() && state.cluster.store().revoke_identity(node.0, wall(), state.deed()).await? {
        state.cluster.tokens_changed();
    }
    Ok(answer)
}

fn shown(reply: &Reply, view: &View) -> Option<Shown> {
    let Reply::Node(node) = reply else { return None };
    let live = view.nodes.get(&node.inventory.node)?;
    let body = conversions::node(&NodeView { node: Arc::clone(node), ..(**live).clone() }, view);
    Some(Shown::new(StatusCode::OK, &body).with(header::ETAG, extract::etag(node.version)))
}

fn shown_deleted(reply: &Reply, _: &View) -> Option<Shown> {
    let Reply::NodeDeleted(NodeDeleted { node, reservations, cancelled, rows }) = reply else { return None };
    let body = v1::DeletedNode {
        id: node.inventory.node.0,
        name: node.inventory.name.clone(),
        reservations: reservations.clone(),
        reservations_cancelled: cancelled.clone(),
        policy_rows: rows.clone(),
    };
    Some(Shown::new(StatusCode::OK, &body))
}
