#![allow(clippy::unwrap_used)]

use headway_engine::IdempotencyKey;
use headway_types::{JobId, JobSpec};

use super::*;
use crate::cluster::RequestError;
use crate::support::{TestDatabase, spec};

/// A loop of its own on a test's database.
struct Running {
    cluster: Cluster,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    async fn on(database: &TestDatabase) -> Self {
        let store = database.store().await;
        let leader = Leader::new(database.options.clone());
        let config = EngineConfig::default();
        let started = Driver::start(store, leader, Sessions::default(), Clock::default(), config).await.unwrap();
        let shutdown = CancellationToken::new();
        let mut ready = started.cluster.readiness();
        let task = tokio::spawn(started.driver.run(started.engine, shutdown.clone()));
        ready.wait_for(|ready| *ready).await.unwrap();
        Self { cluster: started.cluster, shutdown, task }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }
}

fn submit(name: &str, key: Option<&str>) -> Request {
    let idempotency = key.map(|key| IdempotencyKey {
        principal: "ada".into(),
        route: "POST /jobs".into(),
        key: key.into(),
        request_hash: "00".into(),
    });
    let jobs: Vec<JobSpec> = vec![spec(name)];
    Request::Submit { jobs, idempotency }
}

fn ada() -> Actor {
    Actor::User("ada".into())
}

fn submitted(reply: Reply) -> (JobId, bool) {
    match reply {
        Reply::Submitted { jobs } => (jobs[0].id, false),
        Reply::Replayed { jobs } => (jobs[0], true),
        other => panic!("not submitted: {other:?}"),
    }
}

#[tokio::test]
async fn an_answered_submit_is_in_the_store_the_view_and_the_feed() {
    let database = TestDatabase::create().await;
    let running = Running::on(&database).await;
    let mut feed = running.cluster.subscribe();
    let (job, replayed) = submitted(running.cluster.request(ada(), submit("first", None)).await.unwrap());
    assert!(!replayed);
    let elsewhere = database.store().await;
    assert_eq!(elsewhere.job(job).await.unwrap().unwrap().spec.name, "first");
    assert!(running.cluster.view().jobs.contains_key(&job));
    let heard = async { while *feed.recv().await.unwrap() != Feed::Job(job) {} };
    tokio::time::timeout(Duration::from_secs(5), heard).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_restarted_server_knows_its_jobs_and_its_idempotency_keys() {
    let database = TestDatabase::create().await;
    let before = Running::on(&database).await;
    let (job, _) = submitted(before.cluster.request(ada(), submit("once", Some("k"))).await.unwrap());
    let term = before.cluster.view().term;
    before.stop().await;

    let after = Running::on(&database).await;
    assert!(after.cluster.view().term > term);
    assert!(after.cluster.view().jobs.contains_key(&job));
    let again = submitted(after.cluster.request(ada(), submit("once", Some("k"))).await.unwrap());
    assert_eq!(again, (job, true));
    after.stop().await;
}

#[tokio::test]
async fn a_lost_term_answers_nothing_and_begins_anew() {
    let database = TestDatabase::create().await;
    let running = Running::on(&database).await;
    let stolen = database.store().await.begin_term().await.unwrap();
    let lost = running.cluster.request(ada(), submit("lost", None)).await;
    assert_eq!(lost, Err(RequestError::Unavailable));

    let mut ready = running.cluster.readiness();
    let again = async {
        ready.wait_for(|ready| *ready).await.unwrap();
        running.cluster.request(ada(), submit("kept", None)).await.unwrap()
    };
    let (kept, _) = submitted(tokio::time::timeout(Duration::from_secs(10), again).await.unwrap());
    let view = running.cluster.view();
    assert!(view.term > stolen);
    assert_eq!(view.jobs.keys().copied().collect::<Vec<_>>(), [kept], "the unanswered submit left nothing behind");
    running.stop().await;
}

#[tokio::test]
async fn a_second_server_refuses_while_the_first_lives() {
    let database = TestDatabase::create().await;
    let first = Running::on(&database).await;
    let leader = Leader::new(database.options.clone());
    let store = database.store().await;
    let second = Driver::start(store, leader, Sessions::default(), Clock::default(), EngineConfig::default()).await;
    assert!(matches!(second, Err(StartError::Leader(LeaderError::AnotherLeads))));
    first.cluster.request(ada(), submit("still served", None)).await.unwrap();
    first.stop().await;
    Running::on(&database).await.stop().await;
}
