#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use headway_types::spec::Work;
use headway_types::{Generation, JobId, NoiseSample, Seconds, StepReport, Tokens};
use proptest::prelude::*;

use super::*;
use crate::examples::{class_of, emulated_class, llama3_8b, tiny, training};

fn range(min: u32, max: u32) -> GpuRange {
    GpuRange { min: GpuCount(min), max: GpuCount(max), sizes: vec![], types: vec![] }
}

/// A model whose φ has been measured, in sequences.
fn with_noise_scale(mut model: JobModel, phi: f64) -> JobModel {
    let class = emulated_class(64);
    let layout = Layout { dp: 4, tp: 1, pp: 1 };
    let configuration = Configuration { layout, micro_batch: Sequences(1), global_batch: Sequences(64) };
    let noise = NoiseSample { small_sqr: 1.0 + phi, big_sqr: 1.0 + phi / 64.0, small_batch: 1.0, big_batch: 64.0 };
    let mut report = StepReport {
        job: JobId("00000000-0000-0000-0000-000000000000".parse().unwrap()),
        generation: Generation(1),
        step: 1,
        steps: 1,
        samples_seen: Sequences(64),
        tokens: Tokens(64.0 * 64.0),
        duration: Seconds(f64::NAN),
        configuration,
        loss: None,
        noise: Some(noise),
    };
    for step in 1..50 {
        report.step = step;
        model.observe(&class, NodeCount(1), &report);
    }
    assert!((model.critical_batch().0 / (phi * 64.0) - 1.0).abs() < 1e-6);
    model
}

#[test]
fn an_emulated_job_scales_out_data_parallel() {
    let model = JobModel::new(training(Work::Model(tiny()), 16, (16, 256)));
    let curve = model.curve(&emulated_class(4), &range(1, 8));
    let offers: BTreeMap<u32, Offer> =
        curve.points.iter().filter_map(|point| Some((point.gpus.0, point.offer.clone().ok()?))).collect();
    assert_eq!(offers[&8].configuration.unwrap().layout, Layout { dp: 8, tp: 1, pp: 1 });
    assert!(offers[&8].prediction.goodput.0 > offers[&4].prediction.goodput.0);
    assert_eq!(curve.points[4].offer, Err(Infeasible::Uneven { gpus: GpuCount(5), nodes: NodeCount(2) }));
    assert_eq!(curve.points[4].marginal, None);
}

#[test]
fn a_large_model_gets_a_layout_that_fits_its_gpus() {
    let model = JobModel::new(training(Work::Model(llama3_8b()), 256, (64, 1024)));
    let class = class_of("H100-80G", 8);
    let refusal = model.best(&class, GpuCount(2), NodeCount(1)).unwrap_err();
    assert!(refusal.is_memory());
    assert!(
        !refusal.to_string().starts_with("dp2 tp1 pp1"),
        "the refusal shows the layout that needs least: {refusal}"
    );
    let offer = model.best(&class, GpuCount(8), NodeCount(1)).unwrap();
    let layout = offer.configuration.unwrap().layout;
    assert!(layout.tp * layout.pp >= 2, "{layout}");
    let two_nodes = model.best(&class, GpuCount(16), NodeCount(2)).unwrap();
    assert!(two_nodes.prediction.goodput.0 > 1.5 * offer.prediction.goodput.0);
}

#[test]
fn a_larger_noise_scale_earns_a_larger_batch() {
    let batch_at = |phi| {
        let model = with_noise_scale(JobModel::new(training(Work::Model(tiny()), 16, (8, 1024))), phi);
        model.best(&emulated_class(8), GpuCount(8), NodeCount(1)).unwrap().configuration.unwrap().global_batch
    };
    assert!(batch_at(4.0) < batch_at(64.0));
    assert!(batch_at(64.0) < batch_at(4096.0));
}

#[test]
fn a_variable_batch_leaves_the_noise_scale_measurable() {
    let model = JobModel::new(training(Work::Model(tiny()), 4, (1, 64)));
    let at = model.best(&emulated_class(1), GpuCount(1), NodeCount(1)).unwrap().configuration.unwrap();
    assert!(at.accumulation().unwrap() >= 2, "{at}");
}

#[test]
fn a_batch_that_no_replica_count_divides_is_refused_with_its_numbers() {
    let model = JobModel::new(training(Work::Model(tiny()), 6, (6, 6)));
    let refusal = model.best(&emulated_class(4), GpuCount(4), NodeCount(1)).unwrap_err();
    assert!(refusal.to_string().contains("from 6 to 6"), "{refusal}");
    assert!(model.best(&emulated_class(4), GpuCount(3), NodeCount(1)).is_ok());
}

#[test]
fn a_measured_curve_is_interpolated_and_has_no_configuration() {
    let points = BTreeMap::from([(GpuCount(2), 1.0), (GpuCount(4), 1.8)]);
    let model = JobModel::new(training(Work::Curve { points, seq_len: 64 }, 16, (16, 16)));
    let goodput = |gpus| {
        let offer = model.best(&class_of("anything", 8), GpuCount(gpus), NodeCount(1)).unwrap();
        assert_eq!(offer.configuration, None);
        offer.prediction.goodput.0
    };
    assert_eq!([goodput(1), goodput(2), goodput(3), goodput(4), goodput(8)], [0.5, 1.0, 1.4, 1.8, 1.8]);
}

#[test]
fn the_grid_has_both_bounds_and_only_multiples() {
    let range = BatchRange { min: Sequences(10), max: Sequences(100) };
    let grid: Vec<u64> = batch_grid(range, 8).into_iter().map(|batch| batch.0).collect();
    assert_eq!(grid, [16, 24, 32, 40, 56, 80, 96]);
    assert!(batch_grid(range, 128).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn feasible_points_respect_every_limit(
        min in 1u64..40, width in 1u64..20, micro in 1u64..9, per_node in 1u32..9, largest in 1u32..24, emulated: bool,
    ) {
        let mut training = training(Work::Model(tiny()), min, (min, min * width));
        training.layouts.max_micro_batch = Sequences(micro);
        training.layouts.pp = vec![1, 2];
        let model = JobModel::new(training);
        let class = if emulated { emulated_class(per_node) } else { class_of("A100-80G", per_node) };
        for point in model.curve(&class, &range(1, largest)).points {
            let Ok(offer) = point.offer else { continue };
            let at = offer.configuration.unwrap();
            prop_assert_eq!(at.layout.gpus(), point.gpus);
            prop_assert!(at.accumulation().is_some());
            prop_assert!((min..=min * width).contains(&at.global_batch.0));
            prop_assert!(at.micro_batch.0 <= micro && at.micro_batch.0.is_power_of_two());
            prop_assert!(at.layout.pp <= 2 && 4 % at.layout.tp == 0 && at.layout.tp <= per_node);
            prop_assert!(!emulated || (at.layout.tp == 1 && at.layout.pp == 1));
            prop_assert!(offer.prediction.goodput.0 > 0.0);
        }
    }

    #[test]
    fn no_batch_of_the_grid_beats_the_one_found(phi in 2.0..3000.0f64, dp in 1u32..17) {
        let model = with_noise_scale(JobModel::new(training(Work::Model(tiny()), 16, (8, 2048))), phi);
        let (class, gpus, layout) = (emulated_class(16), GpuCount(dp), Layout { dp, tp: 1, pp: 1 });
        let (_, found) = model.best_batch(&class, gpus, NodeCount(1), layout).unwrap();
        for micro_batch in [1, 2, 4, 8].map(Sequences) {
            for global_batch in batch_grid(model.training.batch, u64::from(dp) * micro_batch.0) {
                let other = Configuration { layout, micro_batch, global_batch };
                if u64::from(dp) * other.accumulation().unwrap() < 2 {
                    continue;
                }
                let other = model.predict(&class, gpus, NodeCount(1), &other).unwrap();
                prop_assert!(other.goodput.0 <= found.goodput.0 * (1.0 + 1e-5));
            }
        }
    }

    #[test]
    fn the_batch_found_is_near_its_closed_form(phi in 8.0..2000.0f64, dp in 2u32..17) {
        let model = with_noise_scale(JobModel::new(training(Work::Model(tiny()), 16, (1, 100_000))), phi);
        let (class, gpus, layout) = (emulated_class(16), GpuCount(dp), Layout { dp, tp: 1, pp: 1 });
        let (found, _) = model.best_batch(&class, gpus, NodeCount(1), layout).unwrap();
        let time = |batch: u64| {
            let at = Configuration { layout, micro_batch: Sequences(1), global_batch: Sequences(batch) };
            model.step_time(&class, gpus, NodeCount(1), &at).unwrap().time.0
        };
        let dp = u64::from(dp);
        let slope = (time(2 * dp) - time(dp)) / dp as f64;
        let intercept = time(dp) - slope * dp as f64;
        let closed = (intercept * phi / slope).sqrt().max(dp as f64);
        let ratio = found.global_batch.0 as f64 / closed;
        // One step of the grid, and the rounding to multiples of dp.
        let slack = GRID * (1.0 + dp as f64 / closed);
        prop_assert!(ratio < slack && ratio > 1.0 / slack, "{} against {closed}", found.global_batch);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn pruning_never_drops_the_best_of_everything(
        gpus in prop::sample::select(vec![1u32, 2, 4, 6, 8, 16, 24]), max_batch in 16u64..300, micro in 1u64..17,
        seq_len in prop::sample::select(vec![1024u32, 4096, 8192]), gpu in prop::sample::select(vec!["A100-40G", "H100-80G", "B200"]),
    ) {
        let shape = ModelShape { seq_len, ..llama3_8b() };
        let mut training = training(Work::Model(shape), 16, (8, max_batch));
        training.layouts.max_micro_batch = Sequences(micro);
        let model = JobModel::new(training);
        let (class, gpus) = (class_of(gpu, 8), GpuCount(gpus));
        let nodes = NodeCount(gpus.0.div_ceil(8));
        let mut best: Option<(Configuration, Prediction)> = None;
        for layout in layouts(&model, &shape, &class, gpus, nodes) {
            for micro_batch in (0..=micro.ilog2()).map(|power| Sequences(1 << power)) {
                for global_batch in batch_grid(model.training.batch, u64::from(layout.dp) * micro_batch.0) {
                    let configuration = Configuration { layout, micro_batch, global_batch };
                    let Ok(prediction) = model.predict(&class, gpus, nodes, &configuration) else { continue };
                    let rank = |of: &(Configuration, Prediction)| model.rank(&of.0, &of.1);
                    if best.as_ref().is_none_or(|best| rank(&(configuration, prediction)) > rank(best)) {
                        best = Some((configuration, prediction));
                    }
                }
            }
        }
        match (best, model.best(&class, gpus, nodes)) {
            (Some(best), Ok(found)) => prop_assert!(found.prediction.goodput.0 >= best.1.goodput.0 * (1.0 - 1e-5), "{best:?} against {found:?}"),
            (None, Err(_)) => {}
            (exhaustive, found) => prop_assert!(false, "{exhaustive:?} against {found:?}"),
        }
    }
}
