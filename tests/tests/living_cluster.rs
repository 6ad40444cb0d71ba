//! One cluster, two jobs, from submit to finish: the batch follows the noise, and GPUs move when a job arrives.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use headway_api::client::Client;
use headway_api::v1::{DrainRequest, Job, JobStateKind as State, NodePolicyKind};
use headway_tests::job::EmulatedJob;
use headway_tests::{Cluster, soon, until};

async fn submit(client: &Client, job: &EmulatedJob) -> String {
    client.submit_yaml(&job.yaml(), None).await.unwrap().jobs[0].id.to_string()
}

async fn job(client: &Client, id: &str) -> Job {
    client.job(id).await.unwrap().job
}

/// Waits until the job is as wished, and returns it.
async fn job_when(client: &Client, id: &str, what: &str, holds: impl Fn(&Job) -> bool) -> Job {
    let found = until(what, Duration::from_secs(120), || async {
        let job = client.job(id).await.ok()?.job;
        assert_ne!(job.state, State::Failed, "the job failed while waiting for {what}: {:?}", job.state_cause);
        holds(&job).then_some(job)
    });
    found.await
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_go_from_submit_to_finish_and_are_tuned_on_the_way() {
    let cluster = Cluster::start(2, 4).await;
    let client = &cluster.client;

    // The first job takes what helps it.
    let first = submit(client, &EmulatedJob { samples: 40_000, speed: 20.0, ..EmulatedJob::named("first") }).await;
    let started = job_when(client, &first, "the first job to train", |job| {
        job.state == State::Running && job.throughput_tokens_per_second.is_some()
    })
    .await;
    assert!(started.gpus >= 1);

    // Its noise scale rises, and its batch follows without a restart.
    let grown = job_when(client, &first, "a live batch change", |job| job.batch_changes >= 1).await;
    assert_eq!(grown.generation, started.generation, "a batch change must not restart the job");
    let reasons = client.job_events(&first, 200).await.unwrap();
    let change =
        reasons.iter().find(|event| event.verb == "job.batch_changed").expect("the change is in the event log");
    assert!(!change.message.is_empty());

    // A more important job arrives: GPUs move, the first job resumes where it had saved.
    let before = job(client, &first).await;
    let second = EmulatedJob { min_gpus: 4, max_gpus: 4, priority: 90, samples: 6_000, ..EmulatedJob::named("second") };
    let second = submit(client, &second).await;
    job_when(client, &second, "the second job to run", |job| job.state == State::Running).await;
    let moved = job_when(client, &first, "the first job to train on fewer GPUs", |job| {
        job.state == State::Running && job.generation > before.generation && job.throughput_tokens_per_second.is_some()
    })
    .await;
    assert_eq!(moved.gpus, 4);
    assert!(moved.samples_seen >= before.checkpoint.map(|checkpoint| checkpoint.samples_seen));

    // It ends, its GPUs come back, and both finish.
    job_when(client, &second, "the second job to finish", |job| job.state == State::Succeeded).await;
    let finished = job_when(client, &first, "the first job to finish", |job| job.state == State::Succeeded).await;
    assert!(finished.samples_seen >= Some(40_000));
    let history = client.allocations(&first).await.unwrap();
    assert!(history.len() >= 2, "every generation is in the history");
    assert!(history.iter().all(|allocation| !allocation.cause.is_empty()), "every allocation has its reason");
    cluster.stop(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn people_can_see_steer_and_cancel() {
    let cluster = Cluster::start(2, 2).await;
    let client = &cluster.client;
    let id = submit(client, &EmulatedJob { min_gpus: 2, max_gpus: 4, ..EmulatedJob::named("steered") }).await;
    job_when(client, &id, "the job to run", |job| job.state == State::Running && job.loss.is_some()).await;

    let explain = client.explain(&id).await.unwrap();
    assert!(!explain.headline.is_empty());
    let plan = client.current_plan().await.unwrap();
    assert!(plan.assignments.iter().any(|assignment| assignment.job_id.to_string() == id));
    let log = client.logs(&id, &headway_api::client::LogRequest { tail: Some(5), ..Default::default() }).await.unwrap();
    assert!(!log.bytes.is_empty(), "the worker's log is readable over REST");

    // Draining a node moves the job off it.
    let fans = DrainRequest { reason: Some("new fans".into()), deadline: None, within_seconds: None };
    client.drain("node-1", &fans).await.unwrap();
    until("the drained node to be empty", soon(), || async {
        let nodes = client.nodes().await.ok()?;
        let node = nodes.iter().find(|node| node.name == "node-1")?;
        node.gpus.iter().all(|gpu| gpu.job_id.is_none()).then_some(())
    })
    .await;
    job_when(client, &id, "the job to run elsewhere", |job| job.state == State::Running && job.gpus == 2).await;
    client.uncordon("node-1").await.unwrap();

    // A job too large for the cluster says so.
    let large = EmulatedJob { min_gpus: 64, max_gpus: 64, ..EmulatedJob::named("large") }.yaml();
    let refused = client.submit_yaml(&large, None).await.unwrap_err().to_string();
    assert!(refused.contains("it needs 64 GPUs of one node class, and the largest has 4"), "{refused}");
    let large = client.submit_yaml_for(&large, None, true).await.unwrap().jobs[0].id.to_string();
    until("the reason why it cannot start", soon(), || async {
        let explain = client.explain(&large).await.ok()?;
        explain.reasons.iter().any(|reason| reason.code == "never").then_some(())
    })
    .await;

    client.cancel(&id, Some("seen enough")).await.unwrap();
    client.cancel(&large, None).await.unwrap();
    let cancelled = until("the job to be cancelled", soon(), || async {
        let job = client.job(&id).await.ok()?.job;
        (job.state == State::Cancelled).then_some(job)
    })
    .await;
    assert!(cancelled.state_cause.unwrap_or_default().contains("seen enough"));
    cluster.stop(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_agent_is_gone_is_deleted_and_may_come_back_as_a_new_one() {
    let mut cluster = Cluster::start(2, 2).await;
    let refused = cluster.client.delete_node("node-2", None).await.unwrap_err().to_string();
    assert!(refused.contains("stop it first"), "{refused}");
    cluster.client.cordon("node-2", Some("smells")).await.unwrap();
    cluster.kill_agent(1);
    let gone = until("the deletion of a node that has left", soon(), || async {
        cluster.client.delete_node("node-2", Some("scrapped")).await.ok()
    })
    .await;
    assert_eq!(gone.name, "node-2");
    let nodes = cluster.client.nodes().await.unwrap();
    assert_eq!(nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["node-1"]);
    let known = cluster.client.node_certificates().await.unwrap();
    assert!(known.iter().any(|one| one.name == "node-2" && one.revoked_at.is_some()), "its certificate goes with it");
    cluster.join(1);
    cluster.start_agent(1);
    cluster.wait_for_nodes(2).await;
    let back = cluster.client.node("node-2").await.unwrap();
    assert_eq!((back.id, back.policy), (gone.id, NodePolicyKind::Schedulable));
    cluster.stop(&[]).await;
}
