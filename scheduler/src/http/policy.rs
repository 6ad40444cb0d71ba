//! The policy: what an operator may change while Headway runs.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headway_api::v1;
use headway_engine::event::Request;
use headway_engine::outcome::Reply;
use headway_engine::record::PolicySettings;
use headway_engine::view::View;
use serde_json::{Map, Value};

use super::auth::Principal;
use super::extract::{self, Json, etag};
use super::problem::Problem;
use super::{HttpState, conversions};
use crate::shown::Shown;

/// How often a change that names no version is laid over a policy that has changed meanwhile.
const TRIES: u32 = 5;

/// The policy in force. `ETag` is its version.
#[utoipa::path(get, path = "/policy", tag = "cluster", responses((status = 200, body = v1::Policy, headers(("ETag" = String)))))]
pub async fn get_policy(State(state): State<HttpState>, _caller: Principal) -> Response {
    let policy = &state.cluster.view().policy;
    ([(header::ETAG, etag(policy.version))], Json(conversions::policy(policy))).into_response()
}

/// Replace the policy. What the body leaves out although it may be set stays what it is: `PATCH` changes single settings. With
/// `If-Match`, only if it still is what its ETag says.
#[utoipa::path(put, path = "/policy", tag = "cluster", params(("If-Match" = Option<String>, Header)), request_body = v1::Policy,
    responses((status = 200, body = v1::Policy, headers(("ETag" = String))),
        (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn put_policy(
    State(state): State<HttpState>,
    caller: Principal,
    headers: HeaderMap,
    Json(body): Json<v1::Policy>,
) -> Result<Response, Problem> {
    set(&state, &caller, &headers, |base| conversions::policy_settings(&body, base)).await
}

/// Change settings of the policy: those that the body names, as `GET` shows them; `null` takes a limit away. With `If-Match`, only
/// if it still is what its ETag says.
#[utoipa::path(patch, path = "/policy", tag = "cluster", params(("If-Match" = Option<String>, Header)), request_body = Object,
    responses((status = 200, body = v1::Policy, headers(("ETag" = String))),
        (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn patch_policy(
    State(state): State<HttpState>,
    caller: Principal,
    headers: HeaderMap,
    Json(body): Json<Map<String, Value>>,
) -> Result<Response, Problem> {
    set(&state, &caller, &headers, |base| conversions::patched_policy(&body, base)).await
}

/// Nobody's change is lost: what is set was made of the version that the engine finds, or is made again.
async fn set(
    state: &HttpState,
    caller: &Principal,
    headers: &HeaderMap,
    made_of: impl Fn(&PolicySettings) -> Result<PolicySettings, Problem>,
) -> Result<Response, Problem> {
    let wanted = extract::if_match(headers)?;
    let mut tries = TRIES;
    loop {
        let view = state.cluster.view();
        let settings = made_of(&view.policy)?;
        conversions::known_rows(&settings.objective.rows, &view.policy.objective.rows, &view)?;
        let expected = wanted.or(Some(view.policy.version));
        tries -= 1;
        match state.answer(caller, Request::SetPolicy { settings: settings.into(), expected }, shown).await {
            Err(problem) if wanted.is_none() && tries > 0 && problem.status() == StatusCode::PRECONDITION_FAILED => {}
            answer => return answer,
        }
    }
}

pub fn shown(reply: &Reply, _: &View) -> Option<Shown> {
    let Reply::Policy(settings) = reply else { return None };
    Some(Shown::new(StatusCode::OK, &conversions::policy(settings)).with(header::ETAG, etag(settings.version)))
}
