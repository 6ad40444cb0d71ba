#![allow(clippy::unwrap_used)]

use std::future::Future;

use headway_engine::{Change, IdempotencyKey, Known, Refusal, Reply, SessionId};
use headway_types::{JobId, JobSpec, NodeInventory, NodeReport, PlanId};
use sqlx::{ConnectOptions, Connection, PgConnection};

use super::*;
use crate::cluster::RequestError;
use crate::support::{TestDatabase, node, spec};

mod standby;

/// A loop of its own on a test's database.
struct Running {
    cluster: Cluster,
    inbox: mpsc::Sender<Input>,
    registrations: RegistrationSender,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    async fn on(database: &TestDatabase) -> Self {
        Self::of(Leader::new(database.options.clone()), database).await
    }

    async fn of(leader: Leader, database: &TestDatabase) -> Self {
        let running = Self::start(leader, database).await;
        running.cluster.readiness().wait_for(|ready| *ready).await.unwrap();
        running
    }

    /// One that may stand by.
    async fn start(leader: Leader, database: &TestDatabase) -> Self {
        Self::start_on(database.store().await, leader).await
    }

    async fn start_on(store: Store, leader: Leader) -> Self {
        let config = EngineConfig::default();
        let started = Driver::start(
            store,
            leader,
            Sessions::default(),
            Clock::default(),
            config,
            Retention::default(),
            "abc1234",
        )
        .await
        .unwrap();
        let shutdown = CancellationToken::new();
        let Started { driver, leading, cluster, inbox, registrations } = started;
        let task = tokio::spawn(driver.run(leading, shutdown.clone()));
        Self { cluster, inbox, registrations, shutdown, task }
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
    Request::Submit { jobs, idempotency, known: Known::default() }
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
async fn a_node_that_was_deleted_is_not_known_after_a_restart() {
    let database = TestDatabase::create().await;
    let before = Running::on(&database).await;
    let mut ids = headway_types::IdSource::seeded(9);
    let [stays, goes] = [1, 2].map(|_| ids.node(crate::support::START));
    for (id, session) in [(stays, SessionId(1)), (goes, SessionId(2))] {
        let inventory = Box::new(NodeInventory { name: id.to_string(), ..node(id).inventory });
        let report = NodeReport::Registered { inventory, groups: vec![] };
        before.inbox.send(Input::event(Event::Agent { node: id, session, report })).await.unwrap();
    }
    let left = Event::AgentDisconnected { node: goes, session: SessionId(2) };
    before.inbox.send(Input::event(left)).await.unwrap();
    let reply = before.cluster.request(ada(), Request::DeleteNode { node: goes, reason: None }).await.unwrap();
    assert!(matches!(reply, Reply::NodeDeleted(_)), "{reply:?}");
    before.stop().await;

    let after = Running::on(&database).await;
    assert_eq!(after.cluster.view().nodes.keys().copied().collect::<Vec<_>>(), [stays]);
    after.stop().await;
}

#[tokio::test]
async fn time_does_not_step_back_when_the_clock_was_set_back() {
    let database = TestDatabase::create().await;
    let store = database.store().await;
    let term = store.begin_term().await.unwrap();
    // Stored by a server whose clock ran an hour ahead.
    let stored = Clock::default().now() + headway_types::Seconds(3_600.0);
    let entered = headway_engine::record::Entered::Plan {
        plan: PlanId(uuid::Uuid::nil()),
        state: headway_types::PlanStateKind::Stale,
    };
    let transition = headway_engine::record::Transition { at: stored, entered };
    store.commit(term, &[Change::Transition(transition)]).await.unwrap();

    let running = Running::on(&database).await;
    assert!(running.cluster.now() >= stored);
    let (job, _) = submitted(running.cluster.request(ada(), submit("later", None)).await.unwrap());
    assert!(store.job(job).await.unwrap().unwrap().submitted_at >= stored);
    running.stop().await;
}

#[tokio::test]
async fn a_clock_far_ahead_of_what_is_stored_is_not_believed_while_jobs_run() {
    let database = TestDatabase::create().await;
    let store = database.store().await;
    let term = store.begin_term().await.unwrap();
    // What is stored is years old.
    let running = running(crate::support::START);
    let entered = headway_engine::record::Entered::Job {
        job: running.id,
        state: running.state.kind(),
        generation: running.generation,
    };
    let transition = headway_engine::record::Transition { at: crate::support::START, entered };
    let changes = [Change::Job(Arc::new(running)), Change::Transition(transition)];
    store.commit(term, &changes).await.unwrap();

    let running = Running::on(&database).await;
    let doubted = async {
        while running.cluster.view().doubt.is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), doubted).await.unwrap();
    assert!(running.cluster.now() < crate::support::START + headway_types::Seconds(3_600.0));
    running.stop().await;
}

/// A job that runs since then.
fn running(since: Timestamp) -> headway_engine::record::Job {
    use headway_engine::record::{Job, JobState};
    let id = headway_types::IdSource::seeded(3).job(since);
    let generation = headway_types::Generation(1);
    let state = JobState::Running { generation, since };
    Job { state, generation, ..Job::new(id, spec("runs"), "ada".into(), since) }
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

/// Holds the cluster row, so that every commit waits until it is let go.
async fn hold_commits(database: &TestDatabase) -> PgConnection {
    let mut connection = database.options.connect().await.unwrap();
    sqlx::query("BEGIN").execute(&mut connection).await.unwrap();
    sqlx::query("SELECT term FROM cluster FOR UPDATE").execute(&mut connection).await.unwrap();
    connection
}

/// Waits until a commit stands before the held row.
async fn until_a_commit_waits(database: &TestDatabase) {
    let mut connection = database.options.connect().await.unwrap();
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN
        (SELECT pid FROM pg_stat_activity WHERE datname = current_database())";
    let waits = async { while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut connection).await.unwrap() == 0 {} };
    tokio::time::timeout(Duration::from_secs(5), waits).await.unwrap();
}

/// Asks the loop while the test goes on.
fn asked(running: &Running, body: Request) -> tokio::task::JoinHandle<Result<Reply, RequestError>> {
    let cluster = running.cluster.clone();
    tokio::spawn(async move { cluster.request(ada(), body).await })
}

async fn in_time<T, E: std::fmt::Debug>(task: impl Future<Output = Result<T, E>>) -> T {
    tokio::time::timeout(Duration::from_secs(20), task).await.unwrap().unwrap()
}

#[tokio::test]
async fn while_a_batch_commits_the_next_is_decided_and_not_acted_on() {
    let database = TestDatabase::create().await;
    let running = Running::on(&database).await;
    let mut held = hold_commits(&database).await;
    let first = asked(&running, submit("first", Some("k")));
    until_a_commit_waits(&database).await;
    // The second needs no commit of its own: it is answered from what the first did, so it must not be answered yet.
    let second = asked(&running, submit("first", Some("k")));
    let mut third = asked(&running, Request::Hold { job: JobId(uuid::Uuid::nil()), reason: None });
    let early = tokio::time::timeout(Duration::from_millis(200), &mut third).await;
    assert!(early.is_err(), "answered before what it was decided on is committed: {early:?}");
    assert!(running.cluster.view().jobs.is_empty(), "a snapshot shows what is not committed");

    sqlx::query("COMMIT").execute(&mut held).await.unwrap();
    let (job, replayed) = submitted(in_time(first).await.unwrap());
    assert!(!replayed);
    assert_eq!(submitted(in_time(second).await.unwrap()), (job, true));
    let refused = in_time(third).await.unwrap();
    assert_eq!(refused, Reply::Refused(Refusal::NoSuchJob(JobId(uuid::Uuid::nil()))));
    assert!(running.cluster.view().jobs.contains_key(&job));
    held.close().await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_commit_that_nothing_is_heard_of_ends_its_term_and_the_next_goes_on() {
    let database = TestDatabase::create().await;
    let leader = Leader::with_session(database.options.clone(), Duration::from_millis(800));
    let running = Running::of(leader, &database).await;
    let mut held = hold_commits(&database).await;
    let lost = asked(&running, submit("lost", None));
    until_a_commit_waits(&database).await;
    assert_eq!(in_time(lost).await, Err(RequestError::Unavailable));
    let mut ready = running.cluster.readiness();
    drop(in_time(ready.wait_for(|ready| !ready)).await);
    sqlx::query("COMMIT").execute(&mut held).await.unwrap();
    drop(in_time(ready.wait_for(|ready| *ready)).await);
    submitted(in_time(asked(&running, submit("kept", None))).await.unwrap());
    held.close().await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_failed_commit_takes_along_what_was_decided_after_it() {
    let database = TestDatabase::create().await;
    let running = Running::on(&database).await;
    let mut held = hold_commits(&database).await;
    sqlx::query("UPDATE cluster SET term = term + 1").execute(&mut held).await.unwrap();
    let first = asked(&running, submit("first", Some("k")));
    until_a_commit_waits(&database).await;
    let second = asked(&running, submit("first", Some("k")));
    sqlx::query("COMMIT").execute(&mut held).await.unwrap();
    assert_eq!(in_time(first).await, Err(RequestError::Unavailable));
    // Decided on a state that is gone, or not decided at all and done anew: never answered from the lost state.
    if let Ok(reply) = in_time(second).await {
        assert!(!submitted(reply).1, "answered from a job that was never stored");
    }
    held.close().await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_server_told_to_stop_answers_what_it_has_decided() {
    let database = TestDatabase::create().await;
    let running = Running::on(&database).await;
    let mut held = hold_commits(&database).await;
    let first = asked(&running, submit("first", None));
    until_a_commit_waits(&database).await;
    running.shutdown.cancel();
    sqlx::query("COMMIT").execute(&mut held).await.unwrap();
    let (job, _) = submitted(in_time(first).await.unwrap());
    assert!(database.store().await.job(job).await.unwrap().is_some());
    held.close().await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_second_server_refuses_while_the_first_lives() {
    let database = TestDatabase::create().await;
    let first = Running::on(&database).await;
    let leader = Leader::with_session(database.options.clone(), Duration::from_millis(100));
    let store = database.store().await;
    let second = Driver::start(
        store,
        leader,
        Sessions::default(),
        Clock::default(),
        EngineConfig::default(),
        Retention::default(),
        "abc1234",
    )
    .await;
    assert!(matches!(second, Err(StartError::Leader(LeaderError::AnotherLeads))));
    first.cluster.request(ada(), submit("still served", None)).await.unwrap();
    first.stop().await;
    Running::on(&database).await.stop().await;
}

/// After a restart of the server all nodes register at once: who submits meanwhile does not wait for them.
#[tokio::test]
async fn a_submit_that_comes_after_two_thousand_registrations_is_answered_before_most_of_them() {
    const NODES: usize = 2_000;
    let database = TestDatabase::create().await;
    let running = Running::on(&database).await;
    let mut held = hold_commits(&database).await;
    let first = asked(&running, submit("first", None));
    until_a_commit_waits(&database).await;
    let mut ids = headway_types::IdSource::seeded(9);
    let mut registered = tokio::task::JoinSet::new();
    for number in 0..NODES {
        let id = ids.node(crate::support::START);
        let inventory = Box::new(NodeInventory { name: format!("node-{number}"), ..node(id).inventory });
        let report = NodeReport::Registered { inventory, groups: vec![] };
        let event = Event::Agent { node: id, session: SessionId(number as u64), report };
        let registrations = running.registrations.clone();
        registered.spawn(async move { registrations.register(Arrival::New, event).await });
    }
    // All of them wait before the submit comes.
    tokio::task::yield_now().await;
    let second = asked(&running, submit("second", None));
    sqlx::query("COMMIT").execute(&mut held).await.unwrap();
    submitted(in_time(first).await.unwrap());
    submitted(in_time(second).await.unwrap());
    let shown = running.cluster.view().nodes.len();
    assert!(shown < NODES / 4, "{shown} nodes went before the submit");
    // Nobody is turned away: all others come in, batch by batch.
    while let Some(done) = registered.join_next().await {
        done.unwrap().unwrap();
    }
    let all = async {
        while running.cluster.view().nodes.len() < NODES {
            tokio::task::yield_now().await
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.unwrap();
    held.close().await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn what_an_agent_reports_after_its_registration_is_heard_after_it() {
    let database = TestDatabase::create().await;
    let running = Running::on(&database).await;
    let id = headway_types::IdSource::seeded(9).node(crate::support::START);
    let inventory = Box::new(node(id).inventory);
    let report = NodeReport::Registered { inventory, groups: vec![] };
    running
        .registrations
        .register(Arrival::New, Event::Agent { node: id, session: SessionId(1), report })
        .await
        .unwrap();
    let left = Event::AgentDisconnected { node: id, session: SessionId(1) };
    running.inbox.send(Input::event(left)).await.unwrap();
    let gone = async {
        while running.cluster.view().nodes.get(&id).is_none_or(|node| node.connected) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
    running.stop().await;
}
