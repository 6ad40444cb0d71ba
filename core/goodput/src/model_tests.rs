#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use headway_types::spec::{ExecutionLimits, Target, TargetCount};
use headway_types::{Bytes, Execution, Layout, NoiseSample, Offload, Recompute, Sharding, TokensPerSecond};

use super::*;
use crate::examples::{self, class_of, emulated_class, llama3_8b, tiny, training};

fn model() -> JobModel {
    JobModel::new(training(Work::Model(tiny()), 16, (8, 256)))
}

fn at(dp: u32, micro: u64, global: u64) -> Configuration {
    let layout = Layout { dp, tp: 1, pp: 1, ..Layout::single() };
    Configuration { layout, micro_batch: Sequences(micro), global_batch: Sequences(global) }
}

fn report(configuration: Configuration, steps: u32, duration: f64, noise: Option<NoiseSample>) -> StepReport {
    StepReport { noise, ..examples::report(configuration, steps, duration) }
}

fn predicted(model: &JobModel, gpus: u32, configuration: &Configuration) -> Prediction {
    model.predict(&emulated_class(4), GpuCount(gpus), NodeCount(1), configuration).unwrap()
}

#[test]
fn goodput_is_throughput_times_efficiency() {
    let prediction = predicted(&model(), 4, &at(4, 2, 64));
    assert_eq!(prediction.throughput, Tokens(64.0 * 64.0) / prediction.step_time);
    assert_eq!(prediction.goodput, prediction.throughput * prediction.efficiency);
}

#[test]
fn before_any_measurement_the_critical_batch_is_assumed_to_be_the_reference_batch() {
    assert_eq!(model().noise_scale(), None);
    assert_eq!(model().efficiency(Sequences(16)), 1.0);
    assert_eq!(model().efficiency(Sequences(48)), 0.5);
}

#[test]
fn a_batch_below_the_reference_earns_only_where_the_target_says_so() {
    let mut model = model();
    assert_eq!(model.efficiency(Sequences(8)), 1.0, "whoever ends by itself counts tokens");
    for (count, worth) in [(TargetCount::Both, 1.0), (TargetCount::Raw, 1.0), (TargetCount::Reference, 4.0 / 3.0)] {
        model.training.target = Some(Target { tokens: Tokens(1e6), count });
        assert_eq!(model.efficiency(Sequences(8)), worth, "{count}");
        let prediction = predicted(&model, 4, &at(4, 2, 8));
        assert_eq!(prediction.credit() > TokensPerSecond(0.0), worth > 1.0, "{count}");
        assert_eq!(model.efficiency(Sequences(48)), 0.5, "a larger one costs whatever counts");
    }
}

#[test]
fn a_measured_noise_scale_takes_over_and_kappa_scales_it() {
    let noise = NoiseSample { small_sqr: 101.0, big_sqr: 1.0 + 100.0 / 16.0, small_batch: 1.0, big_batch: 16.0 };
    let mut model = model();
    for _ in 0..20 {
        model.observe(&emulated_class(4), NodeCount(1), &report(at(4, 1, 16), 4, 1.0, Some(noise)));
    }
    let (phi, error) = model.noise_scale().unwrap();
    assert!((phi - 6400.0).abs() < 1e-6 && error < 1e-3, "{phi} ± {error}");
    assert!((model.critical_batch().0 - 6400.0).abs() < 1.0);
    model.training.kappa = 2.0;
    assert!((model.critical_batch().0 - 12_800.0).abs() < 1.0);
}

#[test]
fn the_interval_holds_a_clear_noise_scale_and_has_no_upper_end_where_noise_drowns_the_gradient() {
    let told = |signal: f64| {
        let mut model = model();
        for draw in [1.0, -1.0, 0.5, -0.5, 1.0, -1.0] {
            let big = (signal + 100.0 / 16.0) * (1.0 + 0.1 * draw);
            let noise = NoiseSample { small_sqr: signal + 100.0, big_sqr: big, small_batch: 1.0, big_batch: 16.0 };
            model.observe(&emulated_class(4), NodeCount(1), &report(at(4, 1, 16), 4, 1.0, Some(noise)));
        }
        (model.noise_scale().map(|(phi, _)| phi), model.noise_interval().unwrap())
    };
    let (phi, clear) = told(10.0);
    assert!(clear.low < phi.unwrap() && Some(phi.unwrap()) < clear.high, "{phi:?} within {clear:?}");
    let (phi, drowned) = told(0.02);
    assert!(phi.is_none() && drowned.high.is_none() && drowned.low > 16.0 * 64.0, "{phi:?}, {drowned:?}");
}

#[test]
fn a_job_goes_by_the_noise_it_declares_and_counts_the_rest() {
    let of =
        |phi: f64| NoiseSample { small_sqr: 1.0 + phi, big_sqr: 1.0 + phi / 16.0, small_batch: 1.0, big_batch: 16.0 };
    let mut raw = model();
    let mut adam = model();
    adam.training.noise = NoiseKind::Adam;
    for _ in 0..20 {
        let both = StepReport { preconditioned: Some(of(10.0)), ..report(at(4, 1, 16), 1, 1.0, Some(of(100.0))) };
        raw.observe(&emulated_class(4), NodeCount(1), &both);
        adam.observe(&emulated_class(4), NodeCount(1), &both);
    }
    let phi = |model: &JobModel| model.noise_scale().unwrap().0;
    assert!((phi(&raw) - 6400.0).abs() < 1e-6 && (phi(&adam) - 640.0).abs() < 1e-6);
    assert_eq!(adam.ignored_reports(), IgnoredReports::default());

    let mut told_otherwise = model();
    told_otherwise.training.noise = NoiseKind::Adam;
    told_otherwise.observe(&emulated_class(4), NodeCount(1), &report(at(4, 1, 16), 1, 1.0, Some(of(100.0))));
    assert_eq!(told_otherwise.no_noise_scale(Some(&at(4, 1, 16))), Some(NoNoiseScale::OtherKind));
    assert_eq!(told_otherwise.ignored_reports().other_kind, 1);
}

#[test]
fn a_single_gradient_per_step_is_named_as_the_reason_for_no_noise_scale() {
    assert_eq!(model().no_noise_scale(Some(&at(1, 8, 8))), Some(NoNoiseScale::SingleGradient));
    assert_eq!(model().no_noise_scale(Some(&at(2, 4, 8))), Some(NoNoiseScale::NoReport));
}

#[test]
fn the_learning_rate_follows_the_recipes_rule() {
    let mut model = model();
    assert_eq!(model.learning_rate_factor(Sequences(64)), 2.0, "four times the batch, by the square root");
    model.training.lr_scaling = headway_types::spec::LrScaling::Linear;
    assert_eq!(model.learning_rate_factor(Sequences(64)), 4.0);
}

#[test]
fn reported_step_times_correct_what_is_predicted_elsewhere() {
    let mut model = model();
    let prior = predicted(&model, 4, &at(4, 2, 64)).step_time.0;
    for _ in 0..5 {
        model.observe(&emulated_class(4), NodeCount(1), &report(at(4, 2, 64), 10, 15.0 * prior, None));
    }
    let corrected = predicted(&model, 4, &at(4, 2, 64)).step_time.0;
    assert!((corrected / prior - 1.5).abs() < 0.05, "{}", corrected / prior);
    let elsewhere = (GpuCount(2), NodeCount(1), at(2, 2, 64));
    let before = super::JobModel::new(model.training.clone());
    let ask = |model: &JobModel| model.predict(&emulated_class(4), elsewhere.0, elsewhere.1, &elsewhere.2).unwrap();
    assert!(ask(&model).step_time.0 > 1.2 * ask(&before).step_time.0);
}

#[test]
fn refusals_say_what_to_change() {
    let (class, one) = (emulated_class(4), NodeCount(1));
    let refused = |gpus, nodes, configuration: Configuration| {
        model().predict(&class, GpuCount(gpus), nodes, &configuration).unwrap_err()
    };
    assert!(matches!(refused(4, one, at(4, 1, 512)), Infeasible::BatchOutside { .. }));
    assert!(matches!(refused(4, one, at(4, 16, 64)), Infeasible::MicroBatch { .. }));
    assert!(matches!(refused(3, one, at(3, 1, 64)), Infeasible::Indivisible { .. }));
    assert!(matches!(refused(4, one, at(2, 1, 64)), Infeasible::WrongSize { .. }));
    assert!(matches!(refused(8, one, at(8, 1, 64)), Infeasible::NodesTooSmall { .. }));
    assert!(matches!(refused(5, NodeCount(2), at(5, 1, 65)), Infeasible::Uneven { .. }));
    let tensor = Configuration { layout: Layout { dp: 2, tp: 2, pp: 1, ..Layout::single() }, ..at(4, 1, 64) };
    assert!(refused(4, one, tensor).to_string().contains("plain pipelines only"));
}

#[test]
fn a_tensor_parallel_group_never_spans_nodes() {
    let model = JobModel::new(training(Work::Model(llama3_8b()), 64, (64, 64)));
    let class = class_of("H200", 8);
    let layout = Layout { dp: 1, tp: 8, pp: 1, ..Layout::single() };
    let configuration = Configuration { layout, micro_batch: Sequences(1), global_batch: Sequences(64) };
    let ask = |nodes| model.predict(&class, GpuCount(8), NodeCount(nodes), &configuration);
    assert!(ask(1).is_ok());
    assert!(matches!(ask(2), Err(Infeasible::Layout { .. })));
}

#[test]
fn an_unknown_gpu_type_is_refused() {
    let refusal = model().best(&class_of("Potato-1G", 8), GpuCount(1), NodeCount(1)).unwrap_err();
    assert!(matches!(refusal, Infeasible::UnknownGpuType { .. }));
}

#[test]
fn a_measured_curve_learns_its_absolute_scale() {
    let points = BTreeMap::from([(GpuCount(1), 1.0), (GpuCount(4), 3.0)]);
    let mut model = JobModel::new(training(Work::Curve { points, seq_len: 64 }, 16, (16, 16)));
    let class = class_of("anything", 4);
    model.observe(&class, NodeCount(1), &report(at(4, 1, 16), 1, 2.0, None));
    let goodput = |gpus| model.best(&class, GpuCount(gpus), NodeCount(1)).unwrap().prediction.goodput.0;
    assert!((goodput(4) - 512.0).abs() < 1e-6);
    assert!((goodput(1) - 512.0 / 3.0).abs() < 1e-6);
    assert_eq!(model.efficiency(Sequences(999)), 1.0);
}

#[test]
fn a_model_survives_being_stored() {
    let mut model = model();
    let noise = NoiseSample { small_sqr: 2.0, big_sqr: 1.0, small_batch: 1.0, big_batch: 16.0 };
    for step in 0..9 {
        let duration = 1.0 + f64::from(step) * 0.01;
        model.observe(&emulated_class(4), NodeCount(1), &report(at(4, 1, 16), 4, duration, Some(noise)));
    }
    let restored: JobModel = serde_json::from_str(&serde_json::to_string(&model).unwrap()).unwrap();
    let near = |left: f64, right: f64| (left / right - 1.0).abs() < 1e-12;
    let (ours, theirs) = (predicted(&model, 4, &at(4, 2, 64)), predicted(&restored, 4, &at(4, 2, 64)));
    assert!(near(ours.step_time.0, theirs.step_time.0) && near(ours.goodput.0, theirs.goodput.0));
    assert!(near(model.noise_scale().unwrap().0, restored.noise_scale().unwrap().0));
}

/// Llama 3 70B on H100 nodes with a script that shards, recomputes and splits sequences.
fn seventy_billion() -> JobModel {
    let shape = ModelShape { layers: 80, hidden: 8192, heads: 64, ffn_hidden: 28_672, ..llama3_8b() };
    let mut training = training(Work::Model(shape), 128, (128, 512));
    training.layouts.execution = ExecutionLimits {
        sharding: vec![Sharding::None, Sharding::Optimizer],
        recompute: vec![Recompute::None, Recompute::Full],
        sequence_parallel: true,
        ..ExecutionLimits::default()
    };
    JobModel::new(training)
}

#[test]
fn a_70b_model_at_8192_tokens_fits_h100_nodes_with_sequence_parallelism_or_recomputation() {
    let (class, gpus, nodes) = (class_of("H100-80G", 8), GpuCount(32), NodeCount(4));
    let mut plain = seventy_billion();
    plain.training.layouts.execution = ExecutionLimits::default();
    let unlikely = plain.best(&class, gpus, nodes).unwrap().configuration.unwrap();
    assert!(plain.unlikely_to_fit(&class, &unlikely).is_some(), "{unlikely}");
    assert!(plain.best(&class, GpuCount(16), NodeCount(2)).unwrap_err().is_memory());
    let at = seventy_billion().best(&class, gpus, nodes).unwrap().configuration.unwrap();
    assert_eq!(seventy_billion().unlikely_to_fit(&class, &at), None);
    let execution = at.layout.execution;
    assert!(execution.sequence_parallel || execution.recompute != Recompute::None, "{at}");
}

#[test]
fn a_job_that_needs_15_per_cent_more_memory_than_modelled_runs_out_at_most_once() {
    for (gpu, count) in [("H100-80G", 32), ("H100-80G", 64), ("H100-80G", 128), ("A100-80G", 64), ("B200", 32)] {
        for excess in [1.05, 1.1, 1.15] {
            let (class, gpus, nodes) = (class_of(gpu, 8), GpuCount(count), NodeCount(count / 8));
            let mut model = seventy_billion();
            let mut ended = 0;
            while let Ok(offer) = model.best(&class, gpus, nodes) {
                let at = offer.configuration.unwrap();
                let (predicted, capacity) = model.predicted_memory(&class, &at).unwrap();
                if excess * predicted.total() <= capacity {
                    break;
                }
                ended += 1;
                model.exhausted(&class, &at);
                let refusal = model.predict(&class, gpus, nodes, &at).unwrap_err();
                assert!(refusal.to_string().contains("ran out of memory"), "{refusal}");
            }
            assert!(ended <= 1, "{ended} times on {count} {gpu} at {excess}");
        }
    }
}

#[test]
fn reported_peaks_correct_the_memory_of_layouts_not_seen() {
    let (class, gpus, nodes) = (class_of("H100-80G", 8), GpuCount(64), NodeCount(8));
    let mut model = seventy_billion();
    let found = model.ranked(&class, gpus, nodes, 2).unwrap();
    let (seen, unseen) = (found[0].configuration.unwrap(), found[1].configuration.unwrap());
    let before = model.memory(&class, &unseen).unwrap();
    let peak = Bytes((1.2 * model.memory(&class, &seen).unwrap().bytes) as u64);
    for _ in 0..5 {
        model.observe(&class, nodes, &StepReport { memory_peak: Some(peak), ..report(seen, 1, 1.0, None) });
    }
    let after = model.memory(&class, &unseen).unwrap();
    assert!(after.bytes > 1.1 * before.bytes && after.relative_error < before.relative_error);
}

#[test]
fn a_report_of_absurd_degrees_teaches_no_memory_and_breaks_nothing() {
    let class = class_of("H100-80G", 8);
    let mut model = seventy_billion();
    let before = model.memory.clone();
    for (dp, cp, ep) in [(0, 1, 1), (1, 0, 1), (1 << 16, 1 << 16, 1), (8, 1, 0)] {
        let execution = Execution { cp, ep, sharding: Sharding::Optimizer, ..Execution::PLAIN };
        let layout = Layout { dp, execution, ..Layout::single() };
        let absurd = Configuration { layout, micro_batch: Sequences(1), global_batch: Sequences(1 << 32) };
        let peak = Some(Bytes(1 << 30));
        model.observe(&class, NodeCount(1), &StepReport { memory_peak: peak, ..report(absurd, 1, 1.0, None) });
        model.exhausted(&class, &absurd);
    }
    assert_eq!(model.memory, before);
}

/// A model by name on H100 nodes, of a script that can be told some things.
fn named(name: &str, execution: ExecutionLimits) -> JobModel {
    let shape = headway_types::preset::named(name).unwrap().shape();
    let mut training = training(Work::Model(ModelShape { seq_len: 4096, ..shape }), 1024, (1024, 1024));
    training.layouts.execution = execution;
    JobModel::new(training)
}

#[test]
fn experts_are_spread_where_the_script_can_and_it_pays() {
    let (class, gpus, nodes) = (class_of("H100-80G", 8), GpuCount(64), NodeCount(8));
    let sharding = vec![Sharding::Optimizer];
    let spread = ExecutionLimits { ep: vec![1, 2, 4, 8], sharding: sharding.clone(), ..ExecutionLimits::default() };
    let able = named("mixtral-8x7b", spread).best(&class, gpus, nodes).unwrap();
    let plain = ExecutionLimits { sharding, ..ExecutionLimits::default() };
    let unable = named("mixtral-8x7b", plain).best(&class, gpus, nodes).unwrap();
    let at = able.configuration.unwrap();
    assert!(at.layout.execution.ep > 1, "{at}");
    assert!(able.prediction.goodput.0 > 1.05 * unable.prediction.goodput.0, "{able:?} {unable:?}");
    let spread = ExecutionLimits { ep: vec![1, 3, 16], ..ExecutionLimits::default() };
    let refused = |ep| {
        let layout = Layout { dp: 48, execution: Execution { ep, ..Execution::PLAIN }, ..Layout::single() };
        let room = named("mixtral-8x7b", spread.clone());
        room.check_layout(&class, GpuCount(48), NodeCount(6), layout).unwrap_err().to_string()
    };
    assert!(refused(3).ends_with("ep must divide 8 experts"), "{}", refused(3));
    assert!(refused(16).ends_with("ep must divide 8 experts"));
}

#[test]
fn optimizer_states_leave_the_device_only_where_nothing_else_fits() {
    let (class, nodes) = (class_of("H100-80G", 8), NodeCount(1));
    let offload = ExecutionLimits { offload: vec![Offload::None, Offload::Host], ..ExecutionLimits::default() };
    let mut sharded = offload.clone();
    sharded.sharding = vec![Sharding::Parameters];
    let at = |execution, gpus| {
        let found = named("llama-3-8b", execution).best(&class, GpuCount(gpus), nodes);
        found.map(|offer| offer.configuration.unwrap().layout.execution.offload)
    };
    assert_eq!(at(sharded, 8), Ok(Offload::None));
    assert_eq!(at(offload, 1), Ok(Offload::Host));
    assert!(at(ExecutionLimits::default(), 1).unwrap_err().is_memory());
}

#[test]
fn layers_are_cut_unevenly_only_by_scripts_that_can() {
    let (class, gpus, nodes) = (class_of("H100-80G", 8), GpuCount(1024), NodeCount(128));
    let megatron = |uneven_stages| ExecutionLimits {
        sharding: vec![Sharding::Optimizer],
        recompute: vec![Recompute::None, Recompute::Full],
        sequence_parallel: true,
        cp: vec![1, 2],
        vpp: vec![1, 2, 4, 8],
        uneven_stages,
        ..ExecutionLimits::default()
    };
    let of = |uneven| named("llama-3.1-405b", megatron(uneven)).best(&class, gpus, nodes);
    // 126 layers are 2 stages at most, which do not fit, and with two more 4, 8 or 16.
    assert!(of(false).unwrap_err().is_memory());
    let at = of(true).unwrap().configuration.unwrap();
    assert!(at.layout.pp >= 4, "{at}");
}

#[test]
fn eight_bit_numbers_need_a_device_that_multiplies_them() {
    let mut model =
        named("llama-3-8b", ExecutionLimits { sharding: vec![Sharding::Optimizer], ..ExecutionLimits::default() });
    let (gpus, nodes) = (GpuCount(8), NodeCount(1));
    let half = model.best(&class_of("H100-80G", 8), gpus, nodes).unwrap().prediction.goodput;
    model.training.precision = Precision::Fp8;
    let eight = model.best(&class_of("H100-80G", 8), gpus, nodes).unwrap().prediction.goodput;
    assert!((1.1..2.0).contains(&(eight.0 / half.0)), "{eight:?} {half:?}");
    let refused = model.best(&class_of("A100-80G", 8), gpus, nodes).unwrap_err();
    assert_eq!(refused.to_string(), "A100-80G does not multiply in fp8, which the job asks for");
}

#[test]
fn what_is_unlikely_to_fit_is_tried_once_where_nothing_else_is_possible() {
    let class = class_of("H100-80G", 8);
    let sharded = ExecutionLimits { sharding: vec![Sharding::Parameters], ..ExecutionLimits::default() };
    let mut model = named("llama-3-70b", sharded);
    let found = (1..40).find_map(|eights| {
        let (gpus, nodes) = (GpuCount(8 * eights), NodeCount(eights));
        let at = model.best(&class, gpus, nodes).ok()?.configuration?;
        Some((gpus, nodes, at))
    });
    let (gpus, nodes, at) = found.unwrap();
    let (needed, usable) = model.unlikely_to_fit(&class, &at).unwrap();
    assert!(needed > usable && needed < 1.5 * usable, "{needed} {usable}");
    let more = model.best(&class, GpuCount(4 * gpus.0), NodeCount(4 * nodes.0)).unwrap();
    assert_eq!(model.unlikely_to_fit(&class, &more.configuration.unwrap()), None);
    model.exhausted(&class, &at);
    let refused = model.best(&class, gpus, nodes).unwrap_err();
    assert!(refused.is_memory(), "{refused}");
}
