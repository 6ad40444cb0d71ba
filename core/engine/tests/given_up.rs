//! Rounds that take too long: an incident that people see, after which the next round asks less.
#![allow(clippy::unwrap_used)]

mod harness;

use harness::{Cluster, answer, rigid};
use headway_engine::event::{Actor, Event, Request, RequestId};
use headway_planner::{Freedom, PlanInput};
use headway_types::{PlanId, ReasonCode, Seconds};

fn submit(name: &str, gpus: u32) -> Event {
    let body = Request::Submit { jobs: vec![rigid(name, gpus)], idempotency: None };
    Event::Request { request: RequestId(1), actor: Actor::User("ada".into()), body }
}

/// The round that is asked for once the pause since the last is over.
fn next_round(cluster: &mut Cluster) -> Option<PlanInput> {
    cluster.now = cluster.now + Seconds(2.0);
    cluster.engine.handle(cluster.now, vec![Event::Tick]).plan_request.map(|round| round.input())
}

fn give_up(cluster: &mut Cluster, plan: PlanId) {
    cluster.feed_unplanned(Event::PlanGivenUp { plan, message: "no plan after 60 s".into() });
}

#[test]
fn after_a_round_that_was_given_up_the_next_asks_less_until_all_are_planned_again() {
    let mut cluster = Cluster::new(&[8]);
    cluster.feed(submit("runs", 8));
    cluster.pass(1.0);
    cluster.now = cluster.now + Seconds(2.0);
    let jobs = (0..1_100).map(|number| rigid(&format!("waits-{number}"), 8)).collect();
    let first = cluster.round_for(Request::Submit { jobs, idempotency: None });
    assert_eq!(first.jobs.len(), 1_101);
    give_up(&mut cluster, first.plan);
    assert_eq!((cluster.count("plan.given_up"), cluster.engine.view().trouble.unwrap().given_up), (1, 1));

    let second = next_round(&mut cluster).unwrap();
    assert_eq!(second.jobs.len(), 1 + 1_024, "those first in line");
    let told = |cluster: &Cluster| {
        let view = cluster.engine.view();
        let verdicts = view.jobs.keys().filter_map(|job| view.verdict(*job));
        verdicts.filter(|verdict| verdict.reasons.iter().any(|one| one.code == ReasonCode::NotReady)).count()
    };
    assert_eq!(told(&cluster), 76, "whoever is left out knows why it waits");
    give_up(&mut cluster, second.plan);

    let third = next_round(&mut cluster).unwrap();
    assert_eq!(third.jobs.len(), 1 + 256);
    assert!(third.jobs.iter().any(|job| job.current.is_some() && matches!(job.freedom, Freedom::Fixed { .. })));
    let plan = cluster.plan(&third);
    cluster.feed_unplanned(answer(&third, plan));
    assert_eq!(cluster.engine.view().trouble.unwrap().given_up, 1);

    for expected in [1 + 1_024, 1_101] {
        let round = next_round(&mut cluster).unwrap();
        assert_eq!(round.jobs.len(), expected);
        let plan = cluster.plan(&round);
        cluster.feed_unplanned(answer(&round, plan));
    }
    assert_eq!((cluster.engine.view().trouble, cluster.count("plan.recovered")), (None, 1));
    assert_eq!(told(&cluster), 0);
}

#[test]
fn a_round_that_is_nobodys_any_more_is_no_incident() {
    let mut cluster = Cluster::new(&[8]);
    cluster.feed(submit("runs", 8));
    cluster.pass(1.0);
    let known = *cluster.plans.keys().next().unwrap();
    give_up(&mut cluster, known);
    assert_eq!((cluster.count("plan.given_up"), cluster.engine.view().trouble), (0, None));
}
