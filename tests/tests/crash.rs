//! Nothing acknowledged is lost and nothing runs twice when processes die.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use headway_api::v1::JobStateKind as State;
use headway_tests::job::EmulatedJob;
use headway_tests::{Cluster, Expected, until};
use nix::sys::signal::Signal;

const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_submit_is_lost_or_doubled_when_the_scheduler_is_killed() {
    let mut cluster = Cluster::start(1, 2).await;
    // Large jobs, so that they stay queued and only the submits matter.
    let yaml = |n: usize| EmulatedJob { min_gpus: 64, max_gpus: 64, ..EmulatedJob::named(&format!("job-{n}")) }.yaml();

    let acknowledged: Vec<(usize, String)> = futures::stream::iter(0..100)
        .map(|n| {
            let client = cluster.client.clone();
            async move {
                let submitted = client.submit_yaml_for(&yaml(n), Some(&format!("key-{n}")), true).await.unwrap();
                (n, submitted.jobs[0].id.to_string())
            }
        })
        .buffer_unordered(16)
        .collect()
        .await;
    cluster.kill_server();
    cluster.start_server().await;

    let stored: Vec<String> = cluster.client.all_jobs().await.unwrap().iter().map(|job| job.id.to_string()).collect();
    let unique: BTreeSet<&String> = stored.iter().collect();
    assert_eq!(stored.len(), 100, "jobs after the crash");
    assert!(acknowledged.iter().all(|(_, id)| unique.contains(id)), "an acknowledged job is missing");

    // A client that retries because it never saw the answer gets the same job.
    for (n, id) in acknowledged.iter().take(10) {
        let again = cluster.client.submit_yaml(&yaml(*n), Some(&format!("key-{n}"))).await.unwrap();
        assert_eq!(&again.jobs[0].id.to_string(), id);
    }
    assert_eq!(cluster.client.all_jobs().await.unwrap().len(), 100, "jobs after the retries");
    cluster.stop(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn training_goes_on_while_the_scheduler_is_away() {
    let mut cluster = Cluster::start(2, 2).await;
    let id = start_training(&cluster, "steady").await;
    let before = cluster.client.job(&id).await.unwrap().job;
    cluster.kill_server();
    cluster.start_server().await;
    let after = until("the job to report again", PATIENCE, || async {
        let job = cluster.client.job(&id).await.ok()?.job;
        (job.samples_seen > before.samples_seen).then_some(job)
    })
    .await;
    assert_eq!(after.generation, before.generation, "the same workers go on");
    assert_eq!(after.restarts, before.restarts);
    cluster.stop(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_outlive_their_agent_and_are_adopted_again() {
    let mut cluster = Cluster::start(1, 2).await;
    let id = start_training(&cluster, "adopted").await;
    let before = cluster.client.job(&id).await.unwrap().job;
    cluster.kill_agent(0);
    cluster.start_agent(0);
    let after = until("the job to report through the new agent", PATIENCE, || async {
        let job = cluster.client.job(&id).await.ok()?.job;
        (job.samples_seen > before.samples_seen).then_some(job)
    })
    .await;
    assert_eq!(after.generation, before.generation, "the agent adopts what it finds");
    cluster.stop(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_leaves_on_sigterm_ends_once_its_jobs_have_saved_and_left() {
    let mut cluster = Cluster::start(2, 2).await;
    cluster.kill_agent(0);
    cluster.start_agent_with(0, &["--leave-on-term"]);
    cluster.wait_for_nodes(2).await;
    // It takes all GPUs of both nodes, and can go on with those of one.
    let id = start_training(&cluster, "leaver").await;
    until("the job to run on the node that leaves", PATIENCE, || async {
        let node = node_1(&cluster).await?;
        node.gpus.iter().any(|gpu| gpu.job_id.is_some()).then_some(())
    })
    .await;
    let before = cluster.client.job(&id).await.unwrap().job;

    cluster.signal_agent(0, Signal::SIGTERM);
    until("the agent to end", PATIENCE, || {
        let ended = cluster.agent_ended(0);
        async move { ended }
    })
    .await;
    let log = std::fs::read_to_string(cluster.log("node-1")).unwrap();
    assert!(log.contains("all groups have left this node"), "{log}");
    let node = node_1(&cluster).await.unwrap();
    let reason = node.leaving_reason.unwrap_or_default();
    assert!(reason.starts_with("its agent got SIGTERM and ends within "), "{reason}");
    assert!(node.gpus.iter().all(|gpu| gpu.job_id.is_none()), "its GPUs are proven free");
    assert!(cluster.command(&["node", "describe", "node-1"]).contains("leaves       its agent got SIGTERM"));
    let after = until("the job to train elsewhere", PATIENCE, || async {
        let job = cluster.client.job(&id).await.ok()?.job;
        (job.state == State::Running && job.generation > before.generation && job.samples_seen > before.samples_seen)
            .then_some(job)
    })
    .await;
    assert_eq!(after.restarts, before.restarts, "it has failed nowhere");

    cluster.start_agent(0);
    until("the node to be back in service", PATIENCE, || async {
        let node = node_1(&cluster).await?;
        (node.connected && node.leaving_reason.is_none() && node.health_score == 1.0).then_some(())
    })
    .await;
    cluster.stop(&[]).await;
}

async fn node_1(cluster: &Cluster) -> Option<headway_api::v1::Node> {
    cluster.client.nodes().await.ok()?.into_iter().find(|node| node.name == "node-1")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_resumes_from_its_checkpoint() {
    let cluster = Cluster::start(2, 2).await;
    let id = start_training(&cluster, "mortal").await;
    let before = until("a committed checkpoint", PATIENCE, || async {
        let job = cluster.client.job(&id).await.ok()?.job;
        job.checkpoint.is_some().then_some(job)
    })
    .await;
    let saved = before.checkpoint.as_ref().unwrap();
    let (saved, saved_step) = (saved.samples_seen, saved.step);
    kill_a_worker(&cluster, &id);
    let after = until("the next generation to train", PATIENCE, || async {
        let job = cluster.client.job(&id).await.ok()?.job;
        (job.generation > before.generation && job.state == State::Running && job.samples_seen > Some(saved))
            .then_some(job)
    })
    .await;
    assert!(after.restarts >= 1);
    let resumed = &cluster.client.allocations(&id).await.unwrap();
    let newest = resumed.iter().max_by_key(|allocation| allocation.generation).unwrap();
    assert!(newest.resumed_from_step.unwrap_or(0) >= saved_step, "it resumed from the committed checkpoint");
    // What the worker had sent last may be lost with its connection.
    cluster.stop(&[Expected::warning("headway_agent::worker_socket", "a worker's line cannot be read")]).await;
}

async fn start_training(cluster: &Cluster, name: &str) -> String {
    let reply = cluster.client.submit_yaml(&EmulatedJob::named(name).yaml(), None).await.unwrap();
    let id = reply.jobs[0].id.to_string();
    until("the job to train", PATIENCE, || async {
        let job = cluster.client.job(&id).await.ok()?.job;
        (job.state == State::Running && job.samples_seen > Some(0)).then_some(())
    })
    .await;
    id
}

/// `kill -9` of one process of the job.
fn kill_a_worker(cluster: &Cluster, job: &str) {
    cluster.workers_of(job).first().expect("a worker of the job runs").signal(Signal::SIGKILL);
}
