//! How much hangs on each job: by how much the others' ends come sooner per unit of its work. What a job does is worth
//! that times the GPUs' work it does, so that a round serves those first whose end lets most others go on.
//!
//! heSRPT (Berg, Vesilo, Harchol-Balter 2020) gives the shares of a cluster for which the sum of all ends is least where k GPUs work at the
//! rate kᵖ: (i/m)^(1/(1−p)) − ((i−1)/m)^(1/(1−p)) to the i-th largest of m jobs. They are those that make Σ Jᵢ·rateᵢ greatest with
//! Jᵢ = (i^(1/(1−p)) − (i−1)^(1/(1−p)))^(1−p). p = 0 weighs all alike; towards 1 it becomes shortest remaining work first.

use headway_types::GpuSeconds;

use crate::candidate::Options;
use crate::input::PlanJob;
use crate::round::Round;
use crate::value::Quanta;

/// Whatever is left of a job, it is not sorted finer than this.
const LEAST_WORK: f64 = 300.0;
/// A job whose end nobody knows has at least so much left.
const UNKNOWN: GpuSeconds = GpuSeconds(3_600.0);
/// What is left of a job that runs counts so much.
const HOLDER: f64 = 0.95;
/// However many have less to do, a job keeps this share of the urgency of the middle one.
const LEAST_URGENCY: f64 = 0.1;

/// Multiplies the worth of everything a job could have by its urgency, and makes it comparable between jobs: what the
/// fair share brings a job is worth as many GPUs as it would need at its most productive. What a change must gain goes neither
/// by urgency nor by weight: the GPU-time that a stop and a start take is lost to all, however little hangs on the job that is disturbed.
pub(crate) fn weigh(round: &Round<'_>, options: &mut [Options<'_>]) {
    let urgencies = urgencies(round, options);
    for (of, urgency) in options.iter_mut().zip(urgencies) {
        let factor = urgency * of.measure.share;
        let share = of.measure.share;
        (of.urgency, of.scale, of.move_penalty) = (urgency, factor, of.move_penalty * share);
        for one in &mut of.candidates {
            // Of what is worth the same to it the faster GPUs: of a job that says nothing of its work it is all that can be known.
            let slower = one.shape.map_or(0, |shape| i64::from(round.cluster.faster_kinds(shape.class)));
            one.charge *= share;
            one.value = Quanta(Quanta::of(one.value.units() * factor - one.charge).0 - slower);
        }
        of.present_value = Quanta::of(of.present_value.units() * factor);
    }
}

fn urgencies(round: &Round<'_>, options: &[Options<'_>]) -> Vec<f64> {
    let p = round.input.policy.shortest_first;
    if p <= 0.0 || options.is_empty() {
        return vec![1.0; options.len()];
    }
    let left: Vec<f64> = options.iter().map(|of| to_rank(of).max(LEAST_WORK)).collect();
    let mut order: Vec<usize> = (0..options.len()).collect();
    let submitted = |job: usize| options[job].job.submitted_at;
    order.sort_by(|&a, &b| left[b].total_cmp(&left[a]).then(submitted(b).cmp(&submitted(a))).then(b.cmp(&a)));
    let power = 1.0 / (1.0 - p);
    let middle = (order.len() + 1) as f64 / 2.0;
    // In units of the rank, or the powers of many jobs would not be finite.
    let of_rank = |i: f64| i * libm::pow(1.0 - libm::pow((i - 1.0) / i, power), 1.0 - p) / middle;
    let mut urgencies = vec![1.0; options.len()];
    // Of jobs whose ends nobody knows none comes before another that has had as much.
    let unknown = |job: usize| !is_known(options[job].job);
    let mut before = 0;
    for alike in order.chunk_by(|&a, &b| unknown(a) && unknown(b) && left[a] == left[b]) {
        let middle_rank = before as f64 + (alike.len() + 1) as f64 / 2.0;
        alike.iter().for_each(|&job| urgencies[job] = of_rank(middle_rank).max(LEAST_URGENCY));
        before += alike.len();
    }
    urgencies
}

/// What a job is ranked by. Who runs and has an end counts as nearer to it than he is, so that of two who are all but equal the newcomer does
/// not stop the elder, to be stopped by him a while later.
fn to_rank(of: &Options<'_>) -> f64 {
    let holds = of.job.current.is_some() && is_known(of.job);
    work(of) * if holds { HOLDER } else { 1.0 }
}

/// Whether anybody can say how much a job has left.
pub(crate) fn is_known(job: &PlanJob) -> bool {
    job.remaining.is_some() || job.bounds.time_left.is_some() || job.bounds.budget_left.is_some()
}

/// Returns the GPU-seconds that a job has left at its most productive, with its start if it waits. A job without a target
/// or a limit has as much left as it has had (lives are heavy-tailed: one that has run long will run long), in powers of
/// two, so that ranks do not change every round. A script of which nothing is known cannot shrink for others: that it
/// has run long is not held against it.
pub(crate) fn work(of: &Options<'_>) -> f64 {
    let job = of.job;
    let (per_gpu, least) = (of.measure.per_gpu, f64::from(of.measure.least.0));
    let known = job.remaining.filter(|_| per_gpu > 0.0).map(|left| left.0.max(0.0) / (per_gpu * of.measure.useful));
    let limit = job.bounds.time_left.map(|left| left.0 * least / of.measure.useful);
    let budget = job.bounds.budget_left.map(|left| left.0);
    let unknown = || match job.work.is_opaque() {
        true => UNKNOWN.0 * least,
        false => libm::exp2(libm::ceil(libm::log2(job.claim.attained.0.max(UNKNOWN.0)))),
    };
    let bound = limit.into_iter().chain(budget).fold(f64::INFINITY, f64::min);
    known.unwrap_or_else(|| if bound.is_finite() { bound } else { unknown() }).min(bound)
}

#[cfg(test)]
mod tests {
    use headway_types::spec::Priority;
    use headway_types::{GpuSeconds, NodeSlice, Placement, Tokens};

    use super::*;
    use crate::builder::{bare, job, node, node_id, rigid, round};
    use crate::candidate;
    use crate::cluster::Cluster;
    use crate::curves::CurveCache;
    use crate::project::Tree;

    fn urgencies_of(jobs: Vec<PlanJob>, shortest_first: f64) -> Vec<f64> {
        let mut input = round(vec![node(1, "alpha", 8)], jobs);
        input.policy.shortest_first = shortest_first;
        let (cluster, tree) = (Cluster::new(&input), Tree::new(&input.projects));
        let round = Round::new(&input, &cluster, &tree);
        let mut curves = CurveCache::new();
        let options: Vec<_> = input.jobs.iter().map(|job| candidate::options(&round, job, &mut curves)).collect();
        urgencies(&round, &options)
    }

    fn with(number: u32, tokens: f64) -> PlanJob {
        PlanJob { remaining: Some(Tokens(tokens)), ..job(number, 1, 8) }
    }

    #[test]
    fn the_i_th_largest_weighs_as_hesrpt_says() {
        // p = 1/2: √(2i − 1), here over the middle rank, 2.
        let found = urgencies_of(vec![with(1, 3e9), with(2, 1e9), with(3, 2e9)], 0.5);
        let told = [1.0_f64, 5.0, 3.0].map(|square| square.sqrt() / 2.0);
        assert!(found.iter().zip(told).all(|(found, told)| (found - told).abs() < 1e-9), "{found:?}");
        assert_eq!(urgencies_of(vec![with(1, 3e9), with(2, 1e9)], 0.0), [1.0, 1.0]);
    }

    #[test]
    fn of_two_who_are_all_but_equal_the_one_that_runs_comes_first() {
        let gpus = node(1, "alpha", 8).gpus[..1].to_vec();
        let placement = Placement::try_new(vec![NodeSlice { node: node_id(1), gpus }]).expect("a placement");
        let running = |left| PlanJob { current: Some(bare(placement.clone())), ..with(1, left) };
        let found = urgencies_of(vec![running(1.03e9), with(2, 1e9)], 0.9);
        assert!(found[0] > found[1], "{found:?}");
        let found = urgencies_of(vec![running(1.2e9), with(2, 1e9)], 0.9);
        assert!(found[0] < found[1], "{found:?}");
    }

    #[test]
    fn a_long_job_of_low_priority_is_no_cheaper_to_disturb_than_a_short_one_of_high() {
        let gpus = |of: std::ops::Range<usize>| node(1, "alpha", 8).gpus[of].to_vec();
        let placed =
            |of| Placement::try_new(vec![NodeSlice { node: node_id(1), gpus: gpus(of) }]).expect("a placement");
        let running = |number, left, priority, of| PlanJob {
            current: Some(bare(placed(of))),
            priority: Priority(priority),
            ..with(number, left)
        };
        let input =
            round(vec![node(1, "alpha", 8)], vec![running(1, 9e11, 25, 0..2), running(2, 1e9, 75, 2..4), with(3, 1e8)]);
        let (cluster, tree) = (Cluster::new(&input), Tree::new(&input.projects));
        let round = Round::new(&input, &cluster, &tree);
        let mut curves = CurveCache::new();
        let mut options: Vec<_> = input.jobs.iter().map(|job| candidate::options(&round, job, &mut curves)).collect();
        weigh(&round, &mut options);
        let (long, short) = (&options[0], &options[1]);
        assert!(long.urgency < 0.9 * short.urgency, "{} {}", long.urgency, short.urgency);
        assert!((long.move_penalty - short.move_penalty).abs() < 1e-9 && long.move_penalty > 0.0);
        let charges = |of: &Options<'_>| of.candidates.iter().map(|one| (one.charge * 1e9) as i64).collect::<Vec<_>>();
        assert_eq!(charges(long), charges(short));
    }

    #[test]
    fn nobody_whose_end_is_unknown_comes_before_another_that_has_had_as_much() {
        let mut old = job(3, 1, 8);
        old.claim.attained = GpuSeconds(1e6);
        let mut longer = rigid(5, 2);
        longer.claim.attained = GpuSeconds(1e6);
        let found = urgencies_of(vec![job(1, 1, 8), job(2, 4, 8), old, rigid(4, 2), longer], 0.9);
        assert!(found[0] == found[1] && found[2] < found[0], "{found:?}");
        assert_eq!(found[3], found[4]);
    }
}
