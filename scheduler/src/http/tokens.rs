//! Tokens: made here, shown once, kept as digests. The one thing REST writes to the store without the engine.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use headway_api::v1;
use headway_types::Seconds;
use uuid::Uuid;

use super::auth::{AdminPrincipal, Principal};
use super::extract::{Json, Path};
use super::problem::Problem;
use super::{HttpState, conversions};
use crate::store::{Revocation, TokenHash};

const LONGEST_LIFE: f64 = 10.0 * 365.0 * 86_400.0;

/// Make a token. Its secret is shown in this reply and never again.
#[utoipa::path(post, path = "/auth/tokens", tag = "auth", request_body = v1::TokenRequest,
    responses((status = 201, body = v1::CreatedToken), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn create_token(
    State(state): State<HttpState>,
    AdminPrincipal(caller): AdminPrincipal,
    Json(body): Json<v1::TokenRequest>,
) -> Result<Response, Problem> {
    let name = body.name.trim();
    if name.is_empty() || name.len() > 128 || name.chars().any(char::is_control) {
        return Err(Problem::invalid("a token's name has 1 to 128 characters").field("name"));
    }
    if body.ttl_s.is_some_and(|ttl| !(1.0..=LONGEST_LIFE).contains(&ttl)) {
        return Err(Problem::invalid("ttl_s must be between one second and ten years").field("ttl_s"));
    }
    let now = state.cluster.now();
    let secret = fresh_secret()?;
    let expires = body.ttl_s.map(|ttl| now + Seconds(ttl));
    let token = state.cluster.store().create_token(name, body.scope, &TokenHash::of(&secret), now, expires).await?;
    tracing::info!(token_id = %token.id, by = caller.name(), scope = %body.scope, "token created");
    Ok((StatusCode::CREATED, Json(v1::CreatedToken { token: conversions::token(&token), secret })).into_response())
}

/// All tokens, without their secrets.
#[utoipa::path(get, path = "/auth/tokens", tag = "auth", responses((status = 200, body = v1::TokenList)))]
pub async fn list_tokens(
    State(state): State<HttpState>,
    _caller: AdminPrincipal,
) -> Result<Json<v1::TokenList>, Problem> {
    let tokens = state.cluster.store().tokens().await?;
    Ok(Json(v1::TokenList { items: tokens.iter().map(conversions::token).collect() }))
}

/// Revoke a token. An admin's that no other admin's outlasts is refused (409, `last_admin`): nobody could make another.
#[utoipa::path(delete, path = "/auth/tokens/{id}", tag = "auth", params(("id" = Uuid, Path)),
    responses((status = 204), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn revoke_token(
    State(state): State<HttpState>,
    AdminPrincipal(caller): AdminPrincipal,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    match state.cluster.store().revoke_token(id, state.cluster.now()).await? {
        Revocation::Done => {}
        Revocation::Unknown => return Err(Problem::not_found(format!("no token {id}"))),
        Revocation::LastAdmin => {
            let detail =
                format!("no other admin token lasts as long as {id}: the cluster would be left without an admin");
            return Err(Problem::new(StatusCode::CONFLICT, "last_admin", detail)
                .hint("make another first: POST /api/v1/auth/tokens with the scope admin"));
        }
    }
    state.tokens.clear();
    tracing::info!(token_id = %id, by = caller.name(), "token revoked");
    Ok(StatusCode::NO_CONTENT)
}

/// Who the token says I am.
#[utoipa::path(get, path = "/auth/whoami", tag = "auth", responses((status = 200, body = v1::Token)))]
pub async fn whoami(caller: Principal) -> Json<v1::Token> {
    Json(conversions::token(&caller.token))
}

/// 256 bits from the operating system; the prefix lets secret scanners recognise it.
fn fresh_secret() -> Result<String, Problem> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| {
        tracing::error!(%error, "operating system gave no random bytes");
        Problem::internal()
    })?;
    Ok(format!("hw_{}", hex::encode(bytes)))
}
