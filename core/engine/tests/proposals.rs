//! Plans that wait for a person's word.

use headway_engine::Reply;
use headway_engine::event::{Actor, Event, Request, RequestId};
use headway_engine::record::{JobState, PlanState, PolicyMode, PolicySettings, ProjectRules};
use headway_planner::{Freedom, PlanInput};
use headway_types::spec::Priority;
use headway_types::{JobId, JobSpec, Plan, Seconds};

use crate::harness::{Cluster, answer, elastic, rigid};

/// A job on all four GPUs, which moves only when somebody approves.
fn advisory() -> (Cluster, JobId) {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(elastic("large", 4));
    cluster.start(job);
    cluster.declare(job);
    cluster.steps(job, 100, None);
    cluster.pass_beating(120.0, &[0]);
    let settings = PolicySettings { mode: PolicyMode::Advisory, ..PolicySettings::default() };
    assert!(matches!(
        cluster.request(Request::SetPolicy { settings: settings.into(), expected: None }),
        Reply::Policy(_)
    ));
    cluster.pass_beating(5.0, &[0]);
    (cluster, job)
}

/// One waits besides for the approval of a move that makes room for it.
fn waiting_for_approval() -> Cluster {
    let (mut cluster, _) = advisory();
    cluster.submit(rigid("small", 2));
    cluster.pass_beating(5.0, &[0]);
    assert_eq!(proposed(&cluster), 1, "{:?}", cluster.messages);
    cluster
}

fn proposed(cluster: &Cluster) -> usize {
    cluster.plans.values().filter(|record| record.state == PlanState::Proposed).count()
}

fn rules(name: &str) -> Request {
    Request::PutProject { name: name.into(), rules: ProjectRules::default(), expected: None }
}

#[test]
fn a_repeated_proposal_leaves_the_causes_that_came_while_it_was_made() {
    let mut cluster = waiting_for_approval();
    cluster.now = cluster.now + Seconds(2.0);
    let input = cluster.round_for(rules("first"));
    let mut again: Plan = cluster.plan(&input);
    for one in again.assignments.values_mut() {
        one.predicted.goodput.0 *= 1.01;
    }
    let event = |body| Event::Request { request: RequestId(2), actor: Actor::User("ada".into()), body };
    cluster.feed_unplanned(event(rules("second")));
    cluster.feed_unplanned(answer(&input, again));
    assert_eq!(proposed(&cluster), 1, "it is the proposal that waits already");
    assert!(cluster.plans.values().all(|record| record.state != PlanState::Stale), "whoever reads it may approve it");
    cluster.now = cluster.now + Seconds(2.0);
    let outcome = cluster.engine.handle(cluster.now, vec![Event::Tick]);
    let trigger = outcome.plan_request.map(|round| round.trigger().to_owned());
    assert_eq!(trigger.as_deref(), Some("the rules of project second were set"));
}

#[test]
fn what_a_stopping_job_was_to_get_starts_others_without_approval() {
    let mut cluster = waiting_for_approval();
    let plan = *cluster.plans.iter().find(|(_, record)| record.state == PlanState::Proposed).unwrap().0;
    let stopped: Vec<_> = cluster.jobs.keys().copied().collect();
    assert!(matches!(cluster.request(Request::Approve { plan }), Reply::Plan(_)));
    assert!(matches!(cluster.state(stopped[0]), JobState::Stopping { .. }));
    let urgent = JobSpec { priority: Priority(100), ..rigid("urgent", 4) };
    cluster.submit(urgent);
    cluster.pass_beating(5.0, &[0]);
    assert_eq!(proposed(&cluster), 0, "{:?}", cluster.messages);
}

#[test]
fn a_round_for_starts_that_gave_no_plan_is_made_again() {
    let (mut cluster, job) = advisory();
    let (_, input) = cluster.submit_unplanned(vec![rigid("small", 2)]);
    let plan = cluster.plan(&input);
    cluster.feed_unplanned(answer(&input, plan));
    assert_eq!(proposed(&cluster), 1);
    let pinned = |input: &PlanInput| {
        let of = input.jobs.iter().find(|one| one.job == job).unwrap();
        matches!(&of.freedom, Freedom::Fixed { reason } if reason.contains("wait for approval"))
    };
    let (_, round) = cluster.until_next_round(10).unwrap();
    assert!(pinned(&round));
    cluster.fail(round.plan);
    let (_, round) = cluster.until_next_round(10).unwrap();
    assert!(pinned(&round));
    let message = "no plan after 60 s".into();
    cluster.feed_unplanned(Event::PlanGivenUp { plan: round.plan, message });
    let (_, round) = cluster.until_next_round(10).unwrap();
    assert!(pinned(&round));
}

#[test]
fn a_newer_proposal_takes_the_place_of_the_one_that_waits() {
    let mut cluster = waiting_for_approval();
    let first = *cluster.plans.iter().find(|(_, record)| record.state == PlanState::Proposed).unwrap().0;
    cluster.submit(JobSpec { priority: Priority(90), ..rigid("urgent", 3) });
    cluster.pass_beating(5.0, &[0]);
    assert_eq!(proposed(&cluster), 1, "{:?}", cluster.messages);
    assert_eq!(cluster.plans[&first].state, PlanState::Stale);
    assert!(matches!(cluster.request(Request::Approve { plan: first }), Reply::Refused(_)));
}
