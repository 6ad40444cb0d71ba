//! Leaders, standbys, the primary of the database and agents are killed and stopped, again and again, while clients submit, cancel, hold and read, and
//! jobs run. What clients were told and workers have done is judged afterwards as a history.
//!
//! `HEADWAY_BLOWS` sets how many (4 by default, five times 60 in `make soak`), `HEADWAY_CLIENTS` how many clients, `HEADWAY_CHAOS_SEED` whom and when.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use headway_tests::callers::{Callers, Habits};
use headway_tests::judge::judge;
use headway_tests::leading::{leader, stands_by, writes_resume};
use headway_tests::verdict::{counts, load, require_kept, spread};
use headway_tests::wait::pass;
use headway_tests::{Cluster, Expected};
use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

const NODES: usize = 4;
/// No agent is away for so long: no node is given up.
const LEASE_SECONDS: f64 = 20.0;
const IN_FLIGHT: Duration = Duration::from_secs(10);
/// From a blow to the first write that is acknowledged.
const RESUMED: Duration = Duration::from_secs(6);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Blow {
    KillLeader,
    StopLeader,
    KillStandby,
    StopStandby,
    KillPrimary,
    StopPrimary,
    KillAgent,
    StopAgent,
}

use Blow::{KillAgent, KillLeader, KillPrimary, KillStandby, StopAgent, StopLeader, StopPrimary, StopStandby};

/// One of each and more of what happens more often, for drawing from.
const BLOWS: [Blow; 12] = [
    KillLeader,
    KillPrimary,
    StopLeader,
    KillAgent,
    StopPrimary,
    KillStandby,
    StopAgent,
    KillLeader,
    StopStandby,
    KillAgent,
    KillLeader,
    KillAgent,
];

#[tokio::test(flavor = "multi_thread")]
async fn what_was_promised_is_kept_whoever_is_killed_or_stopped() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (blows, seed) = (number("HEADWAY_BLOWS").unwrap_or(4) as usize, number("HEADWAY_CHAOS_SEED").unwrap_or(1));
    let clients = number("HEADWAY_CLIENTS").unwrap_or(8) as usize;
    println!("{blows} blows under {clients} clients, seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut cluster = Cluster::start_wired(NODES, LEASE_SECONDS).await;
    let direct = [cluster.direct_client_of(0), cluster.direct_client_of(1)];
    let habits = Habits { count: clients, seed, pause: Duration::from_millis(1_000) };
    let callers = Callers::start(&cluster.urls(), cluster.token(), cluster.dir(), &habits);
    let mut done: BTreeMap<Blow, Vec<Duration>> = BTreeMap::new();
    let mut undisturbed = Vec::new();
    let mut left = Vec::new();
    for turn in 0..blows {
        if left.is_empty() {
            left = BLOWS.to_vec();
            if blows < BLOWS.len() {
                left.truncate(blows);
            }
        }
        let blow = left.swap_remove(random.random_range(0..left.len()));
        let leads = leader(&direct).await;
        stands_by(&direct[1 - leads]).await;
        callers.go_on(clients / 4 + 1).await;
        // What it takes without a blow.
        undisturbed.push(writes_resume(&cluster.client_of_all(), &format!("before-{turn}")).await);
        let took = strike(&mut cluster, blow, leads, turn, &mut random).await;
        if took > RESUMED {
            println!("{blow:?}, the {turn}th: writes resumed after {took:.2?}, load {}", load());
        }
        done.entry(blow).or_default().push(took);
    }
    let history = callers.finish(&cluster.client_of_all()).await;
    println!("{}", counts(&history));
    println!("a write without a blow: {}", spread(&undisturbed));
    for (blow, times) in &done {
        println!("{blow:?}: {}", spread(times));
    }
    let of = |blows: &[Blow]| blows.iter().filter_map(|blow| done.get(blow)).flatten().copied().collect::<Vec<_>>();
    let outages = of(&[KillLeader, StopLeader, KillPrimary, StopPrimary]);
    println!("leader or primary: {}; load {}", spread(&outages), load());
    require_kept(&history, &judge(&history, IN_FLIGHT), seed);
    let slowest = outages.iter().max().copied().unwrap_or_default();
    assert!(slowest < RESUMED || number("HEADWAY_BLOWS").is_some(), "seed {seed}: writes resumed after {slowest:?}");
    cluster.stop(Expected::OUTAGE).await;
}

/// How long it is until a write is acknowledged: of a primary that is stopped from the promotion of the other on, as nobody can tell before whether
/// it will go on.
async fn strike(cluster: &mut Cluster, blow: Blow, leads: usize, turn: usize, random: &mut StdRng) -> Duration {
    let client = cluster.client_of_all();
    let name = format!("after-{turn}");
    let node = random.random_range(0..NODES);
    let moment = Duration::from_millis(random.random_range(100..2_000));
    match blow {
        KillLeader | KillStandby => {
            let victim = if blow == KillLeader { leads } else { 1 - leads };
            cluster.kill_server_at(victim);
            let took = writes_resume(&client, &name).await;
            cluster.start_server_at(victim).await;
            took
        }
        StopLeader | StopStandby => {
            let victim = if blow == StopLeader { leads } else { 1 - leads };
            cluster.signal_server_at(victim, Signal::SIGSTOP);
            let took = writes_resume(&client, &name).await;
            cluster.signal_server_at(victim, Signal::SIGCONT);
            took
        }
        KillPrimary | StopPrimary => {
            let network = cluster.network.as_mut().unwrap();
            let mut began = Instant::now();
            if blow == StopPrimary {
                network.databases.signal_primary(Signal::SIGSTOP);
                pass(moment).await;
                began = Instant::now();
            }
            // Nobody can write to it again.
            network.databases.kill_primary().await;
            network.fail_over().await;
            writes_resume(&client, &name).await;
            let took = began.elapsed();
            cluster.network.as_mut().unwrap().databases.replicate().await;
            took
        }
        KillAgent => {
            cluster.kill_agent(node);
            let took = writes_resume(&client, &name).await;
            pass(moment).await;
            cluster.start_agent(node);
            took
        }
        StopAgent => {
            cluster.signal_agent(node, Signal::SIGSTOP);
            let took = writes_resume(&client, &name).await;
            pass(moment).await;
            cluster.signal_agent(node, Signal::SIGCONT);
            took
        }
    }
}
