//! What people may ask of a rebalancing, and when running jobs are moved without asking anybody.

use headway_engine::event::{Actor, Event, Known, Rebalancing, Request, RequestId, Scope};
use headway_engine::record::{AutoApprove, JobState, MoveWindow, PlanState, PolicyMode, PolicySettings};
use headway_engine::{Refusal, Reply};
use headway_planner::Force;

use headway_types::spec::Elasticity;
use headway_types::{GpuCount, GpuSeconds, JobId, JobSpec, PlanId, Seconds, Timestamp};

use crate::harness::{Cluster, elastic, follow, node_id, rigid};

/// Two elastic jobs that train, on six GPUs and on two.
fn sharing() -> (Cluster, [JobId; 2]) {
    sharing_for(Seconds(0.0))
}

/// The same, and they may not be moved for so long.
fn sharing_for(min_runtime: Seconds) -> (Cluster, [JobId; 2]) {
    let mut cluster = Cluster::new(&[8]);
    let spec = |name| {
        let spec = elastic(name, 8);
        JobSpec { elastic: Elasticity { min_runtime, ..spec.elastic }, ..spec }
    };
    let jobs = ["one", "two"].map(spec).into();
    let reply = cluster.request(Request::Submit { jobs, idempotency: None, known: Known::default() });
    let Reply::Submitted { jobs } = reply else { panic!("{reply:?}") };
    let jobs = [jobs[0].id, jobs[1].id];
    cluster.pass_beating(5.0, &[0]);
    for job in jobs {
        cluster.start(job);
        cluster.declare(job);
        cluster.steps(job, 100, None);
    }
    cluster.pass_beating(5.0, &[0]);
    (cluster, jobs)
}

fn set(cluster: &mut Cluster, change: impl FnOnce(&mut PolicySettings)) {
    let mut settings = cluster.engine.view().policy.clone();
    change(&mut settings);
    let reply = cluster.request(Request::SetPolicy { settings: settings.into(), expected: None });
    assert!(matches!(reply, Reply::Policy(_)), "{reply:?}");
}

/// What a rebalancing proposes: GPUs by job.
fn proposed(cluster: &mut Cluster, terms: Rebalancing) -> Result<(PlanId, Vec<(JobId, u32)>), String> {
    let reply = cluster.request(Request::Rebalance { terms: Box::new(terms) });
    let Reply::Rebalance(id) = reply else { return Err(format!("{reply:?}")) };
    cluster.pass_beating(3.0, &[0]);
    let view = cluster.engine.view();
    let plan = view.proposals.get(&id).ok_or_else(|| cluster.messages.join("\n"))?;
    Ok((id, plan.plan.assignments.iter().map(|(job, has)| (*job, has.placement.gpus().0)).collect()))
}

fn gpus(cluster: &Cluster, job: JobId) -> u32 {
    let view = cluster.engine.view();
    view.jobs[&job].allocation.as_ref().map_or(0, |held| held.placement.gpus().0)
}

#[test]
fn a_forced_size_is_proposed_against_cooldowns_and_carried_out_when_approved() {
    let (mut cluster, [one, two]) = sharing_for(Seconds(86_400.0));
    assert_eq!((gpus(&cluster, one), gpus(&cluster, two)), (6, 2), "{:?}", cluster.messages);
    set(&mut cluster, |policy| policy.mode = PolicyMode::Advisory);
    let force = vec![Force::size(one, GpuCount(2)), Force::size(two, GpuCount(6))];
    let (plan, sizes) = proposed(&mut cluster, Rebalancing { force, ..Rebalancing::default() }).unwrap();
    assert!(sizes.contains(&(one, 2)) && sizes.contains(&(two, 6)), "{sizes:?}");
    let reply = cluster.request(Request::Approve { plan });
    assert!(matches!(&reply, Reply::Plan(record) if record.state == PlanState::Adopted), "{reply:?}");
    assert!(matches!(cluster.state(two), JobState::Stopping { .. }));
    let adopted = cluster.now;
    cluster.pass_beating(20.0, &[0]);
    cluster.request(Request::Cancel { job: one, reason: None, grace: None });
    cluster.pass_beating(200.0, &[0]);
    let record = &cluster.plans[&plan];
    assert_eq!(record.state, PlanState::Superseded, "{:?}", cluster.messages);
    let told = record.adopted.as_ref().unwrap();
    assert_eq!((told.at, &told.by), (adopted, &Actor::User("ada".into())), "whatever took its place since");
}

/// Proposes, approves, and sees to it that jobs stop and start as they are told.
fn carry_out(cluster: &mut Cluster, terms: Rebalancing) -> PlanId {
    let (plan, _) = proposed(cluster, terms).unwrap();
    let reply = cluster.request(Request::Approve { plan });
    assert!(matches!(reply, Reply::Plan(_)), "{reply:?}");
    follow(cluster, &[0]);
    plan
}

/// What takes back what a plan has moved.
fn way_back(cluster: &Cluster, plan: PlanId) -> Vec<Force> {
    let record = &cluster.plans[&plan];
    let before = record.plan.parent.map(|parent| &*cluster.plans[&parent].plan);
    cluster.engine.view().undo(&record.plan, before)
}

#[test]
fn what_a_plan_moved_is_taken_back_as_far_as_it_lives() {
    let (mut cluster, [one, two]) = sharing();
    set(&mut cluster, |policy| policy.mode = PolicyMode::Paused);
    let force = vec![Force::size(one, GpuCount(2)), Force::size(two, GpuCount(6))];
    let plan = carry_out(&mut cluster, Rebalancing { force, ..Rebalancing::default() });
    assert_eq!((gpus(&cluster, one), gpus(&cluster, two)), (2, 6), "{:?}", cluster.messages);

    let force = way_back(&cluster, plan);
    let of_type = |force: &Force| force.gpu_type.as_ref().map(|of| of.0.clone());
    let told: Vec<_> = force.iter().map(|one| (one.job, one.gpus, of_type(one))).collect();
    let emulated = || Some("emulated".to_owned());
    assert_eq!(told, [(one, Some(GpuCount(6)), emulated()), (two, Some(GpuCount(2)), emulated())]);
    let back = carry_out(&mut cluster, Rebalancing { force, undoes: Some(plan), ..Rebalancing::default() });
    assert_eq!((gpus(&cluster, one), gpus(&cluster, two)), (6, 2), "{:?}", cluster.messages);
    let record = &cluster.plans[&back];
    assert_eq!((&record.state, record.terms.as_ref().unwrap().undoes), (&PlanState::Adopted, Some(plan)));
    assert!(record.plan.report.trigger.contains("asked to take back what plan"), "{}", record.plan.report.trigger);
    assert!(record.summary().forced, "lists tell that it was forced, whatever it gains");
    assert!(cluster.messages.iter().any(|one| one.contains(&record.plan.report.trigger) && one.ends_with(", forced")));

    cluster.request(Request::Hold { job: two, reason: None });
    follow(&mut cluster, &[0]);
    let left: Vec<JobId> = way_back(&cluster, back).iter().map(|force| force.job).collect();
    assert_eq!(left, [one], "who wants no GPUs now is given none back");
    cluster.request(Request::Cancel { job: one, reason: None, grace: None });
    follow(&mut cluster, &[0]);
    assert_eq!(way_back(&cluster, back), []);
}

#[test]
fn an_excluded_job_stays_whatever_is_forced_on_another() {
    let (mut cluster, [one, two]) = sharing();
    let force = vec![Force::size(two, GpuCount(6))];
    let terms = Rebalancing { force, exclude: [one].into(), ..Rebalancing::default() };
    let why = proposed(&mut cluster, terms).unwrap_err();
    assert!(why.contains("there is no such plan: two cannot have 6 GPUs"), "{why}");
    assert_eq!((gpus(&cluster, one), gpus(&cluster, two)), (6, 2));
}

#[test]
fn jobs_beyond_the_scope_stay() {
    let (mut cluster, [one, two]) = sharing();
    let scope = Scope { jobs: [one].into(), ..Scope::default() };
    let input =
        cluster.round_for(Request::Rebalance { terms: Box::new(Rebalancing { scope, ..Rebalancing::default() }) });
    let reason = |job| input.jobs.iter().find(|of| of.job == job).unwrap().freedom.reason();
    assert_eq!((reason(one), reason(two)), (None, Some("it is outside the scope of this rebalancing")));
}

#[test]
fn what_cannot_be_asked_is_refused_by_name() {
    let (mut cluster, [one, two]) = sharing();
    let gone = JobId(uuid::Uuid::from_u128(7));
    let ask = |cluster: &mut Cluster, terms| match cluster.request(Request::Rebalance { terms: Box::new(terms) }) {
        Reply::Refused(refusal) => refusal.to_string(),
        other => panic!("{other:?}"),
    };
    let force = |force: Force| Rebalancing { force: vec![force], ..Rebalancing::default() };
    assert!(ask(&mut cluster, force(Force::start(gone))).contains("no job"));
    let told = ask(&mut cluster, force(Force::size(one, GpuCount(9))));
    assert_eq!(told, "one does not take 9 GPUs; it takes 1 to 8 GPUs");
    let both = Rebalancing { exclude: [one].into(), ..force(Force::start(one)) };
    assert_eq!(ask(&mut cluster, both), "one is both forced and excluded");
    let scope = Scope { projects: ["unheard-of".to_owned()].into(), ..Scope::default() };
    assert_eq!(ask(&mut cluster, Rebalancing { scope, ..Rebalancing::default() }), "no project unheard-of");
    let scope = Scope { nodes: [node_id(9)].into(), ..Scope::default() };
    assert!(ask(&mut cluster, Rebalancing { scope, ..Rebalancing::default() }).contains("no node"));
    cluster.request(Request::Pin { job: two, reason: Some("a demo".into()) });
    let told = ask(&mut cluster, force(Force::start(two)));
    assert!(told.ends_with("a demo; unpin it first"), "{told}");
}

#[test]
fn whoever_asks_for_something_else_meanwhile_is_told_so() {
    let (mut cluster, [one, _]) = sharing();
    let (plain, other) = (Rebalancing::default(), Rebalancing { exclude: [one].into(), ..Rebalancing::default() });
    let ask = |terms: &Rebalancing| {
        let body = Request::Rebalance { terms: Box::new(terms.clone()) };
        Event::Request { request: RequestId(1), actor: Actor::User("ada".into()), body }
    };
    let outcome = cluster.engine.handle(cluster.now, vec![ask(&plain), ask(&plain), ask(&other)]);
    let replies: Vec<&Reply> = outcome.replies.iter().map(|(_, reply)| reply).collect();
    assert!(matches!(replies[0], Reply::Rebalance(_)));
    assert_eq!(replies[0], replies[1]);
    assert!(matches!(replies[2], Reply::Refused(Refusal::WrongState(_))), "{:?}", replies[2]);
}

#[test]
fn a_move_that_the_rule_covers_needs_no_approval() {
    for (max_moves, waits) in [(1, false), (0, true)] {
        let (mut cluster, _) = sharing();
        set(&mut cluster, |policy| {
            policy.mode = PolicyMode::Advisory;
            policy.auto_approve = Some(AutoApprove { max_moves, max_lost: GpuSeconds(1e9), preempt: false });
        });
        cluster.submit(rigid("small", 2));
        cluster.pass_beating(5.0, &[0]);
        let proposals = cluster.engine.view().proposals.len();
        assert_eq!(proposals, usize::from(waits), "{:?}", cluster.messages);
    }
}

#[test]
fn outside_its_windows_a_cluster_starts_jobs_and_moves_none() {
    let (mut cluster, [one, two]) = sharing();
    let (open, shut): (MoveWindow, MoveWindow) = window_and_other(cluster.now);
    set(&mut cluster, |policy| policy.move_windows = vec![shut]);
    let small = cluster.submit(rigid("small", 2));
    cluster.pass_beating(30.0, &[0]);
    assert!(matches!(cluster.state(small), JobState::Queued { .. }));
    assert_eq!((gpus(&cluster, one), gpus(&cluster, two)), (6, 2));
    set(&mut cluster, |policy| policy.move_windows = vec![open]);
    cluster.pass_beating(30.0, &[0]);
    let moved = [one, two].iter().any(|job| matches!(cluster.state(*job), JobState::Stopping { .. }));
    assert!(moved, "{:?}", cluster.messages);
}

#[test]
fn a_window_that_opens_calls_for_a_round_itself() {
    let (mut cluster, [one, two]) = sharing();
    let minute = (cluster.now.0.div_euclid(60_000_000) + 3).rem_euclid(1_440);
    let (hour, minute) = (minute / 60, minute % 60);
    set(&mut cluster, |policy| {
        policy.move_windows =
            vec![format!("{hour:02}:{minute:02}-{:02}:{minute:02}", (hour + 12) % 24).parse().unwrap()];
        policy.round_every = Seconds(86_400.0);
    });
    cluster.submit(rigid("small", 2));
    cluster.pass_beating(60.0, &[0]);
    let moved =
        |cluster: &Cluster| [one, two].iter().any(|job| matches!(cluster.state(*job), JobState::Stopping { .. }));
    assert!(!moved(&cluster), "{:?}", cluster.messages);
    cluster.pass_beating(150.0, &[0]);
    assert!(moved(&cluster), "{:?}", cluster.messages);
}

/// A window that holds the next twelve hours, and the rest of the day.
fn window_and_other(now: Timestamp) -> (MoveWindow, MoveWindow) {
    let hour = now.0.div_euclid(3_600_000_000).rem_euclid(24);
    let (from, to) = (hour, (hour + 12) % 24);
    let write = |from: i64, to: i64| format!("{from:02}:00-{to:02}:00").parse().unwrap();
    (write(from, to), write(to, from))
}

#[test]
fn a_pause_ends_as_it_began() {
    let (mut cluster, _) = sharing();
    set(&mut cluster, |policy| policy.mode = PolicyMode::Advisory);
    let reason = || Some("new switches".to_owned());
    assert!(matches!(cluster.request(Request::Resume { reason: None }), Reply::Refused(Refusal::WrongState(_))));
    assert!(matches!(cluster.request(Request::Pause { reason: reason() }), Reply::Policy(_)));
    assert!(matches!(cluster.request(Request::Pause { reason: reason() }), Reply::Refused(Refusal::WrongState(_))));
    let waiting = cluster.submit(rigid("small", 1));
    cluster.pass_beating(200.0, &[0]);
    assert!(matches!(cluster.state(waiting), JobState::Queued { .. }));
    let Reply::Policy(settings) = cluster.request(Request::Resume { reason: None }) else { panic!("refused") };
    assert_eq!((settings.mode, settings.resumes), (PolicyMode::Advisory, None));
    let told = cluster.messages.join("\n");
    assert!(told.contains("nothing starts and nothing moves until planning is resumed: new switches"), "{told}");
}

#[test]
fn a_proposal_that_nobody_decides_expires() {
    let (mut cluster, [_, two]) = sharing();
    set(&mut cluster, |policy| {
        policy.mode = PolicyMode::Paused;
        policy.proposals_last = Seconds(120.0);
    });
    let force = vec![Force::size(two, GpuCount(1))];
    let (plan, _) = proposed(&mut cluster, Rebalancing { force, ..Rebalancing::default() }).unwrap();
    cluster.pass_beating(100.0, &[0]);
    assert!(cluster.engine.view().proposals.contains_key(&plan));
    cluster.pass_beating(30.0, &[0]);
    assert!(cluster.engine.view().proposals.is_empty());
    assert_eq!(cluster.plans[&plan].state, PlanState::Stale);
    assert!(cluster.messages.iter().any(|one| one.contains("nobody decided on the proposal within 2 minutes")));
}
