//! Several loops on one database.

use std::path::Path;

use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixListener, UnixStream};

use super::*;
use crate::store::Server;

/// A server with an address.
fn named(number: u128) -> Server {
    let (url, agents) = (format!("http://server-{number}"), format!("http://agents-{number}"));
    Server { id: uuid::Uuid::from_u128(number), url, agents, version: "1".into() }
}

/// Ends the session that keeps the lock, as Postgres does with one that is silent, and has another server lead.
async fn replaced_by(database: &TestDatabase, leader: Leader) -> Running {
    let mut connection = database.options.connect().await.unwrap();
    let starts = Running::of(leader, database);
    tokio::pin!(starts);
    // Until the one that waits comes before the one that takes the lock again.
    loop {
        sqlx::query(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        )
        .execute(&mut connection)
        .await
        .unwrap();
        if let Ok(running) = tokio::time::timeout(Duration::from_millis(500), &mut starts).await {
            return running;
        }
    }
}

/// A way to Postgres that can be cut: what is sent is lost to nobody, and does not arrive.
struct Cable {
    options: PgConnectOptions,
    cut: watch::Sender<bool>,
    _dir: tempfile::TempDir,
}

impl Cable {
    async fn to(database: &TestDatabase) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join(".s.PGSQL.5432")).unwrap();
        let options = database.options.clone().socket(dir.path()).port(5432);
        let (cut, state) = watch::channel(false);
        let behind = database.options.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (from, to) = near.into_split();
                match behind.get_socket() {
                    Some(dir) => {
                        let far = UnixStream::connect(socket(dir, behind.get_port())).await.unwrap().into_split();
                        tokio::spawn(carry(from, far.1, state.clone()));
                        tokio::spawn(carry(far.0, to, state.clone()));
                    }
                    None => {
                        let far = TcpStream::connect((behind.get_host(), behind.get_port())).await.unwrap();
                        let far = far.into_split();
                        tokio::spawn(carry(from, far.1, state.clone()));
                        tokio::spawn(carry(far.0, to, state.clone()));
                    }
                }
            }
        });
        Self { options, cut, _dir: dir }
    }
}

fn socket(dir: &Path, port: u16) -> std::path::PathBuf {
    dir.join(format!(".s.PGSQL.{port}"))
}

async fn carry(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, mut cut: watch::Receiver<bool>) {
    let mut bytes = [0; 16_384];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        if cut.wait_for(|cut| !cut).await.is_err() || to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

const SHORT: Duration = Duration::from_millis(800);

#[tokio::test]
async fn a_leader_that_is_cut_off_knows_it_before_another_leads_and_commits_nothing_more() {
    let database = TestDatabase::create().await;
    let cable = Cable::to(&database).await;
    let leader = Leader::with_session(cable.options.clone(), SHORT).of(named(1)).standing_by();
    let first = Running::start_on(Store::connect(cable.options.clone()).await.unwrap(), leader).await;
    let mut leads = first.cluster.readiness();
    drop(in_time(leads.wait_for(|ready| *ready)).await);
    let (kept, _) = submitted(first.cluster.request(ada(), submit("kept", None)).await.unwrap());
    let leader = Leader::with_session(database.options.clone(), SHORT).of(named(2)).standing_by();
    let second = Running::start(leader, &database).await;

    cable.cut.send_replace(true);
    let lost = asked(&first, submit("lost", None));
    let mut ready = second.cluster.readiness();
    drop(in_time(ready.wait_for(|ready| *ready)).await);
    assert!(!first.cluster.ready(), "two servers lead");
    let (after, _) = submitted(second.cluster.request(ada(), submit("after", None)).await.unwrap());
    let told = second.cluster.view().took_over.clone().unwrap();
    assert!(matches!(told.cause, Cause::Silent(_)), "{told:?}");

    // What was sent before arrives now.
    cable.cut.send_replace(false);
    assert_eq!(in_time(lost).await, Err(RequestError::Unavailable));
    let mut standing = first.cluster.standing();
    drop(in_time(standing.wait_for(Option::is_some)).await);
    assert_eq!(first.cluster.stands_by().unwrap().leader_url(), Some("http://server-2"));
    let stored = database.store().await.load(Timestamp(0)).await.unwrap();
    let stored: BTreeSet<_> = stored.jobs.iter().map(|job| job.id).collect();
    assert_eq!(stored, BTreeSet::from([kept, after]));
    second.stop().await;
    first.stop().await;
}

#[tokio::test]
async fn a_standby_shows_the_rows_takes_over_and_tells_of_it() {
    let database = TestDatabase::create().await;
    let first = Running::of(Leader::new(database.options.clone()).of(named(1)), &database).await;
    let (job, _) = submitted(first.cluster.request(ada(), submit("first", None)).await.unwrap());
    let leader = Leader::new(database.options.clone()).of(named(2)).standing_by();
    let standby = Running::start(leader, &database).await;
    let shown = standby.cluster.stands_by().unwrap();
    assert_eq!(shown.leader_url(), Some("http://server-1"));
    assert!(standby.cluster.view().jobs.contains_key(&job), "it shows what the leader has stored");
    let asked = standby.cluster.request(ada(), submit("refused", None)).await;
    assert!(matches!(asked, Err(RequestError::Unavailable)), "{asked:?}");

    let term = first.cluster.view().term;
    first.stop().await;
    let mut standing = standby.cluster.standing();
    drop(in_time(standing.wait_for(Option::is_none)).await);
    let mut ready = standby.cluster.readiness();
    drop(in_time(ready.wait_for(|ready| *ready)).await);
    assert!(standby.cluster.view().term > term);
    submitted(standby.cluster.request(ada(), submit("second", None)).await.unwrap());
    let told = standby.cluster.view().took_over.clone().unwrap();
    assert_eq!((told.from.as_str(), told.cause), ("http://server-1", Cause::Stopped));
    let led = database.store().await.leadership().await.unwrap();
    assert_eq!(led.leader.map(|one| one.server), Some(named(2)));
    assert_eq!(led.others, [], "whoever was told to stop is told of no more");
    standby.stop().await;
}

#[tokio::test]
async fn a_leader_that_was_replaced_stands_by() {
    let database = TestDatabase::create().await;
    let leader = Leader::new(database.options.clone()).of(named(1)).standing_by();
    let former = Running::start(leader, &database).await;
    let mut ready = former.cluster.readiness();
    drop(in_time(ready.wait_for(|ready| *ready)).await);
    // Another has begun a term: as after this process was stopped for a while.
    let store = database.store().await;
    store.tell_of(&named(2)).await.unwrap();
    let mut standing = former.cluster.standing();
    let other = Leader::new(database.options.clone()).of(named(2));
    let other = replaced_by(&database, other).await;
    drop(in_time(standing.wait_for(Option::is_some)).await);
    assert!(!former.cluster.ready());
    assert_eq!(former.cluster.stands_by().unwrap().leader_url(), Some("http://server-2"));
    other.stop().await;
    drop(in_time(standing.wait_for(Option::is_none)).await);
    drop(in_time(ready.wait_for(|ready| *ready)).await);
    former.stop().await;
}
