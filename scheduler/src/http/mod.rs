//! REST, the event stream and the web UI: what people and scripts talk to.
//!
//! Requests are authenticated and held to the table of rules (`access`). A handler turns wire types into requests, asks the loop or reads the snapshot and the store, and
//! turns the answer into wire types. It never decides and never writes to the store, except for tokens, users and secrets, which the
//! engine does not know.

mod access;
mod actions;
mod admission;
mod arrays;
mod arrival;
mod audit;
mod auth;
mod browser_sessions;
mod conversions;
mod cookies;
mod cursor;
mod deliveries;
mod dependencies;
mod enrolment;
mod events;
mod exec;
mod explain;
mod extract;
#[cfg(test)]
pub(crate) mod fixtures;
mod foresight;
mod goodput;
mod gpus;
mod history;
mod identities;
mod jobs;
mod labels;
mod leadership;
mod ledger;
mod limits;
mod listing;
mod logs;
mod lookup;
mod members;
mod nodes;
mod oidc;
mod once;
mod openapi;
mod outcomes;
mod overview;
mod pace;
mod parameters;
mod past;
mod plans;
mod policy;
mod problem;
mod projects;
mod public;
mod queue;
mod readmission;
mod rebalance;
mod representation;
mod reservations;
mod root;
mod secrets;
mod simulate;
mod space;
mod standby;
mod stream;
mod submit;
#[cfg(test)]
mod tests;
mod timeline;
mod tokens;
mod topology;
mod usage;
mod users;
mod validation;
mod waiting;
mod window;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use headway_engine::event::{Actor, ArrayDeed, Request as EngineRequest};
use headway_engine::outcome::Reply;
use headway_engine::record::JobState;
use headway_engine::view::View;
use headway_engine::{ArrayDone, Refusal};
use headway_types::{ArrayId, JobId};
use metrics_exporter_prometheus::PrometheusHandle;

use self::arrival::Arrivals;
use self::auth::{Principal, TokenCache, Unidentified};
pub use self::cookies::Cookies;
pub use self::enrolment::Enrolment;
use self::pace::Paces;
use self::problem::Problem;
use crate::asking::Asking;
use crate::audit::{Refusals, origin, origin_of_refusal};
use crate::cluster::Cluster;
use crate::foretelling;
use crate::kept::{Kept, Renewed};
use crate::metrics;
use crate::oidc::Provider;
use crate::shares::Shares;
use crate::shown::{Show, Shown};
use crate::store::{AuditEntry, AuditResult};
use crate::web;
use crate::webhooks::Trials;
use crate::wrong_tokens::WrongTokens;

/// What every handler shares.
#[derive(Clone)]
pub struct HttpState {
    cluster: Cluster,
    asking: Asking,
    listing: Arc<listing::Memory>,
    queue: Arc<queue::Memory>,
    streams: stream::Streams,
    tokens: TokenCache,
    cookies: Cookies,
    veils: Arc<access::Veils>,
    wrong_tokens: WrongTokens,
    paces: Paces,
    /// Addresses that log in.
    strangers: Paces,
    /// Addresses that ask for what is open to everybody.
    pages: Paces,
    arrivals: Arrivals,
    /// Of those who log in.
    strangers_arrivals: Arrivals,
    refusals: Refusals,
    build: &'static str,
    metrics: Option<PrometheusHandle>,
    scraped: Arc<Renewed>,
    trials: Trials,
    /// Through whom people log in.
    oidc: Option<Arc<Provider>>,
    /// Places for commands beside jobs.
    execs: Shares,
    followers: logs::Followers,
    /// `None`: nodes are given no certificates here.
    enrolment: Option<Enrolment>,
}

impl HttpState {
    /// `build`: what the binary was built from. `metrics`: the recorder's handle, where this process has one. `trials`: what calls webhooks
    /// where somebody asks for it.
    #[must_use]
    pub fn new(
        cluster: Cluster,
        cookies: Cookies,
        build: &'static str,
        metrics: Option<PrometheusHandle>,
        trials: Trials,
    ) -> Self {
        let asking = Asking::new(cluster.last_round());
        tokio::spawn(foretelling::keep(cluster.clone(), asking.forecasts()));
        let refusals = Refusals::start(cluster.store().clone());
        Self {
            cluster,
            asking,
            listing: Arc::default(),
            queue: Arc::default(),
            streams: stream::Streams::default(),
            tokens: TokenCache::default(),
            cookies,
            veils: Arc::default(),
            wrong_tokens: WrongTokens::default(),
            paces: Paces::default(),
            strangers: Paces::default(),
            pages: Paces::default(),
            arrivals: Arrivals::of_users(),
            strangers_arrivals: Arrivals::of_strangers(),
            refusals,
            build,
            metrics,
            scraped: Arc::new(Renewed::every(root::SCRAPE_REST)),
            trials,
            oidc: None,
            execs: Shares::new(exec::AT_ONCE, exec::OF_ONE_USER),
            followers: logs::Followers::default(),
            enrolment: None,
        }
    }

    /// Has people log in through an identity provider too.
    #[must_use]
    pub(crate) fn with_oidc(self, provider: Option<Arc<Provider>>) -> Self {
        Self { oidc: provider, ..self }
    }

    /// The loop knows live jobs only; one that has ended is in the store.
    async fn no_live_job(&self, id: JobId) -> Problem {
        match lookup::record(&self.cluster, id).await {
            Ok(job) => Refusal::WrongState(job.ended_in_words()).into(),
            Err(problem) => problem,
        }
    }

    /// Likewise of an array.
    async fn no_live_array(&self, id: ArrayId) -> Problem {
        match lookup::array(&self.cluster, id).await {
            Ok(array) => Refusal::WrongState(format!("all elements of array {} have ended", array.name)).into(),
            Err(problem) => problem,
        }
    }

    /// Asks the loop and shows what it answers. What is posted with a key is done once; a dry run is answered and not done.
    async fn answer(
        &self,
        caller: &Principal,
        body: EngineRequest,
        show: impl Fn(&Reply, &View) -> Option<Shown> + Send + Sync + 'static,
    ) -> Result<Response, Problem> {
        let show = Show::new(show);
        if parameters::is_dry_run() {
            return self.suppose(caller, body, show).await;
        }
        let cancels = requested_cancellation(&body);
        let body = body.because(parameters::reason());
        let (body, key) = match (once::key(caller.name()), body) {
            (key, EngineRequest::Submit { jobs, known, .. }) => {
                (EngineRequest::Submit { jobs, idempotency: key.clone(), known }, key)
            }
            (Some(key), body) => (EngineRequest::Once { key: key.clone(), body: Box::new(body) }, Some(key)),
            (None, body) => (body, None),
        };
        let (reply, shown) = self.cluster.request_once(caller.actor(), body, show.clone()).await?;
        if let (Reply::Repeated { .. } | Reply::Replayed { .. }, Some(key)) = (&reply, key) {
            return once::first_reply(&self.cluster, &key).await;
        }
        let reply = self.granted(self.cancelled_before(cancels, reply).await).await?;
        let shown = shown.or_else(|| show.of(&reply, &self.cluster.view()));
        Ok(shown.ok_or_else(|| mismatched(&reply))?.into_response())
    }

    /// What the request would be answered, with what the planner says would come of it.
    async fn suppose(&self, caller: &Principal, body: EngineRequest, show: Show) -> Result<Response, Problem> {
        let (question, leaving) = (foresight::question(body.itself()), foresight::leaving(body.itself()));
        let reply = self.ask(caller.actor(), body).await?;
        let shown = show.of(&reply, &self.cluster.view()).ok_or_else(|| mismatched(&reply))?.supposed();
        match question {
            None => Ok(shown.into_response()),
            Some(question) => {
                let view = self.cluster.view();
                let foreseen = foresight::foresee(&self.asking, caller.name(), question, leaving, &view).await;
                Ok(shown.and("foreseen", &foreseen).into_response())
            }
        }
    }

    /// What the request would be answered, whether it is a dry run or not.
    async fn supposed(&self, actor: Actor, body: EngineRequest) -> Result<Reply, Problem> {
        let cancels = requested_cancellation(&body);
        match self.cluster.request(actor, EngineRequest::DryRun { body: Box::new(body) }).await? {
            Reply::DryRun(reply) => self.granted(self.cancelled_before(cancels, *reply).await).await,
            other => Err(mismatched(&other)),
        }
    }

    /// Asks the loop; a refusal is a problem. However a handler came to ask: a dry run does nothing.
    async fn ask(&self, actor: Actor, body: EngineRequest) -> Result<Reply, Problem> {
        if !parameters::is_dry_run() {
            return self.granted(self.cluster.request(actor, body).await?).await;
        }
        self.supposed(actor, body).await
    }

    /// Returns the reply to a repeated cancellation of a job or an array that the store alone has: a success if it was
    /// cancelled before, the refusal if it ended otherwise.
    async fn cancelled_before(&self, cancels: Option<Cancellation>, reply: Reply) -> Reply {
        match (cancels, &reply) {
            (Some(Cancellation::Job(job)), Reply::Refused(Refusal::NoSuchJob(_))) => {
                match lookup::record(&self.cluster, job).await {
                    Ok(record) if matches!(record.state, JobState::Cancelled { .. }) => Reply::Job(record),
                    _ => reply,
                }
            }
            (Some(Cancellation::Array(array)), Reply::Refused(Refusal::NoSuchArray(_))) => {
                match lookup::array(&self.cluster, array).await {
                    Ok(array) if array.tally.cancelled > 0 => Reply::Array(ArrayDone { array, touched: Vec::new() }),
                    _ => reply,
                }
            }
            _ => reply,
        }
    }

    async fn granted(&self, reply: Reply) -> Result<Reply, Problem> {
        let problem = match reply {
            Reply::Refused(Refusal::NoSuchArray(array)) => self.no_live_array(array).await,
            Reply::Refused(Refusal::NoSuchJob(job)) => self.no_live_job(job).await,
            Reply::Refused(refusal) => {
                if let Refusal::OverQuota(over) = &refusal {
                    metrics::quota_refused(over.quota.into());
                }
                refusal.into()
            }
            reply => return Ok(reply),
        };
        self.note_refusal(&problem);
        Err(problem)
    }

    /// Has the audit keep that the request under way was refused. What is only supposed is refused nothing.
    fn note_refusal(&self, problem: &Problem) {
        self.note_refused(problem.code());
    }

    fn note_refused(&self, code: &'static str) {
        if parameters::is_dry_run() {
            return;
        }
        if let Some(origin) = origin_of_refusal() {
            let entry = AuditEntry::of(&origin, self.cluster.now(), AuditResult::Refused);
            self.refusals.note(AuditEntry { code: Some(code.to_owned()), ..entry });
        }
    }

    /// Likewise of a token that opens something, though nothing for people. Tokens that open nothing are counted.
    fn note_no_person(&self, refused: &Unidentified, action: &str, address: Option<IpAddr>) {
        if let Some(token) = refused.token.filter(|_| !parameters::is_dry_run()) {
            let entry = AuditEntry::without_a_person(self.cluster.now(), "agent".into(), action);
            let (address, code) = (address.map(|address| address.to_string()), Some(refused.problem.code().to_owned()));
            self.refusals.note(AuditEntry { token_id: Some(token), address, code, ..entry });
        }
    }

    /// What the request under way does without the engine, for the audit.
    fn deed(&self) -> Option<AuditEntry> {
        let done = AuditEntry::of(&origin()?, self.cluster.now(), AuditResult::Done);
        Some(AuditEntry { reason: parameters::reason(), ..done })
    }
}

/// Everything on the port for people.
pub fn router(state: HttpState) -> Router {
    let (api, document) = openapi::routes().split_for_parts();
    let document = openapi::complete(document);
    let parameters = Arc::new(parameters::Table::of(&document));
    let acts = Arc::new(access::Routes::of(&document));
    let guard = (state.clone(), Arc::clone(&acts));
    let document = Kept::new(openapi::render(&document));
    let told = move |headers: HeaderMap| async move { document.told("application/json", &headers).await };
    let routes = api
        .route("/api/v1/openapi.json", get(told))
        .route("/healthz", get(root::healthz))
        .route("/readyz", get(root::readyz))
        .route("/metrics", get(root::scrape))
        .route("/version", get(root::version))
        .route("/licenses", get(root::licenses))
        .fallback(fallback)
        .method_not_allowed_fallback(wrong_method)
        // Who asks is known before a byte of a body is read.
        .layer(middleware::from_fn_with_state(acts, once::keyed))
        .layer(middleware::from_fn_with_state(guard, access::checked))
        .layer(middleware::from_fn_with_state(parameters, parameters::checked))
        .layer(middleware::from_fn(representation::checked))
        .layer(middleware::from_fn_with_state(state.clone(), standby::checked))
        .with_state(state);
    limits::limited(routes)
}

async fn fallback(request: Request) -> Response {
    web::page(request.method(), request.uri(), request.headers()).await.unwrap_or_else(|| {
        Problem::not_found(format!("there is no {} {}", request.method(), request.uri().path()))
            .hint("/api/v1/openapi.json lists what there is")
            .into_response()
    })
}

async fn wrong_method(request: Request) -> Problem {
    let detail = format!("{} does not take {}", request.uri().path(), request.method());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
}

/// The subject of a cancellation.
#[derive(Clone, Copy, Debug)]
enum Cancellation {
    Job(JobId),
    Array(ArrayId),
}

/// Returns what a request cancels; `None` for any other request.
fn requested_cancellation(request: &EngineRequest) -> Option<Cancellation> {
    match request.itself() {
        EngineRequest::Cancel { job, .. } => Some(Cancellation::Job(*job)),
        EngineRequest::Array { array, deed: ArrayDeed::Cancel { .. } } => Some(Cancellation::Array(*array)),
        _ => None,
    }
}

/// The engine answers every request with its own kind of reply.
fn mismatched(reply: &Reply) -> Problem {
    tracing::error!(?reply, "engine answered with another kind of reply");
    Problem::internal()
}
