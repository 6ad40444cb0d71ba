//! The policy: what an operator may change while Headway runs.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use headway_api::v1;
use headway_engine::event::Request;
use headway_engine::outcome::Reply;
use headway_engine::view::View;

use super::auth::{AdminPrincipal, Principal};
use super::extract::Json;
use super::problem::Problem;
use super::{HttpState, conversions};
use crate::shown::Shown;

/// The policy in force.
#[utoipa::path(get, path = "/policy", tag = "cluster", responses((status = 200, body = v1::Policy)))]
pub async fn get_policy(State(state): State<HttpState>, _caller: Principal) -> Json<v1::Policy> {
    Json(conversions::policy(&state.cluster.view().policy))
}

/// Replace the policy. What the body leaves out although it may be set stays what it is.
#[utoipa::path(put, path = "/policy", tag = "cluster", request_body = v1::Policy,
    responses((status = 200, body = v1::Policy), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn put_policy(
    State(state): State<HttpState>,
    AdminPrincipal(caller): AdminPrincipal,
    Json(body): Json<v1::Policy>,
) -> Result<Response, Problem> {
    let view = state.cluster.view();
    let settings = conversions::policy_settings(&body, &view.policy)?;
    conversions::known_rows(&settings.objective.rows, &view.policy.objective.rows, &view)?;
    state.answer(&caller, Request::SetPolicy { settings }, shown).await
}

fn shown(reply: &Reply, _: &View) -> Option<Shown> {
    let Reply::Policy(settings) = reply else { return None };
    Some(Shown::new(StatusCode::OK, &conversions::policy(settings)))
}
