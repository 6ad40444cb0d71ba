//! What projects, reservations, pins and long waits bring about, told by hand.
#![allow(clippy::unwrap_used)]

mod harness;

use harness::{Cluster, inventory, node_id, rigid, spec, training};
use headway_engine::event::{Ends, JobChange, Request, ReservationWish};
use headway_engine::record::{JobState, PolicySettings, ProjectRules, StopCause};
use headway_engine::{Refusal, Reply};
use headway_planner::Policy;
use headway_types::report::Flexibility;
use headway_types::spec::Priority;
use headway_types::{
    Capabilities, Fault, Generation, GpuCount, GpuSeconds, GroupOutcome, GroupPhase, JobId, JobSpec, Layout, Seconds,
};

fn put(cluster: &mut Cluster, name: &str, rules: ProjectRules) -> Reply {
    cluster.request(Request::PutProject { name: name.into(), rules, expected: None, dry_run: false })
}

fn quota(gpus: u32) -> ProjectRules {
    ProjectRules { quota: Some(GpuCount(gpus)), ..ProjectRules::default() }
}

fn of(project: &str, spec: JobSpec) -> JobSpec {
    JobSpec { project: project.into(), ..spec }
}

fn elastic(name: &str, most: u32) -> JobSpec {
    spec(name, 1, most, Some(training(true)))
}

fn gpus(cluster: &Cluster, job: JobId) -> u32 {
    match cluster.state(job) {
        JobState::Starting { .. } | JobState::Running { .. } => cluster.allocation(job).placement.gpus().0,
        _ => 0,
    }
}

/// Jobs that were asked to stop do so, and jobs that were granted GPUs start, until nothing moves.
fn follow(cluster: &mut Cluster, nodes: &[u64]) {
    for _ in 0..20 {
        let states: Vec<(JobId, JobState)> = cluster.jobs.iter().map(|(id, job)| (*id, job.state.clone())).collect();
        for (job, state) in &states {
            match state {
                JobState::Stopping { .. } => cluster.end(*job, &GroupOutcome::Stopped),
                JobState::Starting { .. } => launch(cluster, *job),
                _ => {}
            }
        }
        cluster.pass_beating(2.0, nodes);
        if cluster.jobs.iter().all(|(id, job)| states.iter().any(|(one, state)| one == id && *state == job.state)) {
            return;
        }
    }
}

/// Takes a granted job through both phases; it may be moved on as soon as it runs.
fn launch(cluster: &mut Cluster, job: JobId) {
    let nodes = cluster.nodes_of(job);
    for phase in [GroupPhase::Prepared { rendezvous_port: Some(29_500) }, GroupPhase::Running] {
        nodes.iter().for_each(|node| cluster.group(*node, job, phase.clone()));
    }
}

#[test]
fn a_quota_is_enforced() {
    let mut cluster = Cluster::new(&[8]);
    put(&mut cluster, "nlp", quota(4));
    let job = cluster.submit(of("nlp", elastic("greedy", 8)));
    follow(&mut cluster, &[0]);
    assert_eq!(gpus(&cluster, job), 4);
    put(&mut cluster, "nlp", quota(6));
    follow(&mut cluster, &[0]);
    assert_eq!(gpus(&cluster, job), 6);
    cluster.restart();
    cluster.register(inventory(0, 8), vec![cluster.status(job, cluster.jobs[&job].generation, GroupPhase::Running)]);
    cluster.pass_beating(70.0, &[0]);
    assert_eq!(gpus(&cluster, job), 6);
}

#[test]
fn a_quota_binds_what_is_part_of_the_project() {
    let mut cluster = Cluster::new(&[8]);
    put(&mut cluster, "research", quota(3));
    put(&mut cluster, "nlp", ProjectRules { parent: Some("research".into()), ..ProjectRules::default() });
    let (one, other) = (of("nlp", elastic("one", 8)), of("research", elastic("other", 8)));
    let jobs = [cluster.submit(one), cluster.submit(other)];
    follow(&mut cluster, &[0]);
    assert_eq!(jobs.map(|job| gpus(&cluster, job)).iter().sum::<u32>(), 3);
}

#[test]
fn a_floor_is_met_within_a_round() {
    let mut cluster = Cluster::new(&[8]);
    put(&mut cluster, "prod", ProjectRules { floor: GpuCount(4), ..ProjectRules::default() });
    let mut first = elastic("first", 8);
    first.priority = Priority(100);
    let first = cluster.submit(first);
    follow(&mut cluster, &[0]);
    assert_eq!(gpus(&cluster, first), 8);
    let mut modest = of("prod", rigid("modest", 4));
    modest.priority = Priority(0);
    let modest = cluster.submit(modest);
    assert!(matches!(cluster.state(first), JobState::Stopping { .. }), "{:#?}", cluster.messages);
    follow(&mut cluster, &[0]);
    assert_eq!((gpus(&cluster, first), gpus(&cluster, modest)), (4, 4));
}

#[test]
fn what_was_borrowed_goes_back() {
    let mut cluster = Cluster::new(&[8]);
    put(&mut cluster, "nlp", ProjectRules { borrow: GpuCount(4), ..quota(4) });
    put(&mut cluster, "vision", quota(4));
    let mut borrower = of("nlp", elastic("borrower", 8));
    borrower.priority = Priority(100);
    let borrower = cluster.submit(borrower);
    follow(&mut cluster, &[0]);
    assert_eq!(gpus(&cluster, borrower), 8);
    let mut owner = of("vision", rigid("owner", 4));
    owner.priority = Priority(0);
    let owner = cluster.submit(owner);
    follow(&mut cluster, &[0]);
    assert_eq!((gpus(&cluster, borrower), gpus(&cluster, owner)), (4, 4));
}

#[test]
fn rules_that_contradict_themselves_are_refused() {
    let mut cluster = Cluster::new(&[4]);
    put(&mut cluster, "a", ProjectRules::default());
    put(&mut cluster, "b", ProjectRules { parent: Some("a".into()), ..ProjectRules::default() });
    let part_of = |parent: &str| ProjectRules { parent: Some(parent.into()), ..ProjectRules::default() };
    let wrong = [
        ("a", part_of("b")),
        ("a", part_of("a")),
        ("c", part_of("nobody")),
        ("c", ProjectRules { floor: GpuCount(5), ..quota(4) }),
        ("c", ProjectRules { weight: f64::NAN, ..ProjectRules::default() }),
        ("c", ProjectRules { borrow: GpuCount(1), ..ProjectRules::default() }),
        ("c/d", ProjectRules::default()),
    ];
    let said: Vec<String> = wrong
        .into_iter()
        .map(|(name, rules)| match put(&mut cluster, name, rules) {
            Reply::Refused(refusal) => refusal.to_string(),
            other => panic!("{other:?}"),
        })
        .collect();
    insta::assert_snapshot!(said.join("\n"), @"
    project a: it cannot be part of b, which is part of it
    project a: it cannot be part of a, which is part of it
    project c: there is no project nobody to be part of
    project c: a floor of 5 GPUs is above the quota of 4
    project c: weight must be between 0 and 1000000
    project c: without a quota there is nothing to borrow beyond
    project c/d: a name has 1 to 128 letters, digits, '-', '_' or '.', a letter or digit first
    ");
    let delete = |name: &str, expected| Request::DeleteProject { name: name.into(), expected };
    assert!(matches!(cluster.request(delete("a", None)), Reply::Refused(Refusal::WrongState(_))));
    assert!(matches!(cluster.request(delete("b", Some(7))), Reply::Refused(Refusal::VersionChanged { now: 1, .. })));
    assert!(matches!(cluster.request(delete("b", Some(1))), Reply::Project(_)));
    assert_eq!(cluster.projects.len(), 1);
}

#[test]
fn putting_the_same_rules_again_changes_nothing() {
    let mut cluster = Cluster::new(&[4]);
    let checked = Request::PutProject { name: "nlp".into(), rules: quota(4), expected: Some(0), dry_run: true };
    assert!(matches!(cluster.request(checked.clone()), Reply::Project(_)));
    assert!(cluster.projects.is_empty());
    put(&mut cluster, "nlp", quota(4));
    let before = (cluster.projects["nlp"].clone(), cluster.count("project.changed"));
    put(&mut cluster, "nlp", quota(4));
    assert_eq!((cluster.projects["nlp"].clone(), cluster.count("project.changed")), before);
    assert!(matches!(cluster.request(checked), Reply::Refused(Refusal::WrongState(_))));
}

#[test]
fn what_a_project_has_used_survives_a_restart() {
    let mut cluster = Cluster::new(&[4]);
    put(&mut cluster, "nlp", ProjectRules::default());
    let job = cluster.submit(of("nlp", rigid("one", 2)));
    cluster.start(job);
    cluster.pass_beating(500.0, &[0]);
    let used = |cluster: &Cluster| cluster.engine.view().holdings()["nlp"].used.0;
    let before = used(&cluster);
    assert!((990.0..1_010.0).contains(&before), "{before}");
    cluster.restart();
    cluster.register(inventory(0, 4), vec![cluster.status(job, Generation(1), GroupPhase::Running)]);
    assert!((used(&cluster) - before).abs() < 1.0);
    cluster.end(job, &GroupOutcome::Succeeded);
    assert!((cluster.projects["nlp"].used.0 - before).abs() < 1.0);
    assert_eq!(cluster.jobs[&job].attained.0.round(), before.round());
    cluster.restart();
    assert!((used(&cluster) - before).abs() < 1.0);
}

fn for_prod(name: &str, from: f64, until: f64, cluster: &Cluster) -> ReservationWish {
    ReservationWish {
        name: name.into(),
        nodes: [node_id(0)].into(),
        from: Some(cluster.now + Seconds(from)),
        ends: Ends::At(cluster.now + Seconds(until)),
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
    let wish = for_prod("demo", 100.0, 400.0, &cluster);
    assert!(matches!(cluster.request(Request::Reserve { wish }), Reply::Reservation(_)));
    let member = cluster.submit(of("prod", rigid("member", 4)));
    cluster.pass_beating(90.0, &[0]);
    assert!(matches!(cluster.state(stranger), JobState::Running { .. }), "it may stay until then");
    cluster.pass_beating(20.0, &[0]);
    assert!(matches!(cluster.state(stranger), JobState::Stopping { cause: StopCause::Drain, .. }));
    cluster.end(stranger, &GroupOutcome::Stopped);
    cluster.pass_beating(3.0, &[0]);
    cluster.start(member);
    cluster.end(member, &GroupOutcome::Succeeded);
    cluster.pass_beating(70.0, &[0]);
    assert!(matches!(cluster.state(stranger), JobState::Queued { .. }), "a free node is no node for a stranger");
    cluster.restart();
    cluster.register(inventory(0, 4), Vec::new());
    cluster.pass_beating(250.0, &[0]);
    assert!(matches!(cluster.state(stranger), JobState::Starting { .. }), "{:#?}", cluster.messages);
    assert!(cluster.reservations.is_empty());
    assert_eq!((cluster.count("reservation.began"), cluster.count("reservation.ended")), (1, 1));
}

#[test]
fn two_reservations_never_want_one_node_at_a_time() {
    let mut cluster = Cluster::new(&[4]);
    let wish = for_prod("first", 0.0, 100.0, &cluster);
    let first = cluster.request(Request::Reserve { wish: wish.clone() });
    assert_eq!(cluster.request(Request::Reserve { wish }), first, "asking again makes no second one");
    let clash = for_prod("second", 50.0, 200.0, &cluster);
    assert!(matches!(cluster.request(Request::Reserve { wish: clash }), Reply::Refused(Refusal::WrongState(_))));
    let next = ReservationWish { projects: ["nlp".to_string()].into(), ..for_prod("second", 100.0, 200.0, &cluster) };
    assert!(matches!(cluster.request(Request::Reserve { wish: next }), Reply::Reservation(_)));
    let endless = cluster.submit(of("prod", rigid("endless", 4)));
    let mut brief = of("prod", rigid("brief", 4));
    brief.limits.time = Some(Seconds(60.0));
    let brief = cluster.submit(brief);
    assert!(matches!(cluster.state(brief), JobState::Starting { .. }), "it will have left in time");
    assert!(matches!(cluster.state(endless), JobState::Queued { .. }));
}

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
    let reasons = format!("{:?}", view.jobs[&job].verdict);
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
fn a_patient_large_job_gets_its_turn_among_many_small_ones() {
    let mut cluster = Cluster::new(&[4]);
    let objective = Policy { patience: Some(Seconds(600.0)), ..Policy::default() };
    let settings = PolicySettings { objective, ..PolicySettings::default() };
    cluster.request(Request::SetPolicy { settings });
    let mut small: Vec<JobId> = (0..6).map(|index| cluster.submit(rigid(&format!("small-{index}"), 1))).collect();
    follow(&mut cluster, &[0]);
    let large = cluster.submit(rigid("large", 4));
    for index in 6..40 {
        // One of them ends every twenty seconds and another arrives: at any time some wait beside the large one.
        let running = small.iter().copied().find(|job| matches!(cluster.state(*job), JobState::Running { .. }));
        if let Some(job) = running {
            cluster.end(job, &GroupOutcome::Succeeded);
        }
        small.push(cluster.submit(rigid(&format!("small-{index}"), 1)));
        follow(&mut cluster, &[0]);
        cluster.pass_beating(20.0, &[0]);
        if gpus(&cluster, large) == 4 {
            break;
        }
    }
    assert_eq!(gpus(&cluster, large), 4, "{:#?}", cluster.jobs[&large]);
    let waited = cluster.jobs[&large].turn.waited.0;
    assert!((600.0..700.0).contains(&waited), "{waited}");
    // It keeps its turn while smaller ones wait, for as long as it had waited itself.
    cluster.pass_beating(300.0, &[0]);
    assert_eq!(gpus(&cluster, large), 4);
}

#[test]
fn a_wait_is_kept_over_a_broken_node_and_a_restart_and_ends_with_a_preemption() {
    let mut cluster = Cluster::new(&[4]);
    let first = cluster.submit(rigid("first", 4));
    cluster.start(first);
    let second = cluster.submit(rigid("second", 4));
    cluster.pass_beating(500.0, &[0]);
    cluster.end(first, &GroupOutcome::Succeeded);
    cluster.pass_beating(3.0, &[0]);
    cluster.start(second);
    let waited = cluster.jobs[&second].turn.waited.0;
    assert!((500.0..510.0).contains(&waited), "{waited}");
    cluster.pass_beating(100.0, &[0]);
    let fault = Fault::of_node("the disk is gone");
    cluster.end(second, &GroupOutcome::Failed { exit_code: None, fault });
    cluster.restart();
    cluster.register(inventory(0, 4), Vec::new());
    cluster.pass_beating(30.0, &[0]);
    cluster.start(second);
    let turn = cluster.jobs[&second].turn;
    assert!(turn.waited.0 >= waited && (95.0..110.0).contains(&turn.ran.0), "{turn:?}");
    let mut urgent = rigid("urgent", 4);
    urgent.priority = Priority(100);
    cluster.submit(urgent);
    cluster.pass_beating(3.0, &[0]);
    assert!(matches!(cluster.state(second), JobState::Stopping { cause: StopCause::Preempt, .. }));
    cluster.end(second, &GroupOutcome::Stopped);
    assert_eq!(cluster.jobs[&second].turn.waited, Seconds(0.0));
}

#[test]
fn a_spent_budget_ends_the_job_after_a_checkpoint() {
    let mut cluster = Cluster::new(&[4]);
    let mut frugal = rigid("frugal", 4);
    frugal.limits.budget = Some(GpuSeconds(4.0 * 600.0));
    let job = cluster.submit(frugal);
    cluster.start(job);
    cluster.pass_beating(590.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }));
    cluster.pass_beating(15.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Stopping { cause: StopCause::BudgetSpent, .. }));
    assert_eq!(cluster.stops(job).first(), Some(&headway_types::StopMode::Checkpoint));
    cluster.end(job, &GroupOutcome::Stopped);
    let JobState::Failed { message, .. } = cluster.state(job) else { panic!("{:?}", cluster.state(job)) };
    assert!(message.contains("its budget of 0.6666666666666666 GPU-hours is spent"), "{message}");
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
    assert!(matches!(cluster.request(Request::Change { job, change }), Reply::Refused(Refusal::WrongState(_))));
    cluster.end(other, &GroupOutcome::Succeeded);
    cluster.pass_beating(3.0, &[0]);
    assert_eq!(gpus(&cluster, job), 4);
}

#[test]
fn a_job_does_not_start_again_where_the_node_failed_it() {
    let mut cluster = Cluster::new(&[4, 4]);
    let job = cluster.submit(rigid("one", 4));
    cluster.start(job);
    let broken = cluster.nodes_of(job);
    let fault = Fault::of_node("the disk is gone");
    cluster.end(job, &GroupOutcome::Failed { exit_code: None, fault });
    let other = cluster.submit(rigid("other", 4));
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

#[test]
fn a_job_is_sure_of_its_part_of_the_fair_share() {
    let mut cluster = Cluster::new(&[8]);
    let mut modest = elastic("modest", 8);
    modest.priority = Priority(0);
    modest.elastic.min_share = Some(0.75);
    modest.roles[0].gpus.sizes = [1, 2, 3, 4, 8].map(GpuCount).to_vec();
    let mut proud = elastic("proud", 8);
    proud.priority = Priority(100);
    let (modest, proud) = (cluster.submit(modest), cluster.submit(proud));
    follow(&mut cluster, &[0]);
    cluster.pass_beating(130.0, &[0]);
    follow(&mut cluster, &[0]);
    // Fair is 4 of 8; three quarters of it are 3.
    assert!(gpus(&cluster, modest) >= 3, "{} {}", gpus(&cluster, modest), gpus(&cluster, proud));
}

#[test]
fn a_job_whose_sizes_were_changed_takes_one_of_the_new() {
    let mut cluster = Cluster::new(&[8]);
    let job = cluster.submit(elastic("one", 8));
    follow(&mut cluster, &[0]);
    let change = JobChange { max: Some(GpuCount(3)), ..JobChange::default() };
    assert!(matches!(cluster.request(Request::Change { job, change }), Reply::Job(_)));
    follow(&mut cluster, &[0]);
    assert_eq!(gpus(&cluster, job), 3);
    let wrong = JobChange { min: Some(GpuCount(4)), ..JobChange::default() };
    assert!(matches!(cluster.request(Request::Change { job, change: wrong }), Reply::Refused(Refusal::Invalid(_))));
}
