#![allow(clippy::unwrap_used)]
use std::sync::Arc;

use headway_planner::builder::{self, NOW, node, table};
use headway_planner::{Freedom, PlanJob, PlanWork, Policy, plan};
use headway_types::spec::Priority;
use headway_types::{NodeSlice, Placement, Tokens, TokensPerSecond};

use super::*;

/// A job of one size at 100 tokens per second.
fn job(number: u32, gpus: u32, remaining: Option<f64>) -> PlanJob {
    PlanJob {
        work: PlanWork::Table(Arc::new(table("H100-80G", &[(gpus, 100.0, None)]))),
        remaining: remaining.map(Tokens),
        ..builder::rigid(number, gpus)
    }
}

/// The first job runs on all of a node, the others come.
fn round(jobs: Vec<PlanJob>, patience: Option<f64>) -> (PlanInput, Plan) {
    let mut input = builder::round(vec![node(1, "H100-80G", 8)], jobs[..1].to_vec());
    // In the order of submission; who is due may stop another after ten minutes.
    let turn = Seconds(600.0);
    input.policy = Policy { patience: patience.map(Seconds), shortest_first: 0.0, turn, ..Policy::default() };
    let first = plan(&input, &mut CurveCache::new()).unwrap();
    input.jobs = jobs;
    input.jobs[0].current = first.assignments.get(&input.jobs[0].job).cloned();
    let second = plan(&input, &mut CurveCache::new()).unwrap();
    assert!(second.assignments.contains_key(&input.jobs[0].job));
    (input, second)
}

fn forecast(round: &(PlanInput, Plan), effort: Effort) -> Forecast {
    starts(&round.0, &round.1, &mut CurveCache::new(), &effort, &Experience::default())
}

/// As the futures say.
fn seconds(forecast: &Forecast, job: &PlanJob) -> (f64, f64, f64) {
    let start = &forecast.rolled[&job.job];
    (start.p10.since(NOW).0, start.p50.unwrap().since(NOW).0, start.p90.unwrap().since(NOW).0)
}

#[test]
fn a_job_starts_when_the_one_before_it_is_done() {
    let jobs = vec![job(1, 8, Some(360_000.0)), job(2, 8, Some(1e5))];
    let round = round(jobs.clone(), None);
    for planned_jobs in [40, 0] {
        let forecast = forecast(&round, Effort { planned_jobs, samples: 200, ..Effort::default() });
        let (p10, p50, p90) = seconds(&forecast, &jobs[1]);
        assert!((3_300.0..3_900.0).contains(&p50), "{p50}");
        assert!((2_300.0..3_000.0).contains(&p10) && (4_400.0..5_500.0).contains(&p90), "{p10} {p90}");
    }
}

#[test]
fn a_gang_over_two_types_holds_and_frees_what_it_has_of_each() {
    let both = NodeSlice { node: builder::node_id(1), gpus: node(1, "H100-80G", 8).gpus };
    let beside = NodeSlice { node: builder::node_id(2), gpus: node(2, "H200", 8).gpus };
    let mut wide = job(1, 16, Some(360_000.0));
    wide.current = Some(builder::bare(Placement::try_new(vec![both, beside]).unwrap()));
    wide.current.as_mut().unwrap().predicted.goodput = TokensPerSecond(100.0);
    wide.freedom = Freedom::Fixed { reason: "it starts".into() };
    let work = PlanWork::Table(Arc::new(table("H200", &[(8, 100.0, None)])));
    let waits = PlanJob { work, ..job(2, 8, Some(1e5)) };
    let input = builder::round(vec![node(1, "H100-80G", 8), node(2, "H200", 8)], vec![wide, waits.clone()]);
    let plan = plan(&input, &mut CurveCache::new()).unwrap();
    let forecast = forecast(&(input, plan), Effort { planned_jobs: 0, samples: 200, ..Effort::default() });
    let (_, p50, _) = seconds(&forecast, &waits);
    assert!((3_300.0..3_900.0).contains(&p50), "{p50}");
}

#[test]
fn a_queue_starts_one_after_the_other() {
    let mut jobs = vec![job(1, 8, Some(36_000.0)), job(2, 8, Some(36_000.0)), job(3, 8, Some(36_000.0))];
    jobs[0].priority = Priority(90);
    jobs[1].priority = Priority(75);
    let round = round(jobs.clone(), None);
    for planned_jobs in [40, 0] {
        let forecast = forecast(&round, Effort { planned_jobs, samples: 400, ..Effort::default() });
        let starts = [seconds(&forecast, &jobs[1]).1, seconds(&forecast, &jobs[2]).1];
        assert!((300.0..420.0).contains(&starts[0]) && (600.0..900.0).contains(&starts[1]), "{starts:?}");
    }
}

#[test]
fn who_has_waited_long_enough_starts_before_the_other_ends() {
    let mut jobs = vec![job(1, 8, Some(1e9)), job(2, 8, Some(5e4))];
    jobs[1].claim.waited = Seconds(300.0);
    let round = round(jobs.clone(), Some(900.0));
    for planned_jobs in [40, 0] {
        let forecast = forecast(&round, Effort { planned_jobs, ..Effort::default() });
        assert_eq!(seconds(&forecast, &jobs[1]), (600.0, 600.0, 600.0));
    }
}

#[test]
fn without_any_target_the_fleets_age_tells_the_rate_of_ends() {
    let mut jobs = vec![job(1, 8, None), job(2, 8, None)];
    jobs[0].claim.ran = Seconds(7_200.0);
    let round = round(jobs.clone(), None);
    let forecast = forecast(&round, Effort { samples: 200, ..Effort::default() });
    let (p10, p50, p90) = seconds(&forecast, &jobs[1]);
    // Of an exponential with a mean of two hours.
    assert!(
        (400.0..1_300.0).contains(&p10) && (4_000.0..6_000.0).contains(&p50) && p90 > 12_000.0,
        "{p10} {p50} {p90}"
    );
}

#[test]
fn what_never_runs_has_no_start() {
    let jobs = vec![job(1, 8, Some(1e5)), job(2, 16, Some(1e5))];
    let forecast = forecast(&round(jobs.clone(), None), Effort::default());
    assert!(matches!(&forecast.starts[&jobs[1].job], Outlook::Unknown { .. }));
}

#[test]
fn the_same_seed_sees_the_same_future() {
    let round = round(vec![job(1, 8, Some(1e5)), job(2, 8, Some(1e5))], None);
    assert_eq!(forecast(&round, Effort::default()), forecast(&round, Effort::default()));
    assert_ne!(
        forecast(&round, Effort::default()).starts,
        forecast(&round, Effort { seed: 2, ..Effort::default() }).starts
    );
}

#[test]
fn nobody_is_expected_to_start_on_what_a_job_that_must_not_run_twice_holds() {
    let jobs = vec![job(1, 8, Some(3_600_000.0)), job(2, 8, Some(1e5))];
    let effort = || Effort { samples: 200, ..Effort::default() };
    let mut round = round(jobs.clone(), Some(600.0));
    let (_, in_its_turn, _) = seconds(&forecast(&round, effort()), &jobs[1]);
    assert!(in_its_turn < 3_600.0, "the first has had its turn by then: {in_its_turn}");
    round.0.jobs[0].departure.never = true;
    round.0.jobs[0].freedom = Freedom::Fixed { reason: "it must not run twice".into() };
    let (_, after_its_end, _) = seconds(&forecast(&round, effort()), &jobs[1]);
    assert!((30_000.0..42_000.0).contains(&after_its_end), "{after_its_end}");
}

#[test]
fn a_job_that_a_reservation_keeps_out_starts_when_it_is_over() {
    let jobs = vec![job(1, 4, Some(1e9)), job(2, 4, Some(1e5))];
    let (mut input, _) = round(jobs.clone(), None);
    let (from, until) = (NOW + Seconds(3_600.0), NOW + Seconds(3.0 * 86_400.0));
    let members = std::iter::once(jobs[0].job).collect();
    let reservation = builder::reservation("r9", &[1], from, until);
    input.reservations = vec![headway_planner::Reservation { jobs: members, ..reservation }];
    let made = plan(&input, &mut CurveCache::new()).unwrap();
    assert!(!made.assignments.contains_key(&jobs[1].job));
    let forecast = forecast(&(input, made), Effort::default());
    let (p10, p50, p90) = seconds(&forecast, &jobs[1]);
    assert_eq!((p10, p50, p90), (259_200.0, 259_200.0, 259_200.0));
}

#[test]
fn a_job_that_saves_is_expected_on_a_node_before_it_is_reserved() {
    let saves = headway_planner::Departure { saves: true, never: false, takes: Seconds(60.0) };
    // The second starts when the first ends after an hour, five hours before the reservation.
    let second = PlanJob { departure: saves, ..job(2, 8, Some(1e5)) };
    let jobs = vec![PlanJob { departure: saves, ..job(1, 8, Some(360_000.0)) }, second];
    let (mut input, made) = round(jobs.clone(), None);
    let from = NOW + Seconds(6.0 * 3_600.0);
    input.reservations = vec![builder::reservation("r9", &[1], from, from + Seconds(1e6))];
    let forecast = forecast(&(input, made), Effort { samples: 200, ..Effort::default() });
    let (_, p50, _) = seconds(&forecast, &jobs[1]);
    assert!((3_300.0..3_900.0).contains(&p50), "{p50}");
}
