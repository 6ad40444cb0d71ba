//! The server: brings the parts up in order, and down again.
//!
//! Order: schema, leadership, loop, then the two ports, so that nothing is answered before it can be committed.

use std::net::SocketAddr;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Identity, Server, ServerTlsConfig};

use crate::clock::Clock;
use crate::config::{ConfigError, ServerConfig, TlsPaths};
use crate::driver::{Driver, StartError};
use crate::grpc::{Gateway, Sessions};
use crate::http::{Cookies, HttpState, router};
use crate::leader::Leader;
use crate::secrets::{Keyring, KeyringError};
use crate::store::{SecretsKeyError, Store, StoreError};
use crate::webhooks::{self, Messenger, Trials};
use crate::{foretelling, sampler};

/// Open requests get this long at shutdown; event streams never end by themselves.
const DRAIN: Duration = Duration::from_secs(3);
/// An idle agent connection is probed this often, and dropped without an answer.
const KEEPALIVE: Duration = Duration::from_secs(20);

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
    Start(#[from] StartError),
    #[error("listening on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("reading {path}")]
    Tls {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("serving agents")]
    Agents(#[source] tonic::transport::Error),
    #[error("serving people")]
    Http(#[source] std::io::Error),
    #[error("making ready to call webhooks")]
    Webhooks(#[source] reqwest::Error),
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

/// Runs until shutdown, and says where it listens once it is ready.
pub async fn serve_reporting(
    config: ServerConfig,
    shutdown: CancellationToken,
    bound: oneshot::Sender<Bound>,
) -> Result<(), ServerError> {
    config.check()?;
    let metrics = config.metrics.then(crate::metrics::install).transpose().map_err(ServerError::Metrics)?;
    let options: PgConnectOptions = config.database_url.parse().map_err(ServerError::DatabaseUrl)?;
    let options = options.application_name("headway");
    let keyring = config.secrets_key.as_deref().map(Keyring::read).transpose()?;
    let store = Store::connect(options.clone()).await?;
    store.migrate().await?;
    let store = match keyring {
        Some(keyring) => store.with_keyring(keyring),
        None => store,
    };
    store.check_secrets_keys().await??;
    let clock = Clock::new(config.speed);
    for token in &config.tokens {
        if !store.ensure_token(&token.name, token.scope, &token.secret, clock.now()).await? {
            tracing::warn!(token = token.name, scope = %token.scope, "token of the configuration was revoked and opens nothing; write another secret to its file");
        }
    }
    let people = listen(config.listen).await?;
    let agents = listen(config.agent_listen).await?;
    let addresses = Bound { http: address(&people, config.listen)?, agents: address(&agents, config.agent_listen)? };
    let tls = config.tls.as_ref().map(read_tls).transpose()?;

    let sessions = Sessions::default();
    let engine = config.engine.at_speed(config.speed.factor());
    let lease = engine.lease;
    let leader = Leader::new(options);
    let started =
        Driver::start(store.clone(), leader, sessions.clone(), clock.clone(), engine, config.retention, config.build)
            .await?;
    // Nobody else leads now, so nobody else has other keys.
    match store.reseal_secrets().await? {
        0 => {}
        resealed => {
            tracing::info!(resealed, "secrets are sealed with the first key of the key file now; the others may go")
        }
    }
    let mut ready = started.cluster.readiness();
    // Fails only if a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let messenger = Messenger::new(config.webhook_networks).map_err(ServerError::Webhooks)?;
    let (outbox, inbox) = (started.cluster.clone(), started.inbox.clone());
    let gateway = Gateway::new(started.inbox, sessions, store.clone(), clock, lease, config.site);
    let (sampled, counted) = (started.cluster.clone(), started.cluster.clone());
    let cookies = Cookies::new(store.identity().await?, tls.is_some());
    let trials = Trials::new(messenger.clone());
    let state = HttpState::new(started.cluster, cookies, config.build, metrics, trials);

    let mut parts = JoinSet::new();
    let stop = shutdown.child_token();
    parts.spawn({
        let run = started.driver.run(started.engine, stop.clone());
        async move {
            run.await;
            Ok(())
        }
    });
    // The loop is about to lead: it has its engine already.
    let _ = ready.wait_for(|ready| *ready).await;
    parts.spawn({
        let sample = sampler::run(sampled, stop.clone());
        async move {
            sample.await;
            Ok(())
        }
    });
    parts.spawn({
        let count = foretelling::count(counted, stop.clone());
        async move {
            count.await;
            Ok(())
        }
    });
    parts.spawn({
        let calls = webhooks::run(outbox, messenger, inbox, stop.clone());
        async move {
            calls.await;
            Ok(())
        }
    });
    parts.spawn(serve_agents(gateway, agents, tls.clone(), stop.clone()));
    parts.spawn(serve_people(state, people, tls, stop.clone()));
    tracing::info!(http = %addresses.http, agents = %addresses.agents, "server ready");
    // The caller may not want to know.
    let _ = bound.send(addresses);

    // The first part to end, at shutdown or by failing, ends the others.
    let mut result = Ok(());
    while let Some(ended) = parts.join_next().await {
        stop.cancel();
        result = result.and(ended.unwrap_or_else(|died| Err(ServerError::Died(died))));
    }
    store.close().await;
    result
}

async fn serve_agents(
    gateway: Gateway,
    listener: TcpListener,
    tls: Option<TlsFiles>,
    stop: CancellationToken,
) -> Result<(), ServerError> {
    let mut server = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .tcp_nodelay(true);
    if let Some(files) = tls {
        let identity = Identity::from_pem(files.certificate, files.key);
        server = server.tls_config(ServerTlsConfig::new().identity(identity)).map_err(ServerError::Agents)?;
    }
    let serving = server
        .add_service(gateway.into_service())
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), stop.clone().cancelled_owned());
    within_drain(serving, &stop, ServerError::Agents).await
}

async fn serve_people(
    state: HttpState,
    listener: TcpListener,
    tls: Option<TlsFiles>,
    stop: CancellationToken,
) -> Result<(), ServerError> {
    let service = router(state).into_make_service_with_connect_info::<SocketAddr>();
    let Some(files) = tls else {
        let serving = axum::serve(listener, service).with_graceful_shutdown(stop.clone().cancelled_owned());
        return within_drain(serving.into_future(), &stop, ServerError::Http).await;
    };
    // Fails only if a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tls = axum_server::tls_rustls::RustlsConfig::from_pem(files.certificate, files.key)
        .await
        .map_err(ServerError::Http)?;
    let handle = axum_server::Handle::new();
    let graceful = handle.clone();
    let serving = axum_server::from_tcp_rustls(listener.into_std().map_err(ServerError::Http)?, tls)
        .map_err(ServerError::Http)?
        .handle(handle)
        .serve(service);
    let stopping = stop.clone();
    let drain = async move {
        stopping.cancelled().await;
        graceful.graceful_shutdown(Some(DRAIN));
    };
    let (served, ()) = tokio::join!(within_drain(serving, &stop, ServerError::Http), drain);
    served
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

#[derive(Clone)]
struct TlsFiles {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

fn read_tls(paths: &TlsPaths) -> Result<TlsFiles, ServerError> {
    let read = |path: &std::path::Path| {
        std::fs::read(path).map_err(|source| ServerError::Tls { path: path.display().to_string(), source })
    };
    Ok(TlsFiles { certificate: read(&paths.certificate)?, key: read(&paths.key)? })
}
