//! Nodes: what they offer, who holds their GPUs, and the admin's switches.

use axum::extract::State;
use headway_api::v1;
use headway_engine::event::Request;
use headway_engine::outcome::{NodeDeleted, Reply};
use headway_types::{Seconds, Timestamp};
use serde::Deserialize;

use super::auth::{AdminPrincipal, Principal};
use super::extract::{Json, Path, Query, reason};
use super::problem::Problem;
use super::{HttpState, conversions, lookup, mismatched, past};

/// All nodes. With `at`: a `PastNodeList` of those that had registered, with what is known of them.
#[utoipa::path(get, path = "/nodes", tag = "nodes", params(past::Moment),
    responses((status = 200, body = v1::NodeList), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn list_nodes(
    State(state): State<HttpState>,
    _caller: Principal,
    Query(past::Moment { at }): Query<past::Moment>,
) -> Result<Json<past::Reply<v1::NodeList, v1::PastNodeList>>, Problem> {
    if let Some(at) = at {
        return Ok(Json(past::Reply::Then(past::nodes(&state.cluster, at).await?)));
    }
    let view = state.cluster.view();
    let items = view.nodes.values().map(|node| conversions::node(node, &view)).collect();
    Ok(Json(past::Reply::Now(v1::NodeList { items })))
}

/// One node, by id or name. With `at`: a `PastNode`.
#[utoipa::path(get, path = "/nodes/{node}", tag = "nodes", params(("node" = String, Path), past::Moment),
    responses((status = 200, body = v1::Node), (status = 404, body = v1::Problem, content_type = "application/problem+json")))]
pub async fn get_node(
    State(state): State<HttpState>,
    _caller: Principal,
    Path(name): Path<String>,
    Query(past::Moment { at }): Query<past::Moment>,
) -> Result<Json<past::Reply<v1::Node, v1::PastNode>>, Problem> {
    if let Some(at) = at {
        let id = lookup::node_ever(&state.cluster, &name).await?;
        let then = past::nodes(&state.cluster, at).await?.items.into_iter().find(|node| node.id == id.0);
        let then = then.ok_or_else(|| Problem::not_found(format!("node {name} was not registered then")))?;
        return Ok(Json(past::Reply::Then(then)));
    }
    let id = lookup::node(&state.cluster, &name)?;
    let view = state.cluster.view();
    let node = view.nodes.get(&id).ok_or_else(|| Problem::not_found(format!("no node {name}")))?;
    Ok(Json(past::Reply::Now(conversions::node(node, &view))))
}

/// Have what runs on a node save and leave; nothing new starts there.
#[utoipa::path(post, path = "/nodes/{node}/drain", tag = "nodes", params(("node" = String, Path)),
    request_body = Option<v1::DrainRequest>,
    responses((status = 200, body = v1::Node), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn drain_node(
    State(state): State<HttpState>,
    AdminPrincipal(caller): AdminPrincipal,
    Path(name): Path<String>,
    body: Option<Json<v1::DrainRequest>>,
) -> Result<Json<v1::Node>, Problem> {
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
    act(&state, &caller, Request::Drain { node, reason, deadline }).await
}

/// End a drain.
#[utoipa::path(post, path = "/nodes/{node}/undrain", tag = "nodes", params(("node" = String, Path)),
    responses((status = 200, body = v1::Node), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn undrain_node(
    state: State<HttpState>,
    caller: AdminPrincipal,
    name: Path<String>,
) -> Result<Json<v1::Node>, Problem> {
    uncordon_node(state, caller, name).await
}

/// Start nothing new on a node; what runs there stays.
#[utoipa::path(post, path = "/nodes/{node}/cordon", tag = "nodes", params(("node" = String, Path)),
    request_body = Option<v1::ReasonRequest>,
    responses((status = 200, body = v1::Node), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn cordon_node(
    State(state): State<HttpState>,
    AdminPrincipal(caller): AdminPrincipal,
    Path(name): Path<String>,
    body: Option<Json<v1::ReasonRequest>>,
) -> Result<Json<v1::Node>, Problem> {
    let node = lookup::node(&state.cluster, &name)?;
    act(&state, &caller, Request::Cordon { node, reason: reason(body) }).await
}

/// Take a node back into service.
#[utoipa::path(post, path = "/nodes/{node}/uncordon", tag = "nodes", params(("node" = String, Path)),
    responses((status = 200, body = v1::Node), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn uncordon_node(
    State(state): State<HttpState>,
    AdminPrincipal(caller): AdminPrincipal,
    Path(name): Path<String>,
) -> Result<Json<v1::Node>, Problem> {
    let node = lookup::node(&state.cluster, &name)?;
    act(&state, &caller, Request::Uncordon { node }).await
}

/// Vouch that nothing runs on an unreachable node any more, so that its jobs may go on elsewhere.
#[utoipa::path(post, path = "/nodes/{node}/lost", tag = "nodes", params(("node" = String, Path)),
    request_body = Option<v1::ReasonRequest>,
    responses((status = 200, body = v1::Node), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn lose_node(
    State(state): State<HttpState>,
    AdminPrincipal(caller): AdminPrincipal,
    Path(name): Path<String>,
    body: Option<Json<v1::ReasonRequest>>,
) -> Result<Json<v1::Node>, Problem> {
    let node = lookup::node(&state.cluster, &name)?;
    act(&state, &caller, Request::MarkLost { node, reason: reason(body) }).await
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DeletionQuery {
    /// Why, for the event log.
    reason: Option<String>,
}

/// Forget a node that is gone for good, or was registered wrongly. Refused while its agent is connected or jobs hold GPUs there; the
/// reply says what named it. An agent that comes back under the id registers as a new node.
#[utoipa::path(delete, path = "/nodes/{node}", tag = "nodes", params(("node" = String, Path), DeletionQuery),
    responses((status = 200, body = v1::DeletedNode), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn delete_node(
    State(state): State<HttpState>,
    AdminPrincipal(caller): AdminPrincipal,
    Path(name): Path<String>,
    Query(DeletionQuery { reason }): Query<DeletionQuery>,
) -> Result<Json<v1::DeletedNode>, Problem> {
    let node = lookup::node(&state.cluster, &name)?;
    match state.ask(caller.actor(), Request::DeleteNode { node, reason }).await? {
        Reply::NodeDeleted(NodeDeleted { node, reservations, cancelled, rows }) => Ok(Json(v1::DeletedNode {
            id: node.inventory.node.0,
            name: node.inventory.name.clone(),
            reservations,
            reservations_cancelled: cancelled,
            policy_rows: rows,
        })),
        other => Err(mismatched(&other)),
    }
}

async fn act(state: &HttpState, caller: &Principal, request: Request) -> Result<Json<v1::Node>, Problem> {
    match state.ask(caller.actor(), request).await? {
        Reply::Node(node) => {
            let view = state.cluster.view();
            let id = node.inventory.node;
            let shown = view.nodes.get(&id).ok_or_else(|| Problem::not_found(format!("no node {id}")))?;
            Ok(Json(conversions::node(shown, &view)))
        }
        other => Err(mismatched(&other)),
    }
}
