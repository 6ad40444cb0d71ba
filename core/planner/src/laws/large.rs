//! A large job among a stream of small ones: its right to GPUs does not recede because others arrive.

use std::collections::BTreeMap;
use std::ops::Range;

use headway_types::{JobId, NodeSlice, Objective, Placement, Seconds, Timestamp};
use proptest::prelude::*;
use proptest::sample::select;

use super::rounds::{AnyRound, any_round, jobs};
use super::stream::{Arrival, Stream, wait_of};
use super::{Rights, planned};
use crate::builder::{after, bare, job, job_id, node, rigid, round};
use crate::input::{Freedom, PlanInput, PlanJob};

const HOUR: f64 = 3_600.0;
const LARGE: u32 = 5_000;

/// A script with a time limit, and how long it really runs.
fn script(number: u32, gpus: u32, after: f64, limit: f64, length: f64) -> Arrival {
    let mut job = rigid(number, gpus);
    job.bounds.time_left = Some(Seconds(limit));
    Arrival { after: Seconds(after), job, length: Seconds(length) }
}

fn nodes(number: u32) -> PlanInput {
    round((1..=number).map(|number| node(number, "alpha", 8)).collect(), Vec::new())
}

/// 24 jobs of 8 GPUs, then one of 128, then 12 small ones every ten minutes: nearly twice what sixteen nodes can do.
fn crowd(batches: u32) -> (JobId, Vec<Arrival>) {
    let length = |number: u32| f64::from(900 + (number * 137) % 1_200);
    let small = |number: u32, after: f64| script(number, 8, after, HOUR, length(number));
    let mut arrivals: Vec<Arrival> = (1..=24).map(|number| small(number, 0.0)).collect();
    arrivals.push(script(LARGE, 128, 5.0, 2.0 * HOUR, 1_800.0));
    let later = (0..batches).flat_map(|batch| (1..=12).map(move |at| (batch, at)));
    arrivals.extend(later.map(|(batch, at)| small(24 + 12 * batch + at, 300.0 + 600.0 * f64::from(batch))));
    (job_id(LARGE), arrivals)
}

#[test]
fn a_large_job_starts_among_small_ones_that_never_end() {
    let wait = |objective| {
        let (large, arrivals) = crowd(60);
        wait_of(large, objective, nodes(16), arrivals)
    };
    let (goodput, easy) = (wait(Objective::Goodput), wait(Objective::FifoBackfill));
    let ratio = goodput.waited.unwrap().0 / easy.waited.unwrap().0;
    assert!(ratio <= 1.5, "{ratio}: {goodput:?}, EASY {easy:?}");
    assert!(goodput.idle <= easy.idle, "{goodput:?}, EASY {easy:?}");
}

#[test]
fn a_job_without_a_known_end_does_not_start_on_what_is_promised() {
    let start = round(vec![node(1, "alpha", 8)], vec![rigid(1, 4)]);
    let mut input = after(&start, &planned(&start));
    input.jobs[0].bounds.time_left = Some(Seconds(3_000.0));
    let mut large = rigid(2, 8);
    large.claim.waited = Seconds(8_000.0);
    input.jobs.extend([large, rigid(3, 4)]);
    assert_eq!(Rights::of(&input).promised, Some((job_id(2), Seconds(3_000.0))));
    assert!(!planned(&input).assignments.contains_key(&job_id(3)), "nobody knows whether it ends in time");
    input.jobs[2].bounds.time_left = Some(Seconds(2_000.0));
    assert!(planned(&input).assignments.contains_key(&job_id(3)), "it ends in time");
}

/// A job that is pinned to some GPUs of a node, and how long it may still run.
fn pinned_job(input: &PlanInput, number: u32, (node, gpus): (usize, Range<usize>), left: f64) -> PlanJob {
    let node = &input.nodes[node];
    let mut job = rigid(number, gpus.len() as u32);
    job.bounds.time_left = Some(Seconds(left));
    let slice = NodeSlice { node: node.node, gpus: node.gpus[gpus].to_vec() };
    job.freedom = Freedom::Fixed { reason: "pinned".into() };
    job.current = Some(bare(Placement::try_new(vec![slice]).unwrap()));
    job
}

#[test]
fn nodes_are_kept_for_a_large_job_while_as_many_gpus_lie_elsewhere() {
    let mut input = nodes(3);
    let places = [((0, 0..1), 9_000.0), ((0, 4..8), 300.0), ((1, 0..4), 500.0), ((2, 0..8), 600.0)];
    for (number, (place, left)) in (1..).zip(places) {
        let job = pinned_job(&input, number, place, left);
        input.jobs.push(job);
    }
    let mut large = rigid(LARGE, 16);
    large.claim.waited = Seconds(8_000.0);
    let mut small = rigid(5, 4);
    small.bounds.time_left = Some(Seconds(3_000.0));
    input.jobs.extend([small, large]);
    // The second and the third node come free first. The first has three GPUs left, and eight later.
    assert_eq!(Rights::of(&input).promised, Some((job_id(LARGE), Seconds(600.0))));
    let plan = planned(&input);
    let verdict = &plan.report.jobs[&job_id(5)];
    assert!(!plan.assignments.contains_key(&job_id(5)), "it would still be on the second node after 600 s");
    assert!(verdict.headline.contains("nodes with enough GPUs left are kept for job-5000"), "{}", verdict.headline);
    input.jobs[4].bounds.time_left = Some(Seconds(500.0));
    let placement = &planned(&input).assignments[&job_id(5)].placement;
    assert_eq!(placement.first_node(), input.nodes[1].node, "it ends by then");
}

#[test]
fn the_wait_until_a_job_is_due_goes_by_how_long_it_runs() {
    let due_after = |mut job: PlanJob, limit: Option<f64>| {
        let mut input = nodes(1);
        job.bounds.time_left = limit.map(|hours| Seconds(hours * HOUR));
        input.jobs = vec![job];
        Rights::of(&input).due_after[&job_id(1)].0 / HOUR
    };
    let limits = [Some(0.5), Some(6.0), Some(100.0), None];
    // Within an hour and sixteen, from less for a job of one size. Without an end it is a turn.
    assert_eq!(limits.map(|limit| due_after(job(1, 4, 8), limit)), [1.0, 6.0, 16.0, 4.0]);
    assert_eq!(limits.map(|limit| due_after(rigid(1, 4), limit)), [0.5, 3.0, 16.0, 2.0]);
    assert_eq!(
        limits.map(|limit| due_after(rigid(1, 5), limit)),
        [1.0 / 3.0, 2.0, 16.0, 4.0 / 3.0],
        "over half of the node"
    );
}

/// Rounding of the clock.
const SLACK: Seconds = Seconds(0.001);

/// Small jobs: GPUs, seconds since the one before, limit, and the share of the limit that is needed.
fn small_jobs(gpus: &'static [u32]) -> impl Strategy<Value = Vec<(u32, f64, f64, f64)>> {
    let one = (select(gpus), 5.0..120.0f64, 300.0..HOUR, 0.1..1.0f64);
    proptest::collection::vec(one, 60..160)
}

/// A cluster, and how many of its nodes the large job needs.
fn nodes_and_wanted() -> impl Strategy<Value = (u32, u32)> {
    (2u32..6).prop_flat_map(|cluster| (Just(cluster), 1 + cluster / 2..=cluster))
}

/// A cluster, and for several large jobs how many of its nodes each needs, and when it comes.
fn nodes_and_several_wanted() -> impl Strategy<Value = (u32, Vec<(u32, f64)>)> {
    let wanted = |cluster| proptest::collection::vec((1 + cluster / 2..=cluster, 0.0..2_000.0f64), 2..=3);
    (2u32..6).prop_flat_map(move |cluster| (Just(cluster), wanted(cluster)))
}

/// Follows large jobs, each of so many nodes and coming after so many seconds, among small ones until they have started.
/// `hold` sees each round before. Returns when each starts.
fn follow_large(
    cluster: u32,
    large: &[(u32, f64)],
    small: &[(u32, f64, f64, f64)],
    mut hold: impl FnMut(&PlanInput) -> Result<(), TestCaseError>,
) -> Result<BTreeMap<JobId, Timestamp>, TestCaseError> {
    let mut at = 0.0;
    let mut arrivals: Vec<Arrival> = Vec::new();
    for (number, &(gpus, gap, limit, share)) in (1..).zip(small) {
        at += gap;
        arrivals.push(script(number, gpus, at, limit, limit * share));
    }
    arrivals.extend((LARGE..).zip(large).map(|(number, &(nodes, comes))| script(number, 8 * nodes, comes, HOUR, HOUR)));
    arrivals.sort_by(|a, b| a.after.0.total_cmp(&b.after.0));
    let mut input = nodes(cluster);
    input.policy.patience = Some(Seconds(600.0));
    let mut stream = Stream::new(input, arrivals);
    let (mut started, wanted) = (BTreeMap::new(), large.len() as u32);
    loop {
        hold(&stream.input)?;
        let plan = stream.plan();
        for job in (LARGE..LARGE + wanted).map(job_id).filter(|job| plan.assignments.contains_key(job)) {
            started.entry(job).or_insert(stream.input.now);
        }
        if started.len() == large.len() {
            return Ok(started);
        }
        prop_assert!(stream.advance(&plan), "it never starts");
    }
}

/// Large jobs that wait.
fn waiting(input: &PlanInput) -> impl Iterator<Item = &PlanJob> {
    input.jobs.iter().filter(|job| job.job >= job_id(LARGE) && job.current.is_none())
}

/// Checks that what is promised to a large job never recedes, and that the job has started by then.
fn hold_promises(cluster: u32, large: &[(u32, f64)], small: &[(u32, f64, f64, f64)]) -> Result<(), TestCaseError> {
    let mut least: BTreeMap<JobId, Timestamp> = BTreeMap::new();
    let started = follow_large(cluster, large, small, |input| {
        let Some((to, after)) = Rights::of(input).promised.filter(|(to, _)| *to >= job_id(LARGE)) else {
            return Ok(());
        };
        let promised = input.now + after;
        let before = *least.get(&to).unwrap_or(&promised);
        prop_assert!(promised <= before + SLACK, "what is promised to {to} recedes by {:?}", promised.since(before));
        least.insert(to, before.min(promised));
        Ok(())
    })?;
    for (job, promised) in least {
        let late = started[&job].since(promised).0;
        prop_assert!(late <= SLACK.0, "{job} starts {late} s after the promised moment");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..super::config() })]

    #[test]
    fn a_large_job_stays_due_until_it_starts(
        (cluster, wanted) in nodes_and_wanted(),
        small in small_jobs(&[1, 2, 4, 8]),
        comes in 0.0..2_000.0f64,
    ) {
        let mut was_due = false;
        follow_large(cluster, &[(wanted, comes)], &small, |input| {
            for job in waiting(input) {
                let is_due = Rights::of(input).is_due(job);
                prop_assert!(is_due || !was_due, "no longer due after {:?}", job.claim.waited);
                was_due = is_due;
            }
            Ok(())
        })?;
    }

    #[test]
    fn the_moment_promised_to_a_large_job_never_recedes(
        (cluster, wanted) in nodes_and_wanted(),
        small in small_jobs(&[1, 2, 4, 8, 16]),
        comes in 0.0..2_000.0f64,
    ) {
        hold_promises(cluster, &[(wanted, comes)], &small)?;
    }

    #[test]
    fn of_several_large_jobs_none_starts_later_than_promised(
        (cluster, large) in nodes_and_several_wanted(),
        small in small_jobs(&[1, 2, 4, 8, 16]),
    ) {
        hold_promises(cluster, &large, &small)?;
    }

    #[test]
    fn newcomers_change_no_right_of_those_that_wait(
        AnyRound(input) in any_round(6),
        newcomers in jobs(4),
    ) {
        let before = Rights::of(&input);
        let mut with = input.clone();
        for (number, mut job) in (100..).zip(newcomers) {
            (job.job, job.claim.waited, job.claim.ran) = (job_id(number), Seconds(0.0), Seconds(0.0));
            with.jobs.push(job);
        }
        let after = Rights::of(&with);
        for job in &input.jobs {
            prop_assert_eq!(before.due_after.get(&job.job), after.due_after.get(&job.job), "{}", job.name);
        }
        prop_assert_eq!(before.promised, after.promised);
    }
}
