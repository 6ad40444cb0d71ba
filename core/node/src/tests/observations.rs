use headway_types::{
    Bytes, Configuration, Generation, GpuUuid, Layout, NodeReport, NoiseSample, Seconds, Sequences, StepReport, Tokens,
};
use proptest::prelude::*;

use super::{at, job};
use crate::Observations;

const EVERY: Seconds = Seconds(10.0);
const GENERATION: Generation = Generation(2);

fn report(step: u64, steps: u32, batch: u64) -> StepReport {
    StepReport {
        job: job(1),
        generation: GENERATION,
        step,
        steps,
        samples_seen: Sequences(step * 16),
        tokens: Tokens(f64::from(steps) * 100.0),
        duration: Seconds(f64::from(steps) * 0.5),
        configuration: Configuration {
            layout: Layout { dp: 2, tp: 1, pp: 1, ..Layout::single() },
            micro_batch: Sequences(1),
            global_batch: Sequences(batch),
        },
        loss: Some(step as f64),
        noise: Some(NoiseSample { small_sqr: step as f64, big_sqr: 1.0, small_batch: 4.0, big_batch: 16.0 }),
        preconditioned: None,
        memory_peak: None,
    }
}

fn open() -> Observations {
    let mut observations = Observations::new(EVERY);
    observations.open(job(1), GENERATION, &[gpu(0), gpu(1)]);
    observations
}

fn gpu(index: u32) -> GpuUuid {
    GpuUuid(format!("GPU-{index}"))
}

fn steps(reports: &[NodeReport]) -> Vec<StepReport> {
    let steps = |report: &NodeReport| match report {
        NodeReport::Steps { report } => Some(report.as_ref().clone()),
        _ => None,
    };
    reports.iter().filter_map(steps).collect()
}

#[test]
fn the_first_step_goes_out_at_once_and_the_rest_once_per_interval() {
    let mut observations = open();
    assert_eq!(steps(&observations.steps(at(0), report(1, 1, 16))), [report(1, 1, 16)]);
    assert_eq!(observations.steps(at(1), report(2, 1, 16)), []);
    assert_eq!(observations.steps(at(9), report(5, 3, 16)), []);
    assert_eq!(observations.next_due(), Some(at(11)));
    assert_eq!(observations.due(at(10)), []);
    let sum = &steps(&observations.due(at(11)))[0];
    assert_eq!((sum.step, sum.steps, sum.samples_seen), (5, 4, Sequences(80)));
    assert_eq!((sum.tokens, sum.duration), (Tokens(400.0), Seconds(2.0)));
    assert_eq!(sum.loss, Some((2.0 + 3.0 * 5.0) / 4.0));
    assert_eq!(sum.noise.unwrap().small_sqr, (2.0 + 3.0 * 5.0) / 4.0);
    assert_eq!((observations.due(at(60)), observations.next_due()), (vec![], None));
}

#[test]
fn a_change_of_batch_goes_out_at_once_behind_what_was_before() {
    let mut observations = open();
    let _ = observations.steps(at(0), report(1, 1, 16));
    let _ = observations.steps(at(1), report(2, 1, 16));
    let out = steps(&observations.steps(at(2), report(3, 1, 32)));
    assert_eq!(out, [report(2, 1, 16), report(3, 1, 32)]);
    let _ = observations.steps(at(3), report(4, 1, 32));
    let flushed: Vec<NodeReport> = observations.flush(job(1), GENERATION).into_iter().collect();
    assert_eq!(steps(&flushed), [report(4, 1, 32)]);
}

#[test]
fn a_report_that_comes_twice_is_not_added_twice() {
    let mut observations = open();
    let _ = observations.steps(at(0), report(1, 1, 16));
    let _ = observations.steps(at(1), report(2, 1, 16));
    assert_eq!(steps(&observations.steps(at(1), report(2, 1, 16))), [report(2, 1, 16)], "each stands for itself");
}

#[test]
fn what_is_not_a_number_spoils_no_mean() {
    let mut observations = open();
    let _ = observations.steps(at(0), report(1, 1, 16));
    let _ = observations.steps(at(1), report(2, 1, 16));
    let mut broken = report(3, 1, 16);
    broken.loss = Some(f64::NAN);
    broken.noise.as_mut().unwrap().big_sqr = f64::INFINITY;
    let _ = observations.steps(at(1), broken);
    let sum = &steps(&observations.close(job(1), GENERATION))[0];
    assert_eq!((sum.steps, sum.loss, sum.noise), (2, Some(2.0), report(2, 1, 16).noise));
}

#[test]
fn ranks_are_told_by_their_mean_step_and_only_while_the_group_is_open() {
    let mut observations = open();
    for (second, rank, steps, busy) in [(0, 0, 1, 1.0), (1, 0, 3, 2.0), (2, 7, 2, 5.0), (3, 7, 0, 9.0)] {
        observations.busy(at(second), job(1), GENERATION, rank, steps, Seconds(busy));
    }
    observations.busy(at(3), job(1), GENERATION, 7, 1, Seconds(f64::NAN));
    assert_eq!(observations.due(at(29)), []);
    let busy = [(0, Seconds(0.75)), (7, Seconds(2.5))].into();
    assert_eq!(observations.due(at(30)), [NodeReport::RankTimes { job: job(1), generation: GENERATION, busy }]);
    assert_eq!(observations.close(job(1), GENERATION), []);
    observations.busy(at(31), job(1), GENERATION, 0, 1, Seconds(1.0));
    assert_eq!(observations.steps(at(31), report(9, 1, 16)), []);
    assert_eq!(observations.next_due(), None);
}

proptest! {
    /// Whatever is summed up and whenever it goes out, sums and means are those of the single reports.
    #[test]
    fn nothing_is_lost_or_invented(parts in prop::collection::vec((1_u32..5, 0_i64..8, any::<bool>()), 1..40)) {
        let mut observations = open();
        let (mut now, mut step, mut said, mut heard) = (0, 0, Vec::new(), Vec::new());
        for (count, pause, with_noise) in parts {
            now += pause;
            step += u64::from(count);
            let mut one = report(step, count, 16);
            one.noise = one.noise.filter(|_| with_noise);
            said.push(one.clone());
            heard.extend(observations.steps(at(now), one));
            heard.extend(observations.due(at(now)));
        }
        heard.extend(observations.close(job(1), GENERATION));
        let heard = steps(&heard);
        let total = |reports: &[StepReport], of: &dyn Fn(&StepReport) -> f64| reports.iter().map(of).sum::<f64>();
        let close = |one: f64, other: f64| (one - other).abs() <= 1e-9 * one.abs().max(1.0);
        for of in [
            &(|one: &StepReport| f64::from(one.steps)) as &dyn Fn(&StepReport) -> f64,
            &|one| one.tokens.0,
            &|one| one.duration.0,
            &|one| one.loss.unwrap_or(0.0) * f64::from(one.steps),
        ] {
            prop_assert!(close(total(&said, of), total(&heard, of)));
        }
        prop_assert_eq!(heard.last().map(|one| one.samples_seen), said.last().map(|one| one.samples_seen));
        prop_assert_eq!(observations.next_due(), None);
    }
}

#[test]
fn what_devices_say_of_memory_counts_from_the_first_step_until_the_configuration_changes() {
    let mut observations = open();
    let used = |observations: &mut Observations, gibibytes: [u64; 3]| {
        let of = |(index, used): (u32, u64)| (gpu(index), Bytes(used << 30));
        observations.memory(&(0..).zip(gibibytes).map(of).collect());
    };
    let peak = |observations: &mut Observations, of: StepReport| {
        let out = observations.steps(at(1), of);
        let flushed = observations.flush(job(1), GENERATION);
        steps(&out.into_iter().chain(flushed).collect::<Vec<_>>()).last().unwrap().memory_peak
    };
    used(&mut observations, [90, 10, 0]);
    assert_eq!(peak(&mut observations, report(1, 1, 16)), None, "it was still loading");
    used(&mut observations, [20, 30, 99]);
    used(&mut observations, [25, 10, 99]);
    assert_eq!(peak(&mut observations, report(2, 1, 16)), Some(Bytes(30 << 30)), "the third GPU is another's");
    assert_eq!(peak(&mut observations, report(3, 1, 32)), None, "what is held may be left over");
    used(&mut observations, [20, 30, 0]);
    assert_eq!(peak(&mut observations, report(4, 1, 32)), None);
}

#[test]
fn a_scripts_own_figure_of_memory_wins_from_then_on() {
    let mut observations = open();
    let own = StepReport { memory_peak: Some(Bytes(7)), ..report(1, 1, 16) };
    assert_eq!(steps(&observations.steps(at(0), own))[0].memory_peak, Some(Bytes(7)));
    observations.memory(&[(gpu(0), Bytes(9))].into());
    assert_eq!(observations.steps(at(1), report(2, 1, 16)), []);
    assert_eq!(steps(&observations.due(at(60)))[0].memory_peak, None);
}
