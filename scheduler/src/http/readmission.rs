//! An operator's word that this database is the one that counts, where nodes have followed a newer term.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use headway_api::v1;
use headway_engine::event::Request;
use headway_engine::outcome::{Readmission, Reply};
use headway_engine::view::View;

use super::HttpState;
use super::auth::Principal;
use super::extract::{Json, reason};
use super::problem::Problem;
use crate::shown::Shown;

/// Have nodes that follow a newer term follow this scheduler again: a term begins that is above all of theirs. For a database that was
/// restored from a backup. What they run that it does not know is stopped before its GPUs are given to anybody; jobs that it knows start
/// from the newest checkpoint that it names. Refused while no node is ahead.
#[utoipa::path(post, path = "/readmission", tag = "nodes", request_body = Option<v1::ReasonRequest>,
    responses((status = 200, body = v1::Readmission), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn readmit_nodes(
    State(state): State<HttpState>,
    caller: Principal,
    body: Option<Json<v1::ReasonRequest>>,
) -> Result<Response, Problem> {
    state.answer(&caller, Request::Readmit { reason: reason(body) }, shown).await
}

fn shown(reply: &Reply, _: &View) -> Option<Shown> {
    let Reply::Readmitted(Readmission { term, nodes }) = reply else { return None };
    let node = |(id, one): (&headway_types::NodeId, &headway_engine::Ahead)| v1::ReadmittedNode {
        id: id.0,
        name: one.name.clone(),
        term: one.term.0,
    };
    Some(Shown::new(StatusCode::OK, &v1::Readmission { term: term.0, nodes: nodes.iter().map(node).collect() }))
}
