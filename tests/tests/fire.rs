//! Everything at once, on the real binaries: schedulers, agents and workers are killed and stopped at random moments
//! while jobs run and submits come in. Nothing acknowledged is lost, nothing runs twice, every job comes to its end.
//!
//! `HEADWAY_FIRE_SECONDS` sets how long (15 s by default, minutes in `make soak`), `HEADWAY_FIRE_SEED` which moments.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use headway_api::v1::JobStateKind as State;
use headway_tests::job::EmulatedJob;
use headway_tests::{Cluster, Expected, until};
use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Longest wait for the jobs to end after the fire.
const PATIENCE: Duration = Duration::from_secs(240);
/// Longer than three leases of the test cluster.
const PAUSE: Duration = Duration::from_secs(7);
/// What a worker had sent last may be lost with its connection.
const EXPECTED: &[Expected] = &[
    Expected::warning("headway_agent::worker_socket", "a worker's line cannot be read"),
    Expected::SLOW_STATEMENT,
    Expected::SLOW_CONNECTION,
    Expected::LOST_MEASUREMENTS,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Blow {
    KillScheduler,
    PauseScheduler,
    KillAgent,
    PauseAgent,
    KillWorker,
    PauseWorker,
}

const BLOWS: [Blow; 6] =
    [Blow::KillScheduler, Blow::PauseScheduler, Blow::KillAgent, Blow::PauseAgent, Blow::KillWorker, Blow::PauseWorker];

#[tokio::test(flavor = "multi_thread")]
async fn jobs_survive_whatever_is_killed_or_stopped() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (seconds, seed) = (number("HEADWAY_FIRE_SECONDS").unwrap_or(15), number("HEADWAY_FIRE_SEED").unwrap_or(1));
    println!("{seconds} s of fire, seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut cluster = Cluster::start(2, 2).await;
    let mut jobs: BTreeMap<String, String> = BTreeMap::new();
    let mut blows: BTreeMap<Blow, u32> = BTreeMap::new();
    let ends = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < ends {
        let name = format!("job-{}", jobs.len());
        let job = EmulatedJob { max_gpus: 2, samples: 4_000, speed: 20.0, ..EmulatedJob::named(&name) };
        jobs.insert(name.clone(), submit(&cluster, &name, &job.yaml()).await);
        let blow = BLOWS[random.random_range(0..BLOWS.len())];
        let node = random.random_range(0..cluster.nodes());
        *blows.entry(blow).or_default() += 1;
        strike(&mut cluster, blow, node, &mut random).await;
        cluster.check_use();
    }
    println!("blows: {blows:?}");
    for (name, id) in &jobs {
        let state = until(&format!("{name} to end"), PATIENCE, || async {
            cluster.check_use();
            let job = cluster.client.job(id).await.ok()?.job;
            job.state.is_final().then_some(job.state)
        })
        .await;
        assert_eq!(state, State::Succeeded, "{name}");
        check_progress(&cluster, name, id).await;
    }
    let stored = cluster.client.all_jobs().await.unwrap();
    assert_eq!(stored.len(), jobs.len(), "each acknowledged job is there once: {blows:?}");
    cluster.stop(EXPECTED).await;
}

/// Submits as a careful client does: the same key until an answer comes.
async fn submit(cluster: &Cluster, name: &str, yaml: &str) -> String {
    until("an answer to the submit", PATIENCE, || async {
        let reply = cluster.client.submit_yaml(yaml, Some(name)).await.ok()?;
        Some(reply.jobs[0].id.to_string())
    })
    .await
}

async fn strike(cluster: &mut Cluster, blow: Blow, node: usize, random: &mut StdRng) {
    let moment = Duration::from_millis(random.random_range(50..1_500));
    watch(cluster, moment).await;
    match blow {
        Blow::KillScheduler => {
            cluster.kill_server();
            watch(cluster, moment).await;
            cluster.start_server().await;
        }
        Blow::PauseScheduler => {
            cluster.signal_server(Signal::SIGSTOP);
            watch(cluster, PAUSE).await;
            cluster.signal_server(Signal::SIGCONT);
        }
        Blow::KillAgent => {
            cluster.kill_agent(node);
            watch(cluster, moment).await;
            cluster.start_agent(node);
        }
        Blow::PauseAgent => {
            cluster.signal_agent(node, Signal::SIGSTOP);
            watch(cluster, PAUSE).await;
            cluster.signal_agent(node, Signal::SIGCONT);
        }
        Blow::KillWorker => drop(signal_a_worker(cluster, random, Signal::SIGKILL)),
        Blow::PauseWorker => {
            let victim = signal_a_worker(cluster, random, Signal::SIGSTOP);
            watch(cluster, moment).await;
            if let Some(victim) = victim {
                victim.signal(Signal::SIGCONT);
            }
        }
    };
}

fn signal_a_worker(cluster: &Cluster, random: &mut StdRng, signal: Signal) -> Option<headway_tests::Worker> {
    let workers = cluster.workers();
    let victim = (!workers.is_empty()).then(|| workers[random.random_range(0..workers.len())].clone())?;
    victim.signal(signal);
    Some(victim)
}

/// Lets time pass and looks all the while whether anything is used twice.
async fn watch(cluster: &Cluster, time: Duration) {
    let ends = Instant::now() + time;
    let mut looks = tokio::time::interval(Duration::from_millis(200));
    while Instant::now() < ends {
        looks.tick().await;
        cluster.check_use();
    }
}

/// Each generation resumes no earlier than the one before did: what was committed is never trained again from further back.
async fn check_progress(cluster: &Cluster, name: &str, id: &str) {
    let mut allocations = cluster.client.allocations(id).await.unwrap();
    allocations.sort_by_key(|allocation| allocation.generation);
    let steps: Vec<u64> = allocations.iter().map(|one| one.resumed_from_step.unwrap_or(0)).collect();
    assert!(steps.is_sorted(), "{name} went back: it resumed from {steps:?}");
}
