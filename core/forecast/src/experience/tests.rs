#![allow(clippy::unwrap_used)]
use std::sync::Arc;

use headway_planner::builder::{self, NOW, node, table};
use headway_planner::{CurveCache, PlanWork, Policy, plan};
use headway_types::Tokens;
use headway_types::spec::Priority;

use super::*;
use crate::future::Prospect;
use crate::start::{Effort, starts};

/// A job of 8 GPUs at 100 tokens per second.
fn job(number: u32, remaining: Option<f64>) -> PlanJob {
    PlanJob {
        work: PlanWork::Table(Arc::new(table("H100-80G", &[(8, 100.0, None)]))),
        remaining: remaining.map(Tokens),
        ..builder::rigid(number, 8)
    }
}

fn round(at: f64, jobs: Vec<PlanJob>) -> PlanInput {
    let input = builder::round(vec![node(1, "H100-80G", 8)], jobs);
    PlanInput { now: NOW + Seconds(at), policy: Policy { patience: None, ..Policy::default() }, ..input }
}

fn planned(input: &PlanInput) -> Plan {
    plan(input, &mut CurveCache::new()).unwrap()
}

/// The first job runs from the start on; each round changes it.
fn history(first: &PlanJob, change: impl Fn(f64, &mut PlanJob), moments: &[f64]) -> Experience {
    let mut experience = Experience::default();
    let current = planned(&round(0.0, vec![first.clone()])).assignments.remove(&first.job);
    for &at in moments {
        let mut job = PlanJob { current: current.clone(), ..first.clone() };
        change(at, &mut job);
        let input = round(at, vec![job]);
        experience.observe(&input, &planned(&input));
    }
    experience
}

#[test]
fn a_job_that_does_half_of_what_is_predicted_has_a_pace_of_two() {
    let mut experience = Experience::default();
    for number in 0..LEAST as u32 {
        let slow =
            history(&job(number, Some(1e6)), |at, job| job.remaining = Some(Tokens(1e6 - 50.0 * at)), &[0.0, 600.0]);
        experience.seen.extend(slow.seen);
    }
    let empty = round(700.0, Vec::new());
    experience.observe(&empty, &planned(&empty));
    let pace = experience.pace();
    assert!((pace.factor - 2.0).abs() < 1e-6 && pace.spread == Some(0.0), "{pace:?}");
}

#[test]
fn lives_end_with_their_jobs_and_stretch_what_is_drawn() {
    let mut experience = Experience::default();
    for number in 0..LEAST as u32 {
        let one = history(&job(number, None), |at, job| job.claim.ran = Seconds(at), &[0.0, 3_600.0]);
        experience.seen.extend(one.seen);
    }
    let empty = round(3_600.0, Vec::new());
    experience.observe(&empty, &planned(&empty));
    assert_eq!(experience.lives().map(|lives| lives.len()), Some(LEAST));
    // A job of half an hour has half an hour left, whatever the others' age now.
    let mut running = job(20, None);
    running.current = planned(&round(0.0, vec![running.clone()])).assignments.remove(&running.job);
    running.claim.ran = Seconds(1_800.0);
    let (input, effort) = (round(0.0, vec![running, job(21, None)]), Effort::default());
    let forecast = starts(&input, &planned(&input), &mut CurveCache::new(), &effort, &experience);
    let start = forecast.rolled[&input.jobs[1].job];
    let middle = start.p50.unwrap().since(NOW).0;
    assert!((1_700.0..2_400.0).contains(&middle), "{middle}");
}

#[test]
fn who_comes_is_counted_and_a_first_round_full_of_old_jobs_is_no_arrival() {
    let mut experience = Experience::default();
    let old = PlanJob { submitted_at: NOW - Seconds(5_000.0), ..job(0, Some(1e6)) };
    let first = round(0.0, vec![old.clone()]);
    experience.observe(&first, &planned(&first));
    assert_eq!(experience.arrivals(), Arrivals { watched: Seconds(UNSEEN), ..Arrivals::default() });
    let comes = PlanJob { submitted_at: NOW + Seconds(1_000.0), ..job(1, Some(1e6)) };
    let second = round(1_000.0, vec![old, comes.clone()]);
    experience.observe(&second, &planned(&second));
    let Arrivals { count, watched, bursts } = experience.arrivals();
    let rate = count / watched.0;
    assert!((0.9 / 2_800.0..1.2 / 2_600.0).contains(&rate), "{rate}");
    assert_eq!(bursts[0][0].1.name, comes.name);
    assert!(bursts[0][0].1.current.is_none());
}

#[test]
fn who_came_together_comes_together_and_is_no_rate_of_its_own() {
    let mut experience = Experience::default();
    let come = |number: u32| PlanJob { submitted_at: NOW + Seconds(f64::from(number)), ..job(number, Some(1e6)) };
    let input = round(60.0, (0..12).map(come).collect());
    experience.observe(&input, &planned(&input));
    let Arrivals { count, bursts, .. } = experience.arrivals();
    assert!((0.9..=1.0).contains(&count), "{count}");
    assert_eq!(bursts.iter().map(Vec::len).collect::<Vec<_>>(), [12]);
    let prospect = Prospect::new(&input, &planned(&input), &Effort::default(), &experience);
    let until = input.now + Seconds(1_800.0);
    let quiet = (0..400).filter(|sample| prospect.newcomers(*sample, until).is_empty()).count();
    // One burst in half an hour: of the half hours to come about half have none.
    assert!((160..240).contains(&quiet), "{quiet}");
    assert!((0..400).all(|sample| matches!(prospect.newcomers(sample, until).len(), 0 | 12 | 24 | 36 | 48)));
}

#[test]
fn newcomers_of_higher_priority_put_off_a_start() {
    let mut running = job(0, Some(60_000.0));
    running.current = planned(&round(0.0, vec![running.clone()])).assignments.remove(&running.job);
    let input = round(0.0, vec![running, job(1, Some(60_000.0))]);
    let made = planned(&input);
    let mut busy = Experience::default();
    for number in 2..40 {
        let at = NOW - Seconds(100.0 * f64::from(number));
        let urgent = PlanJob { priority: Priority(100), submitted_at: at, ..job(number, Some(60_000.0)) };
        keep(&mut busy.arrivals, (at, urgent));
    }
    (busy.began, busy.latest) = (Some(NOW - Seconds(4_000.0)), Some(NOW));
    for planned_jobs in [40, 0] {
        let effort = Effort { planned_jobs, ..Effort::default() };
        let middle = |experience: &Experience| {
            let forecast = starts(&input, &made, &mut CurveCache::new(), &effort, experience);
            forecast.rolled.get(&input.jobs[1].job).and_then(|start| start.p50)
        };
        let (quiet, crowded) = (middle(&Experience::default()), middle(&busy));
        assert!(quiet.is_some() && (crowded.is_none() || crowded > quiet), "{quiet:?} {crowded:?}");
    }
}

#[test]
fn a_prediction_that_comes_true_teaches_once() {
    let mut running = job(0, Some(60_000.0));
    running.current = planned(&round(0.0, vec![running.clone()])).assignments.remove(&running.job);
    let waits = job(1, Some(1e5));
    let input = round(0.0, vec![running, waits.clone()]);
    let made = planned(&input);
    let mut experience = Experience::default();
    experience.observe(&input, &made);
    let forecast = starts(&input, &made, &mut CurveCache::new(), &Effort::default(), &experience);
    experience.predicted(input.now, &forecast);
    let before = experience.calibration(Method::Planner);
    let later = round(900.0, vec![waits]);
    experience.observe(&later, &planned(&later));
    let after = experience.calibration(Method::Planner);
    assert_ne!(before, after);
    let again = PlanInput { now: later.now + Seconds(10.0), ..later };
    experience.observe(&again, &planned(&again));
    assert_eq!(experience.calibration(Method::Planner), after);
}

#[test]
fn starts_that_have_not_come_by_the_end_of_their_bands_move_later_bands() {
    let start = |p10: f64, p50: f64, p90: f64| {
        let at = |seconds: f64| NOW + Seconds(seconds);
        Start { p10: at(p10), p50: Some(at(p50)), p90: Some(at(p90)) }
    };
    let mut experience = Experience::default();
    for number in 0..30 {
        experience.open.insert(builder::job_id(number), (NOW, Method::Planner, start(80.0, 100.0, 120.0)));
    }
    let median = |experience: &Experience, now: f64| {
        let calibrated = experience.calibration(Method::Planner).apply(NOW, start(800.0, 1_000.0, 1_200.0));
        (now, calibrated.p50.unwrap().since(NOW).0)
    };
    experience.latest = Some(NOW + Seconds(110.0));
    let before = median(&experience, 110.0);
    experience.latest = Some(NOW + Seconds(400.0));
    let overdue = median(&experience, 400.0);
    assert!(overdue.1 > 2.0 * before.1, "{before:?} {overdue:?}");

    // They leave the queue without a start: that they had waited too long stays known.
    for number in 0..30 {
        experience.ended(builder::job_id(number), 0.0);
    }
    assert!((median(&experience, 400.0).1 - overdue.1).abs() < 1.0);
    // Who leaves within its band tells nothing.
    let mut within = Experience { latest: Some(NOW + Seconds(90.0)), ..Experience::default() };
    within.open.insert(builder::job_id(1), (NOW, Method::Planner, start(80.0, 100.0, 120.0)));
    within.ended(builder::job_id(1), 0.0);
    assert!(within.calibrations.is_empty());
}

#[test]
fn a_prediction_that_comes_after_its_job_has_left_is_forgotten() {
    let mut experience = Experience::default();
    let waiting = round(0.0, vec![job(1, Some(1e6)), job(2, Some(1e6))]);
    let forecast =
        starts(&waiting, &planned(&waiting), &mut CurveCache::new(), &Effort::default(), &Experience::default());
    experience.observe(&waiting, &planned(&waiting));
    let empty = |at: f64| round(at, Vec::new());
    experience.observe(&empty(10.0), &planned(&empty(10.0)));
    experience.predicted(NOW, &forecast);
    assert!(!experience.open.is_empty());
    experience.observe(&empty(20.0), &planned(&empty(20.0)));
    assert!(experience.open.is_empty());
}
