//! Whose fault it is: nodes that fail, jobs that fail everywhere, hangs, stragglers, broken GPUs, impostors.

use headway_engine::event::{Event, Request};
use headway_engine::record::{Availability, JobState, Standing, StopCause};
use headway_engine::{Activity, EngineConfig};
use headway_types::example::llama2_7b;
use headway_types::spec::{LayoutLimits, Precision, Training, Work};
use headway_types::{
    Blame, BootId, Condition, ConditionKind, Fault, Generation, GpuCount, GpuHealth, GpuType, GroupOutcome, GroupPhase,
    JobId, NodeInventory, NodeReport, Seconds, Sequences,
};

use crate::harness::{Cluster, inventory, node_id, rigid, spec, training};

fn ended(fault: Fault) -> GroupPhase {
    GroupPhase::Ended { outcome: GroupOutcome::Failed { exit_code: Some(1), fault } }
}

fn not_started(fault: Fault) -> GroupPhase {
    GroupPhase::Ended { outcome: GroupOutcome::NotStarted { fault } }
}

fn standing(cluster: &Cluster, node: u64) -> &'static str {
    cluster.node(node).health.standing.kind().into()
}

/// Fails the job's start on its only node, by this fault, and lets its back-off pass.
fn fail_start(cluster: &mut Cluster, job: JobId, blame: Blame) -> u64 {
    let node = cluster.nodes_of(job)[0];
    cluster.group(node, job, not_started(Fault { blame, ..Fault::of_job("no such directory") }));
    let nodes: Vec<u64> = (0..cluster.node_count()).collect();
    cluster.pass_beating(40.0, &nodes);
    node
}

#[test]
fn what_is_not_the_jobs_fault_never_fails_it() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 4));
    for _ in 0..12 {
        cluster.group(0, job, not_started(Fault::of_infrastructure("the agent restarted")));
        while !matches!(cluster.state(job), JobState::Starting { .. }) {
            cluster.pass_beating(5.0, &[0]);
        }
    }
    assert_eq!((cluster.jobs[&job].failures, cluster.jobs[&job].disruptions), (0, 12));
}

#[test]
fn full_disks_are_never_a_jobs_fault_however_many_refuse_it() {
    for nodes in [&[4][..], &[4, 4], &[4, 4, 4]] {
        let mut cluster = Cluster::new(nodes);
        let all: Vec<u64> = (0..cluster.node_count()).collect();
        let job = cluster.submit(rigid("one", 4));
        for _ in 0..8 {
            while !matches!(cluster.state(job), JobState::Starting { .. }) {
                cluster.pass_beating(30.0, &all);
            }
            let node = cluster.nodes_of(job)[0];
            cluster.group(node, job, not_started(Fault::of_full_disk("nothing new starts here: /d has 1 MiB left")));
        }
        assert_eq!((cluster.jobs[&job].failures, cluster.jobs[&job].disruptions), (0, 8), "{:#?}", cluster.messages);
        assert!(!cluster.messages.iter().any(|message| message.contains("the job's own")));
    }
}

#[test]
fn a_full_checkpoint_root_that_all_nodes_share_costs_no_node_and_no_job() {
    let (mut cluster, one, two, _) = two_owners();
    for _ in 0..8 {
        for job in [one, two] {
            while !matches!(cluster.state(job), JobState::Starting { .. }) {
                cluster.pass_beating(30.0, &[0, 1]);
            }
            let fault = Fault { full_disk: true, ..Fault::of_infrastructure("/ckpt: No space left on device") };
            cluster.group(cluster.nodes_of(job)[0], job, not_started(fault));
        }
    }
    for job in [one, two] {
        assert_eq!((cluster.jobs[&job].failures, cluster.jobs[&job].disruptions), (0, 8), "{:#?}", cluster.messages);
    }
    assert_eq!([standing(&cluster, 0), standing(&cluster, 1)], ["good"; 2]);
}

#[test]
fn a_job_that_meets_a_full_checkpoint_root_on_one_node_is_tried_on_another() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("one", 4));
    let full = cluster.nodes_of(job)[0];
    let fault = Fault { full_disk: true, ..Fault::of_infrastructure("/ckpt: No space left on device") };
    cluster.group(full, job, not_started(fault));
    cluster.pass_beating(30.0, &[0, 1]);
    assert_eq!(cluster.nodes_of(job), [1 - full], "{:#?}", cluster.messages);
    assert_eq!(standing(&cluster, full), "good");
}

#[test]
fn a_job_that_fails_beside_a_full_disk_is_tried_on_another_node_at_once() {
    for blame in [Blame::Node, Blame::Infrastructure] {
        let mut cluster = Cluster::new(&[4, 4]);
        let job = cluster.submit(rigid("one", 4));
        let full = cluster.nodes_of(job)[0];
        cluster.start(job);
        let fault = Fault { blame, ..Fault::of_full_disk("rank 0 exited with code 1: /d has 0 MiB left") };
        cluster.group(full, job, ended(fault));
        cluster.pass_beating(40.0, &[0, 1]);
        assert_eq!(cluster.nodes_of(job), [1 - full], "{blame:?}: {:#?}", cluster.messages);
        assert_eq!((cluster.jobs[&job].failures, standing(&cluster, full)), (0, "good"), "{blame:?}");
    }
}

/// Jobs of two owners that start on the same node, beside another that is free.
fn two_owners() -> (Cluster, JobId, JobId, u64) {
    let mut cluster = Cluster::new(&[4, 4]);
    let one = cluster.submit_as("ada", rigid("one", 2));
    let two = cluster.submit_as("bob", rigid("two", 2));
    let node = cluster.nodes_of(one)[0];
    assert_eq!(cluster.nodes_of(two), [node]);
    (cluster, one, two, node)
}

#[test]
fn a_node_that_fails_starts_is_quarantined_and_the_job_starts_elsewhere() {
    let (mut cluster, one, two, node) = two_owners();
    fail_start(&mut cluster, one, Blame::Node);
    assert_eq!(standing(&cluster, node), "good");
    assert_eq!(cluster.nodes_of(one), [node], "one failure proves nothing");
    cluster.start(one);
    fail_start(&mut cluster, two, Blame::Node);
    assert_eq!(standing(&cluster, node), "quarantined", "two owners say so");
    assert_ne!(cluster.nodes_of(two), [node]);
    cluster.start(two);
    assert_eq!(cluster.jobs[&two].failures, 0);
    cluster.pass_beating(601.0, &[0, 1]);
    assert_eq!(standing(&cluster, node), "probation");
    cluster.pass_beating(3_601.0, &[0, 1]);
    assert_eq!(standing(&cluster, node), "good");
}

#[test]
fn no_owner_quarantines_a_node_alone_however_many_jobs_of_his_say_what() {
    let mut cluster = Cluster::new(&[4, 4, 4]);
    for round in 0..12_u64 {
        let job = cluster.submit_as("eve", rigid(&format!("lemon-{round}"), 4));
        let node = cluster.nodes_of(job)[0];
        let blamed = Fault::of_node("the prolog exited with code 1");
        match round % 2 {
            0 => cluster.group(node, job, not_started(blamed)),
            _ => {
                cluster.start(job);
                cluster.group(node, job, ended(blamed));
            }
        }
        // Before it fails elsewhere too, which would say that it was the job.
        cluster.request(Request::Cancel { job, reason: None, grace: None });
        cluster.pass_beating(1_500.0, &[0, 1, 2]);
    }
    assert_eq!(cluster.count("node.quarantined"), 0, "{:#?}", cluster.messages);
    for node in 0..3 {
        assert!(cluster.node(node).takes_work());
    }
}

#[test]
fn a_job_that_fails_again_on_a_node_starts_elsewhere_though_others_go_on_using_it() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("one", 4));
    let first = fail_start(&mut cluster, job, Blame::Node);
    assert_eq!(cluster.nodes_of(job), [first], "one failure proves nothing");
    fail_start(&mut cluster, job, Blame::Node);
    assert_eq!(standing(&cluster, first), "good", "it is one owner's word");
    assert_ne!(cluster.nodes_of(job), [first]);
    cluster.start(job);
    assert_eq!(cluster.jobs[&job].failures, 0);
}

#[test]
fn jobs_of_an_owner_who_speaks_against_a_node_start_elsewhere_where_they_can() {
    let mut cluster = Cluster::new(&[4, 4]);
    let first = cluster.submit(rigid("first", 4));
    let node = cluster.nodes_of(first)[0];
    cluster.group(node, first, not_started(Fault::of_node("no such directory")));
    cluster.request(Request::Cancel { job: first, reason: None, grace: None });
    let (own, others) = (cluster.submit(rigid("own", 4)), cluster.submit_as("bob", rigid("others", 4)));
    assert_eq!((cluster.nodes_of(own), cluster.nodes_of(others)), (vec![1 - node], vec![node]));
    // Where there is nothing else it is tried, and nobody is moved for its sake.
    let third = cluster.submit(rigid("third", 4));
    cluster.start(own);
    cluster.group(node, others, ended(Fault::of_job("exit code 1")));
    cluster.request(Request::Cancel { job: others, reason: None, grace: None });
    cluster.pass_beating(10.0, &[0, 1]);
    assert_eq!((cluster.nodes_of(third), cluster.nodes_of(own)), (vec![node], vec![1 - node]));
}

#[test]
fn a_job_that_cannot_start_by_its_own_fault_is_tried_on_another_node_and_blames_none() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("one", 4));
    let first = fail_start(&mut cluster, job, Blame::Job);
    assert_ne!(cluster.nodes_of(job), [first]);
    assert_eq!(cluster.jobs[&job].failures, 1);
    assert_eq!(cluster.node(first).health, Default::default());
}

#[test]
fn a_job_that_fails_alike_on_two_nodes_is_itself_at_fault_and_clears_them() {
    let mut cluster = Cluster::new(&[4, 4, 4]);
    let job = cluster.submit(rigid("lemon", 4));
    let first = fail_start(&mut cluster, job, Blame::Node);
    fail_start(&mut cluster, job, Blame::Node);
    assert_eq!(cluster.node(first).health.accusers.len(), 1);
    fail_start(&mut cluster, job, Blame::Node);
    assert!(cluster.node(first).health.accusers.is_empty(), "its word is taken back");
    assert!(standing(&cluster, first) == "good" && cluster.node(first).health.score > 0.999);
    assert_eq!(cluster.jobs[&job].failures, 1);
}

#[test]
fn the_only_node_stays_in_service_whatever_a_job_says_of_it() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 4));
    for _ in 0..4 {
        cluster.group(0, job, not_started(Fault::of_node("no such user")));
        cluster.pass_beating(45.0, &[0]);
    }
    assert_eq!(standing(&cluster, 0), "good");
    assert!(matches!(cluster.state(job), JobState::Starting { .. }));
}

/// Of two nodes alike it takes the first only: its word cannot be tried on the other.
#[test]
fn a_job_bound_to_a_node_cannot_withhold_it_from_others() {
    let mut cluster = Cluster::new(&[4, 4]);
    let mut bound = rigid("bound", 4);
    bound.roles[0].nodes.only.include.insert(cluster.node(0).inventory.name.clone());
    let job = cluster.submit(bound);
    for _ in 0..2_000 {
        if matches!(cluster.state(job), JobState::Starting { .. }) {
            cluster.group(0, job, not_started(Fault::of_node("its prolog exited with code 1")));
        }
        cluster.pass_beating(5.0, &[0, 1]);
        assert_eq!(standing(&cluster, 0), "good");
    }
    assert!(matches!(cluster.state(job), JobState::Failed { .. }), "{:?}", cluster.state(job));
}

#[test]
fn progress_wipes_the_slate_clean() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(spec("one", 4, 4, Some(training(true))));
    cluster.start(job);
    cluster.group(0, job, ended(Fault::of_job("rank 0 exited with code 1")));
    cluster.pass_beating(10.0, &[0]);
    assert_eq!(cluster.jobs[&job].failures, 1);
    cluster.start(job);
    cluster.steps(job, 64, None);
    cluster.checkpoint(job, cluster.jobs[&job].generation, 64);
    assert_eq!((cluster.jobs[&job].failures, cluster.jobs[&job].restarts), (0, 1));
}

#[test]
fn a_job_without_steps_for_too_long_hangs_and_starts_again_from_its_checkpoint() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(spec("one", 4, 4, Some(training(true))));
    cluster.start(job);
    cluster.declare(job);
    cluster.steps(job, 64, None);
    cluster.checkpoint(job, cluster.jobs[&job].generation, 64);
    cluster.pass_beating(290.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }));
    cluster.pass_beating(30.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Stopping { cause: StopCause::Hung { .. }, .. }));
    assert_eq!(cluster.count("job.hung"), 1);
    assert_eq!((cluster.jobs[&job].failures, cluster.jobs[&job].disruptions), (0, 1), "once is an accident");
}

#[test]
fn a_second_in_which_nothing_arrives_is_no_hang_however_fast_the_clusters_time_passes() {
    let speed = 240.0;
    let mut cluster = Cluster::of(EngineConfig::default().at_speed(speed), &[4]);
    let job = cluster.submit(spec("fast", 4, 4, Some(training(true))));
    cluster.start(job);
    cluster.declare(job);
    cluster.steps(job, 16, None);
    cluster.checkpoint(job, Generation(1), 16);
    cluster.pass_beating(2.0 * speed, &[0]);
    assert_eq!(cluster.count("job.hung"), 0, "{:#?}", cluster.messages);
    cluster.pass_beating(60.0 * speed, &[0]);
    assert_eq!(cluster.count("job.hung"), 1, "a minute of wall time is one");
}

#[test]
fn silence_of_the_scheduler_itself_is_no_hang() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(spec("one", 4, 4, Some(training(true))));
    cluster.start(job);
    cluster.declare(job);
    cluster.steps(job, 64, None);
    cluster.now = cluster.now + Seconds(4_000.0);
    cluster.report(0, NodeReport::Heartbeat);
    assert!(matches!(cluster.state(job), JobState::Running { .. }), "{:?}", cluster.state(job));
}

#[test]
fn a_job_leaves_a_node_whose_ranks_keep_the_others_waiting_by_one_word_against_it() {
    let mut cluster = Cluster::new(&[4, 4, 4]);
    let job = cluster.submit(spec("wide", 8, 8, Some(training(true))));
    cluster.start(job);
    let nodes = cluster.nodes_of(job);
    for _ in 0..7 {
        cluster.rank_times(nodes[0], job, &[(0, 1.0), (1, 1.0), (2, 1.1), (3, 0.9)]);
        cluster.rank_times(nodes[1], job, &[(4, 1.0), (5, 2.4), (6, 1.0), (7, 1.0)]);
        cluster.pass_beating(30.0, &[0, 1, 2]);
    }
    assert_eq!(cluster.count("job.straggler"), 1, "it is one word, however long they stay slow");
    assert_eq!(cluster.node(nodes[1]).health.accusers.len(), 1);
    assert_eq!((standing(&cluster, nodes[0]), standing(&cluster, nodes[1])), ("good", "good"));
    assert!(matches!(cluster.state(job), JobState::Stopping { .. }), "{:?}", cluster.state(job));
    for node in nodes.clone() {
        cluster.group(node, job, ended(Fault::of_infrastructure("it was stopped")));
    }
    assert!(!cluster.nodes_of(job).contains(&nodes[1]), "{:?}", cluster.nodes_of(job));
}

#[test]
fn a_job_leaves_a_gpu_that_broke_under_it() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("one", 2));
    cluster.start(job);
    let node = cluster.nodes_of(job)[0];
    let mut broken = inventory(node, 4);
    let held = cluster.allocation(job).placement.slices()[0].gpus[0].clone();
    broken.gpus.iter_mut().filter(|gpu| gpu.uuid == held).for_each(|gpu| {
        gpu.health = GpuHealth::Broken("XID 79".into());
    });
    cluster.report(node, NodeReport::Inventory { inventory: Box::new(broken) });
    cluster.pass_beating(3.0, &[0, 1]);
    assert!(matches!(cluster.state(job), JobState::Stopping { .. }), "{:?}", cluster.state(job));
    cluster.end(job, &GroupOutcome::Stopped);
    cluster.pass_beating(3.0, &[0, 1]);
    let gpus: Vec<_> = cluster.allocation(job).placement.ranks().map(|(_, gpu)| gpu.clone()).collect();
    assert!(!gpus.contains(&held));
    assert_eq!(cluster.engine.view().census()[&Activity::Broken], GpuCount(1));
}

#[test]
fn a_full_disk_keeps_new_work_away_and_stops_nothing() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 2));
    cluster.start(job);
    let condition = Condition { kind: ConditionKind::DiskPressure, message: "1 GiB left".into() };
    let full = headway_types::NodeInventory { conditions: vec![condition], ..inventory(0, 4) };
    cluster.report(0, NodeReport::Inventory { inventory: Box::new(full) });
    let waits = cluster.submit(rigid("two", 2));
    cluster.pass_beating(5.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }));
    assert!(matches!(cluster.state(waits), JobState::Queued { .. }));
    assert_eq!(cluster.engine.view().census()[&Activity::Withheld], GpuCount(2));
    cluster.report(0, NodeReport::Inventory { inventory: Box::new(inventory(0, 4)) });
    cluster.pass_beating(3.0, &[0]);
    assert!(matches!(cluster.state(waits), JobState::Starting { .. }));
}

#[test]
fn what_a_person_should_know_of_a_node_keeps_no_work_away_and_is_not_said_to() {
    let mut cluster = Cluster::new(&[4]);
    for kind in [ConditionKind::Throttled, ConditionKind::Unbounded, ConditionKind::LedgerDamaged] {
        let condition = Condition { kind, message: format!("{kind:?} says why") };
        let known = headway_types::NodeInventory { conditions: vec![condition], ..inventory(0, 4) };
        cluster.report(0, NodeReport::Inventory { inventory: Box::new(known) });
        assert!(cluster.messages.contains(&format!("node node-0 takes work, but: {kind:?} says why")));
    }
    let job = cluster.submit(rigid("one", 2));
    cluster.pass_beating(3.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Starting { .. }));
}

#[test]
fn what_ails_a_node_is_told_when_it_registers_with_it() {
    let mut cluster = Cluster::new(&[4]);
    let condition = Condition { kind: ConditionKind::LedgerDamaged, message: "its ledger was damaged".into() };
    let ailing = headway_types::NodeInventory { conditions: vec![condition], ..inventory(0, 4) };
    let told = |cluster: &Cluster| cluster.messages.iter().filter(|one| one.contains("its ledger was damaged")).count();
    for _ in 0..2 {
        cluster.register_anew(ailing.clone());
        assert_eq!(told(&cluster), 1);
    }
}

#[test]
fn a_gpu_offered_by_two_nodes_is_granted_from_one_alone() {
    let mut cluster = Cluster::new(&[4]);
    let mut copy = inventory(1, 4);
    copy.gpus = inventory(0, 4).gpus;
    cluster.register(copy, vec![]);
    let jobs = [cluster.submit(rigid("one", 4)), cluster.submit(rigid("two", 4))];
    cluster.pass_beating(5.0, &[0, 1]);
    let starting = jobs.iter().filter(|job| matches!(cluster.state(**job), JobState::Starting { .. }));
    assert_eq!(starting.count(), 1);
    assert!(cluster.node(1).inventory.gpus.iter().all(|gpu| gpu.health != GpuHealth::Healthy));
}

#[test]
fn another_machine_under_a_living_nodes_id_is_refused() {
    let mut cluster = Cluster::new(&[4]);
    let clone = headway_types::NodeInventory { name: "copy".into(), boot: BootId("other".into()), ..inventory(0, 4) };
    cluster.register_anew(clone.clone());
    assert_eq!(cluster.refused.len(), 1);
    assert_eq!(cluster.node(0).inventory.name, "node-0");
    cluster.pass_beating(40.0, &[]);
    cluster.register_anew(clone);
    assert_eq!(cluster.node(0).inventory.name, "copy", "the first has been silent for a whole lease");
}

#[test]
fn a_node_written_off_must_show_its_ledger_before_it_is_heard_again() {
    let mut cluster = Cluster::new(&[4]);
    cluster.pass(31.0);
    assert!(matches!(cluster.node(0).availability, Availability::Unreachable { .. }));
    cluster.request(Request::MarkLost { node: node_id(0), reason: None });
    cluster.report(0, NodeReport::Heartbeat);
    assert!(matches!(cluster.node(0).availability, Availability::Lost { .. }));
    assert_eq!(cluster.refused.len(), 1);
    cluster.register(inventory(0, 4), vec![]);
    assert_eq!(cluster.node(0).availability, Availability::Available);
}

#[test]
fn whoever_takes_a_node_back_into_service_vouches_for_it() {
    let (mut cluster, one, two, first) = two_owners();
    fail_start(&mut cluster, one, Blame::Node);
    fail_start(&mut cluster, two, Blame::Node);
    assert!(matches!(cluster.node(first).health.standing, Standing::Quarantined { .. }));
    cluster.request(Request::Uncordon { node: node_id(first) });
    assert_eq!(standing(&cluster, first), "good");
}

#[test]
fn every_gpu_is_counted_once_whatever_it_does() {
    let mut cluster = Cluster::new(&[4, 4, 2]);
    let running = cluster.submit(rigid("one", 4));
    cluster.start(running);
    cluster.submit(rigid("two", 2));
    cluster.request(Request::Cordon { node: node_id(2), reason: None });
    cluster.feed(Event::Tick);
    let census = cluster.engine.view().census();
    assert_eq!(census.values().copied().sum::<GpuCount>(), GpuCount(10));
    assert_eq!(census[&Activity::Training], GpuCount(4));
}

#[test]
fn a_save_of_unknown_length_is_no_hang() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(spec("one", 4, 4, Some(training(true))));
    cluster.start(job);
    cluster.declare(job);
    cluster.steps(job, 64, None);
    cluster.pass_beating(900.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }), "its first save may take this long");
}

#[test]
fn what_ran_out_of_device_memory_is_not_tried_again() {
    let mut cluster = Cluster::new(&[]);
    let gpu_type = GpuType("H100-80G".into());
    cluster.register(NodeInventory { gpu_type, emulated: None, ..inventory(0, 4) }, Vec::new());
    let work = Work::Model(llama2_7b());
    let layouts = LayoutLimits::degrees(vec![1, 2, 4], vec![1, 2, 4], Sequences(8));
    let recipe = Training { work, precision: Precision::Bf16, layouts, target: None, ..training(true) };
    let job = cluster.submit(spec("large", 4, 4, Some(recipe)));
    cluster.start(job);
    let told = |cluster: &Cluster| {
        let generation = cluster.jobs[&job].generation;
        cluster.allocations[&(job, generation)].configuration.unwrap()
    };
    let (first, generation) = (told(&cluster), cluster.jobs[&job].generation);
    cluster.end(job, &GroupOutcome::Failed { exit_code: Some(1), fault: Fault::out_of_memory() });
    cluster.pass_beating(60.0, &[0]);
    cluster.start(job);
    assert!(cluster.jobs[&job].generation > generation, "it goes on with another configuration");
    assert_ne!(told(&cluster), first);
}
