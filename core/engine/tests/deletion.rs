//! Nodes that are gone for good: what speaks against deleting them, and what is left of them.

use headway_engine::event::{Actor, Ends, Event, Request, RequestId, ReservationRequest};
use headway_engine::outcome::NodeDeleted;
use headway_engine::record::{JobState, NodePolicy};
use headway_engine::{Refusal, Reply};
use headway_planner::{Amount, SiteRow};
use headway_types::{
    AgentCommand, Generation, GpuCount, GpuHealth, GroupOutcome, GroupPhase, JobId, NodeReport, Seconds, StopMode,
};

use crate::harness::{Cluster, inventory, node_id, rigid};

fn delete(cluster: &mut Cluster, node: u64) -> Reply {
    cluster.request(Request::DeleteNode { node: node_id(node), reason: Some("scrapped".into()) })
}

fn deleted(cluster: &mut Cluster, node: u64) -> NodeDeleted {
    match delete(cluster, node) {
        Reply::NodeDeleted(deleted) => deleted,
        other => panic!("{other:?}"),
    }
}

/// Why a node cannot be deleted.
fn refusal(cluster: &mut Cluster, node: u64) -> String {
    let before = (cluster.node_count(), cluster.events.len());
    match delete(cluster, node) {
        Reply::Refused(Refusal::WrongState(why)) => {
            assert_eq!((cluster.node_count(), cluster.events.len()), before, "a refusal changes nothing");
            why
        }
        other => panic!("{other:?}"),
    }
}

/// A job on all GPUs of one of two nodes, which has fallen silent. Returns the node too.
fn on_a_silent_node() -> (Cluster, JobId, u64) {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("one", 4));
    cluster.start(job);
    let node = cluster.nodes_of(job)[0];
    cluster.disconnect(node);
    cluster.pass_beating(40.0, &[1 - node]);
    (cluster, job, node)
}

#[test]
fn a_deleted_node_is_gone_from_all_lists_and_offered_to_nobody() {
    let mut cluster = Cluster::new(&[4, 4]);
    let elsewhere = cluster.submit(rigid("elsewhere", 4));
    cluster.start(elsewhere);
    let (lives, gone) = (cluster.nodes_of(elsewhere)[0], 1 - cluster.nodes_of(elsewhere)[0]);
    cluster.disconnect(gone);
    let reply = deleted(&mut cluster, gone);
    assert_eq!(reply.node.inventory.name, format!("node-{gone}"));
    assert_eq!((cluster.node_count(), cluster.count("node.deleted")), (1, 1));
    assert!(cluster.messages.last().unwrap().contains("4 GPUs is deleted: scrapped"), "{:?}", cluster.messages.last());
    let view = cluster.engine.view();
    assert_eq!(view.nodes.keys().copied().collect::<Vec<_>>(), [node_id(lives)]);
    assert_eq!(view.census().into_values().map(|gpus| gpus.0).sum::<u32>(), 4);
    assert_eq!(view.round().nodes.len(), 1);
    let waits = cluster.submit(rigid("waits", 4));
    cluster.pass_beating(10.0, &[lives]);
    assert!(matches!(cluster.state(waits), JobState::Queued { .. }));
    assert!(matches!(cluster.state(elsewhere), JobState::Running { .. }), "jobs elsewhere are untouched");
    assert_eq!(cluster.jobs[&elsewhere].generation, Generation(1));
    assert!(matches!(delete(&mut cluster, gone), Reply::Refused(Refusal::NoSuchNode(_))));
}

#[test]
fn no_later_leader_knows_of_a_deleted_node_and_its_agent_registers_a_new_one() {
    let mut cluster = Cluster::new(&[4, 4]);
    cluster.request(Request::Cordon { node: node_id(1), reason: None });
    cluster.disconnect(1);
    deleted(&mut cluster, 1);
    cluster.restart();
    cluster.register(inventory(0, 4), Vec::new());
    assert_eq!(cluster.engine.view().nodes.len(), 1);
    cluster.register(inventory(1, 4), Vec::new());
    assert_eq!(cluster.node(1).policy, NodePolicy::Schedulable, "nothing is left of what was wanted of the other");
    assert_eq!(cluster.node(1).version, 1);
    let message = cluster.messages.iter().rfind(|message| message.contains("node-1")).unwrap();
    assert_eq!(message, "node node-1 offers 4 healthy of 4 emulated GPUs");
    let jobs = [cluster.submit(rigid("one", 4)), cluster.submit(rigid("two", 4))];
    assert!(jobs.iter().all(|job| matches!(cluster.state(*job), JobState::Starting { .. })));
}

#[test]
fn a_node_whose_agent_is_there_is_not_deleted() {
    let mut cluster = Cluster::new(&[4, 4]);
    let idle = refusal(&mut cluster, 0);
    assert!(idle.contains("connected; stop it first"), "{idle}");
    let job = cluster.submit(rigid("one", 4));
    cluster.start(job);
    let node = cluster.nodes_of(job)[0];
    let busy = refusal(&mut cluster, node);
    assert!(busy.contains("runs one; drain it (`headway node drain"), "{busy}");
    cluster.restart();
    let unheard = refusal(&mut cluster, node);
    assert!(unheard.contains("has not been heard since the scheduler took over"), "{unheard}");
}

#[test]
fn gpus_that_are_granted_keep_their_node() {
    let (mut cluster, job, node) = on_a_silent_node();
    let granted = refusal(&mut cluster, node);
    assert!(granted.contains("granted to one") && granted.contains("`headway node lost node-"), "{granted}");
    cluster.request(Request::MarkLost { node: node_id(node), reason: None });
    deleted(&mut cluster, node);
    cluster.pass_beating(3.0, &[1 - node]);
    assert_eq!(cluster.nodes_of(job), [1 - node], "it goes on elsewhere");
    cluster.start(job);
}

#[test]
fn a_node_that_has_just_gone_silent_keeps_what_it_was_granted() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 4));
    cluster.start(job);
    cluster.disconnect(0);
    let granted = refusal(&mut cluster, 0);
    assert!(granted.contains("its lease of 30 s is over"), "{granted}");
    assert!(matches!(cluster.state(job), JobState::Running { .. }));
}

#[test]
fn a_silent_node_whose_stream_still_stands_must_register_again() {
    let mut cluster = Cluster::new(&[4, 4]);
    cluster.pass_beating(40.0, &[0]);
    deleted(&mut cluster, 1);
    assert!(cluster.refused.last().unwrap().contains("was deleted"), "{:?}", cluster.refused);
    cluster.report(1, NodeReport::Heartbeat);
    assert_eq!(cluster.engine.view().nodes.len(), 1, "what its old stream says is nobody's");
    cluster.disconnect(1);
    cluster.register(inventory(1, 4), Vec::new());
    assert_eq!(cluster.engine.view().nodes.len(), 2);
}

#[test]
fn what_still_runs_on_a_deleted_node_is_stopped_before_its_gpus_are_granted() {
    let (mut cluster, job, node) = on_a_silent_node();
    cluster.request(Request::MarkLost { node: node_id(node), reason: None });
    deleted(&mut cluster, node);
    cluster.pass_beating(3.0, &[1 - node]);
    cluster.start(job);
    let waits = cluster.submit(rigid("waits", 4));
    cluster.commands.clear();
    let mut stray = cluster.status(job, Generation(1), GroupPhase::Running);
    stray.gpus = inventory(node, 4).gpus.into_iter().map(|gpu| gpu.uuid).collect();
    cluster.register(inventory(node, 4), vec![stray]);
    cluster.pass_beating(3.0, &[0, 1]);
    let stopped = |(to, command): &(_, AgentCommand)| {
        let kill = matches!(command, AgentCommand::Stop { mode: StopMode::Kill, .. });
        *to == node_id(node) && kill && command.subject() == (job, Generation(1))
    };
    assert!(cluster.commands.iter().any(stopped), "{:?}", cluster.commands);
    assert!(matches!(cluster.state(waits), JobState::Queued { .. }), "the old generation is still there");
    assert!(matches!(cluster.state(job), JobState::Running { generation: Generation(2), .. }));
    let ended = cluster.status(job, Generation(1), GroupPhase::Ended { outcome: GroupOutcome::Stopped });
    cluster.report(node, NodeReport::Group { status: ended });
    cluster.pass_beating(3.0, &[0, 1]);
    assert_eq!(cluster.nodes_of(waits), [node]);
}

#[test]
fn a_part_that_ended_well_counts_until_the_rest_of_its_gang_is_known() {
    let mut cluster = Cluster::new(&[2, 2]);
    let job = cluster.submit(rigid("wide", 4));
    cluster.start(job);
    let [first, second] = cluster.nodes_of(job)[..] else { panic!() };
    cluster.group(second, job, GroupPhase::Ended { outcome: GroupOutcome::Succeeded });
    cluster.disconnect(second);
    let part = refusal(&mut cluster, second);
    assert!(part.contains("wide had a part on node"), "{part}");
    cluster.group(first, job, GroupPhase::Ended { outcome: GroupOutcome::Succeeded });
    assert!(matches!(cluster.state(job), JobState::Succeeded { .. }), "it is not run again for want of the node");
    deleted(&mut cluster, second);
}

#[test]
fn gpus_that_another_node_offers_too_are_its_own_once_the_first_is_deleted() {
    let mut cluster = Cluster::new(&[4]);
    cluster.disconnect(0);
    let mut reinstalled = inventory(0, 4);
    reinstalled.node = node_id(7);
    reinstalled.name = "node-0-again".into();
    cluster.register(reinstalled.clone(), Vec::new());
    let healthy = |cluster: &Cluster| {
        let gpus = &cluster.node(7).inventory.gpus;
        gpus.iter().filter(|gpu| gpu.health == GpuHealth::Healthy).count()
    };
    assert_eq!(healthy(&cluster), 0);
    deleted(&mut cluster, 0);
    assert!(cluster.refused.last().unwrap().contains("register again"), "{:?}", cluster.refused);
    cluster.register(reinstalled, Vec::new());
    assert_eq!(healthy(&cluster), 4);
}

#[test]
fn reservations_go_on_without_a_deleted_node_and_rows_that_name_it_are_told() {
    let mut cluster = Cluster::new(&[4, 4]);
    let reserve = |cluster: &mut Cluster, name: &str, nodes: &[u64], from: f64| {
        let reservation = ReservationRequest {
            name: name.into(),
            reason: None,
            nodes: nodes.iter().map(|node| node_id(*node)).collect(),
            from: Some(cluster.now + Seconds(from)),
            ends: Ends::After(Seconds(100.0)),
            maintenance: false,
            projects: ["prod".to_string()].into(),
            users: [].into(),
            jobs: [].into(),
        };
        assert!(matches!(cluster.request(Request::Reserve { reservation }), Reply::Reservation(_)));
    };
    reserve(&mut cluster, "both", &[0, 1], 1_000.0);
    reserve(&mut cluster, "one", &[1], 2_000.0);
    let mut settings = cluster.engine.view().policy;
    let row = |name: &str, node: String| SiteRow {
        name: name.into(),
        amount: Amount { node: Some(node), ..Amount::default() },
        at_most: GpuCount(0),
    };
    let rows = [("by-name", "node-1".into()), ("by-id", node_id(1).to_string()), ("other", "node-0".into())];
    settings.objective.rows = rows.map(|(name, node)| row(name, node)).into();
    assert!(matches!(
        cluster.request(Request::SetPolicy { settings: settings.clone().into(), expected: None }),
        Reply::Policy(_)
    ));
    cluster.disconnect(1);
    let NodeDeleted { reservations, cancelled, rows, .. } = deleted(&mut cluster, 1);
    assert_eq!((reservations, cancelled), (vec!["both".to_owned()], vec!["one".to_owned()]));
    assert_eq!(rows, ["by-name", "by-id"]);
    let left: Vec<_> = cluster.reservations.values().map(|one| (one.name.as_str(), one.nodes.clone())).collect();
    assert_eq!(left, [("both", [node_id(0)].into())]);
    assert_eq!((cluster.count("reservation.shrunk"), cluster.count("reservation.cancelled")), (1, 1));
    assert_eq!(cluster.engine.view().policy.objective, settings.objective, "a policy is its author's");
}

#[test]
fn a_node_that_was_stored_with_more_gpus_than_any_machine_has_is_left_out_and_can_be_deleted() {
    let mut cluster = Cluster::new(&[4]);
    cluster.submit(rigid("waits", 8));
    cluster.register(inventory(1, 5_000), Vec::new());
    assert!(cluster.refused[0].contains("gpus are 5000, at most 256"), "{:?}", cluster.refused);
    assert_eq!((cluster.node_count(), cluster.count("node.refused")), (1, 1));
    for times in 1..=2 {
        cluster.keep(inventory(1, 5_000));
        cluster.pass_beating(60.0, &[0]);
        assert_eq!(cluster.count("node.left_out"), times, "it is another node each time, and told of as one");
        deleted(&mut cluster, 1);
        assert_eq!(cluster.engine.view().round().nodes.len(), 1);
    }
}

#[test]
fn an_end_heard_together_with_the_deletion_of_its_node_counts() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("one", 4));
    cluster.start(job);
    let node = cluster.nodes_of(job)[0];
    let outcome = GroupOutcome::Succeeded;
    let status = cluster.status(job, Generation(1), GroupPhase::Ended { outcome });
    let ended = cluster.event(node, NodeReport::Group { status });
    let body = Request::DeleteNode { node: node_id(node), reason: None };
    let actor = Actor::User("ada".into());
    let delete = Event::Request { request: RequestId(1), actor, body };
    let reply = cluster.feed_all(vec![ended, cluster.gone(node), delete]).remove(0);
    assert!(matches!(cluster.state(job), JobState::Succeeded { .. }), "{:?}", cluster.messages);
    assert!(matches!(reply, Reply::Refused(Refusal::WrongState(_))), "{reply:?}");
    deleted(&mut cluster, node);
}
