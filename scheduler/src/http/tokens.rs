//! Tokens: made here, shown once, kept as digests. Everybody makes tokens of one's own that open no more than the caller's does; admins
//! make them for others and for agents.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use headway_api::v1;
use headway_types::{Seconds, TokenScope};
use serde::Deserialize;
use uuid::Uuid;

use super::access::Act;
use super::auth::Principal;
use super::extract::{Json, Path, Query};
use super::problem::Problem;
use super::{HttpState, conversions, users};
use crate::store::{NewToken, Revocation, TokenHash};

/// Of one user, that open something at once.
const MOST_TOKENS: u32 = 100;
pub const TOKENS_AT_MOST: u32 = 1_000;
/// Life of a person's token that is made without a word about it: what is forgotten ends by itself.
const USUAL_LIFE: Seconds = Seconds(90.0 * 86_400.0);
const LONGEST_LIFE: f64 = 10.0 * 365.0 * 86_400.0;

/// Make a token of one's own that opens no more than the caller's, or, of an admin, somebody else's or an agent's. A user has 100 that open something at most (409, `too_many_tokens`). Its secret is shown in this reply and never again.
#[utoipa::path(post, path = "/auth/tokens", tag = "auth", request_body = v1::TokenRequest,
    responses((status = 201, body = v1::CreatedToken), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn create_token(
    State(state): State<HttpState>,
    caller: Principal,
    Json(body): Json<v1::TokenRequest>,
) -> Result<Response, Problem> {
    let name = body.name.trim();
    if name.is_empty() || name.len() > 128 || name.chars().any(char::is_control) {
        return Err(Problem::invalid("a token's name has 1 to 128 characters").field("name"));
    }
    if body.ttl_s.is_some_and(|ttl| !(1.0..=LONGEST_LIFE).contains(&ttl)) {
        return Err(Problem::invalid("ttl_s must be between one second and ten years").field("ttl_s"));
    }
    let scope = body.scope.unwrap_or(caller.scope());
    let life = life(&body, scope)?;
    let user = whose(&state, &caller, body.user.as_deref(), scope).await?;
    let now = state.cluster.now();
    let secret = fresh_secret("hw_")?;
    // What is made by way of a login ends when its person may not log in any more.
    let identity = caller.token.identity.filter(|_| user.as_deref() == Some(caller.name()));
    let new = NewToken {
        name,
        user: user.as_deref(),
        scope,
        expires_at: life.map(|life| now + life),
        identity,
        of_session: false,
    };
    let (store, hash) = (state.cluster.store(), TokenHash::of(&secret));
    let made = store.create_token_within(MOST_TOKENS, &new, &hash, now, state.deed()).await?;
    let token = made.ok_or_else(|| too_many_tokens(user.as_deref().unwrap_or_default()))?;
    tracing::info!(token_id = %token.id, by = caller.name(), user, %scope, "token created");
    Ok((StatusCode::CREATED, Json(v1::CreatedToken { token: conversions::token(&token), secret })).into_response())
}

/// How long a token opens something; `None`: until it is revoked. An agent's token that ended by itself would take its node away.
fn life(body: &v1::TokenRequest, scope: TokenScope) -> Result<Option<Seconds>, Problem> {
    match (body.ttl_s, body.never_expires) {
        (Some(_), true) => Err(Problem::invalid("ttl_s and never_expires contradict each other")
            .field("never_expires")
            .hint("leave out one of them")),
        (Some(ttl), false) => Ok(Some(Seconds(ttl))),
        (None, true) => Ok(None),
        (None, false) => Ok((scope != TokenScope::Agent).then_some(USUAL_LIFE)),
    }
}

fn too_many_tokens(user: &str) -> Problem {
    let detail = format!("{user} has {MOST_TOKENS} tokens that open something, which is the most of one user");
    Problem::new(StatusCode::CONFLICT, "too_many_tokens", detail)
        .hint(format!("revoke some: headway token list --user {user}, headway token revoke TOKEN"))
}

/// Whose the token is to be, if the caller may make it.
async fn whose(
    state: &HttpState,
    caller: &Principal,
    user: Option<&str>,
    scope: TokenScope,
) -> Result<Option<String>, Problem> {
    let user = match (user, scope) {
        (Some(_), TokenScope::Agent) => {
            return Err(Problem::invalid("an agent's token is nobody's: leave out user").field("user"));
        }
        (None, TokenScope::Agent) => None,
        (None, _) => Some(caller.name()),
        (Some(user), _) => Some(user),
    };
    if user != Some(caller.name()) {
        caller.may(Act::KeepTokensOfOthers)?;
    }
    if scope > caller.scope() {
        return Err(Problem::forbidden(format!(
            "your token has the scope {} and makes none that opens more",
            caller.scope()
        ))
        .field("scope"));
    }
    let Some(user) = user else { return Ok(None) };
    match state.cluster.store().role_of(user).await? {
        None => users::check_name(user, "user")?,
        Some(role) if role < scope => {
            let detail = format!("{user} has the role {role}: a token of the scope {scope} would open no more");
            return Err(Problem::invalid(detail)
                .field("scope")
                .hint(format!("raise the role first: headway user set {user} --role {scope}")));
        }
        Some(_) => {}
    }
    Ok(Some(user.to_owned()))
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct TokensQuery {
    /// Only this user's; of callers who are no admins their own name or nothing.
    pub user: Option<String>,
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct TokensPage {
    /// Only this user's; of callers who are no admins their own name or nothing.
    user: Option<String>,
    cursor: Option<Uuid>,
    /// 1,000 if absent, and at most.
    limit: Option<u32>,
}

/// Whose tokens, or sessions, a list shows; `None`: everybody's.
pub fn of_whom(caller: &Principal, named: Option<String>) -> Result<Option<String>, Problem> {
    let of_others = caller.may(Act::KeepTokensOfOthers);
    let user = match &of_others {
        Ok(()) => named,
        Err(_) => named.or_else(|| Some(caller.name().to_owned())),
    };
    if user.as_deref() != Some(caller.name()) {
        of_others?;
    }
    Ok(user)
}

/// The caller's tokens, or, for an admin, everybody's, newest first; without their secrets.
#[utoipa::path(get, path = "/auth/tokens", tag = "auth", params(TokensPage), responses((status = 200, body = v1::TokenList)))]
pub async fn list_tokens(
    State(state): State<HttpState>,
    caller: Principal,
    Query(query): Query<TokensPage>,
) -> Result<Json<v1::TokenList>, Problem> {
    let user = of_whom(&caller, query.user)?;
    let limit = query.limit.unwrap_or(TOKENS_AT_MOST);
    let page = state.cluster.store().tokens(user.as_deref(), query.cursor, limit).await?;
    Ok(Json(v1::TokenList {
        items: page.items.iter().map(conversions::token).collect(),
        next_cursor: page.next.map(|token| token.to_string()),
    }))
}

/// Revoke a token of one's own, or, of an admin, anybody's. An admin's that no other admin's outlasts is refused (409, `last_admin`): nobody could make another.
#[utoipa::path(delete, path = "/auth/tokens/{id}", tag = "auth", params(("id" = Uuid, Path)),
    responses((status = 204), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn revoke_token(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    let owner = state.cluster.store().token_user(id).await?;
    // Whose a token is that is not the caller's is nobody else's business.
    if owner.flatten().as_deref() != Some(caller.name()) && caller.may(Act::KeepTokensOfOthers).is_err() {
        return Err(Problem::not_found(format!("you have no token {id}")));
    }
    match state.cluster.store().revoke_token(id, state.cluster.now(), state.deed()).await? {
        Revocation::Done => {}
        Revocation::Unknown => return Err(Problem::not_found(format!("no token {id}"))),
        Revocation::LastAdmin => {
            let detail =
                format!("no other admin token lasts as long as {id}: the cluster would be left without an admin");
            return Err(Problem::new(StatusCode::CONFLICT, "last_admin", detail)
                .hint("make another first: POST /api/v1/auth/tokens with the scope admin"));
        }
    }
    state.tokens_changed();
    tracing::info!(token_id = %id, by = caller.name(), "token revoked");
    Ok(StatusCode::NO_CONTENT)
}

/// Who the token says I am.
#[utoipa::path(get, path = "/auth/whoami", tag = "auth", responses((status = 200, body = v1::Token)))]
pub async fn whoami(caller: Principal) -> Json<v1::Token> {
    Json(conversions::token(&caller.token))
}

/// 256 bits from the operating system; the prefix lets secret scanners recognise it.
pub fn fresh_secret(prefix: &str) -> Result<String, Problem> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| {
        tracing::error!(%error, "operating system gave no random bytes");
        Problem::internal()
    })?;
    Ok(format!("{prefix}{}", hex::encode(bytes)))
}
