//! Short histories, told line by line: what the scheduler decides, what nodes are told, and what goes wrong between.
//! Their golden outputs are documentation; `cargo insta review` shows what a change of behaviour does to them.
#![allow(clippy::unwrap_used)]

use headway_sim::deed::{Act, Comeback, Crash, Deed, Moment, Operation, Way};
use headway_sim::scenario::{spec, training};
use headway_sim::{Chance, Faults, Report, Scenario, SimJob, simulate};
use headway_types::spec::{After, Condition, GpuRange};
use headway_types::{GpuCount, Seconds, Tokens};

/// A job of about two minutes on all of two nodes with two GPUs each.
fn job(name: &str, min: u32, max: u32) -> SimJob {
    let gpus = GpuRange { min: GpuCount(min), max: GpuCount(max), sizes: Vec::new(), types: Vec::new(), mixed: false };
    SimJob {
        arrives: Seconds(10.0),
        spec: spec(name.into(), gpus, Some(training(Tokens(1_500_000.0), true, false))),
        tokens_per_second: 4_000.0,
        noise_scale: 20_000.0,
        runs: Seconds(0.0),
        startup: Seconds(5.0),
        cancelled_after: None,
        hidden: None,
    }
}

fn tell(jobs: Vec<SimJob>, script: Vec<(Moment, Deed)>) -> Report {
    simulate(&scenario(jobs, script)).unwrap()
}

fn scenario(jobs: Vec<SimJob>, script: Vec<(Moment, Deed)>) -> Scenario {
    let mut scenario = Scenario::empty(1, &[2, 2]);
    scenario.config.lease = Seconds(10.0);
    scenario.jobs = jobs;
    scenario.script = script.into_iter().map(|(when, deed)| Act { when, deed }).collect();
    scenario.diary = true;
    scenario
}

fn assert_succeeds(report: &Report, jobs: u32) {
    assert_eq!(report.ended.get("succeeded"), Some(&jobs), "{:?}", report.ended);
}

#[test]
fn the_scheduler_is_killed_between_commit_and_send() {
    let granted = Moment::Commits { verb: "job.granted", nth: 1 };
    let crash = Deed::CrashScheduler { when: Crash::AfterCommit, back_after: Seconds(5.0) };
    let report = tell(vec![job("llama", 4, 4)], vec![(granted, crash)]);
    assert_succeeds(&report, 1);
    assert_eq!(report.generations, 1, "the committed grant is carried out, not made again");
    insta::assert_snapshot!(report.diary.join("\n"));
}

#[test]
fn a_submission_whose_answer_is_lost_is_asked_again() {
    let submitted = Moment::Commits { verb: "job.submitted", nth: 1 };
    let crash = Deed::CrashScheduler { when: Crash::AfterCommit, back_after: Seconds(5.0) };
    let report = tell(vec![job("llama", 2, 2)], vec![(submitted, crash)]);
    assert_succeeds(&report, 1);
    insta::assert_snapshot!(report.diary.join("\n"));
}

#[test]
fn an_agent_loses_its_disk() {
    let stop = Deed::StopAgent { node: 0, comeback: Comeback::DiskLost, back_after: Seconds(5.0) };
    let report = tell(vec![job("llama", 4, 4)], vec![(Moment::At(Seconds(90.0)), stop)]);
    assert_succeeds(&report, 1);
    insta::assert_snapshot!(report.diary.join("\n"));
}

#[test]
fn a_paused_leader_wakes_up() {
    // The old leader's last command is on its way to node-1 when it stops, and arrives after the new leader's.
    let script = [
        (49.0, Deed::Cut { node: 1, way: Way::Commands, lasts: Seconds(25.0) }),
        (49.0, Deed::KillWorker { node: 0 }),
        (50.0, Deed::PauseScheduler { lasts: Seconds(40.0), successor_after: Some(Seconds(12.0)) }),
    ];
    let mut scenario = scenario(
        vec![job("llama", 4, 4)],
        script.into_iter().map(|(at, deed)| (Moment::At(Seconds(at)), deed)).collect(),
    );
    scenario.faults = Faults::of(&[], &[]);
    scenario.faults.share.insert(Chance::LateDelivery, 1.0);
    let report = simulate(&scenario).unwrap();
    assert_succeeds(&report, 1);
    assert!(report.diary.iter().any(|line| line.contains("refuses: term t1 is over")));
    insta::assert_snapshot!(report.diary.join("\n"));
}

#[test]
fn a_gang_starts_on_one_node_only() {
    // Long enough after the grant for the checks to be done, soon enough for the launch to fail.
    let when = Moment::After { verb: "job.granted", nth: 1, wait: Seconds(1.0) };
    let spoil = Deed::Spoil { node: 1, lasts: Seconds(2.0) };
    let report = tell(vec![job("llama", 4, 4)], vec![(when, spoil)]);
    assert_succeeds(&report, 1);
    insta::assert_snapshot!(report.diary.join("\n"));
}

#[test]
fn a_node_marked_lost_comes_back() {
    let script = vec![
        (Moment::At(Seconds(50.0)), Deed::Cut { node: 1, way: Way::Both, lasts: Seconds(70.0) }),
        (Moment::At(Seconds(80.0)), Deed::Operate(Operation::MarkLost { node: 1 })),
    ];
    let report = tell(vec![job("llama", 1, 4)], script);
    assert_succeeds(&report, 1);
    insta::assert_snapshot!(report.diary.join("\n"));
}

#[test]
fn a_node_that_was_deleted_comes_back_as_a_new_one() {
    let script = vec![
        (Moment::At(Seconds(50.0)), Deed::Cut { node: 1, way: Way::Both, lasts: Seconds(70.0) }),
        (Moment::At(Seconds(70.0)), Deed::Operate(Operation::DeleteNode { node: 1 })),
        (Moment::At(Seconds(80.0)), Deed::Operate(Operation::MarkLost { node: 1 })),
        (Moment::At(Seconds(90.0)), Deed::Operate(Operation::DeleteNode { node: 1 })),
        (Moment::At(Seconds(100.0)), Deed::CrashScheduler { when: Crash::Now, back_after: Seconds(5.0) }),
    ];
    let report = tell(vec![job("llama", 1, 4)], script);
    assert_succeeds(&report, 1);
    insta::assert_snapshot!(report.diary.join("\n"));
}

/// Each job after the one before it, submitted a moment later.
fn chain(jobs: &[&str], on: Condition) -> Vec<SimJob> {
    let mut chain: Vec<SimJob> = jobs.iter().map(|name| job(name, 2, 2)).collect();
    for index in 1..chain.len() {
        chain[index].arrives = Seconds(10.0 + index as f64);
        chain[index].spec.after = vec![After { job: jobs[index - 1].into(), on }];
    }
    chain
}

#[test]
fn a_chain_goes_on_whenever_the_scheduler_dies() {
    for verb in ["job.submitted", "job.succeeded", "job.unblocked", "job.granted"] {
        for when in [Crash::BeforeCommit, Crash::AfterCommit] {
            let crash = Deed::CrashScheduler { when, back_after: Seconds(5.0) };
            let at = match when {
                Crash::AfterCommit => Moment::Commits { verb, nth: 1 },
                _ => Moment::After { verb, nth: 1, wait: Seconds(0.5) },
            };
            let report = tell(chain(&["prep", "train", "test"], Condition::Success), vec![(at, crash)]);
            assert_succeeds(&report, 3);
            assert_eq!(report.generations, 3, "{verb} {when:?}: each waited for the one before and ran once");
        }
    }
}

#[test]
fn whoever_waits_for_a_job_that_fails_is_cancelled_although_the_scheduler_dies() {
    let mut jobs = chain(&["prep", "train", "test"], Condition::Success);
    jobs[0].spec.limits.max_restarts = 0;
    let script = vec![
        (Moment::At(Seconds(60.0)), Deed::KillWorker { node: 0 }),
        (Moment::At(Seconds(60.0)), Deed::KillWorker { node: 1 }),
        (
            Moment::Commits { verb: "job.failed", nth: 1 },
            Deed::CrashScheduler { when: Crash::AfterCommit, back_after: Seconds(5.0) },
        ),
    ];
    let report = tell(jobs, script);
    assert_eq!(report.ended, [("cancelled", 2), ("failed", 1)].map(|(state, jobs)| (state.into(), jobs)).into());
    insta::assert_snapshot!(report.diary.join("\n"));
}

#[test]
fn chains_come_to_an_end_whatever_goes_wrong() {
    for seed in 0..4 {
        let mut scenario = Scenario::lifetime(seed);
        for index in 1..scenario.jobs.len() {
            let before = scenario.jobs[index - 1].spec.name.clone();
            let on = if index % 2 == 0 { Condition::Any } else { Condition::Start };
            scenario.jobs[index].spec.after = vec![After { job: before, on }];
        }
        scenario.horizon = Seconds(4.0 * scenario.horizon.0);
        simulate(&scenario).unwrap_or_else(|broken| panic!("seed {seed}: {broken:?}"));
    }
}

/// Its owner's word comes before its cooldown, and the scheduler may die on the way.
#[test]
fn an_owner_resizes_a_job_that_its_cooldown_keeps() {
    let mut small = job("llama", 1, 1);
    small.spec.elastic.min_runtime = Seconds(1e6);
    small.spec.elastic.max_resizes_per_hour = 0;
    let resize = Operation::Resize { job: 0, min: GpuCount(1), max: GpuCount(4) };
    let script = vec![
        (Moment::At(Seconds(60.0)), Deed::Operate(resize)),
        (
            Moment::Commits { verb: "job.resized", nth: 1 },
            Deed::CrashScheduler { when: Crash::AfterCommit, back_after: Seconds(5.0) },
        ),
    ];
    let report = tell(vec![small], script);
    assert_succeeds(&report, 1);
    assert!(report.generations > 1, "it moves by its owner's word");
    insta::assert_snapshot!(report.diary.join("\n"));
}
