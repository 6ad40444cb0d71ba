//! Reserved nodes: who may run there, who may start there before, and who leaves so that they are free in time.

use headway_engine::event::{Ends, Request, ReservationRequest};
use headway_engine::record::{JobState, StopCause};
use headway_engine::{Activity, DepartureKind, Refusal, Reply};
use headway_types::{GroupOutcome, JobId, Seconds, StopMode};

use crate::harness::{Cluster, answer, elastic, inventory, node_id, of, rigid};

fn for_prod(name: &str, from: f64, until: f64, cluster: &Cluster) -> ReservationRequest {
    ReservationRequest {
        name: name.into(),
        reason: None,
        nodes: [node_id(0)].into(),
        from: Some(cluster.now + Seconds(from)),
        ends: Ends::At(cluster.now + Seconds(until)),
        maintenance: false,
        projects: ["prod".to_string()].into(),
        users: [].into(),
        jobs: [].into(),
    }
}

#[test]
fn a_reservation_begins_and_ends() {
    let mut cluster = Cluster::new(&[4]);
    let stranger = cluster.submit(rigid("stranger", 4));
    cluster.start(stranger);
    let reservation = for_prod("demo", 300.0, 600.0, &cluster);
    assert!(matches!(cluster.request(Request::Reserve { reservation }), Reply::Reservation(_)));
    let member = cluster.submit(of("prod", rigid("member", 4)));
    cluster.pass_beating(80.0, &[0]);
    assert!(matches!(cluster.state(stranger), JobState::Running { .. }), "it may stay for now");
    cluster.pass_beating(15.0, &[0]);
    assert!(matches!(cluster.state(stranger), JobState::Stopping { cause: StopCause::Drain, .. }));
    cluster.end(stranger, &GroupOutcome::Stopped);
    cluster.pass_beating(3.0, &[0]);
    cluster.start(member);
    cluster.end(member, &GroupOutcome::Succeeded);
    cluster.pass_beating(270.0, &[0]);
    assert!(matches!(cluster.state(stranger), JobState::Queued { .. }), "a free node is no node for a stranger");
    cluster.restart();
    cluster.register(inventory(0, 4), Vec::new());
    cluster.pass_beating(250.0, &[0]);
    assert!(matches!(cluster.state(stranger), JobState::Starting { .. }), "{:#?}", cluster.messages);
    assert!(cluster.reservations.is_empty());
    assert_eq!((cluster.count("reservation.began"), cluster.count("reservation.ended")), (1, 1));
}

#[test]
fn nobody_runs_in_a_maintenance_window_and_only_jobs_that_will_have_left_start_before_it() {
    let mut cluster = Cluster::new(&[4, 4]);
    let early = cluster.submit(rigid("early", 4));
    cluster.start(early);
    let node = cluster.nodes_of(early)[0];
    let window = ReservationRequest {
        nodes: [node_id(node)].into(),
        maintenance: true,
        projects: [].into(),
        ..for_prod("psu-swap", 300.0, 600.0, &cluster)
    };
    let for_whom = ReservationRequest { maintenance: false, ..window.clone() };
    let of_somebody = ReservationRequest { users: ["ada".to_string()].into(), ..window.clone() };
    for wrong in [for_whom, of_somebody] {
        let refused = cluster.request(Request::Reserve { reservation: wrong });
        assert!(matches!(refused, Reply::Refused(Refusal::Invalid(_))), "{refused:?}");
    }
    let Reply::Reservation(made) = cluster.request(Request::Reserve { reservation: window.clone() }) else { panic!() };
    assert!(made.is_maintenance());
    assert_eq!(cluster.request(Request::Reserve { reservation: window }), Reply::Reservation(made));
    cluster.end(early, &GroupOutcome::Succeeded);

    // Ahead of it only what ends in time starts there; the other node is everybody's.
    let endless = cluster.submit(rigid("endless", 4));
    cluster.pass_beating(3.0, &[0, 1]);
    assert_eq!(cluster.nodes_of(endless), [1 - node]);
    cluster.start(endless);
    let waits = cluster.submit(rigid("waits", 4));
    let mut brief = rigid("brief", 4);
    brief.limits.time = Some(Seconds(60.0));
    let brief = cluster.submit(brief);
    cluster.pass_beating(3.0, &[0, 1]);
    assert_eq!(cluster.nodes_of(brief), [node]);
    cluster.start(brief);
    cluster.end(brief, &GroupOutcome::Succeeded);

    // Within it nobody does.
    cluster.pass_beating(400.0, &[0, 1]);
    assert_eq!((cluster.count("reservation.began"), cluster.count("reservation.ended")), (1, 0));
    assert!(matches!(cluster.state(waits), JobState::Queued { .. }), "{:#?}", cluster.messages);
    cluster.pass_beating(200.0, &[0, 1]);
    assert_eq!(cluster.count("reservation.ended"), 1);
    assert_eq!(cluster.nodes_of(waits), [node]);
}

#[test]
fn a_running_job_leaves_before_a_maintenance_window_begins() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("one", 4));
    cluster.start(job);
    let reservation =
        ReservationRequest { maintenance: true, projects: [].into(), ..for_prod("psu-swap", 300.0, 600.0, &cluster) };
    cluster.request(Request::Reserve { reservation });
    cluster.pass_beating(85.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }), "it may stay for now");
    cluster.pass_beating(10.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Stopping { cause: StopCause::Drain, .. }));
    assert!(cluster.messages.iter().any(|one| one.contains("reserved for the maintenance psu-swap")));
    cluster.end(job, &GroupOutcome::Stopped);
    cluster.pass_beating(400.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Queued { .. }), "nothing runs there meanwhile");
    cluster.pass_beating(150.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Starting { .. }), "{:#?}", cluster.messages);
}

#[test]
fn a_reservation_keeps_its_reason_and_jobs_that_wait_are_told() {
    let mut cluster = Cluster::new(&[4]);
    let because = |reason: &str, cluster: &Cluster| ReservationRequest {
        reason: Some(reason.into()),
        ..for_prod("demo", 300.0, 600.0, cluster)
    };
    let reservation = because(&"long ".repeat(101), &cluster);
    let refused = cluster.request(Request::Reserve { reservation });
    assert!(matches!(refused, Reply::Refused(Refusal::Invalid(ref why)) if why.contains("500")), "{refused:?}");
    let reservation = because("the board watches", &cluster);
    let first = cluster.request(Request::Reserve { reservation: reservation.clone() });
    let Reply::Reservation(made) = &first else { panic!("{first:?}") };
    assert_eq!(made.reason.as_deref(), Some("the board watches"));
    assert!(cluster.messages.contains(&"node node-0 is set aside for demo: the board watches".to_owned()));
    let again = ReservationRequest { reason: None, ..reservation.clone() };
    for same in [reservation, again] {
        assert_eq!(cluster.request(Request::Reserve { reservation: same }), first);
    }
    let reservation = because("another one", &cluster);
    assert!(matches!(cluster.request(Request::Reserve { reservation }), Reply::Refused(Refusal::WrongState(_))));
    let job = cluster.submit(rigid("endless", 2));
    let told = format!("{:?}", cluster.engine.view().verdict(job));
    assert!(told.contains("all nodes it could use are reserved: demo (begins in 5 min: the board watches)"), "{told}");
}

#[test]
fn idle_gpus_of_a_reserved_node_count_as_reserved_while_the_reservation_lasts() {
    let mut cluster = Cluster::new(&[4, 2]);
    cluster.request(Request::Reserve { reservation: for_prod("demo", 10.0, 100.0, &cluster) });
    let idle = |cluster: &Cluster| {
        let census = cluster.engine.view().census();
        [Activity::IdleNoDemand, Activity::Reserved].map(|what| census.get(&what).map_or(0, |gpus| gpus.0))
    };
    assert_eq!(idle(&cluster), [6, 0], "it has not begun");
    cluster.pass_beating(20.0, &[0, 1]);
    assert_eq!(idle(&cluster), [2, 4]);
    let view = cluster.engine.view();
    let reserved = [0, 1].map(|node| view.active_reservation(node_id(node)).map(|one| one.name.clone()));
    assert_eq!(reserved, [Some("demo".to_owned()), None]);
    cluster.pass_beating(90.0, &[0, 1]);
    assert_eq!(idle(&cluster), [6, 0], "it is over");
}

#[test]
fn what_several_reservations_cost_is_what_each_costs() {
    let mut cluster = Cluster::new(&[4, 4]);
    for name in ["one", "two"] {
        let job = cluster.submit(rigid(name, 4));
        cluster.start(job);
    }
    let spans = [("first", [0].as_slice(), 1_000.0), ("second", &[0, 1], 3_000.0)];
    let made = spans.map(|(name, nodes, from)| {
        let nodes = nodes.iter().map(|node| node_id(*node)).collect();
        let reservation = ReservationRequest { nodes, ..for_prod(name, from, from + 1_000.0, &cluster) };
        let Reply::Reservation(made) = cluster.request(Request::Reserve { reservation }) else { panic!() };
        made
    });
    let view = cluster.engine.view();
    let costs = view.reservation_costs(made.iter().map(AsRef::as_ref));
    let told = made.each_ref().map(|one| (costs[&one.id].gpus.0, costs[&one.id].jobs.len()));
    assert_eq!(told, [(4, 1), (8, 2)]);
    assert!(made.iter().all(|one| costs[&one.id] == view.reservation_cost(one)));
}

#[test]
fn two_reservations_never_want_one_node_at_a_time() {
    let mut cluster = Cluster::new(&[4]);
    let reservation = for_prod("first", 0.0, 100.0, &cluster);
    let first = cluster.request(Request::Reserve { reservation: reservation.clone() });
    assert_eq!(cluster.request(Request::Reserve { reservation }), first, "asking again makes no second one");
    let clash = for_prod("second", 50.0, 200.0, &cluster);
    assert!(matches!(cluster.request(Request::Reserve { reservation: clash }), Reply::Refused(Refusal::WrongState(_))));
    let next =
        ReservationRequest { projects: ["nlp".to_string()].into(), ..for_prod("second", 100.0, 200.0, &cluster) };
    assert!(matches!(cluster.request(Request::Reserve { reservation: next }), Reply::Reservation(_)));
    let endless = cluster.submit(of("prod", rigid("endless", 4)));
    let mut brief = of("prod", rigid("brief", 4));
    brief.limits.time = Some(Seconds(60.0));
    let brief = cluster.submit(brief);
    assert!(matches!(cluster.state(brief), JobState::Starting { .. }), "it will have left by then");
    assert!(matches!(cluster.state(endless), JobState::Queued { .. }));
}

/// The only node is reserved in so many seconds.
fn reserved_in(seconds: f64) -> Cluster {
    let mut cluster = Cluster::new(&[4]);
    let reservation = for_prod("r9", seconds, seconds + 14_400.0, &cluster);
    cluster.request(Request::Reserve { reservation });
    cluster
}

fn starts(cluster: &Cluster, job: JobId) -> bool {
    matches!(cluster.state(job), JobState::Starting { .. })
}

#[test]
fn a_reservation_of_next_year_closes_its_node_to_no_job() {
    let mut cluster = reserved_in(3e7);
    let job = cluster.submit(rigid("endless", 2));
    assert!(starts(&cluster, job), "{:#?}", cluster.messages);
}

#[test]
fn a_job_without_a_limit_that_does_not_save_waits_until_a_near_reservation_is_over() {
    let mut cluster = reserved_in(86_400.0);
    let job = cluster.submit(rigid("endless", 2));
    assert!(matches!(cluster.state(job), JobState::Queued { .. }));
    let told = format!("{:?}", cluster.engine.view().verdict(job));
    assert!(told.contains("all nodes it could use are reserved: r9 (begins in 24.0 h)"), "{told}");
    assert!(told.contains("only with a time limit of at most 23.9 h"), "{told}");
}

#[test]
fn a_job_that_saves_starts_and_leaves_so_that_the_node_is_free_when_the_reservation_begins() {
    let mut cluster = reserved_in(1_000.0);
    let begins = cluster.now + Seconds(1_000.0);
    let job = cluster.submit(elastic("saves", 4));
    assert!(starts(&cluster, job), "{:#?}", cluster.messages);
    cluster.start(job);
    cluster.declare(job);
    let told = format!("{:?}", cluster.engine.view().verdict(job));
    assert!(told.contains("node node-0 is reserved: r9 (begins in"), "{told}");
    assert!(told.contains("it saves and leaves in"), "{told}");
    // Its grace time is 10 s, and the next round has 30 s.
    cluster.pass_beating(950.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }), "{:#?}", cluster.messages);
    cluster.pass_beating(15.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Stopping { cause: StopCause::Drain, .. }));
    assert_eq!(cluster.stops(job), [StopMode::Checkpoint]);
    let generation = cluster.jobs[&job].generation;
    cluster.checkpoint(job, generation, 640);
    cluster.end(job, &GroupOutcome::Stopped);
    let member = cluster.submit(of("prod", rigid("member", 4)));
    assert!(begins > cluster.now && starts(&cluster, member), "{:#?}", cluster.messages);
    cluster.pass_beating(30.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Queued { .. }));
}

#[test]
fn a_job_that_must_not_run_twice_starts_before_a_reservation_only_with_a_limit_that_fits() {
    let mut cluster = reserved_in(5_000.0);
    let mut spec = elastic("once", 4);
    spec.limits.restartable = Some(false);
    spec.limits.max_restarts = 0;
    let job = cluster.submit(spec.clone());
    assert!(!starts(&cluster, job), "it saves, but it never leaves: {:#?}", cluster.messages);
    spec.limits.time = Some(Seconds(1_000.0));
    let brief = cluster.submit(spec);
    assert!(starts(&cluster, brief), "{:#?}", cluster.messages);
}

#[test]
fn a_grant_that_comes_too_late_for_a_jobs_limit_is_not_made() {
    for once in [false, true] {
        let mut cluster = reserved_in(200.0);
        let mut brief = rigid("brief", 4);
        brief.limits.time = Some(Seconds(160.0));
        brief.limits.restartable = once.then_some(false);
        brief.limits.max_restarts = 0;
        let (jobs, round) = cluster.submit_unplanned(vec![brief]);
        let plan = cluster.plan(&round);
        assert!(plan.assignments.contains_key(&jobs[0]), "when the round began it fitted");
        cluster.pass_beating(15.0, &[0]);
        cluster.feed(answer(&round, plan));
        cluster.pass_beating(5.0, &[0]);
        assert!(matches!(cluster.state(jobs[0]), JobState::Queued { .. }), "it would be killed, or overstay");
        cluster.pass_beating(14_700.0, &[0]);
        assert!(starts(&cluster, jobs[0]), "when the reservation is over: {:#?}", cluster.messages);
    }
}

/// A job that must not run twice on the only node, which is reserved afterwards.
fn overstaying() -> (Cluster, JobId, ReservationRequest) {
    let mut cluster = Cluster::new(&[4]);
    let mut once = elastic("once", 4);
    once.limits.restartable = Some(false);
    once.limits.max_restarts = 0;
    let job = cluster.submit(once);
    cluster.start(job);
    cluster.declare(job);
    let reservation = for_prod("r9", 1_000.0, 20_000.0, &cluster);
    (cluster, job, reservation)
}

#[test]
fn whoever_reserves_a_node_is_told_of_a_job_that_must_not_run_twice_and_stays() {
    let (mut cluster, job, reservation) = overstaying();
    let Reply::Reservation(made) = cluster.request(Request::Reserve { reservation }) else { panic!() };
    let cost = cluster.engine.view().reservation_cost(&made);
    let told: Vec<_> = cost.jobs.iter().map(|one| (one.job, one.ending, one.at)).collect();
    assert_eq!(told, [(job, DepartureKind::Stays, made.from)]);
}

#[test]
fn a_job_that_must_not_run_twice_is_never_said_to_leave_for_a_reservation() {
    let (mut cluster, job, reservation) = overstaying();
    cluster.request(Request::Reserve { reservation });
    cluster.pass_beating(1_500.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }), "{:#?}", cluster.messages);
    let rounds: Vec<_> = cluster.plans.values().map(|plan| plan.plan.report.trigger.as_str()).collect();
    assert!(rounds.iter().all(|trigger| !trigger.contains("has to leave")), "{rounds:#?}");
    let told = format!("{:?}", cluster.engine.view().verdict(job));
    assert!(told.contains("it must not run twice, so it stays there until it ends"), "{told}");
}

#[test]
fn what_a_reservation_costs_counts_with_the_saves_that_were_seen() {
    let mut cluster = Cluster::new(&[4]);
    let mut patient = elastic("saves", 4);
    patient.roles[0].training.as_mut().unwrap().checkpoint.grace = Seconds(3_000.0);
    let job = cluster.submit(patient);
    cluster.start(job);
    cluster.declare(job);
    let generation = cluster.jobs[&job].generation;
    cluster.checkpoint(job, generation, 320);
    let reservation = for_prod("r9", 4_000.0, 20_000.0, &cluster);
    let Reply::Reservation(made) = cluster.request(Request::Reserve { reservation }) else { panic!() };
    let at = cluster.engine.view().reservation_cost(&made).jobs[0].at;
    assert!(at > made.from - Seconds(600.0), "a save takes seconds: {}", made.from.since(at).words());
    assert_eq!(cluster.wake_at.map(|wakes| wakes <= at), Some(true));
}

#[test]
fn the_scheduler_wakes_when_a_job_has_to_begin_to_leave() {
    let mut cluster = reserved_in(1_000.0);
    let begins = cluster.now + Seconds(1_000.0);
    let job = cluster.submit(elastic("saves", 4));
    cluster.start(job);
    cluster.declare(job);
    cluster.pass_beating(955.0, &[0]);
    let wakes = cluster.wake_at.expect("a live job");
    assert!(wakes <= begins - Seconds(40.0), "{wakes:?} {begins:?}");
}

#[test]
fn a_job_whose_limit_ends_it_before_a_reservation_is_left_alone() {
    let mut cluster = reserved_in(200.0);
    let mut brief = rigid("brief", 4);
    brief.limits.time = Some(Seconds(165.0));
    let brief = cluster.submit(brief);
    assert!(starts(&cluster, brief), "{:#?}", cluster.messages);
    cluster.start(brief);
    cluster.pass_beating(160.0, &[0]);
    assert!(matches!(cluster.state(brief), JobState::Running { .. }), "{:#?}", cluster.messages);
}

#[test]
fn a_cancelled_reservation_lets_jobs_stay_and_another_one_is_heeded() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(rigid("stays", 4));
    cluster.start(job);
    for (name, stays) in [("first", true), ("second", false)] {
        let reservation = for_prod(name, 300.0, 600.0, &cluster);
        let Reply::Reservation(made) = cluster.request(Request::Reserve { reservation }) else { panic!() };
        cluster.pass_beating(80.0, &[0]);
        if stays {
            cluster.request(Request::CancelReservation { reservation: made.id });
        }
        cluster.pass_beating(20.0, &[0]);
        assert_eq!(matches!(cluster.state(job), JobState::Running { .. }), stays, "{:#?}", cluster.messages);
    }
}
