//! Arrays of jobs, told by hand.

use headway_engine::event::{ArrayDeed, Request};
use headway_engine::record::{Array, JobState};
use headway_engine::{Refusal, Reply};
use headway_types::spec::{After, ArraySpec, Condition, Limits};
use headway_types::{AgentCommand, ArrayId, Fault, GroupOutcome, GroupPhase, JobId, JobSpec, JobStateKind, ReasonCode};
use proptest::prelude::*;

use crate::harness::{Cluster, rigid};

fn array(name: &str, range: &str, parallel: Option<u32>) -> JobSpec {
    let array = ArraySpec { indices: range.parse().unwrap(), parallel };
    let limits = Limits { max_restarts: 0, ..Limits::default() };
    JobSpec { array: Some(array), limits, ..rigid(name, 1) }
}

fn after(name: &str, on: &[(&str, Condition)]) -> JobSpec {
    let after = on.iter().map(|(job, on)| After { job: (*job).into(), on: *on }).collect();
    JobSpec { after, limits: Limits { max_restarts: 0, ..Limits::default() }, ..rigid(name, 1) }
}

fn submit(cluster: &mut Cluster, jobs: Vec<JobSpec>) -> Result<Vec<JobId>, Refusal> {
    let known = cluster.known();
    let reply = cluster.request(Request::Submit { jobs, idempotency: None, known });
    cluster.pass_beating(2.0, &[0]);
    match reply {
        Reply::Submitted { jobs } => Ok(jobs.iter().map(|job| job.id).collect()),
        Reply::Refused(refusal) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

fn of(cluster: &Cluster, job: JobId) -> ArrayId {
    cluster.jobs[&job].element.as_ref().unwrap().array
}

fn row(cluster: &Cluster, job: JobId) -> &Array {
    &cluster.arrays[&of(cluster, job)]
}

fn starting(cluster: &Cluster, jobs: &[JobId]) -> Vec<usize> {
    let starts = |place: &usize| matches!(cluster.state(jobs[*place]), JobState::Starting { .. });
    (0..jobs.len()).filter(starts).collect()
}

fn succeed(cluster: &mut Cluster, job: JobId) {
    if matches!(cluster.state(job), JobState::Starting { .. }) {
        cluster.start(job);
    }
    cluster.end(job, &GroupOutcome::Succeeded);
    cluster.pass_beating(2.0, &[0]);
}

fn fail(cluster: &mut Cluster, job: JobId) {
    cluster.start(job);
    cluster.end(job, &GroupOutcome::Failed { exit_code: Some(1), fault: Fault::of_job("exit code 1") });
    cluster.pass_beating(2.0, &[0]);
}

#[test]
fn each_element_is_a_job_and_knows_which() {
    let mut cluster = Cluster::new(&[8]);
    let jobs = submit(&mut cluster, vec![array("sweep", "3-7:2", None)]).unwrap();
    let names: Vec<&str> = jobs.iter().map(|job| cluster.jobs[job].spec.name.as_str()).collect();
    assert_eq!(names, ["sweep[3]", "sweep[5]", "sweep[7]"]);
    assert_eq!(starting(&cluster, &jobs), [0, 1, 2], "nothing bounds how many run");
    let orders = cluster.commands.iter().filter_map(|(_, command)| match command {
        AgentCommand::Prepare { order } => order.array.map(|at| (at.index, at.count, at.first, at.last)),
        _ => None,
    });
    let mut orders: Vec<_> = orders.collect();
    orders.sort_unstable();
    orders.dedup();
    assert_eq!(orders, [(3, 3, 3, 7), (5, 3, 3, 7), (7, 3, 3, 7)]);
    assert!(cluster.messages.contains(&"sweep[3-7:2]: 3 jobs in project default".to_owned()));
}

#[test]
fn no_more_run_than_the_array_allows_and_the_rest_say_so() {
    let mut cluster = Cluster::new(&[8]);
    let jobs = submit(&mut cluster, vec![array("sweep", "0-5", Some(2))]).unwrap();
    assert_eq!(starting(&cluster, &jobs), [0, 1]);
    let view = cluster.engine.view();
    assert_eq!(view.round().jobs.len(), 2, "rounds know only of those");
    let verdict = view.verdict(jobs[2]).unwrap();
    assert_eq!(verdict.headline, "waits for others of array sweep to end: 2 run, and it allows 2 at once");
    assert_eq!(verdict.reasons[0].code, ReasonCode::ArrayLimit);
    succeed(&mut cluster, jobs[1]);
    assert_eq!(starting(&cluster, &jobs), [0, 2], "in the order of their indices");
    assert!(
        cluster.messages.iter().any(|told| told.starts_with("sweep[2] may start: fewer of array sweep run than the 2"))
    );
    fail(&mut cluster, jobs[0]);
    assert_eq!(starting(&cluster, &jobs), [2, 3], "a failure gives up its place, too");
    let tally = row(&cluster, jobs[0]).tally;
    assert_eq!((tally.succeeded, tally.failed, tally.begun), (1, 1, 2));
}

#[test]
fn a_held_element_gives_up_its_place_and_waits_for_one_again() {
    let mut cluster = Cluster::new(&[8]);
    let jobs = submit(&mut cluster, vec![array("sweep", "0-3", Some(1))]).unwrap();
    cluster.start(jobs[0]);
    cluster.request(Request::Hold { job: jobs[0], reason: None });
    cluster.end(jobs[0], &GroupOutcome::Stopped);
    cluster.pass_beating(2.0, &[0]);
    assert_eq!(starting(&cluster, &jobs), [1]);
    cluster.request(Request::Release { job: jobs[0] });
    cluster.pass_beating(2.0, &[0]);
    assert!(cluster.jobs[&jobs[0]].waits_for_its_array());
    succeed(&mut cluster, jobs[1]);
    assert_eq!(starting(&cluster, &jobs), [0]);
}

#[test]
fn the_limit_is_changed_while_it_runs_and_takes_nothing_from_those_that_do() {
    let mut cluster = Cluster::new(&[8]);
    let jobs = submit(&mut cluster, vec![array("sweep", "0-5", Some(3))]).unwrap();
    let id = of(&cluster, jobs[0]);
    let change = |cluster: &mut Cluster, parallel| {
        cluster.request(Request::ChangeArray { array: id, parallel, expected: None });
        cluster.pass_beating(2.0, &[0]);
    };
    change(&mut cluster, Some(1));
    assert_eq!(starting(&cluster, &jobs), [0, 1, 2], "they go on");
    succeed(&mut cluster, jobs[0]);
    succeed(&mut cluster, jobs[1]);
    assert_eq!(starting(&cluster, &jobs), [2], "and nobody comes after them");
    change(&mut cluster, None);
    assert_eq!(starting(&cluster, &jobs), [2, 3, 4, 5]);
    assert!(cluster.messages.contains(&"of sweep: 3 at once become 1".to_owned()), "{:?}", cluster.messages);
    let refused = cluster.request(Request::ChangeArray { array: id, parallel: Some(0), expected: None });
    assert!(matches!(refused, Reply::Refused(Refusal::Invalid(_))));
    let refused = cluster.request(Request::ChangeArray { array: id, parallel: Some(2), expected: Some(1) });
    assert!(matches!(refused, Reply::Refused(Refusal::VersionChanged { .. })));
}

#[test]
fn an_array_that_is_being_cancelled_may_be_cancelled_again_and_one_that_succeeded_may_not() {
    let mut cluster = Cluster::new(&[8]);
    let jobs = submit(&mut cluster, vec![array("sweep", "0-2", None)]).unwrap();
    let (id, deed) = (of(&cluster, jobs[0]), ArrayDeed::Cancel { reason: None, grace: None });
    let cancel = Request::Array { array: id, deed };
    succeed(&mut cluster, jobs[0]);
    cluster.start(jobs[1]);
    cluster.start(jobs[2]);
    let touched = |reply: Reply| match reply {
        Reply::Array(done) => done.touched,
        other => panic!("{other:?}"),
    };
    assert_eq!(touched(cluster.request(cancel.clone())), jobs[1..]);
    assert_eq!(touched(cluster.request(cancel.clone())), [], "its elements are being stopped");
    cluster.end(jobs[1], &GroupOutcome::Stopped);
    assert_eq!(touched(cluster.request(cancel)), [], "one has ended, and one is being stopped");

    let jobs = submit(&mut cluster, vec![array("other", "0-1", None)]).unwrap();
    let hold = Request::Array { array: of(&cluster, jobs[0]), deed: ArrayDeed::Hold { reason: None } };
    cluster.request(hold.clone());
    let refused = cluster.request(hold);
    assert!(matches!(refused, Reply::Refused(Refusal::WrongState(_))), "{refused:?}");
}

#[test]
fn a_restart_loses_nothing() {
    let mut cluster = Cluster::new(&[8]);
    let jobs = submit(&mut cluster, vec![array("sweep", "0-4", Some(2)), after("eval", &[("sweep", Condition::Any)])])
        .unwrap();
    succeed(&mut cluster, jobs[0]);
    let live: Vec<_> = [1, 2].map(|place| jobs[place]).into();
    live.iter().for_each(|job| cluster.start(*job));
    let groups =
        live.iter().map(|job| cluster.status(*job, cluster.jobs[job].generation, GroupPhase::Running)).collect();
    cluster.restart();
    cluster.register(crate::harness::inventory(0, 8), groups);
    assert_eq!(row(&cluster, jobs[0]).tally.succeeded, 1);
    succeed(&mut cluster, jobs[1]);
    assert_eq!(starting(&cluster, &jobs), [3]);
    for place in [2, 3, 4] {
        assert!(cluster.jobs[&jobs[5]].is_blocked(), "all of them count");
        succeed(&mut cluster, jobs[place]);
    }
    assert_eq!(starting(&cluster, &jobs), [5]);
    assert!(cluster.engine.view().arrays.is_empty(), "an array that is over is let go");
}

#[test]
fn whoever_waits_for_an_array_waits_for_all_of_it() {
    use Condition::{Any, Failure, Start, Success};
    for (on, ends, lots) in [
        (Success, [true, true], ["waits", "waits", "starts"]),
        (Success, [false, true], ["waits", "ends", "ends"]),
        (Failure, [false, true], ["waits", "waits", "starts"]),
        (Failure, [true, true], ["waits", "waits", "ends"]),
        (Any, [false, true], ["waits", "waits", "starts"]),
        (Start, [true, true], ["waits", "starts", "starts"]),
    ] {
        let mut cluster = Cluster::new(&[8]);
        let jobs = submit(&mut cluster, vec![array("sweep", "0-1", Some(1)), after("eval", &[("sweep", on)])]).unwrap();
        let lot = |cluster: &Cluster| match cluster.state(jobs[2]).kind() {
            JobStateKind::Queued => "waits",
            JobStateKind::Cancelled => "ends",
            _ => "starts",
        };
        let mut seen = vec![lot(&cluster)];
        for (place, well) in ends.into_iter().enumerate() {
            if well {
                succeed(&mut cluster, jobs[place])
            } else {
                fail(&mut cluster, jobs[place])
            }
            if place == 0 && matches!(cluster.state(jobs[1]), JobState::Starting { .. }) {
                cluster.start(jobs[1]);
                cluster.pass_beating(2.0, &[0]);
                seen.push(lot(&cluster));
                cluster.end(jobs[1], &if ends[1] { GroupOutcome::Succeeded } else { GroupOutcome::Stopped });
                cluster.pass_beating(2.0, &[0]);
                seen.push(lot(&cluster));
                break;
            }
        }
        assert_eq!(seen, lots, "{on} {ends:?}");
    }
}

#[test]
fn an_array_waits_for_another_and_is_cancelled_whole_where_it_never_can_start() {
    let mut cluster = Cluster::new(&[8]);
    let second =
        JobSpec { after: after("x", &[("first", Condition::Success)]).after, ..array("second", "0-2", Some(1)) };
    let third = after("third", &[("second", Condition::Success)]);
    let jobs = submit(&mut cluster, vec![array("first", "0-1", None), second, third]).unwrap();
    assert_eq!(starting(&cluster, &jobs), [0, 1]);
    fail(&mut cluster, jobs[0]);
    let cancelled = jobs[2..].iter().filter(|job| cluster.state(**job).kind() == JobStateKind::Cancelled).count();
    assert_eq!(cancelled, 4, "with whoever waits for it in turn");
    let told = "second[0] was cancelled: it waits for first to succeed, and first has elements that failed";
    assert!(cluster.messages.contains(&told.to_owned()), "{:?}", cluster.messages);
}

#[test]
fn an_array_is_held_released_and_cancelled_as_one() {
    let mut cluster = Cluster::new(&[8]);
    let jobs = submit(&mut cluster, vec![array("sweep", "0-3", Some(2))]).unwrap();
    let id = of(&cluster, jobs[0]);
    succeed(&mut cluster, jobs[0]);
    let run = |cluster: &mut Cluster, deed| {
        let reply = cluster.request(Request::Array { array: id, deed });
        cluster.pass_beating(1.0, &[0]);
        match reply {
            Reply::Array(done) => Ok(done.touched.len()),
            Reply::Refused(refusal) => Err(refusal.to_string()),
            other => panic!("{other:?}"),
        }
    };
    let why = Some("wrong data".to_owned());
    assert_eq!(run(&mut cluster, ArrayDeed::Release), Err("no element of array sweep can be released".into()));
    assert_eq!(run(&mut cluster, ArrayDeed::Hold { reason: why.clone() }), Ok(3));
    assert!(cluster.messages.contains(&"3 of 4 elements of sweep are put on hold: wrong data".to_owned()));
    for place in [1, 2] {
        cluster.end(jobs[place], &GroupOutcome::Stopped);
    }
    cluster.pass_beating(2.0, &[0]);
    assert_eq!(starting(&cluster, &jobs), [] as [usize; 0]);
    assert_eq!(run(&mut cluster, ArrayDeed::Release), Ok(3));
    cluster.pass_beating(2.0, &[0]);
    assert_eq!(starting(&cluster, &jobs), [1, 2], "as many as may");
    assert_eq!(run(&mut cluster, ArrayDeed::Cancel { reason: why, grace: None }), Ok(3));
    for place in [1, 2] {
        cluster.end(jobs[place], &GroupOutcome::Stopped);
    }
    assert_eq!(row(&cluster, jobs[0]).tally.cancelled, 3);
    assert_eq!(run(&mut cluster, ArrayDeed::Release), Err(format!("no array {id}")), "it is over and let go");
}

#[test]
fn an_element_that_failed_goes_on_when_there_is_a_place() {
    let mut cluster = Cluster::new(&[8]);
    let jobs = submit(&mut cluster, vec![array("sweep", "0-2", Some(1))]).unwrap();
    fail(&mut cluster, jobs[0]);
    let known = cluster.known();
    let reply = cluster.request(Request::Requeue { job: jobs[0], reason: None, known });
    assert!(matches!(reply, Reply::Job(_)), "{reply:?}");
    cluster.pass_beating(2.0, &[0]);
    assert!(cluster.jobs[&jobs[0]].waits_for_its_array(), "another has its place");
    assert_eq!(row(&cluster, jobs[0]).tally.failed, 0);
    for place in [1, 0, 2] {
        succeed(&mut cluster, jobs[place]);
    }
    assert_eq!(row(&cluster, jobs[0]).tally.succeeded, 3);
    // Of an array that was let go, too.
    cluster.restart();
    cluster.register(crate::harness::inventory(0, 8), Vec::new());
    let again = submit(&mut cluster, vec![array("again", "0", Some(1))]).unwrap()[0];
    fail(&mut cluster, again);
    let known = cluster.known();
    cluster.request(Request::Requeue { job: again, reason: None, known });
    cluster.pass_beating(2.0, &[0]);
    assert_eq!(starting(&cluster, &[again]), [0]);
    succeed(&mut cluster, again);
    assert_eq!((row(&cluster, again).tally.succeeded, row(&cluster, again).tally.failed), (1, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    /// The engine's invariants are checked after every batch: sets, tallies, and that no place stays empty while somebody waits.
    #[test]
    fn whatever_is_done_with_elements_the_limit_holds(
        parallel in 1_u32..5,
        deeds in proptest::collection::vec((0_usize..6, 0_u8..8), 0..40),
    ) {
        let mut cluster = Cluster::new(&[8]);
        let jobs = submit(&mut cluster, vec![array("sweep", "0-5", Some(parallel))]).unwrap();
        let id = of(&cluster, jobs[0]);
        let mut most = parallel;
        for (place, deed) in deeds {
            let job = jobs[place];
            match (deed, cluster.state(job).kind()) {
                (0, JobStateKind::Starting) => cluster.start(job),
                (1, JobStateKind::Running) => succeed(&mut cluster, job),
                (1, JobStateKind::Starting) => fail(&mut cluster, job),
                (2, _) => drop(cluster.request(Request::Hold { job, reason: None })),
                (3, _) => drop(cluster.request(Request::Release { job })),
                (4, _) => drop(cluster.request(Request::Cancel { job, reason: None, grace: None })),
                (5, _) => {
                    let known = cluster.known();
                    cluster.request(Request::Requeue { job, reason: None, known });
                }
                (6, _) => {
                    let parallel = 1 + place as u32 % 4;
                    most = most.max(parallel);
                    cluster.request(Request::ChangeArray { array: id, parallel: Some(parallel), expected: None });
                }
                (_, JobStateKind::Stopping) => cluster.end(job, &GroupOutcome::Stopped),
                _ => {}
            }
            cluster.pass_beating(2.0, &[0]);
            let live = jobs.iter().filter(|job| cluster.state(**job).generation().is_some()).count();
            prop_assert!(live as u32 <= most);
        }
    }
}
