//! The routes against a real loop on a real Postgres.
#![allow(clippy::unwrap_used)]

mod access;
mod arrays;
mod audit;
mod browser_sessions;
mod contract;
mod dependencies;
mod documented;
mod events;
mod exec;
mod front;
mod hostile;
mod jobs;
mod lists;
mod logs;
mod nodes;
mod oidc;
mod pages;
mod paging;
mod past;
mod people;
mod quotas;
mod round_trips;
mod rounds;
mod rules;
mod secrets;
mod service;
mod standby;
mod timeline;
mod usage;
mod veil;
mod webhooks;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use futures::StreamExt;
use headway_api::v1;
use headway_engine::record::{PolicySettings, UserQuota};
use headway_engine::{EngineConfig, Event, SessionId};
use headway_types::{IdSource, NodeId, NodeReport, TokenScope};
use serde_json::{Value, json};
use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::openapi::routes;
use super::{Cookies, HttpState, conversions, router};
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::config::Retention;
use crate::driver::{Driver, Input};
use crate::grpc::Sessions;
use crate::leader::Leader;
use crate::secrets::Keyring;
use crate::store::{Server, Store};
use crate::support::{START, TestDatabase, node};
use crate::webhooks::{Messenger, Trials};

const JOB: &str = "{version: 1, name: first, resources: {gpus: 1}, run: {command: [sleep, '1']}}";

/// All routes over a loop of its own. Users are named like the secrets of their tokens.
struct Served {
    router: Router,
    store: Store,
    options: PgConnectOptions,
    cluster: Cluster,
    inbox: mpsc::Sender<Input>,
    shutdown: CancellationToken,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Value,
}

impl Answer {
    fn id(&self) -> String {
        self.body["jobs"][0]["id"].as_str().unwrap().to_owned()
    }

    /// The code of a problem, after checking that it is one.
    fn problem(&self, status: StatusCode) -> &str {
        assert_eq!(self.status, status, "{}", self.body);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        let problem: v1::Problem = serde_json::from_value(self.body.clone()).unwrap();
        assert_eq!(problem.status, status.as_u16());
        assert_eq!(problem.request_id.as_deref(), self.headers["x-request-id"].to_str().ok());
        self.body["code"].as_str().unwrap()
    }
}

/// A server with an address.
fn server(number: u128) -> Server {
    let (url, agents) = (format!("http://server-{number}"), format!("http://agents-{number}"));
    Server { id: uuid::Uuid::from_u128(number), url, agents, version: "1".into() }
}

impl Served {
    async fn start() -> Self {
        Self::keeping(Retention::default()).await
    }

    async fn keeping(retention: Retention) -> Self {
        let database = TestDatabase::create().await;
        let store = database.store().await.with_keyring(Keyring::of(&[[7; 32]]).unwrap());
        let tokens = [
            ("root", TokenScope::Admin),
            ("ada", TokenScope::User),
            ("bob", TokenScope::User),
            ("eve", TokenScope::Viewer),
            ("opal", TokenScope::Operator),
            ("node", TokenScope::Agent),
        ];
        for (name, scope) in tokens {
            store.ensure_token(name, scope, name, START).await.unwrap();
        }
        Self::let_all_ask_without_end(&database.options).await;
        let leader = Leader::new(database.options.clone()).of(server(1));
        let served = Self::on(database.options, store, leader, retention).await;
        served.cluster.readiness().wait_for(|ready| *ready).await.unwrap();
        served
    }

    /// Tests ask as fast as they can until something has happened.
    async fn let_all_ask_without_end(database: &PgConnectOptions) {
        let quota = UserQuota { requests_per_second: u32::MAX, request_burst: u32::MAX, ..UserQuota::default() };
        let policy = PolicySettings { user_quota: quota, ..PolicySettings::default() };
        let policy = serde_json::to_value(policy).unwrap();
        let mut connection = database.connect().await.unwrap();
        sqlx::query("UPDATE cluster SET policy = $1").bind(policy).execute(&mut connection).await.unwrap();
    }

    /// Another server of the same cluster, which stands by.
    async fn beside(&self) -> Self {
        let store = Store::connect(self.options.clone()).await.unwrap();
        let leader = Leader::new(self.options.clone()).of(server(2)).standing_by();
        Self::on(self.options.clone(), store, leader, Retention::default()).await
    }

    async fn on(options: PgConnectOptions, store: Store, leader: Leader, retention: Retention) -> Self {
        let started = Driver::start(
            store.clone(),
            leader,
            Sessions::default(),
            Clock::default(),
            EngineConfig::default(),
            retention,
            "abc1234",
        )
        .await
        .unwrap();
        let shutdown = CancellationToken::new();
        tokio::spawn(started.driver.run(started.leading, shutdown.clone()));
        let cluster = started.cluster.clone();
        let cookies = Cookies::new(store.identity().await.unwrap(), false);
        let _ = rustls::crypto::ring::default_provider().install_default();
        let trials = Trials::new(Messenger::new(vec!["127.0.0.1".parse().unwrap()]));
        let router = router(HttpState::new(started.cluster, cookies, "abc1234, 2026-11-22", None, trials));
        Self { router, store, options, cluster, inbox: started.inbox, shutdown }
    }

    /// A node of one free GPU registers.
    async fn add_node(&self) -> NodeId {
        self.add_node_of(1).await
    }

    async fn add_node_of(&self, gpus: u32) -> NodeId {
        let id = IdSource::seeded(9).node(START);
        let inventory = Box::new(headway_types::example::inventory(id, 1, gpus));
        let report = NodeReport::Registered { inventory, groups: vec![] };
        let event = Event::Agent { node: id, session: SessionId(1), report };
        self.inbox.send(Input::event(event)).await.unwrap();
        self.until("eve", "/nodes", |answer| answer.body["items"][0]["availability"] == "available").await;
        id
    }

    /// Asks again until the answer is as wanted.
    async fn until(&self, who: &str, path: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        loop {
            let answer = self.get(who, path).await;
            if wanted(&answer) {
                return answer;
            }
            assert!(tokio::time::Instant::now() < deadline, "{path}: {} {}", answer.status, answer.body);
            tokio::task::yield_now().await;
        }
    }

    /// Every reply is held to the document.
    async fn send(&self, request: Request<Body>) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        let answer = Answer { status, headers, body };
        documented::check(&method, &path, &answer);
        answer
    }

    async fn get(&self, who: &str, path: &str) -> Answer {
        self.send(asked(Method::GET, who, path).body(Body::empty()).unwrap()).await
    }

    async fn send_json(&self, method: Method, who: &str, path: &str, body: &Value) -> Answer {
        let request = asked(method, who, path).header("content-type", "application/json");
        self.send(request.body(Body::from(body.to_string())).unwrap()).await
    }

    async fn post(&self, who: &str, path: &str) -> Answer {
        self.send(asked(Method::POST, who, path).body(Body::empty()).unwrap()).await
    }

    async fn submit(&self, who: &str, yaml: &str, key: &str) -> Answer {
        let request = asked(Method::POST, who, "/jobs").header("content-type", "application/yaml");
        self.send(request.header("idempotency-key", key).body(Body::from(yaml.to_owned())).unwrap()).await
    }
}

fn asked(method: Method, who: &str, path: &str) -> axum::http::request::Builder {
    let request = Request::builder().method(method).uri(format!("/api/v1{path}"));
    request.header("authorization", format!("Bearer {who}"))
}
