#![allow(clippy::unwrap_used)]

use headway_types::spec::{
    BatchPolicy, ExecutionLimits, GpuRange, LayoutLimits, SizeLayouts, Target, TargetCount, Work,
};
use headway_types::{Bytes, Experts, NoiseSample, Offload, Recompute, Schedule, Sharding, StepReport, Tokens};
use proptest::prelude::*;
use strum::VariantArray;

use super::*;
use crate::batches::{GRID, batch_grid, interleaved};
use crate::examples::{class_of, emulated_class, llama3_8b, report, tiny, training};
use crate::mixed::{ahead_of, of_gang};

fn range(min: u32, max: u32) -> GpuRange {
    GpuRange { min: GpuCount(min), max: GpuCount(max), sizes: vec![], types: vec![], mixed: false }
}

/// A report of one step that says nothing of its time.
fn silent(configuration: Configuration) -> StepReport {
    report(configuration, 1, f64::NAN)
}

/// A model whose φ has been measured, in sequences.
fn with_noise_scale(mut model: JobModel, phi: f64) -> JobModel {
    let class = emulated_class(64);
    let layout = Layout { dp: 4, tp: 1, pp: 1, ..Layout::single() };
    let configuration = Configuration { layout, micro_batch: Sequences(1), global_batch: Sequences(64) };
    let noise = NoiseSample { small_sqr: 1.0 + phi, big_sqr: 1.0 + phi / 64.0, small_batch: 1.0, big_batch: 64.0 };
    let mut report = StepReport { noise: Some(noise), ..silent(configuration) };
    for step in 1..50 {
        report.step = step;
        model.observe(&class, NodeCount(1), &report);
    }
    assert!((model.critical_batch().0 / (phi * 64.0) - 1.0).abs() < 1e-6);
    model
}

#[test]
fn a_large_model_gets_a_layout_that_fits_its_gpus() {
    let model = JobModel::new(training(Work::Model(llama3_8b()), 256, (64, 1024)));
    let class = class_of("H100-80G", 8);
    assert!(model.best(&class, GpuCount(2), NodeCount(1)).unwrap().unlikely);
    let refusal = model.best(&class, GpuCount(1), NodeCount(1)).unwrap_err();
    assert!(refusal.is_memory(), "{refusal}");
    let refusal = model.best(&class_of("A100-40G", 8), GpuCount(2), NodeCount(1)).unwrap_err();
    assert!(refusal.is_memory());
    assert!(
        !refusal.to_string().starts_with("dp2 tp1 pp1"),
        "the refusal shows the layout that needs least: {refusal}"
    );
    let offer = model.best(&class, GpuCount(8), NodeCount(1)).unwrap();
    let layout = offer.configuration.unwrap().layout;
    assert!(layout.tp * layout.pp >= 2 && !offer.unlikely, "{layout}");
    let two_nodes = model.best(&class, GpuCount(16), NodeCount(2)).unwrap();
    assert!(two_nodes.prediction.goodput.0 > 1.5 * offer.prediction.goodput.0);
}

#[test]
fn each_size_takes_the_layouts_that_are_named_for_it() {
    let mut model = JobModel::new(training(Work::Model(llama3_8b()), 256, (64, 1024)));
    let named = |tp, pp| SizeLayouts { tp: vec![tp], pp: vec![pp], ..SizeLayouts::default() };
    model.training.layouts.sizes = [(GpuCount(8), named(8, 1)), (GpuCount(16), named(4, 4))].into();
    let class = class_of("H100-80G", 8);
    let chosen = |gpus, nodes| {
        let layout = model.best(&class, GpuCount(gpus), NodeCount(nodes)).unwrap().configuration.unwrap().layout;
        (layout.dp, layout.tp, layout.pp)
    };
    assert_eq!((chosen(8, 1), chosen(16, 2)), ((1, 8, 1), (1, 4, 4)));
    let other = Layout { dp: 2, tp: 4, pp: 1, ..Layout::single() };
    assert!(model.check_layout(&class, GpuCount(8), NodeCount(1), other).is_err());
}

/// A target that credits batches below the reference.
fn credited(credit: bool) -> Option<Target> {
    credit.then_some(Target { tokens: Tokens(1e9), count: TargetCount::Reference })
}

#[test]
fn the_batch_falls_below_the_reference_only_where_that_is_credited() {
    let batch_at = |credit| {
        let mut model = with_noise_scale(JobModel::new(training(Work::Model(tiny()), 64, (8, 1024))), 1.0);
        model.training.target = credited(credit);
        model.best(&emulated_class(8), GpuCount(2), NodeCount(1)).unwrap().configuration.unwrap().global_batch
    };
    assert!(batch_at(true) < Sequences(64));
    assert_eq!(batch_at(false), Sequences(64));
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

/// Under the norm test; φ in sequences.
fn norm_tested(phi: f64, reference: u64, batch: (u64, u64)) -> JobModel {
    let mut model = with_noise_scale(JobModel::new(training(Work::Model(tiny()), reference, batch)), phi);
    model.training.batch_policy = BatchPolicy::NormTest { eta: 0.5.try_into().unwrap() };
    model
}

#[test]
fn under_the_norm_test_the_noise_alone_chooses_the_batch() {
    let batch_at = |phi, gpus| {
        let model = norm_tested(phi, 16, (8, 1024));
        model.best(&emulated_class(8), GpuCount(gpus), NodeCount(1)).unwrap().configuration.unwrap().global_batch.0
    };
    assert_eq!([1, 4, 8].map(|gpus| batch_at(32.0, gpus)), [128; 3], "whatever the throughput");
    assert_eq!(batch_at(1.0, 8), 64, "the reports came from a batch of 64");
    assert_eq!(batch_at(1e4, 8), 1024, "the largest that the recipe allows");
}

#[test]
fn before_the_noise_is_known_the_norm_test_keeps_the_reference_batch() {
    let mut model = JobModel::new(training(Work::Model(tiny()), 32, (8, 1024)));
    model.training.batch_policy = BatchPolicy::NormTest { eta: 0.1.try_into().unwrap() };
    let at = model.best(&emulated_class(8), GpuCount(8), NodeCount(1)).unwrap().configuration.unwrap();
    assert_eq!(at.global_batch, Sequences(32));
    assert!(!model.wants_more_than(Sequences(32)) && model.wants_more_than(Sequences(24)));
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
            prop_assert!(!emulated || (at.layout.tp == 1 && at.layout.execution.is_plain()));
            prop_assert!(offer.prediction.goodput.0 > 0.0);
        }
    }

    #[test]
    fn no_batch_of_the_grid_beats_the_one_found(phi in 2.0..3000.0f64, dp in 1u32..17, credit: bool) {
        let mut model = with_noise_scale(JobModel::new(training(Work::Model(tiny()), 16, (8, 2048))), phi);
        model.training.target = credited(credit);
        let (class, gpus, layout) = (emulated_class(16), GpuCount(dp), Layout { dp, tp: 1, pp: 1, ..Layout::single() });
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
    fn the_norm_tests_batch_divides_stays_in_range_and_never_falls(
        phis in prop::collection::vec(0.5..5000.0f64, 2..8), dp in 1u32..17, max in 64u64..2000,
    ) {
        let (class, gpus, layout) = (emulated_class(16), GpuCount(dp), Layout { dp, tp: 1, pp: 1, ..Layout::single() });
        let (mut running, mut asked) = (Sequences(64), 0.0f64);
        for phi in phis {
            let mut model = norm_tested(phi, 16, (8, max));
            model.hold_batch(running);
            let (found, _) = model.best_batch(&class, gpus, NodeCount(1), layout).unwrap();
            let batch = found.global_batch;
            prop_assert!(found.accumulation().is_some() && (8..=max).contains(&batch.0));
            // The most that divides may lie below the range's end.
            let most = max / u64::from(dp) * u64::from(dp);
            prop_assert!(batch >= running.min(Sequences(most)), "{batch} after {running}");
            asked = asked.max(phi / 0.25);
            // At the end of the range a step less is near enough.
            let enough = if asked.max(64.0) * GRID < max as f64 { asked } else { most as f64 / GRID };
            prop_assert!(batch.0 as f64 >= enough * (1.0 - 1e-6), "{batch} for {asked}");
            prop_assert!((batch.0 as f64) < 2.0 * asked.max(64.0) + f64::from(dp), "{batch} for {asked}");
            running = batch;
        }
    }

    #[test]
    fn the_batch_found_is_near_its_closed_form(phi in 8.0..2000.0f64, dp in 2u32..17, credit: bool) {
        let mut model = with_noise_scale(JobModel::new(training(Work::Model(tiny()), 16, (1, 100_000))), phi);
        model.training.target = credited(credit);
        let (class, gpus, layout) = (emulated_class(16), GpuCount(dp), Layout { dp, tp: 1, pp: 1, ..Layout::single() });
        let (found, _) = model.best_batch(&class, gpus, NodeCount(1), layout).unwrap();
        let time = |batch: u64| {
            let at = Configuration { layout, micro_batch: Sequences(1), global_batch: Sequences(batch) };
            model.step_time(&class, gpus, NodeCount(1), &at).unwrap().time.0
        };
        let dp = u64::from(dp);
        let slope = (time(2 * dp) - time(dp)) / dp as f64;
        let intercept = time(dp) - slope * dp as f64;
        let closed = (intercept * phi / slope).sqrt().max(if credit { dp as f64 } else { 16.0 });
        let ratio = found.global_batch.0 as f64 / closed;
        // One step of the grid, and the rounding to multiples of dp.
        let slack = GRID * (1.0 + dp as f64 / closed);
        prop_assert!(ratio < slack && ratio > 1.0 / slack, "{} against {closed}", found.global_batch);
    }
}

/// Scripts from the plainest to one that knows everything.
fn scripts() -> impl Strategy<Value = ExecutionLimits> {
    let pick = |all: &'static [Vec<u32>]| prop::sample::select(all);
    let degrees: &'static [Vec<u32>] = Box::leak(Box::new([vec![1], vec![1, 2], vec![2], vec![1, 2, 4]]));
    let sharding = prop::sample::subsequence(Sharding::VARIANTS.to_vec(), 1..=4);
    let recompute = prop::sample::subsequence(Recompute::VARIANTS.to_vec(), 1..=3);
    let schedule = prop::sample::subsequence(Schedule::VARIANTS.to_vec(), 1..=3);
    let offload = prop::sample::subsequence(Offload::VARIANTS.to_vec(), 1..=2);
    let flags = any::<[bool; 3]>();
    (pick(&degrees[..2]), pick(degrees), pick(degrees), schedule, sharding, recompute, offload, flags).prop_map(
        |(cp, ep, vpp, schedule, sharding, recompute, offload, flags)| ExecutionLimits {
            cp,
            ep,
            vpp,
            schedule,
            sharding,
            recompute,
            offload,
            sequence_parallel: flags[0],
            uneven_stages: flags[1],
            uneven_shares: flags[2],
        },
    )
}

/// Dense, of experts alone, and with layers of both kinds.
fn shapes() -> impl Strategy<Value = ModelShape> {
    let experts = Experts { count: 8, active: 2, ffn_hidden: 2_048, shared_ffn_hidden: 0, dense_layers: 0 };
    let mixed = Experts { shared_ffn_hidden: 1_024, dense_layers: 2, ..experts };
    let kinds = prop::sample::select(vec![None, None, Some(experts), Some(mixed)]);
    let vocab = prop::sample::select(vec![32_000, 128_256]);
    (kinds, prop::sample::select(vec![1024u32, 4096, 8192]), prop::sample::select(vec![32, 30]), vocab)
        .prop_map(|(experts, seq_len, layers, vocab)| ModelShape { seq_len, layers, experts, vocab, ..llama3_8b() })
}

/// The norm test, and the batch that the job has come to.
fn norm_tests() -> impl Strategy<Value = (BatchPolicy, Sequences)> {
    (0.1..1.0f64, 0u64..300)
        .prop_map(|(eta, held)| (BatchPolicy::NormTest { eta: eta.try_into().unwrap() }, Sequences(held)))
}

/// A job that has run a while on the class, with step times off the prior by factors.
fn taught(mut model: JobModel, class: &NodeClass, gpus: GpuCount, nodes: NodeCount, off: [f64; 2]) -> JobModel {
    let Ok((at, _)) = model.best(class, gpus, nodes).map(|best| (best.configuration.unwrap(), best.prediction)) else {
        return model;
    };
    let prior = model.prior_step_time(class, gpus, nodes, &at).unwrap();
    let seconds = prior.micro() * off[0] + prior.step() * off[1] + prior.overhead;
    let report = report(at, 1, seconds.0);
    for _ in 0..9 {
        model.observe(class, nodes, &report);
    }
    model
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pruning_never_drops_the_best_of_everything(
        gpus in prop::sample::select(vec![1u32, 2, 4, 6, 8, 16, 24]), max_batch in 16u64..300, micro in 1u64..17,
        shape in shapes(), gpu in prop::sample::select(vec!["A100-40G", "A100-80G", "H100-80G", "B200"]),
        execution in scripts(), off in prop::array::uniform2(0.3..3.0f64), norm_test in prop::option::of(norm_tests()),
        credit: bool, one_pipeline: bool, spread in 1u32..3, faster in 0u32..3,
    ) {
        let mut training = training(Work::Model(shape), 16, (8, max_batch));
        // Where there is but one way to divide, it is the memory of its micro-batches that decides.
        let (tp, pp) = if one_pipeline { (vec![1], vec![gpus]) } else { (vec![], vec![]) };
        training.layouts = LayoutLimits { execution, ..LayoutLimits::degrees(tp, pp, Sequences(micro)) };
        training.target = credited(credit);
        let gpus = GpuCount(gpus);
        let nodes = NodeCount(gpus.0.div_ceil(8) * if gpus.0.is_multiple_of(2) { spread } else { 1 });
        let fast = if gpu == "A100-80G" { "H100-80G" } else { "B200" };
        let (slow, fast, faster) = (class_of(gpu, 8), class_of(fast, 8), NodeCount(faster.min(nodes.0 - 1)));
        let class = of_gang([(&slow, NodeCount(nodes.0 - faster.0)), (&fast, faster)]).unwrap();
        let class = if faster.0 == 0 { slow } else { class };
        let mut model = taught(JobModel::new(training), &class, gpus, nodes, off);
        if let Some((policy, held)) = norm_test {
            model.training.batch_policy = policy;
            model.hold_batch(held);
        }
        let lead = Known::new(model.prior_times(&class).unwrap()).lead;
        let room = Room { shape: &shape, limits: &model.training.layouts, class: &class, gpus, nodes, lead };
        let mut all: Vec<(Rank, Layout, f64)> = Vec::new();
        // Bytes that the least of what is only unlikely to fit needs.
        let mut risk = f64::INFINITY;
        let mut needs = f64::INFINITY;
        for layout in room.degrees().into_iter().flat_map(|degrees| everything(&room, degrees)) {
            let mut best: Option<(Rank, Layout, f64)> = None;
            for micro_batch in (0..=micro.ilog2()).map(|power| Sequences(1 << power)) {
                let quantum = layout.micro_batches() * micro_batch.0 * interleaved(layout);
                let (range, wanted) = (model.training.batch, model.wanted_batch());
                let mut weighed = |global_batch| {
                    let configuration = Configuration { layout, micro_batch, global_batch };
                    needs = needs.min(model.memory(&class, &configuration).map_or(f64::INFINITY, |needed| needed.bytes));
                    let prediction = model.predict(&class, gpus, nodes, &configuration).ok()?;
                    if let Some((needed, _)) = model.unlikely_to_fit(&class, &configuration) {
                        risk = risk.min(needed);
                        return None;
                    }
                    Some((Rank::of(range, wanted, &configuration, prediction.goodput.0), prediction))
                };
                // The norm test has one batch; goodput chooses among all.
                let weighed: Vec<_> = match wanted {
                    Some(wanted) => {
                        let grid = wanted.grid(range, quantum, micro_batch);
                        grid.into_iter().rev().find_map(&mut weighed).into_iter().collect()
                    }
                    None => batch_grid(range, quantum).into_iter().filter_map(weighed).collect(),
                };
                for (rank, prediction) in weighed {
                    if best.as_ref().is_none_or(|best| rank > best.0) {
                        best = Some((rank, layout, prediction.goodput.0));
                    }
                }
            }
            all.extend(best);
        }
        all.sort_by_key(|(rank, ..)| core::cmp::Reverse(*rank));
        // Layouts that cost the same as a plainer one are not told apart, nor are they better for having no room for the batch that the norm
        // test wants of them.
        let least = room.degrees().first().map(|degrees| degrees.execution);
        let degrees = |layout: &Layout| {
            let Execution { cp, ep, shares, .. } = layout.execution;
            Layout { execution: Execution { cp, ep, shares, ..least.unwrap() }, ..*layout }
        };
        let distinct = all.iter().filter(|(_, layout, _)| room.executions(degrees(layout)).any(|one| one == *layout));
        let distinct: Vec<f64> = distinct.map(|(.., goodput)| *goodput).collect();
        match (all.first(), model.ranked(&class, gpus, nodes, 4)) {
            (Some(_), Ok(found)) => {
                let found: Vec<f64> = found.iter().map(|offer| offer.prediction.goodput.0).collect();
                let single = model.best(&class, gpus, nodes).unwrap().prediction.goodput.0;
                prop_assert!((single / found[0] - 1.0).abs() < 1e-5, "{single} against {found:?}");
                prop_assert_eq!(found.len(), distinct.len().min(4));
                for (found, exhaustive) in found.iter().zip(&distinct) {
                    prop_assert!((found / exhaustive - 1.0).abs() < 1e-5, "{found:?} against {distinct:?}");
                }
            }
            (None, Err(refusal)) => {
                prop_assert!(risk.is_infinite(), "{risk} bytes may fit");
                if let Infeasible::Memory { needed_mib, .. } = refusal {
                    prop_assert_eq!(needed_mib, (needs / 1048576.0).ceil() as u64, "what needs least is told");
                }
            }
            (None, Ok(found)) => {
                // Of what is unlikely to fit that which needs least.
                for offer in found {
                    let (needed, _) = model.unlikely_to_fit(&class, &offer.configuration.unwrap()).unwrap();
                    prop_assert!(offer.unlikely && needed < 1.01 * risk, "{needed} bytes against {risk}");
                }
            }
            (exhaustive, found) => prop_assert!(false, "{exhaustive:?} against {found:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_other_sizes_have_shown_changes_no_answer(
        min_batch in 1u64..40, more in 0u64..300, micro in 1u64..17, shape in shapes(), execution in scripts(),
        gpu in prop::sample::select(vec!["A100-40G", "H100-80G"]), off in prop::array::uniform2(0.3..3.0f64),
        peak in prop::option::of(0.7..1.4f64), ran_out: bool, ahead in 0u32..4,
    ) {
        let mut training = training(Work::Model(shape), 16, (min_batch, min_batch + more));
        training.layouts.max_micro_batch = Sequences(micro);
        training.layouts.execution = execution;
        let alone = class_of(gpu, 8);
        let ahead = ahead_of(&alone, &class_of("B200", 8), NodeCount(ahead)).filter(|_| ahead > 0);
        let class = NodeClass { ahead, ..alone };
        let mut model = taught(JobModel::new(training), &class, GpuCount(8), NodeCount(1), off);
        let at = model.best(&class, GpuCount(8), NodeCount(1)).ok().and_then(|offer| offer.configuration);
        if let (Some(at), Some(peak)) = (at, peak) {
            let bytes = peak * model.memory(&class, &at).unwrap().bytes;
            model.observe(&class, NodeCount(1), &StepReport { memory_peak: Some(Bytes(bytes as u64)), ..report(at, 1, 9.0) });
            if ran_out {
                model.exhausted(&class, &at);
            }
        }
        for point in model.curve(&class, &range(1, 32)).points {
            prop_assert_eq!(point.offer, model.best(&class, point.gpus, point.nodes), "{} GPUs", point.gpus);
        }
    }
}

/// Every layout of some degrees that the script can be told, without any pruning.
fn everything(room: &Room<'_>, degrees: Layout) -> Vec<Layout> {
    let limits = &room.limits.execution;
    let mut found = Vec::new();
    for vpp in &limits.vpp {
        for schedule in &limits.schedule {
            for sharding in &limits.sharding {
                for recompute in &limits.recompute {
                    for (offload, sequence_parallel) in
                        Offload::VARIANTS.iter().flat_map(|to| [(*to, false), (*to, true)])
                    {
                        let execution = Execution {
                            cp: degrees.execution.cp,
                            ep: degrees.execution.ep,
                            vpp: *vpp,
                            schedule: *schedule,
                            sharding: *sharding,
                            recompute: *recompute,
                            sequence_parallel,
                            offload,
                            shares: degrees.execution.shares,
                        };
                        let layout = Layout { execution, ..degrees };
                        found.extend(room.obstacle(layout).is_none().then_some(layout));
                    }
                }
            }
        }
    }
    found
}
