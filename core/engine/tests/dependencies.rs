//! Jobs that come before others, told by hand.

use headway_engine::event::{Event, Known, Request};
use headway_engine::record::{DependencyStanding, JobState};
use headway_engine::{Refusal, Reply};
use headway_types::spec::{After, Condition, Limits};
use headway_types::{Fault, GroupOutcome, GroupPhase, JobId, JobSpec, ReasonCode};

use crate::harness::{Cluster, rigid};

fn after(name: &str, on: &[(&str, Condition)]) -> JobSpec {
    let after = on.iter().map(|(job, on)| After { job: (*job).into(), on: *on }).collect();
    JobSpec { after, limits: Limits { max_restarts: 0, ..Limits::default() }, ..rigid(name, 2) }
}

fn submit(cluster: &mut Cluster, jobs: Vec<JobSpec>) -> Result<Vec<JobId>, Refusal> {
    let known = cluster.known();
    let reply = cluster.request(Request::Submit { jobs, idempotency: None, known });
    cluster.pass_beating(1.0, &[0]);
    match reply {
        Reply::Submitted { jobs } => Ok(jobs.iter().map(|job| job.id).collect()),
        Reply::Refused(refusal) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

/// prep, then train once it succeeds, then test once that does, in this order of ids.
fn chain(cluster: &mut Cluster) -> [JobId; 3] {
    use Condition::Success;
    let jobs = vec![after("prep", &[]), after("train", &[("prep", Success)]), after("test", &[("train", Success)])];
    submit(cluster, jobs).unwrap().try_into().unwrap()
}

fn fail(cluster: &mut Cluster, job: JobId) {
    cluster.end(job, &GroupOutcome::Failed { exit_code: Some(1), fault: Fault::of_job("exit code 1") });
}

fn succeed(cluster: &mut Cluster, job: JobId) {
    cluster.end(job, &GroupOutcome::Succeeded);
    cluster.pass_beating(2.0, &[0]);
}

fn starts(cluster: &Cluster, job: JobId) -> bool {
    matches!(cluster.state(job), JobState::Starting { .. })
}

#[test]
fn a_chain_runs_one_after_the_other_and_waits_in_no_round() {
    let mut cluster = Cluster::new(&[8]);
    let [prep, train, test] = chain(&mut cluster);
    assert!(starts(&cluster, prep), "nobody comes before it");
    assert!(matches!(cluster.state(train), JobState::Queued { .. }), "there is room, but it waits");
    let view = cluster.engine.view();
    assert_eq!(view.round().jobs.len(), 1, "rounds know only of the first");
    let verdict = view.verdict(train).unwrap();
    assert_eq!(
        (verdict.headline.as_str(), verdict.reasons[0].code),
        ("waits for prep to succeed", ReasonCode::Dependency)
    );
    cluster.start(prep);
    succeed(&mut cluster, prep);
    assert!(starts(&cluster, train), "{:?}", cluster.state(train));
    assert!(matches!(cluster.state(test), JobState::Queued { .. }));
    cluster.start(train);
    succeed(&mut cluster, train);
    assert!(starts(&cluster, test));
    assert_eq!(cluster.count("job.unblocked"), 2);
    assert!(cluster.messages.contains(&"train may start: prep succeeded".to_owned()));
}

#[test]
fn a_cancellation_that_comes_after_the_end_keeps_nobody_from_starting() {
    let mut cluster = Cluster::new(&[8]);
    let [prep, train, _test] = chain(&mut cluster);
    cluster.start(prep);
    cluster.request(Request::Cancel { job: prep, reason: None, grace: None });
    succeed(&mut cluster, prep);
    assert!(matches!(cluster.state(prep), JobState::Succeeded { .. }), "{:?}", cluster.state(prep));
    assert!(starts(&cluster, train), "{:?}", cluster.state(train));
}

#[test]
fn whoever_can_never_start_is_cancelled_at_once_with_all_behind_it() {
    let mut cluster = Cluster::new(&[8]);
    let [prep, train, test] = chain(&mut cluster);
    cluster.start(prep);
    fail(&mut cluster, prep);
    let reason = |job| match cluster.state(job) {
        JobState::Cancelled { by, reason, .. } => format!("{by}: {}", reason.as_deref().unwrap_or_default()),
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(train), "scheduler: it waits for prep to succeed, and prep failed");
    assert_eq!(reason(test), "scheduler: it waits for train to succeed, and train was cancelled");
    assert_eq!(cluster.count("job.cancelled"), 2);
    assert!(matches!(cluster.jobs[&train].after[0].standing, DependencyStanding::Never { .. }));
}

#[test]
fn each_condition_means_what_it_says() {
    for (on, once_started, after_success, after_failure) in [
        (Condition::Success, "waits", "starts", "ends"),
        (Condition::Failure, "waits", "ends", "starts"),
        (Condition::Any, "waits", "starts", "starts"),
        (Condition::Start, "starts", "starts", "starts"),
    ] {
        let lot = |cluster: &Cluster, job| match cluster.state(job) {
            JobState::Queued { .. } => "waits",
            JobState::Cancelled { .. } => "ends",
            _ => "starts",
        };
        for (well, then) in [(true, after_success), (false, after_failure)] {
            let mut cluster = Cluster::new(&[8]);
            let jobs = submit(&mut cluster, vec![after("a", &[]), after("b", &[("a", on)])]).unwrap();
            assert_eq!(lot(&cluster, jobs[1]), "waits");
            cluster.start(jobs[0]);
            cluster.pass_beating(2.0, &[0]);
            assert_eq!(lot(&cluster, jobs[1]), once_started, "{on}");
            if well {
                succeed(&mut cluster, jobs[0])
            } else {
                fail(&mut cluster, jobs[0])
            }
            cluster.pass_beating(2.0, &[0]);
            assert_eq!(lot(&cluster, jobs[1]), then, "{on} {well}");
        }
    }
}

#[test]
fn whoever_waits_for_several_waits_for_the_last_and_a_hold_is_no_business_of_theirs() {
    let mut cluster = Cluster::new(&[8]);
    let all = [("a", Condition::Success), ("b", Condition::Any)];
    let jobs = submit(&mut cluster, vec![after("a", &[]), after("b", &[]), after("c", &all)]).unwrap();
    cluster.request(Request::Hold { job: jobs[2], reason: None });
    cluster.start(jobs[0]);
    cluster.start(jobs[1]);
    succeed(&mut cluster, jobs[0]);
    assert!(cluster.jobs[&jobs[2]].is_blocked());
    fail(&mut cluster, jobs[1]);
    assert!(matches!(cluster.state(jobs[2]), JobState::Held { .. }), "held it stays");
    assert!(!cluster.jobs[&jobs[2]].is_blocked());
    cluster.request(Request::Release { job: jobs[2] });
    cluster.pass_beating(2.0, &[0]);
    assert!(starts(&cluster, jobs[2]));
}

#[test]
fn a_restart_loses_nothing() {
    let mut cluster = Cluster::new(&[8]);
    let [prep, train, test] = chain(&mut cluster);
    cluster.start(prep);
    let groups = vec![cluster.status(prep, cluster.jobs[&prep].generation, GroupPhase::Running)];
    cluster.restart();
    cluster.register(crate::harness::inventory(0, 8), groups);
    succeed(&mut cluster, prep);
    assert!(starts(&cluster, train));
    cluster.restart();
    cluster.register(crate::harness::inventory(0, 8), Vec::new());
    cluster.request(Request::Cancel { job: train, reason: None, grace: None });
    cluster.end(train, &GroupOutcome::Stopped);
    cluster.pass_beating(2.0, &[0]);
    assert!(matches!(cluster.state(test), JobState::Cancelled { .. }), "{:?}", cluster.state(test));
}

#[test]
fn what_has_ended_is_judged_at_the_submission() {
    let mut cluster = Cluster::new(&[8]);
    let first = submit(&mut cluster, vec![after("prep", &[])]).unwrap()[0];
    cluster.start(first);
    succeed(&mut cluster, first);
    let late = submit(&mut cluster, vec![after("late", &[("prep", Condition::Success)])]).unwrap()[0];
    assert!(starts(&cluster, late), "it has succeeded long ago");
    let by_id = first.to_string();
    let refused = submit(&mut cluster, vec![after("never", &[(&by_id, Condition::Failure)])]).unwrap_err();
    let why = format!("never waits for {by_id}, which succeeded already: that can never be met");
    assert_eq!(refused, Refusal::Invalid(why));
}

#[test]
fn what_the_shell_read_too_early_is_corrected_by_what_ended_since() {
    let mut cluster = Cluster::new(&[8]);
    let prep = submit(&mut cluster, vec![after("prep", &[])]).unwrap()[0];
    cluster.start(prep);
    let (before, jobs) = (cluster.known(), vec![after("late", &[("prep", Condition::Success)])]);
    succeed(&mut cluster, prep);
    let reply = cluster.request(Request::Submit { jobs, idempotency: None, known: before });
    let Reply::Submitted { jobs } = reply else { panic!("{reply:?}") };
    assert!(!jobs[0].is_blocked());
}

#[test]
fn circles_strangers_and_namesakes_are_refused_in_words() {
    let mut cluster = Cluster::new(&[8]);
    let on = |name| [(name, Condition::Success)];
    let told = |cluster: &mut Cluster, jobs| submit(cluster, jobs).unwrap_err().to_string();
    let circle = vec![after("a", &on("b")), after("b", &on("c")), after("c", &on("a"))];
    let unknown = vec![after("a", &on("nobody"))];
    let namesakes = vec![after("a", &[]), after("a", &[]), after("b", &on("a"))];
    let told = [circle, unknown, namesakes].map(|jobs| told(&mut cluster, jobs));
    insta::assert_snapshot!(told.join("\n"), @r"
    the jobs wait for each other in a circle: a waits for b, b waits for c, c waits for a
    a waits for nobody, and there is no such job of yours in project default
    b waits for a, and 2 jobs of this submission are called so
    ");
    // What the shell does not name is hidden from the caller, whatever the engine knows.
    let seen = submit(&mut cluster, vec![after("hidden", &[])]).unwrap()[0].to_string();
    let jobs = vec![after("b", &[(&seen, Condition::Success)])];
    let reply = cluster.request(Request::Submit { jobs, idempotency: None, known: Known::default() });
    assert!(matches!(reply, Reply::Refused(Refusal::Invalid(_))), "{reply:?}");
    cluster.feed(Event::Tick);
}
