//! A backup was restored: nodes have lived on without the store, and all of them are heard before GPUs are granted.

use headway_engine::attention::Kind;
use headway_engine::record::JobState;
use headway_types::command::GroupStatus;
use headway_types::{AgentCommand, Generation, GpuUuid, GroupOutcome, GroupPhase, JobId, NodeReport, Seconds};

use crate::harness::{Cluster, inventory, node_id, rigid};

fn group(node: u64, job: JobId, generation: u64, phase: GroupPhase) -> GroupStatus {
    let gpus: Vec<GpuUuid> = inventory(node, 4).gpus.into_iter().map(|gpu| gpu.uuid).collect();
    GroupStatus { job, generation: Generation(generation), gpus, phase, revision: 0, notice: 0 }
}

/// Two nodes, and a job that waits, as the backup of ten minutes ago has them.
fn restored() -> (Cluster, JobId) {
    let mut cluster = Cluster::new(&[4, 4]);
    cluster.restart();
    let job = cluster.submit(rigid("one", 4));
    cluster.restored = Some(cluster.now - Seconds(600.0));
    cluster.restart();
    (cluster, job)
}

#[test]
fn what_waits_in_the_backup_is_granted_nothing_before_the_node_that_runs_it_has_come_back() {
    let (mut cluster, job) = restored();
    cluster.register(inventory(1, 4), Vec::new());
    cluster.pass_beating(30.0, &[1]);
    assert!(matches!(cluster.state(job), JobState::Queued { .. }), "the other node may run it");
    let view = cluster.engine.view();
    assert!(view.attention(20, |_| true).items.iter().any(|item| item.kind == Kind::NodesReturning));
    assert!(view.nodes_returning().unwrap().contains("10 min ago"), "{:?}", view.nodes_returning());

    // It does, under the generation that the restored store would have granted next.
    cluster.register(inventory(0, 4), vec![group(0, job, 1, GroupPhase::Running)]);
    cluster.pass_beating(10.0, &[0, 1]);
    let stopped = |(node, command): &(_, AgentCommand)| {
        *node == node_id(0) && matches!(command, AgentCommand::Stop { generation: Generation(1), .. })
    };
    assert!(cluster.commands.iter().any(stopped));
    assert!(matches!(cluster.state(job), JobState::Queued { .. }), "nobody is waited for, but it still runs there");
    let ended = GroupPhase::Ended { outcome: GroupOutcome::Stopped };
    cluster.report(0, NodeReport::Group { status: group(0, job, 1, ended) });
    cluster.pass_beating(10.0, &[0, 1]);
    assert!(matches!(cluster.state(job), JobState::Starting { .. }), "it has ended there");
    let generation = cluster.engine.view().jobs[&job].job.generation;
    assert!(generation > Generation(1_000), "above what nodes may have seen: {generation}");
    assert_eq!(cluster.engine.view().returning, None);
    let told = |verb: &str| cluster.events.iter().filter(|event| *event == verb).count();
    assert_eq!((told("cluster.restored"), told("cluster.returned")), (1, 1));
    assert_eq!(cluster.restored, None, "the store knows that it is over");
}

#[test]
fn a_node_that_never_comes_back_keeps_nobody_waiting_for_ever() {
    let (mut cluster, job) = restored();
    cluster.register(inventory(1, 4), Vec::new());
    cluster.pass_beating(90.0, &[1]);
    assert!(matches!(cluster.state(job), JobState::Starting { .. }));
    assert!(cluster.messages.iter().any(|one| one.contains("did not come back after the restore")));
}

#[test]
fn a_leader_that_dies_meanwhile_is_followed_by_one_that_waits_too() {
    let (mut cluster, job) = restored();
    cluster.register(inventory(1, 4), Vec::new());
    cluster.restart();
    cluster.register(inventory(1, 4), Vec::new());
    cluster.pass_beating(30.0, &[1]);
    assert!(matches!(cluster.state(job), JobState::Queued { .. }));
}

#[test]
fn what_the_backup_has_running_goes_on_where_it_still_runs_and_starts_above_all_generations_where_it_does_not() {
    let mut cluster = Cluster::new(&[4, 4]);
    let jobs = [cluster.submit(rigid("stays", 4)), cluster.submit(rigid("went", 4))];
    let node_of = |cluster: &Cluster, job: JobId| {
        let view = cluster.engine.view();
        let node = view.jobs[&job].allocation.as_ref().unwrap().placement.first_node();
        (0..2).find(|index| node_id(*index) == node).unwrap()
    };
    let [stays_on, went_from] = jobs.map(|job| node_of(&cluster, job));
    for (job, node) in jobs.into_iter().zip([stays_on, went_from]) {
        cluster.report(
            node,
            NodeReport::Group { status: group(node, job, 1, GroupPhase::Prepared { rendezvous_port: None }) },
        );
        cluster.report(node, NodeReport::Group { status: group(node, job, 1, GroupPhase::Running) });
    }
    let [stays, went] = jobs;
    assert!(matches!(cluster.state(went), JobState::Running { .. }), "{:?}", cluster.state(went));
    cluster.restored = Some(cluster.now);
    cluster.restart();
    cluster.register(inventory(stays_on, 4), vec![group(stays_on, stays, 1, GroupPhase::Running)]);
    // Restarted since the backup, on the same node.
    cluster.register(inventory(went_from, 4), vec![group(went_from, went, 2, GroupPhase::Running)]);
    cluster.pass_beating(10.0, &[0, 1]);
    assert!(matches!(cluster.state(stays), JobState::Running { generation: Generation(1), .. }));
    assert!(matches!(cluster.state(went), JobState::Queued { .. }), "its GPUs are taken by what it has become");
    let ended = GroupPhase::Ended { outcome: GroupOutcome::Stopped };
    cluster.report(went_from, NodeReport::Group { status: group(went_from, went, 2, ended) });
    cluster.pass_beating(10.0, &[0, 1]);
    let generation = cluster.engine.view().jobs[&went].job.generation;
    assert!(generation > Generation(1_000), "{generation}");
}
