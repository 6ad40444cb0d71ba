//! Postgres restarts, as for an upgrade of its packages, while clients submit with keys: each submit is answered at its first call,
//! and each job is there once.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use headway_api::client::{Client, ClientError};
use headway_tests::databases::program;
use headway_tests::submitters::submit;
use headway_tests::{Cluster, Expected, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PATIENCE: Duration = Duration::from_secs(60);
const CLIENTS: usize = 4;
const RESTARTS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn no_submit_with_a_key_is_lost_or_fails_while_postgres_restarts() {
    let cluster = Cluster::start(0, 0).await;
    let (answers, stop) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let streams: Vec<_> = (0..CLIENTS)
        .map(|number| tokio::spawn(submit_in_turn(cluster.client_of_all(), number, answers.clone(), stop.clone())))
        .collect();
    let mut postmaster = None;
    for _ in 0..RESTARTS {
        go_on(&answers).await;
        postmaster = Some(restart(&cluster.dir().join("pg")).await);
    }
    go_on(&answers).await;
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged = BTreeMap::new();
    for stream in streams {
        acknowledged.extend(stream.await.unwrap().unwrap());
    }
    let mut stored: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for job in cluster.client.all_jobs().await.unwrap() {
        stored.entry(job.name).or_default().push(job.id.to_string());
    }
    let expected: BTreeMap<String, Vec<String>> = acknowledged.into_iter().map(|(name, id)| (name, vec![id])).collect();
    assert_eq!(stored, expected);
    cluster.stop(Expected::OUTAGE).await;
    drop(postmaster);
}

/// A Postgres that the test has restarted: no child of the cluster's, which therefore does not end it.
struct Postmaster(Pid);

impl Postmaster {
    fn find(data: &Path) -> Self {
        let file = std::fs::read_to_string(data.join("postmaster.pid")).unwrap();
        Self(Pid::from_raw(file.lines().next().unwrap().trim().parse().unwrap()))
    }
}

impl Drop for Postmaster {
    fn drop(&mut self) {
        kill(self.0, Signal::SIGQUIT).ok();
    }
}

/// Submits one job after the other, each with one call; the first failure ends it.
async fn submit_in_turn(
    client: Client,
    number: usize,
    answers: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) -> Result<BTreeMap<String, String>, (String, ClientError)> {
    let mut acknowledged = BTreeMap::new();
    while !stop.load(Ordering::Relaxed) {
        let name = format!("job-{number}-{}", acknowledged.len());
        match submit(&client, &name).await {
            Ok(id) => acknowledged.insert(name, id),
            Err(error) => return Err((name, error)),
        };
        answers.fetch_add(1, Ordering::Relaxed);
    }
    Ok(acknowledged)
}

/// Waits until each client has submitted some more jobs.
async fn go_on(answers: &AtomicUsize) {
    let goal = answers.load(Ordering::Relaxed) + 5 * CLIENTS;
    until("some answers", PATIENCE, || async { (answers.load(Ordering::Relaxed) >= goal).then_some(()) }).await;
}

/// Restarts the Postgres of a directory as a package does, with the options that it runs with.
async fn restart(place: &Path) -> Postmaster {
    let data = place.join("data");
    let owner = std::fs::metadata(&data).unwrap();
    let mut command = Command::new(program("pg_ctl"));
    command.arg("-D").arg(&data).args(["-m", "fast", "-w", "restart"]).current_dir(place);
    // The new server inherits its output: a pipe would stay open as long as it runs.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.uid(owner.uid()).gid(owner.gid());
    let ended = tokio::task::spawn_blocking(move || command.status()).await.unwrap().unwrap();
    assert!(ended.success(), "pg_ctl restart: {ended}");
    Postmaster::find(&data)
}
