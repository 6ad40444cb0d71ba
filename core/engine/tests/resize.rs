//! A job's owner wants another size now: no cooldown forbids it.

use headway_engine::event::{ElasticChange, JobChange, Request};
use headway_engine::{Refusal, Reply};
use headway_types::spec::{Elasticity, GpuRange};
use headway_types::{GpuCount, GroupPhase, JobId, JobSpec, Seconds};

use crate::harness::{Cluster, elastic, follow, gpus, rigid};

/// Runs on the GPUs it was first given, and its cooldown forbids every move.
fn cooling(cluster: &mut Cluster) -> JobId {
    let spec = elastic("train", 2);
    let elastic = Elasticity { min_runtime: Seconds(1e6), max_resizes_per_hour: 0, max_overhead: 0.0, min_share: None };
    let job = cluster.submit(JobSpec { elastic, ..spec });
    follow(cluster, &[0]);
    assert_eq!(gpus(cluster, job), 2);
    job
}

fn resize(cluster: &mut Cluster, job: JobId, min: u32, max: u32) -> Reply {
    let reason = Some("the deadline".to_owned());
    cluster.request(Request::Resize { job, min: GpuCount(min), max: GpuCount(max), reason })
}

fn wider(cluster: &mut Cluster, job: JobId) {
    let change = JobChange { max: Some(GpuCount(8)), ..JobChange::default() };
    cluster.request(Request::Change { job, change, expected: None });
    follow(cluster, &[0]);
    assert_eq!(gpus(cluster, job), 2, "its cooldown forbids all moves");
}

#[test]
fn the_owner_moves_a_job_that_its_cooldown_keeps() {
    let mut cluster = Cluster::new(&[8]);
    let job = cooling(&mut cluster);
    wider(&mut cluster, job);
    assert!(matches!(resize(&mut cluster, job, 1, 8), Reply::Job(_)));
    follow(&mut cluster, &[0]);
    assert!(gpus(&cluster, job) > 2, "it moves in the next round: {}", gpus(&cluster, job));
    assert!(cluster.jobs[&job].resize.is_none(), "once");
    assert!(cluster.messages.contains(&"ada wants train on 1 to 8 GPUs: the deadline".to_owned()));
    let now = gpus(&cluster, job);
    let other = cluster.submit(rigid("other", 8 - now.min(7)));
    cluster.pass_beating(60.0, &[0]);
    follow(&mut cluster, &[0]);
    assert_eq!(gpus(&cluster, job), now, "its cooldown holds again, whoever waits: {other}");
}

#[test]
fn a_restart_of_the_scheduler_between_loses_nothing() {
    let mut cluster = Cluster::new(&[8]);
    let job = cooling(&mut cluster);
    wider(&mut cluster, job);
    let event = headway_engine::event::Event::Request {
        request: headway_engine::event::RequestId(9),
        actor: headway_engine::event::Actor::User("ada".into()),
        body: Request::Resize { job, min: GpuCount(1), max: GpuCount(8), reason: None },
    };
    // Committed, and then the scheduler dies before a round has answered.
    cluster.feed_unplanned(event);
    assert!(cluster.jobs[&job].resize.is_some());
    let groups = vec![cluster.status(job, cluster.jobs[&job].generation, GroupPhase::Running)];
    cluster.restart();
    cluster.register(crate::harness::inventory(0, 8), groups);
    follow(&mut cluster, &[0]);
    assert!(gpus(&cluster, job) > 2, "{}", gpus(&cluster, job));
}

#[test]
fn a_round_that_leaves_it_ends_the_wish_and_says_so() {
    let mut cluster = Cluster::new(&[2]);
    let job = cooling(&mut cluster);
    resize(&mut cluster, job, 1, 8);
    follow(&mut cluster, &[0]);
    assert_eq!(gpus(&cluster, job), 2, "there is no room");
    assert!(cluster.jobs[&job].resize.is_none());
    let told = "the round after its owner asked for another size leaves train as it is";
    assert!(cluster.messages.contains(&told.to_owned()), "{:?}", cluster.messages);
}

#[test]
fn what_cannot_be_is_refused_with_the_closest_sizes() {
    let mut cluster = Cluster::new(&[8]);
    let spec = elastic("train", 8);
    let mut roles = spec.roles.clone();
    roles[0].gpus = GpuRange { sizes: [1, 2, 4, 8].map(GpuCount).into(), ..roles[0].gpus.clone() };
    let job = cluster.submit(JobSpec { roles, ..spec });
    let refused = |reply| match reply {
        Reply::Refused(refusal @ (Refusal::Invalid(_) | Refusal::WrongState(_))) => refusal.to_string(),
        other => panic!("{other:?}"),
    };
    let told = refused(resize(&mut cluster, job, 5, 7));
    assert_eq!(told, "the job takes no size of 5 to 7 GPUs; the closest it takes are 4 and 8");
    let told = refused(resize(&mut cluster, job, 16, 32));
    assert_eq!(told, "the job takes no size of 16 to 32 GPUs; the closest it takes is 8");
    let told = refused(resize(&mut cluster, job, 4, 2));
    assert_eq!(told, "the least number of GPUs must be at least 1 and at most the largest");
    cluster.request(Request::Pin { job, reason: None });
    assert_eq!(refused(resize(&mut cluster, job, 1, 4)), "job is pinned by ada; unpin it first");
}

#[test]
fn how_often_it_is_moved_is_its_owners_to_change() {
    let mut cluster = Cluster::new(&[8]);
    let job = cooling(&mut cluster);
    wider(&mut cluster, job);
    let elastic = ElasticChange {
        min_runtime: Some(Seconds(0.0)),
        max_resizes_per_hour: Some(4),
        max_overhead: Some(1.0),
        min_share: Some(0.5),
    };
    let change = JobChange { elastic, ..JobChange::default() };
    cluster.request(Request::Change { job, change, expected: None });
    follow(&mut cluster, &[0]);
    assert!(gpus(&cluster, job) > 2, "{}", gpus(&cluster, job));
    let told = "of train: minimum runtime 1000000 s becomes 0 s, moves per hour 0 becomes 4, share of its time for moves 0 % becomes \
                100 %, share of its fair share that it is sure of none becomes 50 %";
    assert!(cluster.messages.contains(&told.to_owned()), "{:?}", cluster.messages);
    let wrong = ElasticChange { max_overhead: Some(1.5), ..ElasticChange::default() };
    let change = JobChange { elastic: wrong, ..JobChange::default() };
    let reply = cluster.request(Request::Change { job, change, expected: None });
    assert!(matches!(reply, Reply::Refused(Refusal::Invalid(_))), "{reply:?}");
}
