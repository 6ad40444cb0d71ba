//! Logging in through the site's identity provider: with a browser, which is given a cookie, and from the command line, which is given a token. Whoever asks here is
//! a stranger: paced by address, with small bodies, and nothing is kept of a login under way but what the browser, or the command line, has itself. So a login that
//! was begun at one server ends at whichever leads by then.

mod admission;
mod browser;
mod page;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headway_api::v1;
use headway_types::Seconds;

pub use self::browser::{__path_oidc_callback, __path_oidc_login, oidc_callback, oidc_login};
use super::extract::Json;
use super::problem::Problem;
use super::standby::not_leading;
use super::tokens::fresh_secret;
use super::{HttpState, auth, conversions};
use crate::metrics;
use crate::oidc::{Answered, Claims, Provider, ProviderError, Spoken};
use crate::store::{NewToken, TokenHash};

pub use admission::settle;

/// After this long the provider is asked again where it was not reached.
const AGAIN: Duration = Duration::from_secs(15);
const SLOWER: Seconds = Seconds(10.0);
const USUAL_WAIT: Seconds = Seconds(5.0);
const LONGEST_LABEL: usize = 64;
/// Of what a provider makes: codes, and what goes with them.
const LONGEST_CODE: usize = 4_096;

/// Who asks without a token; `access` has paced the address.
#[derive(Clone, Copy, Debug)]
pub struct Stranger(pub Option<IpAddr>);

impl FromRequestParts<HttpState> for Stranger {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &HttpState) -> Result<Self, Problem> {
        parts.extensions.get::<Self>().copied().ok_or_else(|| {
            tracing::error!(path = %parts.uri.path(), "a route for strangers that nobody guards");
            Problem::internal()
        })
    }
}

/// A way to log in, as the metric calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
enum Way {
    Browser,
    Device,
    Code,
}

impl HttpState {
    /// The provider, where this server has one and leads.
    fn provider(&self) -> Result<&Arc<Provider>, Problem> {
        if let Some(standing) = self.cluster.stands_by() {
            return Err(not_leading(&standing).hint("log in at the server that leads"));
        }
        if !self.cluster.holds_the_lead() {
            return Err(Problem::unavailable("this server does not lead at the moment"));
        }
        self.oidc.as_ref().ok_or_else(|| {
            Problem::not_found("this server has no identity provider")
                .hint("log in with a token; `headway server --oidc FILE` names a provider")
        })
    }

    /// Whoever tries many wrong codes waits, as whoever tries wrong tokens.
    fn may_try(&self, Stranger(address): Stranger) -> Result<(), Problem> {
        self.wrong_tokens.wait(address, Instant::now()).map_or(Ok(()), |wait| Err(auth::throttled(wait)))
    }

    /// Asks the provider who it is; a code that it refuses counts as a wrong token.
    async fn vouched(&self, stranger: Stranger, answered: Answered<'_>) -> Result<Spoken, Problem> {
        self.may_try(stranger)?;
        let spoken = self.provider()?.exchange(answered).await;
        if let Err(ProviderError::Refused(_) | ProviderError::Token(_)) = &spoken {
            let (Answered::Code { code, .. } | Answered::Device { code }) = answered;
            self.count_wrong(stranger, code);
        }
        spoken.map_err(Problem::from)
    }

    fn count_wrong(&self, Stranger(address): Stranger, what: &str) {
        metrics::wrong_token("refused");
        if self.wrong_tokens.count(address, TokenHash::of(what).bytes(), Instant::now()) {
            self.refusals.note_guesses(address, self.cluster.now(), "log_in");
        }
    }
}

impl From<ProviderError> for Problem {
    fn from(error: ProviderError) -> Self {
        let detail = error.to_string();
        match error {
            ProviderError::Away(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "provider_away", detail).retry_after(AGAIN).hint(
                    "try again soon; whoever is logged in, and all tokens, go on working, and `headway token create` makes more",
                )
            }
            ProviderError::Busy => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail).retry_after(Duration::from_secs(2))
            }
            ProviderError::Answer(_) => {
                tracing::warn!(error = detail, "identity provider answers what it should not");
                Self::new(StatusCode::BAD_GATEWAY, "provider_answer", detail)
                    .hint("an admin finds out more with `headway admin config validate --oidc FILE`")
            }
            ProviderError::Refused(_) | ProviderError::Token(_) => {
                tracing::info!(error = detail, "login not believed");
                Self::new(StatusCode::FORBIDDEN, "login_failed", detail).hint("log in again from the beginning")
            }
            ProviderError::NoDevices => Self::new(StatusCode::CONFLICT, "no_device_flow", detail)
                .hint("`headway login --browser` logs in with a browser of this machine"),
        }
    }
}

/// Whether, and through whom, people log in. Needs no token.
#[utoipa::path(get, path = "/auth/oidc", tag = "auth", security(()), responses((status = 200, body = v1::LoginProvider)))]
pub async fn login_provider(State(state): State<HttpState>, _: Stranger) -> Json<v1::LoginProvider> {
    let Some(provider) = &state.oidc else { return Json(v1::LoginProvider::default()) };
    let settings = provider.settings();
    let known = provider.known().await;
    Json(v1::LoginProvider {
        enabled: true,
        issuer: Some(settings.issuer.clone()),
        client_id: Some(settings.client_id.clone()),
        scopes: settings.scopes.clone(),
        authorization_endpoint: known.as_ref().map(|known| known.authorization_endpoint.clone()),
        device: known.is_some_and(|known| known.device_authorization_endpoint.is_some()),
        reachable: provider.reachable(),
    })
}

/// Begin a login that somebody confirms in whatever browser (RFC 8628). Needs no token.
#[utoipa::path(post, path = "/auth/oidc/device", tag = "auth", security(()),
    responses((status = 200, body = v1::DeviceLogin), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn begin_device_login(
    State(state): State<HttpState>,
    stranger: Stranger,
) -> Result<Json<v1::DeviceLogin>, Problem> {
    state.may_try(stranger)?;
    Ok(Json(state.provider()?.begin_device().await?))
}

/// Ask whether a device login was confirmed; once it was, the reply has a token. Needs no token.
#[utoipa::path(post, path = "/auth/oidc/device/token", tag = "auth", security(()), request_body = v1::DeviceLoginRequest,
    responses((status = 200, body = v1::DeviceLoginReply), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn end_device_login(
    State(state): State<HttpState>,
    stranger: Stranger,
    Json(body): Json<v1::DeviceLoginRequest>,
) -> Result<Json<v1::DeviceLoginReply>, Problem> {
    let label = label(body.name.as_deref())?;
    let code = code(&body.device_code, "device_code")?;
    let reply = |made, wait: Option<Seconds>| Json(v1::DeviceLoginReply { made, wait_s: wait.map(|wait| wait.0) });
    let made = match state.vouched(stranger, Answered::Device { code }).await {
        Ok(Spoken::Pending { slow_down }) => {
            return Ok(reply(None, Some(if slow_down { SLOWER } else { USUAL_WAIT })));
        }
        Ok(Spoken::Of(claims)) => token(&state, stranger, &claims, "end_device_login", &label).await,
        Err(problem) => Err(problem),
    };
    Ok(reply(Some(told(Way::Device, made)?), None))
}

/// Hand in the code that a browser brought back to a program on its machine (RFC 8252), for a token. Needs no token.
#[utoipa::path(post, path = "/auth/oidc/token", tag = "auth", security(()), request_body = v1::CodeLoginRequest,
    responses((status = 201, body = v1::CreatedToken), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn end_code_login(
    State(state): State<HttpState>,
    stranger: Stranger,
    Json(body): Json<v1::CodeLoginRequest>,
) -> Result<Response, Problem> {
    let label = label(body.name.as_deref())?;
    for (value, field) in [(&body.code_verifier, "code_verifier"), (&body.nonce, "nonce")] {
        code(value, field)?;
    }
    if !is_loopback_callback(&body.redirect_uri) {
        return Err(Problem::invalid("redirect_uri is http://127.0.0.1:PORT/callback or http://[::1]:PORT/callback")
            .field("redirect_uri"));
    }
    let answered = Answered::Code {
        code: code(&body.code, "code")?,
        verifier: &body.code_verifier,
        redirect_uri: &body.redirect_uri,
        nonce: &body.nonce,
    };
    let made = match state.vouched(stranger, answered).await {
        Ok(Spoken::Of(claims)) => token(&state, stranger, &claims, "end_code_login", &label).await,
        Ok(Spoken::Pending { .. }) => Err(Problem::unauthorized("the login was not confirmed yet")),
        Err(problem) => Err(problem),
    };
    Ok((StatusCode::CREATED, NOT_KEPT, Json(told(Way::Code, made)?)).into_response())
}

const NOT_KEPT: [(HeaderName, HeaderValue); 1] = [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];

/// A token of limited life for whom the provider vouches for.
async fn token(
    state: &HttpState,
    stranger: Stranger,
    claims: &Claims,
    action: &'static str,
    label: &str,
) -> Result<v1::CreatedToken, Problem> {
    let provider = state.provider()?.clone();
    let admitted = admission::admit(state, &provider, claims, stranger, action).await?;
    let life = provider.settings().token_hours * 3_600.0;
    let secret = fresh_secret("hw_")?;
    let new = NewToken {
        name: label,
        user: Some(&admitted.user),
        scope: admitted.role,
        expires_at: Some(state.cluster.now() + Seconds(life)),
        identity: Some(admitted.identity),
        of_session: false,
    };
    let made = admitted.in_its_name(state.make_token(&new, &secret)).await?;
    tracing::info!(token_id = %made.id, user = admitted.user, "logged in from the command line");
    Ok(v1::CreatedToken { token: conversions::token(&made), secret })
}

impl HttpState {
    async fn make_token(&self, new: &NewToken<'_>, secret: &str) -> Result<crate::store::Token, Problem> {
        let hash = TokenHash::of(secret);
        Ok(self.cluster.store().create_token(new, &hash, self.cluster.now(), self.deed()).await?)
    }
}

/// Counts what came of it.
fn told<T>(way: Way, outcome: Result<T, Problem>) -> Result<T, Problem> {
    let word = match &outcome {
        Ok(_) => "done",
        Err(problem) if problem.status().is_client_error() => "refused",
        Err(_) => "failed",
    };
    metrics::oidc_login(way.into(), word);
    outcome
}

fn label(given: Option<&str>) -> Result<String, Problem> {
    let given = given.unwrap_or_default().trim();
    if given.chars().count() > LONGEST_LABEL || given.chars().any(char::is_control) {
        return Err(Problem::invalid(format!("a label has at most {LONGEST_LABEL} characters")).field("name"));
    }
    Ok(if given.is_empty() { "login".to_owned() } else { format!("login on {given}") })
}

fn code<'a>(given: &'a str, field: &str) -> Result<&'a str, Problem> {
    if given.is_empty() || given.len() > LONGEST_CODE || given.chars().any(char::is_control) {
        return Err(Problem::invalid(format!("{field} is none that a provider makes")).field(field));
    }
    Ok(given)
}

fn is_loopback_callback(uri: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(uri) else { return false };
    url.scheme() == "http"
        && matches!(url.host_str(), Some("127.0.0.1" | "[::1]"))
        && url.path() == "/callback"
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_handed_in_for_this_machine_alone() {
        for right in ["http://127.0.0.1:4711/callback", "http://[::1]:4711/callback"] {
            assert!(is_loopback_callback(right), "{right}");
        }
        for wrong in [
            "https://evil.example/callback",
            "http://127.0.0.1.evil.example/callback",
            "http://127.0.0.1@evil.example/callback",
            "http://localhost:1/callback",
            "http://127.0.0.1:1/other",
            "http://127.0.0.1:1/callback?x=1",
            "",
        ] {
            assert!(!is_loopback_callback(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_label_is_short_text() {
        assert_eq!(label(None).ok().as_deref(), Some("login"));
        assert_eq!(label(Some(" lab-7 ")).ok().as_deref(), Some("login on lab-7"));
        assert!(label(Some("a\nb")).is_err() && label(Some(&"x".repeat(65))).is_err());
    }
}
