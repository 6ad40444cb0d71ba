//! Logging in: a browser exchanges a token for a cookie that no script can read, and the page forgets the token. What the cookie opens is the
//! token's to say; it ends with it, with a change of its user's role, when it is not used, and by itself.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headway_api::v1;
use uuid::Uuid;

use super::access::Act;
use super::auth::{IDLE, Principal};
use super::extract::{Json, Path, Query};
use super::problem::Problem;
use super::tokens::{TokensQuery, fresh_secret, of_whom};
use super::{HttpState, conversions};
use crate::store::{BrowserSession, Sessions, TokenHash};

/// However much it is used, a session ends after this long.
const LONGEST_LIFE: Duration = Duration::from_secs(30 * 86_400);

type SetCookie = [(HeaderName, HeaderValue); 1];

/// Log in: exchange the bearer token for a cookie (`HttpOnly`, `SameSite=Strict`, `Secure` over TLS) that opens what the token opens. It ends with the token, with a change
/// of its user's role, after a day without use, after 30 days, and when its user has logged in twenty times since it was used.
#[utoipa::path(post, path = "/auth/sessions", tag = "auth",
    responses((status = 201, body = v1::BrowserSession, headers(("Set-Cookie" = String))),
        (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn create_session(
    State(state): State<HttpState>,
    caller: Principal,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if caller.session.is_some() {
        return Err(Problem::forbidden("a session is made with a token, not with another session")
            .hint("send `Authorization: Bearer <token>`"));
    }
    let (now, clock) = (state.cluster.now(), state.cluster.clock());
    let longest = now + clock.during(LONGEST_LIFE);
    let ends_at = caller.token.expires_at.map_or(longest, |end| end.min(longest));
    let session = BrowserSession {
        id: Uuid::now_v7(),
        user: caller.name().to_owned(),
        token: caller.token.id,
        created_at: now,
        used_at: now,
        expires_at: ends_at.min(now + clock.during(IDLE)),
        ends_at,
    };
    let secret = fresh_secret("hws_")?;
    if !state.cluster.store().create_session(&session, &TokenHash::of(&secret), state.deed()).await? {
        return Err(Problem::unauthorized("the token was revoked a moment ago"));
    }
    tracing::info!(session_id = %session.id, user = caller.name(), "logged in");
    let cookie: SetCookie = [(header::SET_COOKIE, state.cookies.set(&headers, &secret, clock.until(ends_at)))];
    Ok((StatusCode::CREATED, cookie, Json(conversions::browser_session(&session, None))).into_response())
}

/// The caller's sessions, or, for an admin, everybody's.
#[utoipa::path(get, path = "/auth/sessions", tag = "auth", params(TokensQuery), responses((status = 200, body = v1::BrowserSessionList)))]
pub async fn list_sessions(
    State(state): State<HttpState>,
    caller: Principal,
    Query(query): Query<TokensQuery>,
) -> Result<Json<v1::BrowserSessionList>, Problem> {
    let user = of_whom(&caller, query.user)?;
    let sessions = state.cluster.store().sessions(user.as_deref(), state.cluster.now()).await?;
    let current = caller.session.map(|session| session.id);
    let items = sessions.iter().map(|session| conversions::browser_session(session, current)).collect();
    Ok(Json(v1::BrowserSessionList { items }))
}

/// Log out everywhere: end all sessions of the caller, or, for an admin, of somebody else.
#[utoipa::path(delete, path = "/auth/sessions", tag = "auth", params(TokensQuery),
    responses((status = 204), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn end_sessions(
    State(state): State<HttpState>,
    caller: Principal,
    Query(query): Query<TokensQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let user = query.user.unwrap_or_else(|| caller.name().to_owned());
    if user != caller.name() {
        caller.may(Act::KeepTokensOfOthers)?;
    }
    end(&state, &caller, Sessions::OfUser(&user)).await?;
    let own = caller.session.filter(|_| user == caller.token.user.unwrap_or_default());
    Ok(ended(&state, &headers, own.is_some()))
}

/// Log out: end the session that the request comes by.
#[utoipa::path(delete, path = "/auth/sessions/current", tag = "auth",
    responses((status = 204), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn log_out(
    State(state): State<HttpState>,
    caller: Principal,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Some(session) = &caller.session else {
        return Err(Problem::not_found("you came with a token, not by a session"));
    };
    end(&state, &caller, Sessions::One(session.id)).await?;
    Ok(ended(&state, &headers, true))
}

/// End a session of one's own, or, of an admin, anybody's.
#[utoipa::path(delete, path = "/auth/sessions/{id}", tag = "auth", params(("id" = Uuid, Path)),
    responses((status = 204), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn end_session(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let user = state.cluster.store().session_user(id).await?;
    // Whose a session is that is not the caller's is nobody else's business.
    if user.as_deref() != Some(caller.name()) && caller.may(Act::KeepTokensOfOthers).is_err() {
        return Err(Problem::not_found(format!("you have no session {id}")));
    }
    if end(&state, &caller, Sessions::One(id)).await? == 0 {
        return Err(Problem::not_found(format!("no session {id}")));
    }
    Ok(ended(&state, &headers, caller.session.is_some_and(|own| own.id == id)))
}

async fn end(state: &HttpState, caller: &Principal, sessions: Sessions<'_>) -> Result<usize, Problem> {
    let count = state.cluster.store().end_sessions(sessions, state.cluster.now(), state.deed()).await?;
    state.tokens.clear();
    tracing::info!(count, by = caller.name(), "logged out");
    Ok(count)
}

/// Has the caller's browser forget a cookie that opens nothing any more.
fn ended(state: &HttpState, headers: &HeaderMap, own: bool) -> Response {
    if !own {
        return StatusCode::NO_CONTENT.into_response();
    }
    let cookie: SetCookie = [(header::SET_COOKIE, state.cookies.clear(headers))];
    (StatusCode::NO_CONTENT, cookie).into_response()
}
