//! Submits under fire: the scheduler is killed at random moments while clients submit, again and again. An
//! acknowledged submit is there afterwards, exactly once; one without an answer is there once after its retry.
//!
//! `HEADWAY_KILLS` sets how many times (6 by default, 200 in `make soak`).
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use headway_api::client::Client;
use headway_tests::job::EmulatedJob;
use headway_tests::{Cluster, Expected, soon, until};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Clients at a time.
const CLIENTS: usize = 8;
/// A disk that others write to as well takes its time.
const EXPECTED: &[Expected] = Expected::STOPPED;

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_submit_is_lost_or_doubled_however_often_the_scheduler_is_killed() {
    let kills: u32 = std::env::var("HEADWAY_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    let mut random = StdRng::seed_from_u64(u64::from(kills));
    let mut cluster = Cluster::start(0, 0).await;
    let names = Arc::new(AtomicUsize::new(0));
    let (mut acknowledged, mut unanswered) = (BTreeMap::new(), Vec::new());
    let mut slowest = Duration::ZERO;
    for _ in 0..kills {
        let stop = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| tokio::spawn(submit_until(cluster.client.clone(), names.clone(), stop.clone())))
            .collect();
        // The moment is a number of further submits, so that each kill comes under load however slow the machine is.
        let moment = names.load(Ordering::Relaxed) + random.random_range(CLIENTS..10 * CLIENTS);
        until("the moment to kill", soon(), || async { (names.load(Ordering::Relaxed) >= moment).then_some(()) }).await;
        cluster.kill_server();
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            let (ids, lost) = client.await.unwrap();
            acknowledged.extend(ids);
            unanswered.extend(lost);
        }
        // The next submits come before it has recovered: they are refused, or kept, but never forgotten.
        let begin = Instant::now();
        let early = tokio::spawn(submit_until(cluster.client.clone(), names.clone(), Arc::new(AtomicBool::new(true))));
        cluster.start_server().await;
        slowest = slowest.max(begin.elapsed());
        let (ids, lost) = early.await.unwrap();
        acknowledged.extend(ids);
        unanswered.extend(lost);
    }
    for name in &unanswered {
        let id = cluster.client.submit_yaml(&yaml(name), Some(name)).await.unwrap().jobs[0].id.to_string();
        acknowledged.insert(name.clone(), id);
    }
    let mut stored: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for job in cluster.client.all_jobs().await.unwrap() {
        stored.entry(job.name).or_default().push(job.id.to_string());
    }
    let lost = acknowledged.iter().filter(|(name, id)| !stored.get(*name).is_some_and(|ids| ids.contains(id)));
    let (lost, doubled) = (lost.count(), stored.values().filter(|ids| ids.len() > 1).count());
    println!(
        "{kills} kills, {} submits, {} of them without a first answer: {lost} lost, {doubled} doubled; slowest restart {slowest:?}",
        stored.len(),
        unanswered.len()
    );
    assert_eq!((lost, doubled, stored.len()), (0, 0, acknowledged.len()));
    cluster.stop(EXPECTED).await;
}

/// Submits one job after the other until told to stop or the scheduler no longer answers; says which were acknowledged
/// under which id, and which got no answer.
async fn submit_until(
    client: Client,
    names: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) -> (BTreeMap<String, String>, Vec<String>) {
    let (mut acknowledged, mut unanswered) = (BTreeMap::new(), Vec::new());
    loop {
        let name = format!("job-{}", names.fetch_add(1, Ordering::Relaxed));
        match client.submit_yaml(&yaml(&name), Some(&name)).await {
            Ok(reply) => drop(acknowledged.insert(name, reply.jobs[0].id.to_string())),
            Err(_) => {
                unanswered.push(name);
                return (acknowledged, unanswered);
            }
        }
        if stop.load(Ordering::Relaxed) {
            return (acknowledged, unanswered);
        }
    }
}

/// Jobs larger than any node, so that only the submits matter.
fn yaml(name: &str) -> String {
    EmulatedJob { min_gpus: 64, max_gpus: 64, ..EmulatedJob::named(name) }.yaml()
}
