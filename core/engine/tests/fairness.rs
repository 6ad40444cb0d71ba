//! What projects, floors, budgets and long waits bring about, told by hand.

use headway_engine::event::{JobChange, Request};
use headway_engine::record::{JobState, PolicySettings, ProjectRules, StopCause};
use headway_engine::{Refusal, Reply};
use headway_planner::{Amount, Label, Policy, SiteRow};
use headway_types::spec::Priority;
use headway_types::{Fault, Generation, GpuCount, GpuSeconds, GroupOutcome, GroupPhase, JobId, Seconds};

use crate::harness::{Cluster, answer, elastic, follow, gpus, inventory, of, rigid};

fn put(cluster: &mut Cluster, name: &str, rules: ProjectRules) -> Reply {
    cluster.request(Request::PutProject { name: name.into(), rules, expected: None })
}

fn quota(gpus: u32) -> ProjectRules {
    ProjectRules { quota: Some(GpuCount(gpus)), ..ProjectRules::default() }
}

#[test]
fn a_quota_is_enforced() {
    let mut cluster = Cluster::new(&[8]);
    put(&mut cluster, "nlp", quota(4));
    cluster.submit(of("nlp", rigid("hopeless", 7)));
    let told = "it cannot start, as project nlp may have 4 GPUs at most";
    assert!(cluster.messages.iter().any(|message| message.ends_with(told)), "{:#?}", cluster.messages);
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
    put(&mut cluster, "nlp", quota(4));
    let before = (cluster.projects["nlp"].clone(), cluster.count("project.changed"));
    put(&mut cluster, "nlp", quota(4));
    assert_eq!((cluster.projects["nlp"].clone(), cluster.count("project.changed")), before);
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

#[test]
fn a_row_of_the_site_holds_jobs_with_its_label_and_follows_the_label() {
    let mut cluster = Cluster::new(&[8]);
    let label = Label { key: "team".into(), value: "x".into() };
    let amount = Amount { label: Some(label), ..Amount::default() };
    let rows = vec![SiteRow { name: "team-x".into(), amount, at_most: GpuCount(4) }];
    let objective = Policy { rows, ..Policy::default() };
    cluster.request(Request::SetPolicy {
        settings: PolicySettings { objective, ..PolicySettings::default() }.into(),
        expected: None,
    });
    let mut spec = elastic("greedy", 8);
    spec.labels = [("team".to_owned(), "x".to_owned())].into();
    let job = cluster.submit(spec);
    follow(&mut cluster, &[0]);
    assert_eq!(gpus(&cluster, job), 4);
    let change = JobChange { labels: Some([("team".to_owned(), "y".to_owned())].into()), ..JobChange::default() };
    cluster.request(Request::Change { job, change, expected: None });
    follow(&mut cluster, &[0]);
    assert_eq!(gpus(&cluster, job), 8);
}

#[test]
fn a_patient_large_job_gets_its_turn_among_many_small_ones() {
    let mut cluster = Cluster::new(&[4]);
    let objective = Policy { patience: Some(Seconds(600.0)), patience_share: 0.0, ..Policy::default() };
    let settings = PolicySettings { objective, ..PolicySettings::default() };
    cluster.request(Request::SetPolicy { settings: settings.into(), expected: None });
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
    // It needs the whole node: a third of the patience.
    assert!((200.0..300.0).contains(&waited), "{waited}");
    // It keeps its turn while smaller ones wait, for as long as it had waited itself.
    cluster.pass_beating(300.0, &[0]);
    assert_eq!(gpus(&cluster, large), 4);
}

#[test]
fn a_wait_is_kept_over_a_broken_node_and_a_restart_and_ends_with_a_preemption() {
    let mut cluster = Cluster::new(&[4]);
    let first = cluster.submit(rigid("first", 4));
    cluster.start(first);
    let mut second = rigid("second", 4);
    second.limits.restartable = Some(true);
    let second = cluster.submit(second);
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
    assert!(message.contains("its budget of 0.67 GPU-hours is spent"), "{message}");
}

#[test]
fn a_partly_outdated_plan_gives_no_project_more_than_its_quota() {
    let mut cluster = Cluster::new(&[4, 4]);
    put(&mut cluster, "nlp", quota(4));
    let (jobs, input) = cluster.submit_unplanned(vec![of("nlp", rigid("one", 2)), of("nlp", rigid("two", 2))]);
    let plan = cluster.plan(&input);
    put(&mut cluster, "nlp", quota(2));
    cluster.feed(answer(&input, plan));
    cluster.pass_beating(3.0, &[0, 1]);
    assert_eq!(jobs.iter().map(|job| gpus(&cluster, *job)).sum::<u32>(), 2);
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
    assert!(matches!(cluster.request(Request::Change { job, change, expected: None }), Reply::Job(_)));
    follow(&mut cluster, &[0]);
    assert_eq!(gpus(&cluster, job), 3);
    let wrong = JobChange { min: Some(GpuCount(4)), ..JobChange::default() };
    assert!(matches!(
        cluster.request(Request::Change { job, change: wrong, expected: None }),
        Reply::Refused(Refusal::Invalid(_))
    ));
}
