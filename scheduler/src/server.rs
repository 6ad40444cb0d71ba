//! The server: brings the parts up in order, and down again.
//!
//! Order: schema, leadership, loop, then the two ports, so that nothing is answered before it can be committed.

mod advertised;
mod agents;
mod certificate;
mod connections;
mod door;
mod parts;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::middleware::map_response;
use axum::response::Response;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use rustls::server::ResolvesServerCert;
use sqlx::postgres::PgConnectOptions;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use self::agents::Entrance;
pub use self::certificate::{CertificateError, Certificates};
#[cfg(test)]
pub(crate) use self::connections::Patience;
pub(crate) use self::connections::{Connections, Limits, Visitor, network};
use self::door::Door;
use self::parts::Parts;
use crate::audit::sealer;
use crate::authority::{Authorities, AuthoritiesError};
use crate::clock::Clock;
use crate::config::{ConfigError, SecretsKey, ServerConfig};
use crate::driver::{Driver, StartError};
use crate::grpc::{Admission, Gateway, Sessions};
use crate::http::{Cookies, Enrolment, HttpState, router};
use crate::leader::Leader;
use crate::oidc::Provider;
use crate::postgres::database_options;
use crate::secrets::{Keyring, KeyringError};
use crate::store::{SecretsKeyError, Store, StoreError};
use crate::webhooks::{self, Messenger, Trials};
use crate::{foretelling, sampler};

/// Open requests get this long at shutdown; event streams never end by themselves.
const DRAIN: Duration = Duration::from_secs(3);
/// Whatever has not ended so long after the stop is left: a server that was told to stop stops.
const STOP: Duration = Duration::from_secs(25);
/// An idle agent connection is probed this often, and dropped without an answer.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// After a connection that could not be taken in.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Of TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The longest from one request to the head of the next, complete.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// What one connection may fill before anybody has looked at it: heads, and bodies that are not read.
const UNREAD_BYTES: u32 = 64 * 1024;
/// Requests at once on one connection of HTTP/2.
const REQUESTS_OF_ONE: u32 = 64;

/// Where a server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    pub http: SocketAddr,
    pub agents: SocketAddr,
}

/// Why the server did not start or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("reading the database URL")]
    DatabaseUrl(#[source] sqlx::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    #[error(transparent)]
    SecretsKey(#[from] SecretsKeyError),
    #[error(transparent)]
    Authorities(#[from] AuthoritiesError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("listening on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("serving agents")]
    Agents(#[source] tonic::transport::Error),
    #[error("serving people")]
    Http(#[source] std::io::Error),
    #[error("making ready to ask the identity provider")]
    Oidc(#[source] reqwest::Error),
    #[error("reading entropy")]
    Entropy(#[source] getrandom::Error),
    #[error("installing the metrics recorder")]
    Metrics(#[source] metrics_exporter_prometheus::BuildError),
    /// A part of the server panicked; its message is in the log.
    #[error("the server died")]
    Died(#[source] tokio::task::JoinError),
}

/// Runs until shutdown.
pub async fn serve(config: ServerConfig, shutdown: CancellationToken) -> Result<(), ServerError> {
    let (bound, _) = oneshot::channel();
    serve_reporting(config, shutdown, bound).await
}

/// Runs until shutdown, and says where it listens once it is ready, or stands by.
pub async fn serve_reporting(
    config: ServerConfig,
    shutdown: CancellationToken,
    bound: oneshot::Sender<Bound>,
) -> Result<(), ServerError> {
    config.check()?;
    // From now on, with a certificate or without: who is not heard ends the process.
    let hang_up = signal(SignalKind::hangup());
    let files = raise_open_files();
    let metrics = config.metrics.then(crate::metrics::install).transpose().map_err(ServerError::Metrics)?;
    let options: PgConnectOptions = database_options(&config.database_url).map_err(ServerError::DatabaseUrl)?;
    let options = options.application_name("headway");
    let keyring = match &config.secrets_key {
        None => None,
        Some(SecretsKey::File(path)) => Some(Keyring::read(path)?),
        Some(SecretsKey::Command(words)) => Some(Keyring::printed_by(words).await?),
    };
    // Migrations wait for as long as a backup takes.
    let opened = tokio::select! {
        biased;
        () = shutdown.cancelled() => None,
        opened = open_store(options.clone(), config.standby) => Some(opened?),
    };
    let Some(store) = opened else {
        tracing::info!(
            "the server was told to stop before the schema was up to date: the next start goes on with the migrations"
        );
        return Ok(());
    };
    let store = match keyring {
        Some(keyring) => store.with_keyring(keyring),
        None => store,
    };
    store.check_secrets_keys().await??;
    let clock = Clock::new(config.speed);
    let clock = if config.trust_clock { clock.trusted() } else { clock };
    let followed = clock.clone();
    for token in &config.tokens {
        if !store.ensure_token(&token.name, token.scope, &token.secret, clock.now()).await? {
            tracing::warn!(token = token.name, scope = %token.scope, "token of the configuration was revoked and opens nothing; write another secret to its file");
        }
    }
    let people = listen(config.listen).await?;
    let agents = listen(config.agent_listen).await?;
    let addresses = Bound { http: address(&people, config.listen)?, agents: address(&agents, config.agent_listen)? };
    let certificates = config.tls.as_ref().map(Certificates::read).transpose()?;

    let site = certificates.clone().map(|shown| shown as Arc<dyn ResolvesServerCert>);
    let life = config.node_certificates.life;
    let authorities = Authorities::open(store.clone(), life, site).await?;
    let takes_tokens = config.takes_agent_tokens();
    if takes_tokens {
        tracing::warn!(
            "tokens of the scope agent are taken: whoever has one may pass for any node that has no certificate; have nodes join (`headway node join`) and leave --agent-tokens and --agent-token-file out"
        );
    }

    let told = advertised::server(&config, addresses)?;
    let (reached, addresses_of_agents) = (told.url.clone(), told.agents.clone());
    let leader = Leader::new(options).of(told);
    let leader = if config.standby { leader.standing_by() } else { leader };
    let sessions = Sessions::default();
    let engine = config.engine.at_speed(config.speed.factor());
    let (retention, build) = (config.retention, config.build);
    let started =
        Driver::start(store.clone(), leader, sessions.clone(), clock.clone(), engine.clone(), retention, build).await?;
    if started.leading.is_some() {
        reseal(&store).await?;
    }
    let mut ready = started.cluster.readiness();
    // Fails only if a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let messenger = Messenger::new(config.webhook_networks);
    let (outbox, inbox, told) = (started.cluster.clone(), started.inbox.clone(), started.inbox.clone());
    let admission = Admission::by_certificate(authorities.clone(), takes_tokens);
    let admitting = (started.cluster.standing(), admission);
    let gateway = Gateway::new(
        (started.inbox, started.registrations),
        sessions,
        store.clone(),
        clock,
        &engine,
        config.site,
        admitting,
    );
    let [sampled, counted, sealed, watched] = std::array::from_fn(|_| started.cluster.clone());
    let cookies = Cookies::new(store.identity().await?, certificates.is_some());
    let trials = Trials::new(messenger.clone());
    let provider =
        config.oidc.map(|settings| Provider::new(settings, &reached)).transpose().map_err(ServerError::Oidc)?;
    let provider = provider.map(Arc::new);
    let at = addresses_of_agents;
    let enrolment = Enrolment { authorities: authorities.clone(), takes_tokens, at };
    let state = HttpState::new(started.cluster, cookies, config.build, metrics, trials);
    let state = state.with_oidc(provider.clone()).enrolling(enrolment);

    let leads = started.leading.is_some();
    let stop = shutdown.child_token();
    let mut parts = Parts::new(stop.clone());
    parts.run("clock", followed.follow_machine(stop.clone()));
    parts.run("loop", started.driver.run(started.leading, stop.clone()));
    if leads {
        // The loop has its engine already.
        let _ = ready.wait_for(|ready| *ready).await;
    } else {
        parts.serve("sealing anew", reseal_once_it_leads(store.clone(), ready, stop.clone()));
    }
    parts.run("sampler", sampler::run(sampled, stop.clone()));
    parts.run("sealer", sealer::run(sealed, stop.clone()));
    parts.run("count of starts", foretelling::count(counted, stop.clone()));
    parts.run("webhooks", webhooks::run(outbox, messenger, inbox, stop.clone()));
    if let Some(provider) = provider {
        let stop = stop.clone();
        parts.run("identity provider", async move { provider.keep(stop).await });
    }
    parts.run("authorities", authorities.clone().keep(stop.clone()));
    let visitors = Connections::new("agents", Limits::of_agents(files));
    // Where the site's certificate is shown, everybody can be asked to encrypt.
    let entrance = Entrance { authorities, plain: takes_tokens && certificates.is_none() };
    parts.serve("agents", agents::serve(gateway, agents, visitors, entrance, stop.clone()));
    let visitors = Connections::new("people", Limits::of_people(files));
    if let Some(certificates) = certificates.clone() {
        parts.run("certificates", certificate::watch(certificates, watched, told, hang_up, stop.clone()));
    }
    let secure = certificates.map(|certificates| Secure { certificates, hsts: config.hsts });
    parts.serve("people", serve_people(state, people, visitors, secure, stop));
    let what = if leads { "server ready" } else { "server stands by" };
    tracing::info!(http = %addresses.http, agents = %addresses.agents, "{what}");
    // The caller may not want to know.
    let _ = bound.send(addresses);
    let result = parts.end(STOP).await;
    store.close().await;
    result
}

/// Connects, and brings the schema up to date. Dropped on the way, it leaves a schema between two migrations: each is a
/// transaction.
async fn open_store(options: PgConnectOptions, standby: bool) -> Result<Store, StoreError> {
    let store = match standby {
        true => Store::connect_beside_others(options).await?,
        false => Store::connect(options).await?,
    };
    store.migrate().await?;
    Ok(store)
}

/// Nobody else leads now, so nobody else has other keys.
async fn reseal(store: &Store) -> Result<(), StoreError> {
    match store.reseal_secrets().await? {
        0 => {}
        resealed => {
            tracing::info!(resealed, "secrets are sealed with the first key of the key file now; the others may go")
        }
    }
    Ok(())
}

/// Runs until shutdown.
async fn reseal_once_it_leads(
    store: Store,
    mut ready: watch::Receiver<bool>,
    stop: CancellationToken,
) -> Result<(), ServerError> {
    let took_over = tokio::select! {
        () = stop.cancelled() => false,
        ready = ready.wait_for(|ready| *ready) => ready.is_ok(),
    };
    if took_over && let Err(error) = reseal(&store).await {
        // They open with the keys that they are sealed with; the next start tries again.
        tracing::warn!(error = &error as &dyn std::error::Error, "secrets are not sealed anew");
    }
    stop.cancelled().await;
    Ok(())
}

async fn serve_people(
    state: HttpState,
    listener: TcpListener,
    visitors: Connections,
    secure: Option<Secure>,
    stop: CancellationToken,
) -> Result<(), ServerError> {
    let router = router(state);
    let router = match &secure {
        Some(secure) => over_tls_alone(router, secure.hsts),
        None => router,
    };
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    let handle = axum_server::Handle::new();
    let mut server = axum_server::from_tcp(listener.into_std().map_err(ServerError::Http)?)
        .map_err(ServerError::Http)?
        .acceptor(Door(visitors))
        .handle(handle.clone());
    bound_requests(server.http_builder());
    let drain = async {
        stop.cancelled().await;
        handle.graceful_shutdown(Some(DRAIN));
        std::future::pending::<Infallible>().await
    };
    let Some(secure) = secure else {
        let serving = server.serve(service);
        return tokio::select! {
            served = within_drain(serving, &stop, ServerError::Http) => served,
            never = drain => match never {},
        };
    };
    let tls = RustlsConfig::from_config(secure.certificates.config(&["h2", "http/1.1"]));
    let acceptor = RustlsAcceptor::new(tls).handshake_timeout(HANDSHAKE);
    let serving = server.map(|door| acceptor.acceptor(door)).serve(service);
    tokio::select! {
        served = within_drain(serving, &stop, ServerError::Http) => served,
        never = drain => match never {},
    }
}

/// TLS of the port for people.
struct Secure {
    certificates: Arc<Certificates>,
    /// 0: browsers are told nothing.
    hsts: Duration,
}

/// Has browsers speak to this host over TLS alone, for so long (RFC 6797).
fn over_tls_alone(router: Router, hsts: Duration) -> Router {
    let told = HeaderValue::from_str(&format!("max-age={}", hsts.as_secs())).ok().filter(|_| !hsts.is_zero());
    router.layer(map_response(move |mut response: Response| {
        response.headers_mut().extend(told.clone().map(|told| (header::STRICT_TRANSPORT_SECURITY, told)));
        std::future::ready(response)
    }))
}

/// What a connection costs before its requests are looked at.
fn bound_requests(builder: &mut auto::Builder<TokioExecutor>) {
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(UNREAD_BYTES as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(KEEPALIVE))
        .keep_alive_timeout(KEEPALIVE)
        .max_concurrent_streams(REQUESTS_OF_ONE)
        .max_header_list_size(UNREAD_BYTES / 4)
        .initial_stream_window_size(UNREAD_BYTES / 2)
        .initial_connection_window_size(UNREAD_BYTES);
}

/// As many open files as this process may have; each connection is one.
fn raise_open_files() -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    let now = if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
    now.and_then(|files| usize::try_from(files).ok()).unwrap_or(1 << 20)
}

/// Waits for a port to end, but not for longer than `DRAIN` after the stop.
async fn within_drain<E>(
    serving: impl Future<Output = Result<(), E>>,
    stop: &CancellationToken,
    failed: fn(E) -> ServerError,
) -> Result<(), ServerError> {
    let drained = async {
        stop.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        served = serving => served.map_err(failed),
        () = drained => Ok(()),
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, ServerError> {
    TcpListener::bind(address).await.map_err(|source| ServerError::Listen { address, source })
}

fn address(listener: &TcpListener, address: SocketAddr) -> Result<SocketAddr, ServerError> {
    listener.local_addr().map_err(|source| ServerError::Listen { address, source })
}
