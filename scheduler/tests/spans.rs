//! Spans as a collector hears of them: one of a few lines, which decodes what a whole server exports. One test, since a process has one log.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use headway_engine::EngineConfig;
use headway_goodput::catalog::Catalog;
use headway_scheduler::{InitialToken, Retention, ServerConfig, Speed, serve_reporting, spans};
use headway_types::TokenScope;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::support::TestDatabase;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const SECRET: &str = "s3cret-of-the-admin";
const JOB: &str = "{version: 1, name: first, resources: {gpus: 1}, run: {command: [sleep, '1'], env: {KEY: hunter2}}}";

type Heard = mpsc::UnboundedSender<(String, Span)>;

async fn hear(State(heard): State<Heard>, body: Bytes) {
    for resource in ExportTraceServiceRequest::decode(body).unwrap().resource_spans {
        let service = value(&resource.resource.unwrap().attributes, "service.name").unwrap();
        for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            // The test may have heard enough.
            let _ = heard.send((service.clone(), span));
        }
    }
}

fn value(of: &[opentelemetry_proto::tonic::common::v1::KeyValue], key: &str) -> Option<String> {
    let found = of.iter().find(|one| one.key == key)?.value.clone()?.value?;
    Some(match found {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        Value::DoubleValue(number) => number.to_string(),
        other => format!("{other:?}"),
    })
}

/// What the collector has been told so far.
struct Told {
    heard: mpsc::UnboundedReceiver<(String, Span)>,
    spans: Vec<Span>,
}

impl Told {
    /// The first span with this name that is as wanted.
    async fn span(&mut self, name: &str, wanted: impl Fn(&Span) -> bool) -> Span {
        let is = |span: &Span| span.name == name && wanted(span);
        loop {
            if let Some(span) = self.spans.iter().find(|span| is(span)) {
                return span.clone();
            }
            let next = tokio::time::timeout(Duration::from_secs(30), self.heard.recv()).await;
            let (service, span) = next.unwrap_or_else(|_| panic!("no span {name}")).unwrap();
            assert_eq!(service, "headway-server");
            self.spans.push(span);
        }
    }
}

fn config(database: &TestDatabase) -> ServerConfig {
    ServerConfig {
        database_url: database.url(),
        listen: "127.0.0.1:0".parse().unwrap(),
        agent_listen: "127.0.0.1:0".parse().unwrap(),
        standby: false,
        advertised: Default::default(),
        tls: None,
        node_certificates: headway_scheduler::NodeCertificates { tokens_too: true, ..Default::default() },
        hsts: std::time::Duration::ZERO,
        engine: EngineConfig::default(),
        tokens: vec![InitialToken { name: "admin".into(), scope: TokenScope::Admin, secret: SECRET.into() }],
        secrets_key: None,
        oidc: None,
        webhook_networks: Vec::new(),
        retention: Retention::default(),
        site: Catalog::default(),
        speed: Speed::REAL,
        trust_clock: false,
        build: "unknown commit",
        metrics: false,
    }
}

#[tokio::test]
async fn requests_rounds_and_commits_are_spans_in_the_trace_of_whoever_asks() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (sender, heard) = mpsc::unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let collector = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let app = Router::new().route("/v1/traces", post(hear)).with_state(sender);
    tokio::spawn(axum::serve(listener, app).into_future());
    let (layer, exporting) = spans::exporting(&collector, "test").unwrap();
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer)).unwrap();
    let mut told = Told { heard, spans: Vec::new() };

    let database = TestDatabase::create().await;
    let shutdown = CancellationToken::new();
    let (bound, addresses) = oneshot::channel();
    let server = tokio::spawn(serve_reporting(config(&database), shutdown.clone(), bound));
    let url = format!("http://{}/api/v1", addresses.await.unwrap().http);
    let client = reqwest::Client::new();
    let asked = |request: reqwest::RequestBuilder| {
        request.bearer_auth(SECRET).header("traceparent", format!("00-{TRACE}-{PARENT}-01"))
    };

    let nobody = "0190a6a0-0000-7000-8000-000000000000";
    assert!(asked(client.get(format!("{url}/jobs?q=hunter2"))).send().await.unwrap().status().is_success());
    let problem = asked(client.get(format!("{url}/jobs/{nobody}"))).send().await.unwrap();
    assert_eq!(problem.status(), 404);
    let problem: serde_json::Value = serde_json::from_slice(&problem.bytes().await.unwrap()).unwrap();
    assert_eq!(problem["trace_id"], TRACE, "{problem}");
    let span = told.span("GET /api/v1/jobs/{id}", |_| true).await;
    assert_eq!((hex::encode(&span.trace_id), hex::encode(&span.parent_span_id)), (TRACE.into(), PARENT.into()));
    for (key, wanted) in [
        ("http.request.method", "GET"),
        ("http.route", "/api/v1/jobs/{id}"),
        ("http.response.status_code", "404"),
        ("headway.principal", "admin"),
        ("headway.request_id", problem["request_id"].as_str().unwrap()),
    ] {
        assert_eq!(value(&span.attributes, key).as_deref(), Some(wanted), "{key}");
    }

    let job = asked(client.post(format!("{url}/jobs"))).header("content-type", "application/yaml").body(JOB);
    assert_eq!(job.send().await.unwrap().status(), 201);
    let submitted = told.span("POST /api/v1/jobs", |_| true).await;
    let leads_there = |span: &Span| span.links.iter().any(|link| link.span_id == submitted.span_id);
    let commit = told.span("commit", leads_there).await;
    assert_eq!(value(&commit.attributes, "headway.outcome").as_deref(), Some("committed"));
    assert_ne!(commit.trace_id, submitted.trace_id, "a commit is many requests'");
    let round = told.span("round", |span| value(&span.attributes, "headway.jobs").as_deref() == Some("1")).await;
    assert_eq!(value(&round.attributes, "headway.outcome").as_deref(), Some("ready"));

    shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(20), server).await.unwrap().unwrap().unwrap();
    exporting.finish().await;
    let all = format!("{:?}", told.spans);
    assert!(![SECRET, "hunter2", nobody].iter().any(|secret| all.contains(secret)), "{all}");
}
