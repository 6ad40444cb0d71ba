//! Where jobs may run: pins, exclusions, nodes that failed them, layouts that bind them.

use headway_engine::event::{JobChange, Request};
use headway_engine::record::{JobState, StopCause};
use headway_engine::{Refusal, Reply};
use headway_types::report::Flexibility;
use headway_types::spec::Priority;
use headway_types::{Capabilities, Fault, Generation, GpuCount, GroupOutcome, GroupPhase, Layout};

use crate::harness::{Cluster, elastic, follow, gpus, inventory, node_id, rigid, spec, training};

#[test]
fn a_pin_holds() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(elastic("pinned", 4));
    follow(&mut cluster, &[0]);
    cluster.request(Request::Pin { job, reason: Some("demo at noon".into()) });
    let mut urgent = rigid("urgent", 2);
    urgent.priority = Priority(100);
    let urgent = cluster.submit(urgent);
    cluster.pass_beating(200.0, &[0]);
    assert_eq!((gpus(&cluster, job), gpus(&cluster, urgent)), (4, 0));
    let view = cluster.engine.view();
    let reasons = format!("{:?}", view.verdict(job));
    assert!(reasons.contains("pinned by ada: demo at noon"), "{reasons}");
    cluster.request(Request::Unpin { job });
    follow(&mut cluster, &[0]);
    assert_eq!((gpus(&cluster, job), gpus(&cluster, urgent)), (2, 2));
}

#[test]
fn a_pinned_job_still_leaves_a_node_that_drains() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("pinned", 4));
    cluster.start(job);
    cluster.request(Request::Pin { job, reason: None });
    let node = cluster.nodes_of(job)[0];
    cluster.request(Request::Drain { node: node_id(node), reason: None, deadline: None });
    cluster.pass_beating(3.0, &[0, 1]);
    assert!(matches!(cluster.state(job), JobState::Stopping { cause: StopCause::Drain, .. }));
}

#[test]
fn a_script_that_cannot_reshard_starts_again_in_the_layout_it_saved_in() {
    let mut cluster = Cluster::new(&[4]);
    let mut mute = training(true);
    mute.reconfigure = Capabilities { batch: Flexibility::Never, layout: Flexibility::Never };
    let job = cluster.submit(spec("mute", 1, 4, Some(mute)));
    cluster.start(job);
    assert_eq!(cluster.jobs[&job].layout, Some(Layout::data_parallel(GpuCount(4))));
    cluster.request(Request::Hold { job, reason: None });
    cluster.end(job, &GroupOutcome::Stopped);
    let other = cluster.submit(rigid("other", 2));
    cluster.start(other);
    cluster.restart();
    cluster.register(inventory(0, 4), vec![cluster.status(other, Generation(1), GroupPhase::Running)]);
    cluster.request(Request::Pin { job: other, reason: None });
    cluster.request(Request::Release { job });
    cluster.pass_beating(70.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Queued { .. }), "two GPUs are no use to it");
    let change = JobChange { max: Some(GpuCount(2)), ..JobChange::default() };
    assert!(matches!(
        cluster.request(Request::Change { job, change, expected: None }),
        Reply::Refused(Refusal::WrongState(_))
    ));
    cluster.end(other, &GroupOutcome::Succeeded);
    cluster.pass_beating(3.0, &[0]);
    assert_eq!(gpus(&cluster, job), 4);
}

#[test]
fn a_row_of_an_earlier_release_learns_its_layout_from_its_allocation() {
    let mut cluster = Cluster::new(&[4]);
    let mut mute = training(true);
    mute.reconfigure = Capabilities { batch: Flexibility::Never, layout: Flexibility::Never };
    let job = cluster.submit(spec("mute", 1, 4, Some(mute)));
    cluster.start(job);
    cluster.jobs.get_mut(&job).unwrap().layout = None;
    cluster.restart();
    cluster.register(inventory(0, 4), vec![cluster.status(job, Generation(1), GroupPhase::Running)]);
    cluster.request(Request::Hold { job, reason: None });
    assert_eq!(cluster.jobs[&job].layout, Some(Layout::data_parallel(GpuCount(4))));
}

#[test]
fn a_job_does_not_start_again_where_the_node_failed_it() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("one", 4));
    cluster.start(job);
    let broken = cluster.nodes_of(job);
    let fault = Fault::of_node("the disk is gone");
    cluster.end(job, &GroupOutcome::Failed { exit_code: None, fault });
    let other = cluster.submit_as("bob", rigid("other", 4));
    cluster.pass_beating(70.0, &[0, 1]);
    let (mine, others) = (cluster.nodes_of(job), cluster.nodes_of(other));
    assert!(mine != broken && others == broken, "{mine:?} {others:?} {broken:?}");
}

#[test]
fn an_excluded_node_is_not_taken() {
    let mut cluster = Cluster::new(&[4, 4]);
    let mut picky = rigid("picky", 4);
    picky.roles[0].nodes.exclude.insert("node-0".into());
    let job = cluster.submit(picky);
    assert_eq!(cluster.nodes_of(job), [1]);
}

fn label(cluster: &mut Cluster, node: u64, name: &str, value: Option<&str>) -> Reply {
    let labels = [(name.to_owned(), value.map(str::to_owned))].into();
    cluster.request(Request::LabelNode { node: node_id(node), labels, expected: None })
}

#[test]
fn a_job_takes_only_nodes_with_the_labels_it_asks_for() {
    let mut cluster = Cluster::new(&[4, 4]);
    label(&mut cluster, 1, "disk", Some("nvme"));
    let mut picky = rigid("picky", 4);
    picky.roles[0].nodes.only.labels = [("disk".into(), "nvme".into())].into();
    let job = cluster.submit(picky.clone());
    assert_eq!(cluster.nodes_of(job), [1]);
    cluster.start(job);
    // What runs stays where it is, and what comes waits for another node of that kind.
    label(&mut cluster, 1, "disk", None);
    let second = cluster.submit(picky);
    assert!(matches!(cluster.state(job), JobState::Running { .. }));
    assert!(matches!(cluster.state(second), JobState::Queued { .. }));
    label(&mut cluster, 0, "disk", Some("nvme"));
    cluster.pass_beating(5.0, &[0, 1]);
    assert_eq!(cluster.nodes_of(second), [0]);
}

#[test]
fn a_job_takes_only_nodes_it_names() {
    let mut cluster = Cluster::new(&[4, 4]);
    let mut picky = rigid("picky", 4);
    picky.roles[0].nodes.only.include = ["node-1".into(), "node-9".into()].into();
    let job = cluster.submit(picky);
    assert_eq!(cluster.nodes_of(job), [1]);
}

#[test]
fn what_an_operator_says_of_a_node_goes_before_its_agent_and_outlives_both() {
    let mut cluster = Cluster::new(&[4]);
    let declared = |cluster: &mut Cluster, disk: &str| {
        let labels = [("disk".to_owned(), disk.to_owned()), ("gen".to_owned(), "4".to_owned())].into();
        cluster.register(headway_types::NodeInventory { labels, ..inventory(0, 4) }, Vec::new());
    };
    let labels = |cluster: &Cluster| {
        let labels = cluster.node(0).labels().into_iter().map(|(name, value)| format!("{name}={value}"));
        labels.collect::<Vec<_>>().join(" ")
    };
    declared(&mut cluster, "ssd");
    label(&mut cluster, 0, "disk", Some("nvme"));
    label(&mut cluster, 0, "gen", None);
    assert_eq!(labels(&cluster), "disk=nvme");
    cluster.restart();
    declared(&mut cluster, "ssd");
    assert_eq!(labels(&cluster), "disk=nvme");
    // Whoever says the same as the agent leaves it to the agent.
    label(&mut cluster, 0, "disk", Some("ssd"));
    declared(&mut cluster, "hdd");
    assert_eq!(labels(&cluster), "disk=hdd");
    assert_eq!(cluster.count("node.labelled"), 3);
}

#[test]
fn a_label_is_changed_at_the_version_that_was_read_or_not_at_all() {
    let mut cluster = Cluster::new(&[4]);
    let (version, labels) = (cluster.node(0).version, [("a".to_owned(), Some("b".to_owned()))]);
    let change = |expected| Request::LabelNode { node: node_id(0), labels: labels.clone().into(), expected };
    assert!(matches!(cluster.request(change(Some(version))), Reply::Node(_)));
    let refused = cluster.request(change(Some(version)));
    assert!(matches!(refused, Reply::Refused(Refusal::VersionChanged { .. })), "{refused:?}");
    let many = (0..70).map(|number| (format!("l{number}"), Some("x".to_owned()))).collect();
    let refused = cluster.request(Request::LabelNode { node: node_id(0), labels: many, expected: None });
    assert!(matches!(refused, Reply::Refused(Refusal::Invalid(_))), "{refused:?}");
}
