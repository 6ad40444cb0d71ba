//! What a person is told to look at first.

use headway_engine::attention::{Attention, Kind, Severity};
use headway_engine::event::Request;
use headway_engine::record::{JobState, PolicySettings};
use headway_planner::makes_due;
use headway_types::{Blame, Condition, ConditionKind, Fault, GroupOutcome, GroupPhase, PolicyMode, Seconds};

use crate::harness::{Cluster, inventory, node_id, rigid};

fn attention(cluster: &Cluster) -> Attention {
    cluster.engine.view().attention(20, |_| true)
}

fn kinds(cluster: &Cluster) -> Vec<Kind> {
    attention(cluster).items.iter().map(|item| item.kind).collect()
}

fn headlines(cluster: &Cluster) -> String {
    let told = attention(cluster).items;
    told.iter().map(|item| format!("{}\n  -> {}\n", item.headline, item.next_step)).collect()
}

fn put_policy(cluster: &mut Cluster, settings: PolicySettings) {
    cluster.request(Request::SetPolicy { settings: Box::new(settings), expected: None });
}

#[test]
fn a_cluster_that_does_well_asks_for_nobody() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("one", 4));
    cluster.start(job);
    assert_eq!(attention(&cluster), Attention::default());
}

#[test]
fn a_job_starves_once_the_planner_holds_it_for_due_and_not_before() {
    let mut cluster = Cluster::new(&[4]);
    let mut settings = PolicySettings::default();
    settings.objective.patience = Some(Seconds(60.0));
    put_policy(&mut cluster, settings);
    let first = cluster.submit(rigid("one", 4));
    cluster.start(first);
    let second = cluster.submit(rigid("two", 4));
    let mut starved = 0;
    for _ in 0..80 {
        cluster.pass_beating(20.0, &[0]);
        let view = cluster.engine.view();
        let turn = view.jobs[&second].job.turn_at(view.at);
        let due = makes_due(view.verdicts.due.get(&second).copied(), turn.waited, turn.ran);
        assert_eq!(kinds(&cluster) == [Kind::JobStarves], due, "after {:?}", turn.waited);
        assert!(turn.waited.0 >= 60.0 || !due, "after {:?}", turn.waited);
        starved += u32::from(due);
    }
    assert!((1..80).contains(&starved), "{starved}");
}

#[test]
fn who_may_not_read_a_job_is_told_nothing_of_it_not_even_how_many() {
    let mut cluster = Cluster::new(&[4]);
    cluster.submit(rigid("huge", 400));
    assert_eq!(kinds(&cluster), [Kind::JobNever]);
    assert_eq!(cluster.engine.view().attention(20, |_| false), Attention::default());
}

#[test]
fn of_a_long_list_the_most_at_stake_is_told_and_all_is_counted() {
    let mut cluster = Cluster::new(&[4]);
    for gpus in 0..30 {
        cluster.submit(rigid(&format!("job-{gpus}"), 100 + gpus));
    }
    cluster.pass_beating(600.0, &[0]);
    let told = cluster.engine.view().attention(5, |_| true);
    assert_eq!((told.items.len(), told.by_kind[&Kind::JobNever]), (5, 30));
    let stakes: Vec<f64> = told.items.iter().map(|item| item.at_stake.unwrap().0).collect();
    assert!(stakes.is_sorted_by(|a, b| a >= b), "{stakes:?}");
}

#[test]
fn nodes_that_cannot_be_used_come_before_jobs() {
    let mut cluster = Cluster::new(&[4, 4, 4]);
    let disk = Condition { kind: ConditionKind::DiskPressure, message: "1 % of /var is free".into() };
    let full = headway_types::NodeInventory { conditions: vec![disk], ..inventory(1, 4) };
    cluster.register(full, Vec::new());
    cluster.submit(rigid("huge", 400));
    cluster.disconnect(0);
    cluster.pass_beating(60.0, &[1, 2]);
    cluster.request(Request::MarkLost { node: node_id(0), reason: None });
    cluster.pass_beating(600.0, &[1, 2]);
    assert_eq!(kinds(&cluster), [Kind::NodeLost, Kind::NodeAiling, Kind::JobNever]);
    insta::assert_snapshot!(headlines(&cluster));
}

#[test]
fn a_job_that_fails_again_and_again_is_told_with_how_it_last_failed() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 4));
    for failures in 0..2 {
        assert_eq!(kinds(&cluster), [], "{failures} failures prove nothing");
        cluster.start(job);
        let fault = Fault { blame: Blame::Job, ..Fault::of_job("ValueError: no such column\nTraceback") };
        cluster.end(job, &GroupOutcome::Failed { exit_code: Some(1), fault });
        cluster.pass_beating(20.0, &[0]);
        while matches!(cluster.state(job), JobState::Queued { .. }) && failures == 0 {
            cluster.pass_beating(5.0, &[0]);
        }
    }
    let told = attention(&cluster).items;
    assert_eq!(told[0].kind, Kind::JobFails);
    assert!(told[0].headline.starts_with("one failed 2 times since it last made progress: "), "{}", told[0].headline);
}

#[test]
fn a_pause_and_a_plan_that_waits_are_told() {
    let mut cluster = Cluster::new(&[4]);
    let paused = PolicySettings { mode: PolicyMode::Paused, ..PolicySettings::default() };
    put_policy(&mut cluster, paused);
    cluster.submit(rigid("one", 4));
    let told = attention(&cluster).items;
    assert_eq!((told[0].kind, told[0].kind.severity()), (Kind::PlanningPaused, Severity::Warning));
    assert!(told[0].headline.contains("4 GPUs stand idle"), "{}", told[0].headline);
    cluster.request(Request::Rebalance { terms: Box::default() });
    cluster.pass_beating(120.0, &[0]);
    assert_eq!(kinds(&cluster), [Kind::PlanningPaused, Kind::PlanWaitsApproval]);
}

#[test]
fn a_node_in_quarantine_is_told_until_it_is_over() {
    let mut cluster = Cluster::new(&[4, 4]);
    let jobs = ["ada", "bob"].map(|user| cluster.submit_as(user, rigid(user, 2)));
    assert_eq!(cluster.nodes_of(jobs[0]), cluster.nodes_of(jobs[1]));
    for job in jobs {
        let node = cluster.nodes_of(job)[0];
        let fault = Fault { blame: Blame::Node, ..Fault::of_job("no such directory") };
        cluster.group(node, job, GroupPhase::Ended { outcome: GroupOutcome::NotStarted { fault } });
        cluster.pass_beating(40.0, &[0, 1]);
    }
    assert!(kinds(&cluster).contains(&Kind::NodeQuarantined), "{:?}", kinds(&cluster));
    cluster.pass_beating(3_600.0, &[0, 1]);
    assert!(!kinds(&cluster).contains(&Kind::NodeQuarantined), "{:?}", kinds(&cluster));
}
