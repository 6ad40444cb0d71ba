#![allow(clippy::unwrap_used)]

use headway_types::spec::Work;
use headway_types::{Configuration, GpuCount, Layout, NodeClass, NodeCount, Sequences};
use proptest::prelude::*;

use super::*;
use crate::examples::{emulated_class, report, tiny, training};
use crate::model::JobModel;

const GPUS: GpuCount = GpuCount(4);
const NODE: NodeCount = NodeCount(1);

fn new() -> JobModel {
    JobModel::new(training(Work::Model(tiny()), 16, (8, 256)))
}

fn at(accumulation: u64) -> Configuration {
    let layout = Layout { dp: 4, tp: 1, pp: 1, ..Layout::single() };
    Configuration { layout, micro_batch: Sequences(2), global_batch: Sequences(8 * accumulation) }
}

/// A job whose steps take `factor` times what the prior says.
fn measured(factor: f64) -> JobModel {
    let mut model = new();
    for accumulation in [1, 2, 4, 8].repeat(4) {
        let at = at(accumulation);
        let prior = model.prior_step_time(&emulated_class(4), GPUS, NODE, &at).unwrap().total().0;
        model.observe(&emulated_class(4), NODE, &report(at, 10, 10.0 * factor * prior));
    }
    model
}

fn shown(models: &[JobModel]) -> Option<Lessons> {
    Lessons::default().renewed(models.iter().flat_map(JobModel::lessons))
}

fn step_time(model: &JobModel) -> Corrected {
    model.step_time(&emulated_class(4), GPUS, NODE, &at(4)).unwrap()
}

#[test]
fn a_newcomer_is_thought_as_fast_as_the_middle_of_its_like_if_less_surely() {
    let peers = [measured(1.1), measured(1.3), measured(1.9)];
    let mut newcomer = new();
    let before = step_time(&newcomer);
    newcomer.learn(&shown(&peers).unwrap());
    let (after, own) = (step_time(&newcomer), step_time(&peers[1]));
    assert!((after.time.0 / own.time.0 - 1.0).abs() < 0.02, "{after:?} {own:?}");
    assert!(own.relative_error < after.relative_error && after.relative_error < before.relative_error);
}

#[test]
fn whoever_was_measured_himself_believes_himself() {
    let mut own = measured(1.1);
    let before = step_time(&own);
    let lessons = shown(&[measured(1.6)]).unwrap();
    assert_eq!(own.news(&lessons), None);
    own.learn(&lessons);
    assert_eq!(step_time(&own), before);
}

#[test]
fn other_kinds_and_other_gpus_learn_nothing_of_it() {
    let lessons = shown(&[measured(1.6)]).unwrap();
    let mut other = new();
    other.training.precision = Precision::Fp32;
    assert_eq!(other.news(&lessons), None);
    let mut alike = new();
    let elsewhere = |model: &JobModel| {
        let class = NodeClass { gpu_type: GpuType("other".into()), ..emulated_class(4) };
        model.step_time(&class, GPUS, NODE, &at(4)).unwrap()
    };
    let before = elsewhere(&alike);
    alike.learn(&lessons);
    assert_eq!(elsewhere(&alike), before);
    assert_eq!(shown(&[new()]), None, "who was never measured teaches nothing");
}

#[test]
fn what_has_hardly_moved_is_not_taught_again_and_what_nobody_shows_stays() {
    let lessons = shown(&[measured(1.3)]).unwrap();
    let renewed = |models: &[JobModel]| lessons.renewed(models.iter().flat_map(JobModel::lessons));
    assert_eq!(renewed(&[measured(1.305)]), None);
    assert_eq!(renewed(&[]), None);
    assert!(renewed(&[measured(1.5)]).is_some());
}

#[test]
fn lessons_are_read_back_as_they_were_written() {
    let lessons = shown(&[measured(1.6)]).unwrap();
    let written = serde_json::to_string(&lessons).unwrap();
    assert_eq!(serde_json::from_str::<Lessons>(&written).unwrap(), lessons);
}

proptest! {
    #[test]
    fn a_median_lies_among_what_was_shown(all in prop::collection::vec((-900..900i32, -900..900i32, 0..90_000u64), 1..9)) {
        let lessons: Vec<Lesson> = all.iter().map(|&(micro, step, extra)| Lesson { micro, step, extra }).collect();
        let median = Lesson::median(lessons.clone()).unwrap();
        let within = |part: fn(&Lesson) -> i64| {
            let parts = lessons.iter().map(part);
            parts.clone().min().unwrap() <= part(&median) && part(&median) <= parts.max().unwrap()
        };
        prop_assert!(within(|one| one.micro.into()) && within(|one| one.step.into()) && within(|one| one.extra as i64));
    }
}
