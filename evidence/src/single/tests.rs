#![allow(clippy::unwrap_used)]

use std::sync::OnceLock;

use headway_types::Sequences;
use headway_types::spec::BatchRange;
use proptest::prelude::*;

use super::bench::{Bench, GRID};
use super::ceiling::{Switching, batch_alone, critical, fixed, joint, kindest_critical};
use super::course::{self, Course};
use super::options::Way;
use super::question::{CASES, COURSES, Case, Question, RULES, Rules, worlds};

fn question(case: Case, course: &'static str, hours: f64) -> Question {
    let [world, ..] = worlds();
    Question { case, course, world, rules: Rules { hours, ..RULES[0] }, seed: 1 }
}

/// The set-ups of the study with their options, read once.
fn benches() -> &'static [Bench] {
    static READ: OnceLock<Vec<Bench>> = OnceLock::new();
    READ.get_or_init(|| CASES.iter().map(|case| question(*case, COURSES[0], 1.0).bench().unwrap()).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn no_policy_in_any_set_up_takes_less_than_the_ceiling(
        bench in 0..CASES.len(), course in 0..13_usize, choices in proptest::collection::vec(any::<(u32, u32)>(), 1..80),
    ) {
        let (bench, course) = (&benches()[bench], course::courses()[course]);
        let ways: &[Way] = bench.options.ways();
        // Another layout, micro-batch and batch in each part, for nothing.
        let cost = |(part, (length, phi)): (usize, (f64, f64))| {
            let (way, batch) = choices[part % choices.len()];
            let times = &ways[way as usize % ways.len()].times;
            let (batch, time) = times[batch as usize % times.len()];
            length * time * (1.0 + phi / batch as f64)
        };
        let policy: f64 = course.weights().enumerate().map(cost).sum();
        let ceiling = joint(&bench.options, &course);
        prop_assert!(policy >= ceiling * (1.0 - 1e-12), "{policy} {ceiling}");
    }
}

#[test]
fn the_batch_alone_gains_less_than_both_and_more_than_any_fixed_one() {
    for bench in benches() {
        for name in COURSES {
            let course = Course::named(name).unwrap();
            let grid = fixed(&bench.options, &course, &GRID);
            let best = grid.iter().map(|(_, cost, _)| *cost).fold(f64::INFINITY, f64::min);
            let (both, batch) = (joint(&bench.options, &course), batch_alone(&bench.options, &course));
            assert!(both <= batch && both < best, "{both} {batch} {best}");
            let switched = |threshold, layout_change| {
                Switching { threshold, layout_change, begins: 16 }.run(&bench.options, &course, 1_000.0) / 1_000.0
            };
            // Who changes for any gain and at no cost is at the ceiling.
            assert!((switched(0.0, 0.0) / both - 1.0).abs() < 1e-9 && switched(0.1, 30.0) > both);
            for (.., way) in &grid {
                assert!(kindest_critical(way, &course) >= both && critical(way, &course, 2.0) >= both);
            }
        }
    }
}

#[test]
fn step_times_lie_on_a_line_for_each_layout_and_micro_batch() {
    for way in benches().iter().flat_map(|bench| bench.options.ways()) {
        let [(from, least), .., (to, most)] = way.times[..] else { continue };
        let slope = (most - least) / (to - from) as f64;
        for (batch, time) in &way.times {
            let line = least + slope * (batch - from) as f64;
            assert!((time / line - 1.0).abs() < 1e-6, "{} mb{}: {time} {line}", way.layout, way.micro_batch);
        }
    }
}

/// A fixed batch in its fastest layout, run whole, ends when the sums say.
#[test]
fn a_fixed_batch_takes_as_long_as_is_computed() {
    let question = question(CASES[1], COURSES[0], 1.0);
    let bench = question.bench().unwrap();
    let [(batch, cost, way)] = fixed(&bench.options, &bench.course, &[64])[..] else { panic!("it fits") };
    let mut told = bench.told.clone();
    told.batch = BatchRange { min: Sequences(batch), max: Sequences(batch) };
    (told.layouts.tp, told.layouts.pp) = (vec![way.layout.tp], vec![way.layout.pp]);
    told.layouts.execution.recompute = vec![way.layout.execution.recompute];
    let steps = 3_600.0 / cost;
    let finish = question.run(&bench, &told, steps).unwrap();
    let computed = (bench.start(0.0).0 + cost * steps) / 3_600.0;
    assert!((finish.hours / computed - 1.0).abs() < 5e-3, "{finish:?} {computed}");
    assert_eq!((finish.batch_changes, finish.layout_changes, finish.restarts), (0, 0, 0));
}

#[test]
fn headway_follows_growing_noise_below_the_ceiling() {
    for case in [CASES[0], CASES[1]] {
        let answer = question(case, COURSES[0], 2.0).answer().unwrap();
        let (gain, ceiling) = (answer.gain(), answer.ceiling());
        // Steps jitter, so an hour may be a little shorter than its mean.
        assert!(gain <= ceiling + 0.2 && ceiling > 1.0, "{} of {ceiling}", gain);
        let batches: Vec<u64> = answer.headway.path.iter().map(|(_, batch)| *batch).collect();
        assert!(batches.last() > batches.first(), "{batches:?}");
    }
}
