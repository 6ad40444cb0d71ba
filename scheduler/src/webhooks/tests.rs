//! The outbox against a real endpoint on a real Postgres.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headway_api::secret::Secret;
use headway_engine::{Actor, EngineConfig, Known, Reply, Request};
use headway_types::spec::{NoticeKind, Notify};
use headway_types::{JobId, JobSpec};

use super::*;
use crate::clock::{Clock, Speed};
use crate::config::Retention;
use crate::driver::Driver;
use crate::grpc::Sessions;
use crate::leader::Leader;
use crate::secrets::Keyring;
use crate::store::{Delivery, DeliveryState, EventFilter, SecretId, SecretOwner, Store};
use crate::support::{START, TestDatabase, spec};

const KEY: &str = "key-of-the-hook";
const DEADLINE: Duration = Duration::from_secs(30);

/// An endpoint that answers as it is told to, one answer after the other, the last for ever.
#[derive(Clone)]
struct Endpoint {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<(HeaderMap, Bytes)>>>,
}

impl Endpoint {
    async fn start(answers: Vec<Response>) -> Self {
        let heard: Arc<Mutex<Vec<(HeaderMap, Bytes)>>> = Arc::default();
        let answers: Arc<Mutex<Vec<(StatusCode, HeaderMap)>>> =
            Arc::new(Mutex::new(answers.into_iter().map(|one| (one.status(), one.headers().clone())).collect()));
        let kept = heard.clone();
        let router = Router::new().fallback(move |headers: HeaderMap, body: Bytes| {
            kept.lock().unwrap().push((headers, body));
            let mut answers = answers.lock().unwrap();
            let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
            async move { answer.into_response() }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, heard }
    }

    fn hook(&self) -> String {
        format!("http://{}/T0/s3cret", self.address)
    }

    fn calls(&self) -> Vec<(HeaderMap, Bytes)> {
        self.heard.lock().unwrap().clone()
    }
}

fn ok() -> Response {
    StatusCode::OK.into_response()
}

/// A server without its ports.
struct Serving {
    cluster: Cluster,
    inbox: mpsc::Sender<Input>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Serving {
    async fn on(database: &TestDatabase, speed: f64) -> Self {
        let store = database.store().await.with_keyring(Keyring::of(&[[7; 32]]).unwrap());
        let clock = Clock::new(Speed::try_new(speed).unwrap());
        let leader = Leader::new(database.options.clone());
        let (sessions, config) = (Sessions::default(), EngineConfig::default());
        let started =
            Driver::start(store, leader, sessions, clock, config, Retention::default(), "abc1234").await.unwrap();
        let stop = CancellationToken::new();
        let mut ready = started.cluster.readiness();
        let task = tokio::spawn(started.driver.run(started.leading, stop.clone()));
        ready.wait_for(|ready| *ready).await.unwrap();
        Self { cluster: started.cluster, inbox: started.inbox, stop, task }
    }

    fn store(&self) -> &Store {
        self.cluster.store()
    }

    /// From now on what is due is sent; nothing but this machine may be called beside the public.
    fn send(&self) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let messenger = Messenger::new(vec!["127.0.0.1".parse().unwrap()]);
        tokio::spawn(run(self.cluster.clone(), messenger, self.inbox.clone(), self.stop.clone()));
    }

    /// A job that is cancelled at once: one event for who wants to hear of ends.
    async fn cancelled(&self, notify: Notify) -> JobId {
        let jobs = vec![JobSpec { notify: vec![notify], ..spec("told") }];
        let submit = Request::Submit { jobs, idempotency: None, known: Known::default() };
        let ada = || Actor::User("ada".into());
        let Reply::Submitted { jobs } = self.cluster.request(ada(), submit).await.unwrap() else { panic!() };
        let job = jobs[0].id;
        self.cluster.request(ada(), Request::Cancel { job, reason: None, grace: None }).await.unwrap();
        job
    }

    /// Waits until the only notice of a job is as wanted.
    async fn until(&self, job: JobId, wanted: impl Fn(&Delivery) -> bool) -> Delivery {
        let search = async {
            loop {
                let all = self.store().deliveries(job, 10).await.unwrap();
                assert!(all.len() <= 1, "{all:?}");
                if let Some(one) = all.into_iter().find(&wanted) {
                    return one;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(DEADLINE, search).await.expect("the delivery within the deadline")
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

fn notify(webhook: String, secret: Option<&str>) -> Notify {
    Notify { webhook, on: [NoticeKind::Finished].into(), secret: secret.map(str::to_owned) }
}

#[tokio::test]
async fn a_notice_that_was_committed_is_sent_by_the_next_server_signed_and_once() {
    let database = TestDatabase::create().await;
    let endpoint = Endpoint::start(vec![ok()]).await;
    let first = Serving::on(&database, 1.0).await;
    let id = SecretId { owner: SecretOwner::User("ada".into()), name: "hook".into() };
    first.store().set_secret(&id, &Secret::new(KEY), "ada", START, None).await.unwrap();
    let job = first.cancelled(notify(endpoint.hook(), Some("hook"))).await;
    // It ends between the commit and the call.
    first.end().await;
    assert!(endpoint.calls().is_empty());

    let second = Serving::on(&database, 1.0).await;
    second.send();
    let told = second.until(job, |one| one.state == DeliveryState::Delivered).await;
    assert_eq!((told.attempts, told.last_error.as_deref()), (1, None));
    let calls = endpoint.calls();
    let [(headers, body)] = calls.as_slice() else { panic!("{} calls", calls.len()) };
    let shown: serde_json::Value = serde_json::from_slice(body).unwrap();
    assert_eq!((&shown["text"], &shown["kind"]), (&"told was cancelled".into(), &"finished".into()));
    assert_eq!(shown["job"]["id"], job.to_string());
    assert_eq!(headers["headway-delivery"], told.notice.id.to_string());
    let signature = headers["headway-signature"].to_str().unwrap();
    let (at, tag) = signature.strip_prefix("t=").unwrap().split_once(",v1=").unwrap();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, KEY.as_bytes());
    let signed = [at.as_bytes(), b".", body].concat();
    ring::hmac::verify(&key, &signed, &hex::decode(tag).unwrap()).unwrap();
    second.end().await;
}

#[tokio::test]
async fn an_endpoint_that_was_down_is_called_again_until_it_answers() {
    let database = TestDatabase::create().await;
    let down = || StatusCode::SERVICE_UNAVAILABLE.into_response();
    let endpoint = Endpoint::start(vec![down(), down(), ok()]).await;
    let serving = Serving::on(&database, 200.0).await;
    serving.send();
    let job = serving.cancelled(notify(endpoint.hook(), None)).await;
    let failed = serving.until(job, |one| one.attempts > 0).await;
    assert!(failed.state == DeliveryState::Delivered || failed.last_error.unwrap().contains("status 503"));
    let told = serving.until(job, |one| one.state == DeliveryState::Delivered).await;
    assert_eq!(told.attempts, 3);
    let ids: Vec<_> = endpoint.calls().iter().map(|(headers, _)| headers["headway-delivery"].clone()).collect();
    assert!(ids.len() == 3 && ids.iter().all(|id| *id == ids[0]), "a receiver knows them for the same: {ids:?}");
    serving.end().await;
}

#[tokio::test]
async fn after_a_day_a_notice_is_given_up_and_the_log_says_so() {
    let database = TestDatabase::create().await;
    let serving = Serving::on(&database, 500_000.0).await;
    let job = serving.cancelled(notify("http://127.0.0.1:1/x".into(), Some("gone"))).await;
    serving.send();
    let told = serving.until(job, |one| one.state == DeliveryState::GivenUp).await;
    assert!(told.last_error.unwrap().contains("headway secret set gone"));
    let filter = EventFilter { job: Some(job), limit: 50, ..EventFilter::default() };
    let events = serving.store().events(&filter).await.unwrap();
    let verbs: Vec<&str> = events.items.iter().map(|event| event.verb.as_str()).collect();
    assert!(verbs.contains(&"job.notify_failed"), "{verbs:?}");
    serving.end().await;
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let database = TestDatabase::create().await;
    let inside = Endpoint::start(vec![ok()]).await;
    let elsewhere = format!("http://127.0.0.2:{}/latest/meta-data", inside.address.port());
    let redirect = (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, elsewhere)]).into_response();
    let endpoint = Endpoint::start(vec![redirect]).await;
    let serving = Serving::on(&database, 1.0).await;
    serving.send();
    let job = serving.cancelled(notify(endpoint.hook(), None)).await;
    let failed = serving.until(job, |one| one.attempts > 0).await;
    assert_eq!(failed.state, DeliveryState::Waiting);
    assert!(failed.last_error.unwrap().contains("status 307"));
    assert!(inside.calls().is_empty());
    serving.end().await;
}

#[tokio::test]
async fn what_is_not_public_is_not_called_by_number_nor_by_name() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let endpoint = Endpoint::start(vec![ok()]).await;
    let port = endpoint.address.port();
    let messenger = Messenger::new(Vec::new());
    let numbers = ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "[64:ff9b::7f00:1]"];
    for host in numbers.into_iter().chain(["localhost", "no-such-host.invalid"]) {
        let webhook = format!("http://{host}:{port}/x");
        let notice = Notice {
            id: NoticeId { event: 1, webhook: 0 },
            at: START,
            kind: NoticeKind::Failed,
            verb: "job.failed".into(),
            job: JobId(uuid::Uuid::nil()),
            name: "a".into(),
            project: "default".into(),
            owner: "ada".into(),
            text: "a failed".into(),
            webhook,
            secret: None,
        };
        let refused = messenger.send(&notice, None, 0).await.unwrap_err();
        // Whether a name is known inside, and where it leads there, is not said.
        let of_name = matches!(refused, messenger::SendError::NoPublicAddress);
        let of_number = matches!(refused, messenger::SendError::Forbidden(_));
        assert!(if numbers.contains(&host) { of_number } else { of_name }, "{host}: {refused}");
    }
    assert!(endpoint.calls().is_empty());
}

#[test]
fn pauses_grow_to_an_hour_and_end_with_the_day() {
    let pauses: Vec<f64> = (0..12).filter_map(|attempts| Some(pause_after(attempts, Seconds(0.0))?.0)).collect();
    assert_eq!(pauses[..3], [10.0, 20.0, 40.0]);
    assert!(pauses.is_sorted() && pauses[11] == LONGEST_PAUSE.0);
    assert!(pause_after(u32::MAX, Seconds(86_399.0)).is_some() && pause_after(1, PATIENCE).is_none());
}
