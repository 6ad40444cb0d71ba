//! A node that joined by the address of one of two servers: it outlasts takeovers, because servers name each other.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::time::Duration;

use headway_api::client::Client;
use headway_api::v1::JobStateKind as State;
use headway_tests::complaint::Expected;
use headway_tests::job::EmulatedJob;
use headway_tests::leading::{stands_by, writes_resume};
use headway_tests::process::Process;
use headway_tests::{Cluster, until};

const PATIENCE: Duration = Duration::from_secs(60);
const NAME: &str = "node-1";
const EXPECTED: &[Expected] = &[
    Expected::warning("headway_scheduler::driver", "this server has taken over"),
    Expected::warning("headway_scheduler::driver::standby", "the cluster cannot be shown"),
    Expected::warning("headway_scheduler::observer", "measurements lost"),
    Expected::warning("headway_agent::session", "no session for a while"),
    Expected::SLOW_STATEMENT,
    Expected::SLOW_CONNECTION,
];

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_joined_with_one_server_lives_on_when_the_other_takes_over() {
    let mut cluster = Cluster::start_several(2, 0, 0).await;
    let token = cluster.command(&["node", "token", "create", "--node", NAME]);
    let data = data_dir(&cluster).display().to_string();
    let joined_with = cluster.agents_url();
    cluster.command(&["node", "join", token.trim(), "--server", &joined_with, "--data-dir", &data, "--name", NAME]);
    let agent = start_agent(&cluster);
    cluster.wait_for_nodes(1).await;
    let job = EmulatedJob { max_gpus: 2, ..EmulatedJob::named("steady") };
    let job = cluster.client.submit_yaml(&job.yaml(), None).await.unwrap().jobs[0].id.to_string();
    trains_on(&cluster.client, &job).await;
    let workers = cluster.processes_of(&job);
    until("the node to know the other server", PATIENCE, || async {
        let known = std::fs::read_to_string(learned(&cluster)).ok()?;
        known.lines().any(|url| url != joined_with).then_some(())
    })
    .await;

    // The only server that it was given is gone.
    cluster.kill_server_at(0);
    let [first, second] = [cluster.client_of(0), cluster.client_of(1)];
    writes_resume(&second, "after-the-kill").await;
    trains_on(&second, &job).await;
    assert_eq!(cluster.processes_of(&job), workers, "the workers go on");
    // The next agent of the node has what the former has learned.
    agent.kill_outright();
    let agent = start_agent(&cluster);
    trains_on(&second, &job).await;

    // The server that it was given stands by, and tells an agent that has learned of no other who leads.
    cluster.start_server_at(0).await;
    stands_by(&first).await;
    agent.kill_outright();
    std::fs::remove_file(learned(&cluster)).unwrap();
    let agent = start_agent(&cluster);
    trains_on(&second, &job).await;
    assert_eq!(cluster.processes_of(&job), workers, "the workers go on");
    assert_eq!(second.job(&job).await.unwrap().job.generation, 1);
    agent.stop().await;
    cluster.stop(EXPECTED).await;
}

fn data_dir(cluster: &Cluster) -> PathBuf {
    cluster.dir().join(NAME)
}

/// Where the agent remembers servers that it was not given.
fn learned(cluster: &Cluster) -> PathBuf {
    data_dir(cluster).join("identity.json.servers")
}

/// Starts the agent of the node. It finds the servers by what it has joined and learned alone.
fn start_agent(cluster: &Cluster) -> Process {
    let data = data_dir(cluster).display().to_string();
    let emulated = ["--gpus", "2", "--device-flops", "1000000000", "--link-bytes-per-second", "4000000"];
    let here = ["--warm-interpreters", "0", "--run-as", "agent", "--allow-others", "--cgroups", "off"];
    let named = ["agent", "--data-dir", &data, "--name", NAME, "--report-every-seconds", "1"];
    let arguments: Vec<String> = named.into_iter().chain(emulated).chain(here).map(str::to_owned).collect();
    Process::start(&arguments, &cluster.log(NAME)).unwrap()
}

/// Waits until a job trains and its next report has come.
async fn trains_on(client: &Client, job: &str) {
    let seen = || async {
        let job = client.job(job).await.ok()?.job;
        (job.state == State::Running).then_some(job.samples_seen?)
    };
    let before = until("the job to train", PATIENCE, seen).await;
    until("the job to report again", PATIENCE, || async { (seen().await? > before).then_some(()) }).await;
}
