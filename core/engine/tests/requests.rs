//! What people ask of jobs, nodes and plans, told by hand.

use headway_engine::event::{Actor, Event, IdempotencyKey, JobChange, Known, Request, RequestId};
use headway_engine::record::{Deed, JobState, ProjectRules, Row, StopCause};
use headway_engine::{Change, Outcome, Refusal, Reply};
use headway_types::spec::Priority;
use headway_types::{AgentCommand, Generation, GroupOutcome, GroupPhase, StopMode};

use crate::harness::{Cluster, elastic, inventory, node_id, rigid};

#[test]
fn a_job_can_be_cancelled_in_every_live_state() {
    let cancel = |cluster: &mut Cluster, job| {
        let reply = cluster.request(Request::Cancel { job, reason: Some("wrong data".into()), grace: None });
        assert!(matches!(reply, Reply::Job(_)), "{reply:?}");
    };
    let mut queued = Cluster::new(&[2]);
    let job = queued.submit(rigid("large", 4));
    cancel(&mut queued, job);
    assert!(matches!(queued.state(job), JobState::Cancelled { .. }));
    assert!(matches!(
        queued.request(Request::Cancel { job, reason: None, grace: None }),
        Reply::Refused(Refusal::NoSuchJob(_))
    ));

    let mut held = Cluster::new(&[2]);
    let job = held.submit(rigid("large", 4));
    held.request(Request::Hold { job, reason: None });
    cancel(&mut held, job);
    assert!(matches!(held.state(job), JobState::Cancelled { .. }));

    for phases in 0..3 {
        let mut cluster = Cluster::new(&[4]);
        let job = cluster.submit(rigid("one", 4));
        if phases > 0 {
            cluster.start(job);
        }
        if phases > 1 {
            cluster.request(Request::Hold { job, reason: None });
        }
        cancel(&mut cluster, job);
        assert!(matches!(cluster.state(job), JobState::Stopping { .. }));
        assert_eq!(cluster.stops(job)[0], StopMode::Checkpoint);
        cluster.end(job, &GroupOutcome::Stopped);
        assert!(matches!(cluster.state(job), JobState::Cancelled { .. }));
    }
}

#[test]
fn a_held_job_gives_up_its_gpus_and_starts_again_when_released() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 4));
    cluster.start(job);
    cluster.request(Request::Hold { job, reason: None });
    cluster.end(job, &GroupOutcome::Stopped);
    assert!(matches!(cluster.state(job), JobState::Held { .. }));
    cluster.pass_beating(10.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Held { .. }));
    cluster.request(Request::Release { job });
    cluster.pass_beating(2.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Starting { generation: Generation(2), .. }));
}

#[test]
fn the_same_key_gives_the_same_job_and_another_body_is_refused() {
    let mut cluster = Cluster::new(&[4]);
    let Reply::Submitted { jobs } = cluster.submit_keyed(rigid("one", 1), "a") else { panic!() };
    let again = cluster.submit_keyed(rigid("one", 1), "a");
    let Reply::Replayed { jobs: same } = again else { panic!("{again:?}") };
    assert_eq!([jobs[0].id], *same);
    let other = cluster.submit_keyed(rigid("two", 1), "b");
    assert_eq!(other, Reply::Refused(Refusal::KeyReused { key: "k".into() }));
    cluster.restart();
    let Reply::Replayed { jobs: later } = cluster.submit_keyed(rigid("one", 1), "a") else { panic!() };
    assert_eq!([jobs[0].id], *later);
    assert_eq!(cluster.jobs.len(), 1);
}

#[test]
fn a_drained_node_is_left_and_gets_nothing_new() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("one", 4));
    cluster.start(job);
    let drained = cluster.nodes_of(job)[0];
    cluster.request(Request::Drain { node: node_id(drained), reason: None, deadline: None });
    cluster.pass_beating(3.0, &[0, 1]);
    assert!(
        matches!(cluster.state(job), JobState::Stopping { cause: StopCause::Drain, .. }),
        "{:?}",
        cluster.state(job)
    );
    cluster.end(job, &GroupOutcome::Stopped);
    cluster.pass_beating(3.0, &[0, 1]);
    assert_eq!(cluster.nodes_of(job), vec![1 - drained]);
    let other = cluster.submit(rigid("two", 4));
    cluster.pass_beating(3.0, &[0, 1]);
    assert!(matches!(cluster.state(other), JobState::Queued { .. }));
    cluster.request(Request::Uncordon { node: node_id(drained) });
    cluster.pass_beating(3.0, &[0, 1]);
    assert_eq!(cluster.nodes_of(other), vec![drained]);
}

#[test]
fn a_proposal_waits_for_approval() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 4));
    cluster.start(job);
    cluster.pass_beating(2.0, &[0]);
    let Reply::Rebalance(plan) = cluster.request(Request::Rebalance { terms: Box::default() }) else { panic!() };
    cluster.pass_beating(2.0, &[0]);
    assert!(cluster.engine.view().proposals.contains_key(&plan));
    assert!(matches!(cluster.request(Request::Approve { plan }), Reply::Plan(_)));
    assert_eq!(cluster.engine.view().target.unwrap().plan.id, plan);
    assert!(matches!(cluster.request(Request::Reject { plan, reason: None }), Reply::Refused(Refusal::NoSuchPlan(_))));
    assert!(matches!(cluster.state(job), JobState::Running { .. }));
}

#[test]
fn a_key_does_a_request_once_and_stands_for_one_body() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 1));
    let once = |hash: &str, body: Request| {
        let (principal, route) = ("ada".into(), "POST /api/v1/jobs/1/pin".into());
        let key = IdempotencyKey { principal, route, key: "k".into(), request_hash: hash.into() };
        Request::Once { key, body: Box::new(body) }
    };
    // What was refused may be asked again.
    let refused = cluster.request(once("a", Request::Release { job }));
    assert!(matches!(refused, Reply::Refused(Refusal::WrongState(_))), "{refused:?}");
    let pin = || Request::Pin { job, reason: None };
    assert!(matches!(cluster.request(once("a", pin())), Reply::Job(_)));
    cluster.request(Request::Unpin { job });
    let again = cluster.request(once("a", pin()));
    assert_eq!(again, Reply::Repeated { subjects: vec![job.0] });
    assert!(cluster.jobs[&job].pin.is_none());
    cluster.restart();
    assert_eq!(cluster.request(once("a", pin())), Reply::Repeated { subjects: vec![job.0] });
    assert_eq!(cluster.request(once("b", pin())), Reply::Refused(Refusal::KeyReused { key: "k".into() }));
}

#[test]
fn of_two_changes_to_one_version_in_one_batch_the_second_is_refused() {
    let mut cluster = Cluster::new(&[2]);
    let job = cluster.submit(rigid("large", 4));
    let seen = cluster.jobs[&job].version;
    let change = |number, priority| Event::Request {
        request: RequestId(number),
        actor: Actor::User("ada".into()),
        body: Request::Change {
            job,
            change: JobChange { priority: Some(Priority(priority)), ..JobChange::default() },
            expected: Some(seen),
        },
    };
    let replies = cluster.feed_all(vec![change(1, 60), change(2, 70)]);
    assert!(matches!(&replies[0], Reply::Job(job) if job.spec.priority == Priority(60)), "{replies:?}");
    assert!(
        matches!(&replies[1], Reply::Refused(Refusal::VersionChanged { now, .. }) if *now == seen + 1),
        "{replies:?}"
    );
    let late = cluster.feed(change(3, 80));
    assert!(matches!(&late[0], Reply::Refused(Refusal::VersionChanged { .. })), "{late:?}");
    assert_eq!(cluster.jobs[&job].spec.priority, Priority(60));
}

#[test]
fn a_save_that_was_asked_for_is_ordered_by_the_next_leader_too() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(elastic("one", 4));
    cluster.start(job);
    cluster.declare(job);
    cluster.steps(job, 100, None);
    assert!(matches!(cluster.request(Request::Checkpoint { job }), Reply::Job(_)));
    assert_eq!(cluster.count("job.checkpoint_requested"), 1);
    let groups: Vec<_> = [cluster.status(job, Generation(1), GroupPhase::Running)].into();
    cluster.restart();
    cluster.register(inventory(0, 4), groups);
    let saves = |cluster: &Cluster| {
        cluster.commands.iter().filter(|(_, command)| matches!(command, AgentCommand::Checkpoint { .. })).count()
    };
    assert_eq!(saves(&cluster), 1, "{:?}", cluster.commands);
    cluster.checkpoint(job, Generation(1), 100);
    cluster.commands.clear();
    cluster.pass_beating(10.0, &[0]);
    assert_eq!(saves(&cluster), 0, "it has saved");
}

#[test]
fn a_dry_run_answers_as_the_request_would_be_and_leaves_everything_as_it_is() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(elastic("one", 4));
    cluster.start(job);
    let held = cluster.submit(rigid("two", 1));
    cluster.request(Request::Hold { job: held, reason: None });
    cluster.pass_beating(20.0, &[0, 1]);
    let node = node_id(0);
    let requests = [
        Request::Cancel { job, reason: None, grace: None },
        Request::Hold { job, reason: None },
        Request::Release { job: held },
        Request::Pin { job, reason: None },
        Request::Change {
            job,
            change: JobChange { priority: Some(Priority(9)), ..JobChange::default() },
            expected: None,
        },
        Request::Drain { node, reason: None, deadline: None },
        Request::Cordon { node, reason: None },
        Request::PutProject { name: "nlp".into(), rules: ProjectRules::default(), expected: None },
        Request::Submit { jobs: vec![rigid("three", 1)], idempotency: None, known: Known::default() },
    ];
    for (number, body) in requests.into_iter().enumerate() {
        let before = cluster.engine.view();
        let dry = Request::DryRun { body: Box::new(body.clone()) };
        let event =
            Event::Request { request: RequestId(7_000 + number as u64), actor: Actor::User("ada".into()), body: dry };
        let outcome = cluster.engine.handle(cluster.now, vec![event]);
        assert_eq!((&*outcome.changes, &*outcome.commands), (&[][..], &[][..]), "{body:?}");
        assert!(outcome.plan_request.is_none());
        assert_eq!(cluster.engine.view(), before, "{body:?}");
        let Reply::DryRun(reply) = &outcome.replies[0].1 else { panic!("{:?}", outcome.replies) };
        assert!(!matches!(**reply, Reply::Refused(_)), "{reply:?}");
    }
    let mut dry = |body| match cluster.request(Request::DryRun { body: Box::new(body) }) {
        Reply::DryRun(reply) => *reply,
        other => panic!("{other:?}"),
    };
    let refused = dry(Request::Release { job });
    assert!(matches!(refused, Reply::Refused(Refusal::WrongState(_))), "{refused:?}");
    let Reply::Job(cancelled) = dry(Request::Cancel { job, reason: None, grace: None }) else { panic!() };
    assert!(matches!(cancelled.state, JobState::Stopping { .. }), "it would stop: {:?}", cancelled.state);
    assert!(matches!(cluster.state(job), JobState::Running { .. }));
}

#[test]
fn each_of_two_changes_in_one_batch_tells_what_it_changed_itself() {
    let mut cluster = Cluster::new(&[1]);
    let job = cluster.submit(rigid("one", 1));
    let change = |number: u64, who: &str, priority: u8| Event::Request {
        request: RequestId(7_000 + number),
        actor: Actor::User(who.into()),
        body: Request::Change {
            job,
            change: JobChange { priority: Some(Priority(priority)), ..JobChange::default() },
            expected: None,
        },
    };
    let same = change(3, "bob", 90);
    let outcome = cluster.engine.handle(cluster.now, vec![change(1, "ada", 70), change(2, "bob", 90), same]);
    let deeds = deeds(&outcome);
    let priority = |row: &Option<Row>| match row {
        Some(Row::Job(job)) => job.spec.priority.0,
        other => panic!("{other:?}"),
    };
    let told: Vec<_> =
        deeds.iter().map(|deed| (deed.actor.to_string(), priority(&deed.before), priority(&deed.after))).collect();
    assert_eq!(told, [("ada".to_owned(), 50, 70), ("bob".to_owned(), 70, 90)]);
}

#[test]
fn a_reason_beside_a_request_is_told_with_what_it_does_and_never_outlives_it() {
    let mut cluster = Cluster::new(&[4]);
    let (job, node) = (cluster.submit(rigid("one", 1)), node_id(0));
    cluster.request(Request::Pin { job, reason: None });
    let mut ask = |body: Request| {
        let event = Event::Request { request: RequestId(9), actor: Actor::User("ada".into()), body };
        cluster.engine.handle(cluster.now, vec![event])
    };
    let because = |body: Request, why: &str| body.because(Some(why.into()));
    let unpinned = ask(because(Request::Unpin { job }, "the demo is over"));
    assert_eq!(told(&unpinned), ["one may be moved again: the demo is over"]);
    let [deed] = &deeds(&unpinned)[..] else { panic!("{unpinned:?}") };
    assert_eq!(deed.reason.as_deref(), Some("the demo is over"));
    assert!(matches!(&deed.before, Some(Row::Job(before)) if before.pin.is_some()), "{deed:?}");

    // With a key it is done once, with its reason; the next request has none of it.
    let (principal, route) = ("ada".into(), "POST /api/v1/nodes/n/uncordon".into());
    let key = IdempotencyKey { principal, route, key: "k".into(), request_hash: "h".into() };
    let once = || Request::Once { key: key.clone(), body: because(Request::Uncordon { node }, "new fans").into() };
    let _ = ask(Request::Cordon { node, reason: None });
    assert_eq!(told(&ask(once())), ["node node-0 is back in service: new fans"]);
    assert!(told(&ask(once())).is_empty());
    let _ = ask(Request::Cordon { node, reason: None });
    let plain = ask(Request::Uncordon { node });
    assert_eq!((told(&plain), &deeds(&plain)[0].reason), (vec!["node node-0 is back in service".to_owned()], &None));

    // A refusal ends it too, and a reason that the request has itself is the only one.
    let refused = ask(because(Request::Unpin { job }, "never told"));
    assert!(matches!(&refused.replies[0].1, Reply::Refused(Refusal::WrongState(_))), "{refused:?}");
    let hold = Request::Hold { job, reason: Some("its own".into()) };
    assert_eq!((because(hold.clone(), "beside it"), because(hold.clone(), "")), (hold.clone(), hold.clone()));
    assert!(told(&ask(hold)).contains(&"one is put on hold: its own".to_owned()));
}

fn deeds(of: &Outcome) -> Vec<&Deed> {
    of.changes.iter().filter_map(|change| if let Change::Deed(deed) = change { Some(&**deed) } else { None }).collect()
}

/// What ada is said to have done.
fn told(of: &Outcome) -> Vec<String> {
    let by_ada = |change: &Change| match change {
        Change::Event(event) if event.actor == Actor::User("ada".into()) => Some(event.message.clone()),
        _ => None,
    };
    of.changes.iter().filter_map(by_ada).collect()
}
