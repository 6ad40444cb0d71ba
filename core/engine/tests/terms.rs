//! Nodes that follow a newer term: a backup was restored, or they are of another cluster.

use std::collections::BTreeSet;

use headway_engine::attention::{Kind, Severity};
use headway_engine::event::{Event, Request};
use headway_engine::record::JobState;
use headway_engine::{Refusal, Reply};
use headway_types::command::GroupStatus;
use headway_types::{AgentCommand, Generation, GpuUuid, GroupOutcome, GroupPhase, JobId, NodeId, NodeReport, Term};

use crate::harness::{Cluster, inventory, node_id, rigid};

fn ahead(cluster: &mut Cluster, node: NodeId, term: u64) {
    cluster.feed(Event::AgentAhead { node, name: "node-0".into(), term: Term(term) });
}

/// A scheduler whose store was restored: it knows two nodes, of which the first has not registered.
fn restored() -> Cluster {
    let mut cluster = Cluster::new(&[4, 4]);
    cluster.restart();
    cluster.register(inventory(1, 4), Vec::new());
    cluster
}

#[test]
fn a_node_that_is_ahead_is_told_of_once_and_nothing_starts_until_somebody_has_decided() {
    let mut cluster = restored();
    ahead(&mut cluster, node_id(0), 9);
    let job = cluster.submit(rigid("one", 4));
    cluster.pass_beating(20.0, &[1]);
    ahead(&mut cluster, node_id(0), 9);
    cluster.pass_beating(20.0, &[1]);
    let told = cluster.messages.iter().filter(|message| message.contains("follows term t9")).count();
    assert_eq!(told, 1, "{:?}", cluster.messages);
    assert!(matches!(cluster.state(job), JobState::Queued { .. }), "the node may run it by now");
    let view = cluster.engine.view();
    let attention = view.attention(20, |_| true);
    let told = attention.items.iter().find(|item| item.kind == Kind::NodesAhead).unwrap();
    assert_eq!(told.kind.severity(), Severity::Critical);
    assert!(view.nodes_ahead().unwrap().contains("t9"));
}

#[test]
fn a_node_of_another_cluster_keeps_nobody_waiting() {
    let mut cluster = restored();
    ahead(&mut cluster, NodeId(uuid::Uuid::from_u128(99)), 9);
    let job = cluster.submit(rigid("one", 4));
    // Rounds wait a lease for the node that has not registered.
    cluster.pass_beating(60.0, &[1]);
    assert!(matches!(cluster.state(job), JobState::Starting { .. }));
    assert_eq!(cluster.engine.view().ahead.len(), 1);
}

#[test]
fn a_node_that_is_ahead_and_silent_keeps_nobody_waiting_for_ever() {
    let mut cluster = restored();
    ahead(&mut cluster, node_id(0), 9);
    let job = cluster.submit(rigid("one", 4));
    cluster.pass_beating(120.0, &[1]);
    assert!(matches!(cluster.state(job), JobState::Starting { .. }));
}

#[test]
fn once_readmitted_nodes_are_under_a_higher_term_and_no_gpu_is_granted_twice() {
    let mut cluster = restored();
    assert!(matches!(cluster.request(Request::Readmit { reason: None }), Reply::Refused(Refusal::WrongState(_))));
    ahead(&mut cluster, node_id(0), 9);
    let job = cluster.submit(rigid("one", 8));
    let before = cluster.engine.view();
    let dry = Request::DryRun { body: Box::new(Request::Readmit { reason: None }) };
    assert!(matches!(cluster.request(dry), Reply::DryRun(_)));
    assert_eq!(cluster.engine.view().ahead, before.ahead);
    let Reply::Readmitted(done) = cluster.request(Request::Readmit { reason: Some("restored".into()) }) else {
        panic!("refused")
    };
    assert_eq!((done.term, done.nodes.len()), (Term(10), 1));

    // The shell begins the next term; the node registers with a group that this store has never heard of.
    let not_back = cluster.engine.not_back();
    assert_eq!(not_back, BTreeSet::from([node_id(0)]));
    cluster.restart();
    cluster.engine.wait_for(not_back);
    assert!(cluster.engine.term() >= done.term);
    assert!(cluster.engine.view().ahead.is_empty());
    let gpus: Vec<GpuUuid> = inventory(0, 4).gpus.into_iter().map(|gpu| gpu.uuid).collect();
    let stray = |phase| GroupStatus {
        job: JobId(uuid::Uuid::from_u128(3)),
        generation: Generation(3),
        gpus: gpus.clone(),
        phase,
        revision: 0,
        notice: 0,
    };
    cluster.register(inventory(0, 4), vec![stray(GroupPhase::Running)]);
    cluster.register(inventory(1, 4), Vec::new());
    cluster.pass_beating(10.0, &[0, 1]);
    assert!(matches!(cluster.state(job), JobState::Queued { .. }), "its GPUs are still taken");
    assert!(cluster.commands.iter().any(|(node, command)| {
        *node == node_id(0) && matches!(command, AgentCommand::Stop { generation: Generation(3), .. })
    }));
    cluster.report(0, NodeReport::Group { status: stray(GroupPhase::Ended { outcome: GroupOutcome::Stopped }) });
    cluster.pass_beating(10.0, &[0, 1]);
    assert!(matches!(cluster.state(job), JobState::Starting { .. }));
    let generation = cluster.engine.view().jobs[&job].job.generation;
    assert!(generation > Generation(1_000), "above what nodes may have seen: {generation}");
}

#[test]
fn a_job_that_the_store_takes_for_waiting_is_not_granted_beside_itself() {
    let mut cluster = restored();
    let job = cluster.submit(rigid("one", 4));
    ahead(&mut cluster, node_id(0), 9);
    assert!(matches!(cluster.request(Request::Readmit { reason: None }), Reply::Readmitted(_)));
    let not_back = cluster.engine.not_back();
    cluster.restart();
    cluster.engine.wait_for(not_back);
    cluster.register(inventory(1, 4), Vec::new());
    // The other node, which runs it, dials late.
    cluster.pass_beating(40.0, &[1]);
    assert!(matches!(cluster.state(job), JobState::Queued { .. }), "node 0 is not back");
    let gpus: Vec<GpuUuid> = inventory(0, 4).gpus.into_iter().map(|gpu| gpu.uuid).collect();
    let own = |phase| GroupStatus { job, generation: Generation(7), gpus: gpus.clone(), phase, revision: 0, notice: 0 };
    cluster.register(inventory(0, 4), vec![own(GroupPhase::Running)]);
    cluster.pass_beating(60.0, &[0, 1]);
    assert!(matches!(cluster.state(job), JobState::Queued { .. }), "it runs on node 0");
    cluster.report(0, NodeReport::Group { status: own(GroupPhase::Ended { outcome: GroupOutcome::Stopped }) });
    cluster.pass_beating(20.0, &[0, 1]);
    assert!(matches!(cluster.state(job), JobState::Starting { .. }));
}

#[test]
fn strangers_with_absurd_terms_decide_nothing_and_give_way_to_the_clusters_own() {
    let mut cluster = restored();
    for stranger in 100..1_100 {
        ahead(&mut cluster, NodeId(uuid::Uuid::from_u128(stranger)), 1 << 40);
    }
    let refused = cluster.request(Request::Readmit { reason: None });
    assert!(
        matches!(&refused, Reply::Refused(Refusal::WrongState(told)) if told.contains("no history of this cluster"))
    );
    ahead(&mut cluster, node_id(0), 9);
    assert!(cluster.engine.view().ahead.contains_key(&node_id(0)));
    let Reply::Readmitted(done) = cluster.request(Request::Readmit { reason: None }) else { panic!("refused") };
    assert_eq!((done.term, done.nodes.len()), (Term(10), 1));
}

#[test]
fn a_node_that_follows_the_same_number_from_another_history_is_not_said_to_follow_a_newer_one() {
    let mut cluster = restored();
    let term = cluster.engine.term();
    ahead(&mut cluster, node_id(0), term.0);
    let told = cluster.engine.view().nodes_ahead().unwrap();
    assert!(told.contains("another term") && !told.contains("newer"), "{told}");
}
