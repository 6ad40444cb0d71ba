//! The login of a browser: away to the provider with a cookie that holds the login's secret, and back with a code, for a session.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use headway_api::login::{Attempt, Beginning};
use headway_api::v1;
use headway_types::Seconds;
use serde::Deserialize;
use uuid::Uuid;

use super::super::auth::IDLE;
use super::super::extract::Query;
use super::super::problem::Problem;
use super::super::tokens::fresh_secret;
use super::super::{HttpState, auth};
use super::{NOT_KEPT, Stranger, Way, admission, code, page, told};
use crate::oidc::{Answered, Spoken};
use crate::store::{BrowserSession, NewToken, TokenHash};

/// From the page to the provider and back.
pub const LOGIN_TIME: Duration = Duration::from_secs(600);
const LONGEST_PATH: usize = 512;

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LoginQuery {
    /// Where to go afterwards: a path of this server.
    #[serde(rename = "return")]
    #[param(rename = "return")]
    pub to: Option<String>,
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct CallbackQuery {
    pub code: Option<String>,
    pub state: Option<String>,
    pub iss: Option<String>,
    /// Why the provider lets nobody in.
    pub error: Option<String>,
    pub error_description: Option<String>,
}

/// Begin a login with a browser: sends it to the identity provider. Needs no token.
#[utoipa::path(get, path = "/auth/oidc/login", tag = "auth", security(()), params(LoginQuery),
    responses((status = 303, description = "To the identity provider"), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn oidc_login(
    State(state): State<HttpState>,
    _: Stranger,
    headers: HeaderMap,
    Query(query): Query<LoginQuery>,
) -> Response {
    match begin(&state, &headers, query.to.as_deref()).await {
        Ok(response) => response,
        Err(problem) => page::shown(problem, &headers),
    }
}

/// End a login with a browser: the identity provider sends it here. A session is made, and the browser sent back to where it came from. Needs no token.
#[utoipa::path(get, path = "/auth/oidc/callback", tag = "auth", security(()), params(CallbackQuery),
    responses((status = 303, description = "Logged in, back to the page", headers(("Set-Cookie" = String))),
        (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn oidc_callback(
    State(state): State<HttpState>,
    stranger: Stranger,
    headers: HeaderMap,
    Query(query): Query<CallbackQuery>,
) -> Response {
    let mut response = match told(Way::Browser, end(&state, stranger, &headers, query).await) {
        Ok(response) => response,
        Err(problem) => page::shown(problem, &headers),
    };
    // It has served, whatever came of it.
    response.headers_mut().append(header::SET_COOKIE, state.cookies.clear_login(&headers));
    response
}

async fn begin(state: &HttpState, headers: &HeaderMap, to: Option<&str>) -> Result<Response, Problem> {
    let provider = state.provider()?;
    let metadata = provider.metadata().await?;
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| {
        tracing::error!(%error, "operating system gave no random bytes");
        Problem::internal()
    })?;
    let under_way = UnderWay { attempt: Attempt::new(secret), begun: seconds(), to: own_path(to) };
    let settings = provider.settings();
    let beginning = Beginning {
        endpoint: &metadata.authorization_endpoint,
        client_id: &settings.client_id,
        scopes: &settings.scopes,
        redirect_uri: provider.callback(),
    };
    let url = under_way.attempt.url(&beginning).map_err(|error| {
        tracing::error!(error, "identity provider's endpoint is no URL");
        Problem::internal()
    })?;
    let mut response = away(url.as_str())?;
    let cookie = state.cookies.set_login(headers, &under_way.written(), LOGIN_TIME);
    response.headers_mut().append(header::SET_COOKIE, cookie);
    Ok(response)
}

async fn end(
    state: &HttpState,
    stranger: Stranger,
    headers: &HeaderMap,
    query: CallbackQuery,
) -> Result<Response, Problem> {
    let provider = state.provider()?.clone();
    state.may_try(stranger)?;
    let again = |detail: &str| {
        Problem::new(StatusCode::FORBIDDEN, "login_failed", detail)
            .hint(format!("begin again at {}, in one tab and within ten minutes", provider.url()))
    };
    let under_way = state.cookies.login(headers).and_then(UnderWay::read).filter(UnderWay::is_fresh);
    let under_way =
        under_way.ok_or_else(|| again("this browser has begun no login here, or one that took too long"))?;
    if query.state.as_deref() != Some(&under_way.attempt.state()) {
        state.count_wrong(stranger, query.state.as_deref().unwrap_or_default());
        return Err(again("this answers another login than the one that this browser has begun last"));
    }
    if !provider.is_of(query.iss.as_deref()).await? {
        return Err(again("this is the answer of another identity provider"));
    }
    if let Some(error) = &query.error {
        let more = query.error_description.as_deref().unwrap_or_default();
        let told: String = format!("{error} {more}").chars().filter(|c| !c.is_control()).take(200).collect();
        return Err(again(&format!("the identity provider refuses: {}", told.trim())));
    }
    let (verifier, nonce) = (under_way.attempt.verifier(), under_way.attempt.nonce());
    let answered = Answered::Code {
        code: code(query.code.as_deref().unwrap_or_default(), "code")?,
        verifier: &verifier,
        redirect_uri: provider.callback(),
        nonce: &nonce,
    };
    let Spoken::Of(claims) = state.vouched(stranger, answered).await? else {
        return Err(again("the identity provider has not confirmed it yet"));
    };
    let admitted = admission::admit(state, &provider, &claims, stranger, "oidc_callback").await?;
    let cookie = admitted.in_its_name(session(state, headers, &admitted, provider.settings().session_hours)).await?;
    let mut response = away(&under_way.to)?;
    response.headers_mut().append(header::SET_COOKIE, cookie);
    Ok(response)
}

/// A session of its own token, whose secret nobody has.
async fn session(
    state: &HttpState,
    headers: &HeaderMap,
    admitted: &admission::Admitted,
    hours: f64,
) -> Result<HeaderValue, Problem> {
    let (now, clock) = (state.cluster.now(), state.cluster.clock());
    let life = Seconds(hours * 3_600.0);
    let ends_at = now + life;
    let new = NewToken {
        name: "browser login",
        user: Some(&admitted.user),
        scope: admitted.role,
        expires_at: Some(ends_at),
        identity: Some(admitted.identity),
        of_session: true,
    };
    let token = state.make_token(&new, &fresh_secret("hw_")?).await?;
    let session = BrowserSession {
        id: Uuid::now_v7(),
        user: admitted.user.clone(),
        token: token.id,
        created_at: now,
        used_at: now,
        expires_at: ends_at.min(now + clock.during(IDLE)),
        ends_at,
    };
    let secret = fresh_secret("hws_")?;
    if !state.cluster.store().create_session(&session, &TokenHash::of(&secret), state.deed()).await? {
        return Err(auth::over());
    }
    tracing::info!(session_id = %session.id, user = admitted.user, "logged in by the identity provider");
    Ok(state.cookies.set(headers, &secret, Duration::from_secs_f64(life.0)))
}

/// A login that a browser has begun: all there is of it is in the browser's cookie.
#[derive(Debug, PartialEq)]
struct UnderWay {
    attempt: Attempt,
    /// Seconds since 1970.
    begun: u64,
    to: String,
}

impl UnderWay {
    fn written(&self) -> String {
        format!("{}.{}.{}", self.attempt.written(), self.begun, URL_SAFE_NO_PAD.encode(&self.to))
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let (attempt, begun, to) = (parts.next()?, parts.next()?, parts.next()?);
        let to = String::from_utf8(URL_SAFE_NO_PAD.decode(to).ok()?).ok()?;
        // Whoever plants a cookie sends nobody elsewhere.
        Some(Self { attempt: Attempt::read(attempt)?, begun: begun.parse().ok()?, to: own_path(Some(&to)) })
    }

    fn is_fresh(&self) -> bool {
        seconds().abs_diff(self.begun) <= LOGIN_TIME.as_secs()
    }
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A path of a page of this server, whatever is asked for: nobody is sent elsewhere.
fn own_path(to: Option<&str>) -> String {
    let is_own = |to: &&str| {
        to.len() <= LONGEST_PATH
            && to.starts_with('/')
            && !to.starts_with("//")
            && to.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
            && !to.starts_with("/api/")
    };
    to.filter(is_own).unwrap_or("/").to_owned()
}

fn away(to: &str) -> Result<Response, Problem> {
    let location = HeaderValue::from_str(to).map_err(|_| Problem::internal())?;
    Ok((StatusCode::SEE_OTHER, NOT_KEPT, [(header::LOCATION, location)]).into_response())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn nobody_is_sent_to_another_server() {
        for own in ["/", "/docs.html", "/?job=7#jobs"] {
            assert_eq!(own_path(Some(own)), own);
        }
        for other in [
            "https://evil.example",
            "//evil.example",
            "/\\evil.example",
            "\\/evil.example",
            "/a\\b",
            "javascript:alert(1)",
            "evil",
            "",
            "/a\r\nSet-Cookie: x=1",
            "/\t/evil.example",
            "/ü",
            "/api/v1/auth/oidc/login",
            &format!("/{}", "x".repeat(LONGEST_PATH)),
        ] {
            assert_eq!(own_path(Some(other)), "/", "{other:?}");
        }
        assert_eq!(own_path(None), "/");
    }

    #[test]
    fn a_login_under_way_is_read_from_its_cookie_while_it_is_fresh() {
        let begun = UnderWay { attempt: Attempt::new([3; 32]), begun: seconds(), to: "/docs.html".into() };
        let read = UnderWay::read(&begun.written()).unwrap();
        assert!(read == begun && read.is_fresh());
        assert!(!UnderWay { begun: seconds() - 601, ..read }.is_fresh());
        let planted =
            format!("{}.{}.{}", begun.attempt.written(), begun.begun, URL_SAFE_NO_PAD.encode("//evil.example"));
        assert_eq!(UnderWay::read(&planted).unwrap().to, "/");
        for wrong in ["", "a.b.c", &begun.written()[..50]] {
            assert_eq!(UnderWay::read(wrong), None, "{wrong}");
        }
    }
}
