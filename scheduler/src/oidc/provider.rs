//! Asking the identity provider: what it says of itself, its keys, and what it makes of codes. Every question has an end, every answer a bound, no redirect is
//! followed, and so many are under way at once; what it said of itself is kept, so that only logins need it.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headway_api::v1;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

use super::OidcSettings;
use super::settings::{is_loopback, may_be_asked};
use super::verify::{Claims, Expected, Keys, TokenError, verify};
use crate::metrics;

const CONNECT_TIME: Duration = Duration::from_secs(4);
const TIME: Duration = Duration::from_secs(8);
/// Of an answer, in bytes.
const ANSWER_AT_MOST: usize = 256 * 1024;
/// Questions under way; further logins are told to come again.
const AT_ONCE: usize = 16;
/// What it says of itself is read again after this long.
const KEEP: Duration = Duration::from_secs(300);
/// And looked after this often, so that its being away is known.
const LOOK: Duration = Duration::from_secs(60);
/// After it did not answer.
const RETRY: Duration = Duration::from_secs(15);
/// An id token with a key that is not known has the keys read again, no more often than this.
const KEYS_AGAIN: Duration = Duration::from_secs(10);

/// The provider, as far as this server knows it.
pub struct Provider {
    settings: OidcSettings,
    /// Where the provider sends browsers back to.
    callback: String,
    /// The same without the path.
    url: String,
    client: Client,
    known: Mutex<Known>,
    /// For whoever does not wait while it is asked.
    latest: RwLock<Option<Arc<Metadata>>>,
    under_way: Semaphore,
    reachable: AtomicU8,
}

#[derive(Default)]
struct Known {
    metadata: Option<Arc<Metadata>>,
    keys: Arc<Keys>,
    read_at: Option<Instant>,
    keys_read_at: Option<Instant>,
    failed: Option<(Instant, ProviderError)>,
}

/// What the provider says of itself (OpenID Connect Discovery 1.0).
#[derive(Clone, Debug, Deserialize)]
pub struct Metadata {
    pub issuer: String,
    pub authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    userinfo_endpoint: Option<String>,
    pub device_authorization_endpoint: Option<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    /// RFC 9207: its answers name the issuer.
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// Why a login does not go on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProviderError {
    #[error("the identity provider cannot be reached: {0}")]
    Away(String),
    #[error("too many logins are under way")]
    Busy,
    /// It answers, and not as it should.
    #[error("the identity provider's answer is of no use: {0}")]
    Answer(String),
    /// It says no: the code is wrong, used or too old, or the person declined.
    #[error("the identity provider refuses: {0}")]
    Refused(String),
    #[error("{0}")]
    Token(String),
    #[error("the identity provider has no device flow")]
    NoDevices,
}

/// Whom the provider vouches for.
#[derive(Clone, Debug)]
pub enum Spoken {
    Of(Claims),
    /// Nobody has confirmed the login yet; whether it is asked too often.
    Pending {
        slow_down: bool,
    },
}

/// Who answers, and who was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered<'a> {
    Code { code: &'a str, verifier: &'a str, redirect_uri: &'a str, nonce: &'a str },
    Device { code: &'a str },
}

#[derive(Deserialize)]
struct TokenReply {
    id_token: Option<String>,
    access_token: Option<String>,
}

#[derive(Deserialize)]
struct ErrorReply {
    error: String,
    #[serde(default)]
    error_description: String,
}

#[derive(Deserialize)]
struct DeviceReply {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: f64,
    #[serde(default = "usual_interval")]
    interval: f64,
}

fn usual_interval() -> f64 {
    5.0
}

impl Provider {
    /// `url`: where this server is reached, unless the settings say another.
    pub fn new(settings: OidcSettings, url: &str) -> Result<Self, reqwest::Error> {
        let mut builder = Client::builder()
            .user_agent(concat!("headway/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIME)
            .timeout(TIME)
            .redirect(Policy::none());
        if Url::parse(&settings.issuer).is_ok_and(|issuer| is_loopback(&issuer)) {
            builder = builder.no_proxy();
        }
        if let Some(authorities) = &settings.authorities {
            builder = builder.tls_certs_only(reqwest::Certificate::from_pem_bundle(authorities)?);
        }
        let url = settings.url.clone().unwrap_or_else(|| url.trim_end_matches('/').to_owned());
        Ok(Self {
            callback: format!("{url}/api/v1/auth/oidc/callback"),
            url,
            settings,
            client: builder.build()?,
            known: Mutex::default(),
            latest: RwLock::default(),
            under_way: Semaphore::new(AT_ONCE),
            reachable: AtomicU8::new(UNKNOWN),
        })
    }

    pub fn settings(&self) -> &OidcSettings {
        &self.settings
    }

    pub fn callback(&self) -> &str {
        &self.callback
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether it answered when it was last asked.
    pub fn reachable(&self) -> Option<bool> {
        match self.reachable.load(Ordering::Relaxed) {
            UNKNOWN => None,
            value => Some(value == UP),
        }
    }

    /// What it said of itself last; it is asked only where that has not been tried yet.
    pub async fn known(&self) -> Option<Arc<Metadata>> {
        if self.reachable().is_none() {
            return self.metadata().await.ok();
        }
        self.latest.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps what it says of itself fresh until shutdown, so that its being away is seen before somebody wants to log in.
    pub async fn keep(&self, stop: CancellationToken) {
        loop {
            let wait = match self.refresh().await {
                Ok(_) => LOOK,
                Err(error) => {
                    tracing::debug!(issuer = self.settings.issuer, %error, "identity provider does not answer");
                    RETRY
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// What it says of itself, read again if it was long ago. While it does not answer, what it said before counts.
    pub async fn metadata(&self) -> Result<Arc<Metadata>, ProviderError> {
        let mut known = self.known.lock().await;
        if let (Some(metadata), Some(at)) = (&known.metadata, known.read_at)
            && at.elapsed() < KEEP
        {
            return Ok(metadata.clone());
        }
        if let Some((at, error)) = &known.failed
            && at.elapsed() < RETRY
        {
            return known.metadata.clone().ok_or_else(|| error.clone());
        }
        match self.read(&mut known).await {
            Ok(metadata) => Ok(metadata),
            Err(error) => known.metadata.clone().ok_or(error),
        }
    }

    /// Reads it all again.
    pub async fn refresh(&self) -> Result<Arc<Metadata>, ProviderError> {
        self.read(&mut *self.known.lock().await).await
    }

    async fn read(&self, known: &mut Known) -> Result<Arc<Metadata>, ProviderError> {
        let read = async {
            let metadata = Arc::new(self.discover().await?);
            Ok((self.read_keys(&metadata).await?, metadata))
        };
        let read: Result<_, ProviderError> = read.await;
        if let Err(ProviderError::Busy) = &read {
            // That is us.
            return Err(ProviderError::Busy);
        }
        self.note(&read);
        match read {
            Ok((keys, metadata)) => {
                *self.latest.write().unwrap_or_else(PoisonError::into_inner) = Some(metadata.clone());
                let now = Some(Instant::now());
                *known = Known {
                    metadata: Some(metadata.clone()),
                    keys: Arc::new(keys),
                    read_at: now,
                    keys_read_at: now,
                    failed: None,
                };
                Ok(metadata)
            }
            Err(error) => {
                known.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Whether it answers, for whoever looks.
    fn note<T>(&self, read: &Result<T, ProviderError>) {
        let was = self.reachable.swap(if read.is_ok() { UP } else { DOWN }, Ordering::Relaxed);
        metrics::oidc_reachable(read.is_ok());
        match read {
            Ok(_) if was == DOWN => tracing::info!(issuer = self.settings.issuer, "identity provider answers again"),
            Err(error) if was != DOWN => tracing::warn!(
                issuer = self.settings.issuer,
                %error,
                "identity provider does not answer: nobody can log in through it; whoever is logged in is not concerned"
            ),
            _ => {}
        }
    }

    async fn discover(&self) -> Result<Metadata, ProviderError> {
        let url = format!("{}/.well-known/openid-configuration", self.settings.issuer.trim_end_matches('/'));
        let said: Metadata = self.ask(DISCOVERY, self.client.get(url)).await?;
        if said.issuer != self.settings.issuer {
            let detail = format!("it calls itself {} and not {}", said.issuer, self.settings.issuer);
            return Err(ProviderError::Answer(detail));
        }
        let plain = self.is_on_this_machine();
        let endpoints = [Some(&said.authorization_endpoint), Some(&said.token_endpoint), Some(&said.jwks_uri)];
        let others = [said.userinfo_endpoint.as_ref(), said.device_authorization_endpoint.as_ref()];
        for endpoint in endpoints.into_iter().chain(others).flatten() {
            may_be_asked(endpoint, plain).map_err(ProviderError::Answer)?;
        }
        Ok(said)
    }

    fn is_on_this_machine(&self) -> bool {
        Url::parse(&self.settings.issuer).is_ok_and(|issuer| is_loopback(&issuer))
    }

    async fn read_keys(&self, of: &Metadata) -> Result<Keys, ProviderError> {
        let document: Value = self.ask(KEYS, self.client.get(&of.jwks_uri)).await?;
        Keys::read(&document).ok_or_else(|| ProviderError::Answer("its keys cannot be read".into()))
    }

    /// Begins a login on a machine without a browser (RFC 8628).
    pub async fn begin_device(&self) -> Result<v1::DeviceLogin, ProviderError> {
        let metadata = self.metadata().await?;
        let endpoint = metadata.device_authorization_endpoint.as_ref().ok_or(ProviderError::NoDevices)?;
        let scope = self.settings.scopes.join(" ");
        let request = self.post(&metadata, endpoint, &[("scope", &scope)]);
        let reply: DeviceReply = self.ask("device", request).await?;
        for uri in [Some(&reply.verification_uri), reply.verification_uri_complete.as_ref()].into_iter().flatten() {
            // A person is sent there.
            may_be_asked(uri, self.is_on_this_machine()).map_err(ProviderError::Answer)?;
        }
        Ok(v1::DeviceLogin {
            device_code: reply.device_code,
            user_code: reply.user_code,
            verification_uri: reply.verification_uri,
            verification_uri_complete: reply.verification_uri_complete,
            expires_in_s: reply.expires_in,
            interval_s: reply.interval.clamp(1.0, 60.0),
        })
    }

    /// Whom it vouches for, by what came back from it.
    pub async fn exchange(&self, answered: Answered<'_>) -> Result<Spoken, ProviderError> {
        let metadata = self.metadata().await?;
        let form: Vec<(&str, &str)> = match answered {
            Answered::Code { code, verifier, redirect_uri, .. } => vec![
                ("grant_type", "authorization_code"),
                ("code", code),
                ("redirect_uri", redirect_uri),
                ("code_verifier", verifier),
            ],
            Answered::Device { code } => {
                vec![("grant_type", "urn:ietf:params:oauth:grant-type:device_code"), ("device_code", code)]
            }
        };
        let request = self.post(&metadata, &metadata.token_endpoint, &form);
        let reply: TokenReply = match self.ask("token", request).await {
            Err(ProviderError::Refused(code)) if code.starts_with("authorization_pending") => {
                return Ok(Spoken::Pending { slow_down: false });
            }
            Err(ProviderError::Refused(code)) if code.starts_with("slow_down") => {
                return Ok(Spoken::Pending { slow_down: true });
            }
            reply => reply?,
        };
        let token = reply.id_token.ok_or_else(|| ProviderError::Answer("it sent no id token".into()))?;
        let nonce = match answered {
            Answered::Code { nonce, .. } => Some(nonce),
            Answered::Device { .. } => None,
        };
        let claims = self.believe(&token, nonce).await?;
        self.complete(&metadata, claims, reply.access_token.as_deref()).await.map(Spoken::Of)
    }

    /// Whether an answer in a browser is of this issuer (RFC 9207).
    pub async fn is_of(&self, issuer: Option<&str>) -> Result<bool, ProviderError> {
        let metadata = self.metadata().await?;
        Ok(match issuer {
            Some(issuer) => issuer == metadata.issuer,
            None => !metadata.authorization_response_iss_parameter_supported,
        })
    }

    async fn believe(&self, token: &str, nonce: Option<&str>) -> Result<Claims, ProviderError> {
        let expected = Expected { issuer: &self.settings.issuer, client_id: &self.settings.client_id, nonce };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let keys = self.known.lock().await.keys.clone();
        let told = |error: TokenError| ProviderError::Token(error.to_string());
        match verify(token, &keys, expected, now) {
            Err(TokenError::UnknownKey) => verify(token, &*self.newer_keys().await?, expected, now).map_err(told),
            verified => verified.map_err(told),
        }
    }

    /// It may have new ones; whoever sends nonsense has them read no more often than this.
    async fn newer_keys(&self) -> Result<Arc<Keys>, ProviderError> {
        let mut known = self.known.lock().await;
        let metadata = known.metadata.clone().ok_or(ProviderError::Busy)?;
        if known.keys_read_at.is_none_or(|at| at.elapsed() >= KEYS_AGAIN) {
            known.keys_read_at = Some(Instant::now());
            known.keys = Arc::new(self.read_keys(&metadata).await?);
        }
        Ok(known.keys.clone())
    }

    /// Some providers say the name and the groups only where they are asked for them.
    async fn complete(
        &self,
        metadata: &Metadata,
        claims: Claims,
        access_token: Option<&str>,
    ) -> Result<Claims, ProviderError> {
        let OidcSettings { groups_claim, user_claim, .. } = &self.settings;
        let whole = claims.text(user_claim).is_some() && claims.groups(groups_claim).is_some();
        let (false, Some(endpoint), Some(token)) = (whole, &metadata.userinfo_endpoint, access_token) else {
            return Ok(claims);
        };
        let said: serde_json::Map<String, Value> =
            self.ask("userinfo", self.client.get(endpoint).bearer_auth(token)).await?;
        if said.get("sub").and_then(Value::as_str) != Some(&claims.subject) {
            return Err(ProviderError::Token("what it says of the person is of another".into()));
        }
        // What was signed goes before what was only said.
        let all = said.into_iter().chain(claims.all).collect();
        Ok(Claims { subject: claims.subject, all })
    }

    /// A form, with what shows that this client sends it.
    fn post(&self, metadata: &Metadata, endpoint: &str, form: &[(&str, &str)]) -> RequestBuilder {
        let mut form = form.to_vec();
        let mut request = self.client.post(endpoint).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let client = self.settings.client_id.as_str();
        let methods = metadata.token_endpoint_auth_methods_supported.as_deref();
        match &self.settings.client_secret {
            None => form.push(("client_id", client)),
            Some(secret) => {
                let basic = methods.is_none_or(|all| all.iter().any(|one| one == "client_secret_basic"));
                if basic {
                    request = request.basic_auth(escaped(client), Some(escaped(secret.expose())));
                } else {
                    form.extend([("client_id", client), ("client_secret", secret.expose())]);
                }
                // RFC 8628 wants it named there in any case.
                if basic && metadata.device_authorization_endpoint.as_deref() == Some(endpoint) {
                    form.push(("client_id", client));
                }
            }
        }
        request.body(encoded(&form))
    }

    async fn ask<T: DeserializeOwned>(&self, what: &'static str, request: RequestBuilder) -> Result<T, ProviderError> {
        let _place = self.under_way.try_acquire().map_err(|_| ProviderError::Busy)?;
        // What it says of itself, and its keys, are judged together (`read`).
        let alone = what != DISCOVERY && what != KEYS;
        let asked = async {
            let response = request.header(ACCEPT, "application/json").send().await.map_err(away);
            if alone && response.is_err() {
                self.note(&response);
            }
            let response = response?;
            let (status, body) = (response.status(), bounded(response).await?);
            if status.is_success() {
                return serde_json::from_slice(&body)
                    .map_err(|error| ProviderError::Answer(format!("{what}: {error}")));
            }
            match serde_json::from_slice::<ErrorReply>(&body) {
                Ok(reply) if status.is_client_error() && alone => {
                    let ErrorReply { error, error_description } = reply;
                    let told: String =
                        format!("{error} {error_description}").chars().filter(|c| !c.is_control()).take(200).collect();
                    let told = told.trim().to_owned();
                    // Who it does not know is this server, whoever logs in.
                    let ours = matches!(&*error, "invalid_client" | "unauthorized_client");
                    Err(if ours { ProviderError::Answer(told) } else { ProviderError::Refused(told) })
                }
                _ if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                    Err(ProviderError::Away(format!("{what} is answered with status {}", status.as_u16())))
                }
                _ => Err(ProviderError::Answer(format!("{what} is answered with status {}", status.as_u16()))),
            }
        };
        let answered = asked.await;
        if alone && answered.is_ok() {
            self.note(&answered);
        }
        metrics::oidc_asked(
            what,
            match &answered {
                Ok(_) => "ok",
                Err(ProviderError::Refused(_)) => "refused",
                Err(_) => "failed",
            },
        );
        answered
    }
}

const DISCOVERY: &str = "discovery";
const KEYS: &str = "keys";
const UNKNOWN: u8 = 0;
const DOWN: u8 = 1;
const UP: u8 = 2;

fn away(error: reqwest::Error) -> ProviderError {
    let mut told = error.without_url().to_string();
    if told.len() > 300 {
        told = told.chars().take(300).collect();
    }
    ProviderError::Away(told)
}

async fn bounded(mut response: Response) -> Result<Vec<u8>, ProviderError> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(away)? {
        body.extend_from_slice(&piece);
        if body.len() > ANSWER_AT_MOST {
            return Err(ProviderError::Answer(format!("it is longer than {ANSWER_AT_MOST} bytes")));
        }
    }
    Ok(body)
}

/// `application/x-www-form-urlencoded`.
fn encoded(form: &[(&str, &str)]) -> String {
    let mut url = Url::parse("form:").expect("a scheme alone is a URL");
    url.query_pairs_mut().extend_pairs(form);
    url.query().unwrap_or_default().to_owned()
}

/// RFC 6749, 2.3.1: the parts of basic authentication are encoded as in a form.
fn escaped(text: &str) -> String {
    encoded(&[(text, "")]).trim_end_matches('=').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_and_client_credentials_are_encoded() {
        assert_eq!(encoded(&[("a", "x y&z"), ("b", "ü")]), "a=x+y%26z&b=%C3%BC");
        assert_eq!(escaped("se:cret=/1"), "se%3Acret%3D%2F1");
    }
}
