//! What each policy promises, and what all of them must keep.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_types::plan::MoveKind;
use headway_types::spec::LayoutLimits;
use headway_types::{GpuCount, GpuSeconds, GpuType, Objective, Plan, Seconds, Sequences, Tokens};
use proptest::prelude::*;

use crate::builder::{NOW, after, job, job_id, model, node, rigid, round};
use crate::curves::CurveCache;
use crate::input::{Downtime, Freedom, PlanInput, PlanJob, PlanNode, PlanWork};
use crate::project::PlanProject;
use crate::table::{GoodputTable, TableRow};
use crate::{plan, verify};

mod peers;

pub(crate) const ALL: [Objective; 9] = [
    Objective::Goodput,
    Objective::Sia,
    Objective::SiaSimulated,
    Objective::Pollux,
    Objective::PolluxLayouts,
    Objective::LeastAttained,
    Objective::FifoBackfill,
    Objective::ShortestRemaining,
    Objective::Static,
];

fn by(objective: Objective, mut input: PlanInput) -> PlanInput {
    input.policy.objective = objective;
    input
}

fn planned(input: &PlanInput) -> Plan {
    let plan = plan(input, &mut CurveCache::new()).unwrap();
    assert_eq!(verify(input, &plan), Ok(()), "{:?}", input.policy.objective);
    plan
}

/// A job whose goodput on `alpha` is told for these sizes.
fn tabled(number: u32, rows: &[(u32, f64)]) -> PlanJob {
    let row = |&(gpus, goodput): &(u32, f64)| TableRow {
        gpu_type: GpuType("alpha".into()),
        gpus: GpuCount(gpus),
        nodes: None,
        goodput,
        watts_per_gpu: None,
        label: None,
    };
    let table = GoodputTable { rows: rows.iter().map(row).collect() };
    let sizes: Vec<u32> = rows.iter().map(|row| row.0).collect();
    let mut job = job(number, *sizes.iter().min().unwrap(), *sizes.iter().max().unwrap());
    job.work = PlanWork::Table(Arc::new(table));
    job
}

fn gpus(plan: &Plan, number: u32) -> u32 {
    plan.assignments.get(&job_id(number)).map_or(0, |one| one.placement.gpus().0)
}

fn sizes(plan: &Plan, jobs: u32) -> Vec<u32> {
    (1..=jobs).map(|number| gpus(plan, number)).collect()
}

/// Two nodes of four.
fn pair() -> Vec<PlanNode> {
    vec![node(0, "alpha", 4), node(1, "alpha", 4)]
}

/// Rounds with all kinds of jobs, of which the first half run already, and sometimes projects.
fn rounds() -> impl Strategy<Value = PlanInput> {
    let shape = (1u32..4, 0usize..3, 0.0..50_000.0f64, 0.0..9e3f64, prop::option::of(1.0..1e5f64), 0u32..3);
    (prop::collection::vec(shape, 1..7), 1u32..4, 0usize..5, prop::option::of(1u32..6), 0u32..3).prop_map(
        |(shapes, count, fixed, quota, floor)| {
            let jobs = shapes.iter().enumerate().map(|(at, &(size, kind, attained, age, left, project))| {
                let number = at as u32 + 1;
                let mut job = match kind {
                    0 => rigid(number, size),
                    1 => job(number, 1, size + 1),
                    _ => tabled(number, &[(size, 1.0), (size + 1, 1.8), (8, 3.1)]),
                };
                job.claim.attained = GpuSeconds(attained);
                job.submitted_at = NOW - Seconds(age);
                job.remaining = left.map(Tokens);
                job.claim.project = format!("p{project}");
                job.claim.restarts = at as u32;
                job
            });
            let mut input = round((0..count).map(|number| node(number, "alpha", 4)).collect(), jobs.collect());
            let quota = quota.map(GpuCount);
            let project = PlanProject { name: "p0".into(), quota, floor: GpuCount(floor), ..PlanProject::default() };
            input.projects = vec![project, PlanProject { name: "p1".into(), ..PlanProject::default() }];
            let early = PlanInput { jobs: input.jobs[..input.jobs.len() / 2].to_vec(), ..input.clone() };
            let running = after(&early, &planned(&early));
            for (job, earlier) in input.jobs.iter_mut().zip(&running.jobs) {
                job.current = earlier.current.clone();
            }
            if let Some(job) = input.jobs.get_mut(fixed) {
                job.freedom = Freedom::Fixed { reason: "it is saving".into() };
            }
            input
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..crate::laws::config() })]

    #[test]
    fn every_policy_makes_plans_that_hold_and_explain_every_job(input in rounds()) {
        for objective in ALL {
            let input = by(objective, input.clone());
            let plan = planned(&input);
            prop_assert_eq!(plan.report.jobs.len(), input.jobs.len());
            use Objective::{Goodput, Pollux, PolluxLayouts, Sia, SiaSimulated};
            let optimises = matches!(objective, Goodput | Sia | SiaSimulated | Pollux | PolluxLayouts);
            prop_assert_eq!(plan.report.bound.is_some(), optimises, "{:?}", objective);
            prop_assert!(plan.report.bound.is_none_or(|bound| bound >= plan.report.objective), "{:?}", objective);
        }
    }

    #[test]
    fn every_policy_keeps_quotas_and_what_is_fixed(input in rounds()) {
        for objective in ALL {
            let input = by(objective, input.clone());
            let plan = planned(&input);
            let held = |job: &&PlanJob| plan.assignments.get(&job.job).map_or(0, |one| one.placement.gpus().0);
            let of_project: u32 = input.jobs.iter().filter(|job| job.claim.project == "p0").map(|job| held(&job)).sum();
            if let (Some(quota), true) = (input.projects[0].quota, plan.report.relaxed.is_empty()) {
                prop_assert!(of_project <= quota.0, "{objective:?}: {of_project} of {quota}");
            }
            for job in input.jobs.iter().filter(|job| matches!(job.freedom, Freedom::Fixed { .. })) {
                let now = plan.assignments.get(&job.job).map(|one| &one.placement);
                prop_assert_eq!(now, job.current.as_ref().map(|one| &one.placement), "{:?}", objective);
            }
        }
    }

    #[test]
    fn every_policy_decides_the_same_again(input in rounds()) {
        let mut warm = CurveCache::new();
        for objective in ALL {
            let input = by(objective, input.clone());
            let first = serde_json::to_vec(&plan(&input, &mut warm).unwrap()).unwrap();
            prop_assert_eq!(first, serde_json::to_vec(&planned(&input)).unwrap());
        }
    }

    #[test]
    fn who_is_served_as_requested_is_never_moved(mut input in rounds()) {
        input.projects.clear();
        for objective in [Objective::Static, Objective::FifoBackfill] {
            let plan = planned(&by(objective, input.clone()));
            for step in &plan.report.moves {
                let live = matches!(step.kind, MoveKind::Reconfigure(tier) if tier.is_live());
                prop_assert!(step.kind == MoveKind::Start || live, "{objective:?}: {step:?}");
            }
        }
    }

    #[test]
    fn serving_as_requested_twice_changes_nothing(mut input in rounds()) {
        input.projects.clear();
        for objective in [Objective::Static, Objective::FifoBackfill] {
            let input = by(objective, input.clone());
            let first = planned(&input);
            let second = planned(&after(&input, &first));
            prop_assert_eq!(&first.assignments, &second.assignments, "{:?}", objective);
        }
    }
}

#[test]
fn the_start_of_a_short_job_is_not_held_against_it() {
    let starts_slowly = |number, tokens| PlanJob {
        remaining: Some(Tokens(tokens)),
        downtime: Downtime::of_restart(Seconds(260.0)),
        ..tabled(number, &[(8, 1.0)])
    };
    let jobs = vec![starts_slowly(1, 36_000.0), starts_slowly(2, 10.0)];
    let input = by(Objective::Goodput, round(vec![node(1, "alpha", 8)], jobs));
    let started: Vec<_> = planned(&input).assignments.into_keys().collect();
    assert_eq!(started, [job_id(2)], "ten seconds before ten hours");
}

#[test]
fn least_attained_serves_who_has_had_least_and_takes_from_who_has_had_most() {
    let rows = [(2, 2.0), (4, 4.0), (8, 6.0)];
    let mut input = by(Objective::LeastAttained, round(pair(), vec![tabled(1, &rows)]));
    let first = planned(&input);
    assert_eq!(sizes(&first, 1), [8]);
    input = after(&input, &first);
    input.jobs[0].claim.attained = GpuSeconds(36_000.0);
    input.jobs.push(tabled(2, &[(2, 2.0), (4, 4.0)]));
    assert_eq!(sizes(&planned(&input), 2), [4, 4]);
}

#[test]
fn shortest_remaining_puts_the_shortest_first() {
    let rows = [(4, 4.0), (8, 8.0)];
    let mut jobs = vec![tabled(1, &rows), tabled(2, &rows), tabled(3, &rows)];
    jobs[0].remaining = Some(Tokens(9_000.0));
    jobs[1].remaining = Some(Tokens(800.0));
    let mut input = by(Objective::ShortestRemaining, round(pair(), jobs));
    assert_eq!(sizes(&planned(&input), 3), [0, 8, 0]);
    input.jobs[1].range.max = GpuCount(4);
    assert_eq!(sizes(&planned(&input), 3), [4, 4, 0], "the one nobody knows comes last");
}

mod first_come {
    use super::*;

    /// One runs on half the cluster for another 100 s; the next wants all of it.
    fn blocked(later: Vec<PlanJob>) -> PlanInput {
        let mut runs = tabled(1, &[(4, 1.0)]);
        runs.remaining = Some(Tokens(100.0));
        runs.submitted_at = NOW - Seconds(500.0);
        let mut input = by(Objective::FifoBackfill, round(pair(), vec![runs]));
        input = after(&input, &planned(&input));
        let mut wants_all = rigid(2, 8);
        wants_all.submitted_at = NOW - Seconds(400.0);
        input.jobs.push(wants_all);
        input.jobs.extend(later);
        input
    }

    fn small(number: u32, size: u32, seconds: Option<f64>) -> PlanJob {
        let mut job = tabled(number, &[(size, 1.0)]);
        job.remaining = seconds.map(Tokens);
        job
    }

    #[test]
    fn the_first_that_waits_is_not_overtaken_by_what_would_delay_it() {
        let plan = planned(&blocked(vec![small(3, 2, Some(500.0)), small(4, 2, None)]));
        assert_eq!(sizes(&plan, 4), [4, 0, 0, 0]);
    }

    #[test]
    fn what_ends_in_time_starts_before_it() {
        // 30 s to start and 60 s of work end before the 100 s are over.
        let plan = planned(&blocked(vec![small(3, 2, Some(500.0)), small(4, 2, Some(60.0)), small(5, 2, Some(60.0))]));
        assert_eq!(sizes(&plan, 5), [4, 0, 0, 2, 2]);
    }

    #[test]
    fn what_takes_nothing_it_needs_starts_beside_it() {
        let mut input = blocked(vec![small(3, 4, None), small(4, 4, None)]);
        input.jobs[1].range = rigid(2, 4).range;
        // The one that waited fits at once; then the next waits and the last would delay it.
        assert_eq!(sizes(&planned(&input), 4), [4, 4, 0, 0]);
        let mut input = blocked(vec![small(3, 4, None)]);
        input.nodes.push(node(2, "alpha", 4));
        assert_eq!(sizes(&planned(&input), 3), [4, 8, 0]);
        let mut input = blocked(vec![small(3, 4, None), small(4, 4, None)]);
        input.jobs[1].range = rigid(2, 12).range;
        input.nodes.extend([node(2, "alpha", 4), node(3, "alpha", 4)]);
        // Twelve of sixteen are promised to the second: one of the later ones fits beside them.
        input.jobs[2].submitted_at = NOW - Seconds(10.0);
        assert_eq!(sizes(&planned(&input), 4), [4, 12, 0, 0]);
    }

    #[test]
    fn nobody_waits_for_what_never_fits() {
        let mut input = blocked(vec![small(3, 4, None)]);
        input.jobs[1].range = rigid(2, 64).range;
        assert_eq!(sizes(&planned(&input), 3), [4, 0, 4]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..crate::laws::config() })]

        /// Small jobs keep coming, each of which would fit at once; the large one still starts when it was promised.
        #[test]
        fn a_large_job_does_not_starve(sizes in prop::collection::vec((1u32..5, 10.0..400.0f64), 12)) {
            let mut input = blocked(Vec::new());
            let mut started = None;
            for (step, &(size, seconds)) in sizes.iter().enumerate() {
                let mut next = small(10 + step as u32, size, Some(seconds));
                next.submitted_at = input.now;
                input.jobs.push(next);
                let plan = planned(&input);
                if gpus(&plan, 2) == 8 {
                    started = Some(input.now.since(NOW));
                    break;
                }
                input = later(&input, &plan, Seconds(10.0));
            }
            // The one that runs ends after 100 s; rounds come every 10 s.
            prop_assert!(started.is_some_and(|at| at.0 <= 110.0), "started after {started:?}");
        }
    }

    /// The round `step` later, with the work done meanwhile.
    fn later(input: &PlanInput, plan: &Plan, step: Seconds) -> PlanInput {
        let mut next = after(input, plan);
        next.now = input.now + step;
        let starts: Vec<_> =
            plan.report.moves.iter().filter(|one| one.kind == MoveKind::Start).map(|one| one.job).collect();
        for job in &mut next.jobs {
            let Some(current) = &job.current else { continue };
            // Whoever started pays its start with work, so that what was predicted comes true.
            let wait = if starts.contains(&job.job) { job.downtime.restart } else { Seconds(0.0) };
            let done = current.predicted.goodput * (step - wait);
            job.remaining = job.remaining.map(|left| left - done);
        }
        next.jobs.retain(|job| job.remaining.is_none_or(|left| left.0 > 0.0));
        next
    }
}
