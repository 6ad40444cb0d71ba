//! A typed client of REST v1, for the command line, tests and scripts in Rust.
//!
//! It never repeats what may have been done twice: whether a request may be is the caller's to know (give `submit` an idempotency key). Where it
//! knows several servers of a cluster, it goes on to whoever leads with what a server has not begun, and with what may be repeated. Told that it asks
//! too fast, it waits as it is told. It
//! refuses to carry a token over plain HTTP beyond loopback.

mod arrays;
mod cluster;
mod enrolment;
mod exec;
mod jobs;
mod patience;
mod projects;
mod secrets;
mod servers;
mod stream;
mod tokens;

use core::net::IpAddr;
use core::time::Duration;
use std::sync::Arc;

use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Method, RequestBuilder, Response, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use self::patience::Patience;
use self::servers::Servers;
use crate::v1::{Foreseen, Problem};

pub use arrays::ArrayQuery;
pub use cluster::{EventQuery, PlanQuery, QueueFilter};
pub use jobs::{JobFilter, LogLines, LogPage, LogRequest};
pub use stream::StreamItem;
pub use tokens::{AuditQuery, VerifyQuery};

const DRY_RUN: &str = "dry_run";
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Where there is another server to ask.
const SHORT_CONNECT_TIME: Duration = Duration::from_secs(2);
/// Above the scheduler's own limit, so that its account of what took so long arrives.
const REQUEST_TIME: Duration = Duration::from_secs(40);

/// A connection to one cluster in the name of one token. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    servers: Arc<Servers>,
    token: String,
    dry_run: Option<Hear>,
    on_standby: Option<HearAge>,
}

/// Hears what the planner foresees of each request of a dry run, before its reply is given; `None`: there is nothing to foresee.
pub type Hear = fn(Option<&Foreseen>);

/// Hears that a reply came from a standby, and how old the rows are that it shows.
pub type HearAge = fn(Duration);

/// Why a request brought no answer of use.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL or the certificate authority cannot be used at all.
    #[error("cannot speak to {url}: {message}")]
    Setup { url: String, message: String },
    /// No reply: nobody listens, the connection broke, or it took too long. Whether the request was done is unknown.
    #[error("no reply from {url}")]
    Unreachable {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    /// The scheduler says what is wrong.
    #[error("{}: {}", .0.title, .0.detail)]
    Problem(Box<Problem>),
    /// A reply that is not of this interface, as from a proxy or another service.
    #[error("{url} does not reply as a scheduler: {message}")]
    BadReply { url: String, message: String },
}

impl Client {
    /// A client of the scheduler at `base_url` ("http://127.0.0.1:7600", "https://headway.example"), trusting the
    /// system's certificate authorities. Several servers of one cluster are separated by commas.
    pub fn new(base_url: &str, token: &str) -> Result<Self, ClientError> {
        Self::build(base_url, token, None)
    }

    /// A client that trusts only the authorities in this PEM text.
    pub fn with_authority(base_url: &str, token: &str, pem: &[u8]) -> Result<Self, ClientError> {
        Self::build(base_url, token, Some(pem))
    }

    /// One that asks what would come of whatever it is told to change, and changes nothing. What has no dry run is refused.
    #[must_use]
    pub fn dry_run(self, hear: Hear) -> Self {
        Self { dry_run: Some(hear), ..self }
    }

    /// One that reports replies which a standby gave because no server led.
    #[must_use]
    pub fn on_standby(self, hear: HearAge) -> Self {
        Self { on_standby: Some(hear), ..self }
    }

    /// Whether it was told to change nothing.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.dry_run.is_some()
    }

    fn build(base_url: &str, token: &str, authority: Option<&[u8]>) -> Result<Self, ClientError> {
        let setup = |message: String| ClientError::Setup { url: base_url.to_owned(), message };
        let mut roots = Vec::new();
        for url in base_url.split(',').map(str::trim) {
            roots.push(Url::parse(url).map_err(|error| setup(error.to_string()))?);
        }
        for root in &roots {
            match root.scheme() {
                "https" => {}
                "http" if is_loopback(root) => {}
                "http" => return Err(setup("beyond loopback only https keeps the token secret".into())),
                other => return Err(setup(format!("{other} is neither http nor https"))),
            }
        }
        let loopback = roots.iter().all(is_loopback);
        let encrypted = roots.iter().any(|root| root.scheme() == "https");
        let connect_time = if roots.len() > 1 { SHORT_CONNECT_TIME } else { CONNECT_TIME };
        // An error means that the process has chosen a provider already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .connect_timeout(connect_time)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("headway/", env!("CARGO_PKG_VERSION")));
        if loopback {
            builder = builder.no_proxy();
        }
        if let Some(pem) = authority {
            let certificates =
                reqwest::Certificate::from_pem_bundle(pem).map_err(|error| setup(format!("authority: {error}")))?;
            builder = builder.tls_certs_only(certificates);
        } else if !encrypted {
            // Without encryption there is no need for the system's authorities, which small images lack.
            builder = builder.tls_certs_only([]);
        }
        let http = builder.build().map_err(|error| setup(error.to_string()))?;
        Ok(Self {
            http,
            servers: Arc::new(Servers::new(roots)),
            token: token.to_owned(),
            dry_run: None,
            on_standby: None,
        })
    }

    /// Where it is, without what may open it.
    #[must_use]
    pub fn address(&self) -> String {
        let root = self.servers.current();
        let host = root.host_str().unwrap_or_default();
        match root.port_or_known_default() {
            Some(port) => format!("{}://{host}:{port}", root.scheme()),
            None => format!("{}://{host}", root.scheme()),
        }
    }

    /// A path below the root; every segment is escaped.
    fn url(&self, segments: &[&str]) -> Url {
        let mut url = self.servers.current().clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    /// A request below `/api/v1`.
    fn request(&self, method: Method, segments: &[&str]) -> RequestBuilder {
        let path: Vec<&str> = ["api", "v1"].iter().chain(segments).copied().collect();
        // Questions change nothing as they are.
        let asks = method == Method::GET || matches!(segments, ["jobs", "validate"] | ["plans", "simulate"]);
        let request = self.http.request(method, self.url(&path)).bearer_auth(&self.token);
        if self.dry_run.is_some() && !asks { request.query(&[(DRY_RUN, true)]) } else { request }
    }

    async fn get<T: DeserializeOwned>(&self, segments: &[&str]) -> Result<T, ClientError> {
        self.read(self.request(Method::GET, segments)).await
    }

    async fn post<T: DeserializeOwned>(&self, segments: &[&str], body: &impl Serialize) -> Result<T, ClientError> {
        self.read(self.request(Method::POST, segments).json(body)).await
    }

    async fn read<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        let response = self.send(request.timeout(REQUEST_TIME)).await?;
        let url = response.url().to_string();
        let bytes = response.bytes().await.map_err(|source| ClientError::Unreachable { url: url.clone(), source })?;
        if let (Some(hear), true) = (self.dry_run, is_dry_run(&url)) {
            let reply = serde_json::from_slice::<DryReply>(&bytes).unwrap_or_default();
            hear(reply.foreseen.as_ref());
        }
        serde_json::from_slice(&bytes).map_err(|error| ClientError::BadReply { url, message: error.to_string() })
    }

    /// Sends, and turns every status that is no success into an error.
    async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let (http, request) = request.build_split();
        let mut request = request.map_err(|source| unreachable(self.servers.current(), source))?;
        if self.servers.are_several() {
            let response = self.ask_whoever_leads(&http, request).await?;
            self.note_success(&response);
            return Ok(response);
        }
        let patience = Patience::new(servers::may_wait(&request));
        loop {
            let again = request.try_clone();
            let sent = http.execute(request).await;
            let response = sent.map_err(|source| unreachable(self.servers.current(), source))?;
            if response.status().is_success() {
                self.note_success(&response);
                return Ok(response);
            }
            if let Some(error) = patience.refused(response, &self.servers).await {
                return Err(error);
            }
            request = again.expect("a body of text can be sent again");
        }
    }
}

impl Client {
    fn note_success(&self, response: &Response) {
        self.servers.set_given_up(false);
        if let (Some(hear), Some(age)) = (self.on_standby, servers::age(response)) {
            hear(age);
        }
    }
}

fn unreachable(url: &Url, source: reqwest::Error) -> ClientError {
    ClientError::Unreachable { url: url.origin().ascii_serialization(), source: source.without_url() }
}

/// What a dry run adds to the reply.
#[derive(Default, Deserialize)]
struct DryReply {
    foreseen: Option<Foreseen>,
}

fn is_dry_run(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| url.query_pairs().any(|(name, value)| name == DRY_RUN && value == "true"))
}

async fn problem(response: Response) -> ClientError {
    let (url, status) = (response.url().to_string(), response.status());
    let is_problem = header(response.headers(), CONTENT_TYPE.as_str())
        .is_some_and(|kind| kind.starts_with("application/problem+json"));
    let request_id = header(response.headers(), "x-request-id").map(str::to_owned);
    let body = response.bytes().await.unwrap_or_default();
    if is_problem && let Ok(problem) = serde_json::from_slice::<Problem>(&body) {
        let request_id = problem.request_id.or(request_id);
        return ClientError::Problem(Box::new(Problem { request_id, ..problem }));
    }
    ClientError::BadReply { url, message: format!("status {status}") }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn is_loopback(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests;
