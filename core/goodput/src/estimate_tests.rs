#![allow(clippy::unwrap_used)]

use headway_types::ModelShape;
use proptest::prelude::*;

use super::*;
use crate::catalog::Catalog;
use crate::examples::{gpt3_175b, llama2_7b, llama3_8b};
use crate::physics::{Parameters, Traits};
use crate::strategy::{Recompute, Schedule, Strategy};

fn time(architecture: &Architecture, gpu: &str, stack: Option<&str>, strategy: Strategy) -> StepTime {
    let hardware = Catalog::built_in().find(gpu).unwrap();
    let profile = Parameters::built_in().profile(stack);
    step_time_of(architecture, &strategy, &Cluster::usual(&hardware, &profile, strategy.gpus().min(8)))
}

/// Korthikanti et al. 2022, table 5: 175 B parameters on 64 A100s in interleaved stages.
fn korthikanti(sequence_parallel: bool, recompute: Recompute) -> f64 {
    let strategy = Strategy {
        tp: 8,
        pp: 8,
        vpp: 3,
        micro_batches: 64,
        precision: Precision::Fp16,
        fused_attention: false,
        sequence_parallel,
        recompute,
        ..Strategy::single()
    };
    time(&Architecture::from(&gpt3_175b()), "A100-80G", Some("megatron"), strategy).total().0
}

#[test]
fn published_step_times_of_175_billion_parameters_come_out_within_a_tenth() {
    let (full, selective) = (korthikanti(false, Recompute::Full), korthikanti(true, Recompute::Selective));
    assert!((full / 18.13 - 1.0).abs() < 0.1, "{full}");
    assert!((selective / 13.75 - 1.0).abs() < 0.1, "{selective}");
}

#[test]
fn interleaving_divides_the_bubble_and_multiplies_the_transfers() {
    let at = |vpp| {
        let strategy = Strategy { tp: 8, pp: 8, vpp, micro_batches: 64, ..Strategy::single() };
        time(&Architecture::from(&gpt3_175b()), "A100-80G", None, strategy)
    };
    assert!((at(1).pipeline_bubble.0 / at(4).pipeline_bubble.0 - 4.0).abs() < 1e-9);
    assert!((at(4).pipeline_transfers.0 / at(1).pipeline_transfers.0 - 4.0).abs() < 1e-9);
}

#[test]
fn transfers_behind_other_chunks_cost_what_filling_and_draining_takes() {
    let hardware = Catalog::built_in().find("H100-80G").unwrap();
    let transfers = |overlapped_transfers, vpp, micro_batches| {
        let mut profile = Parameters::built_in().profile(None);
        profile.traits.overlapped_transfers = overlapped_transfers;
        let strategy = Strategy { tp: 8, pp: 8, vpp, micro_batches, ..Strategy::single() };
        let cluster = Cluster::usual(&hardware, &profile, 8);
        step_time_of(&Architecture::from(&gpt3_175b()), &strategy, &cluster).pipeline_transfers.0
    };
    assert!((transfers(false, 4, 64) / transfers(true, 4, 64) - 4.0 * 64.0 / 7.0).abs() < 1e-9);
    assert_eq!(transfers(true, 4, 64), transfers(true, 4, 128));
    assert_eq!(transfers(true, 1, 64), transfers(false, 1, 64));
}

#[test]
fn stages_cut_by_cost_leave_room_for_the_output_projection() {
    assert_eq!(StageLayers::cut(32, 4, 0.0, true), StageLayers { first: 8.0, other: 8.0, last: 8.0 });
    assert_eq!(StageLayers::cut(32, 4, 4.0, true), StageLayers { first: 9.0, other: 9.0, last: 5.0 });
    assert_eq!(StageLayers::cut(32, 4, 4.0, false), StageLayers { first: 8.0, other: 8.0, last: 8.0 });
    assert_eq!(StageLayers::cut(29, 4, 0.0, false), StageLayers { first: 8.0, other: 8.0, last: 8.0 });
    assert_eq!(
        StageLayers::cut(30, 4, 0.0, false),
        StageLayers { first: 7.0, other: 8.0, last: 7.0 },
        "with embedding and projection 32"
    );
}

#[test]
fn a_stage_without_a_layer_is_noticed_where_stages_are_cut_by_cost_and_where_there_are_more_than_layers() {
    let empty = |layers, hidden, pp, vpp, stack| {
        let shape = ModelShape { layers, hidden, ffn_hidden: 4 * hidden, vocab: 131_072, ..llama2_7b() };
        leaves_a_stage_empty(
            &Architecture::from(&shape),
            &Strategy { pp, vpp, ..Strategy::single() },
            &Parameters::built_in().profile(stack),
        )
    };
    // A wide vocabulary weighs as much as several narrow layers, which leaves too few for the last of sixteen stages.
    assert!(empty(16, 2048, 16, 1, Some("nanotron")) && !empty(16, 2048, 8, 1, Some("nanotron")));
    assert!(!empty(16, 2048, 16, 1, None) && empty(16, 2048, 16, 2, None) && empty(16, 2048, 17, 1, None));
}

#[test]
fn small_buckets_make_reducing_over_many_nodes_slow() {
    let base = Strategy { dp: 256, ..Strategy::single() };
    let hardware = Catalog::built_in().find("H100-80G").unwrap();
    let reduction = |small_buckets, sharding| {
        let mut profile = Parameters::built_in().profile(None);
        profile.traits = Traits { small_buckets, ..Traits::default() };
        let cluster = Cluster::usual(&hardware, &profile, 8);
        step_time_of(&Architecture::from(&llama2_7b()), &Strategy { sharding, ..base }, &cluster).data_collectives.0
    };
    let sharded = Sharding::Optimizer { group: None };
    assert!(reduction(true, Sharding::None) > 1.5 * reduction(false, Sharding::None));
    assert!(reduction(true, sharded) > 1.5 * reduction(false, sharded));
}

#[test]
fn broadcasting_weights_takes_longer_with_every_node_unless_shards_stay_within_one() {
    let hardware = Catalog::built_in().find("A100-80G").unwrap();
    let longer = |dp, group| {
        let at = |broadcast_weights| {
            let mut profile = Parameters::built_in().profile(None);
            profile.traits = Traits { broadcast_weights, ..Traits::default() };
            profile.physics.straggling = 0.0;
            let strategy = Strategy { dp, sharding: Sharding::Optimizer { group }, ..Strategy::single() };
            let cluster = Cluster::usual(&hardware, &profile, 8);
            step_time_of(&Architecture::from(&llama2_7b()), &strategy, &cluster).data_collectives.0
        };
        at(true) - at(false)
    };
    assert!((longer(256, None) / longer(64, None) - 31.0 / 7.0).abs() < 1e-6);
    assert_eq!((longer(256, Some(8)), longer(8, None)), (0.0, 0.0));
}

#[test]
fn sharded_parameters_cost_communication_that_breadth_first_pays_once() {
    let base = Strategy { dp: 64, micro_batches: 8, sharding: Sharding::Parameters, ..Strategy::single() };
    let gathered =
        |strategy| time(&Architecture::from(&llama2_7b()), "A100-80G", None, strategy).parameter_collectives.0;
    let once = Strategy { schedule: Schedule::BreadthFirst, ..base };
    assert!(gathered(base) > gathered(once) && gathered(once) > 0.0);
    assert_eq!(gathered(Strategy { sharding: Sharding::None, ..base }), 0.0);
}

#[test]
fn offloading_trades_time_for_memory() {
    let base = Strategy { tp: 4, micro_batches: 8, ..Strategy::single() };
    let at = |offload| time(&Architecture::from(&llama2_7b()), "A100-80G", None, Strategy { offload, ..base });
    assert_eq!(at(Offload::None).offload.0, 0.0);
    assert!(at(Offload::Host).offload.0 > at(Offload::None).optimizer.0);
    assert!(at(Offload::Disk).offload.0 > at(Offload::Host).offload.0);
}

#[test]
fn narrow_numbers_help_only_where_the_hardware_has_them() {
    let at = |gpu, precision| {
        let strategy = Strategy { tp: 2, micro_batches: 8, precision, ..Strategy::single() };
        time(&Architecture::from(&llama3_8b()), gpu, None, strategy).total().0
    };
    assert!(at("H100-80G", Precision::Fp8) < 0.85 * at("H100-80G", Precision::Bf16));
    assert_eq!(at("A100-80G", Precision::Fp8), at("A100-80G", Precision::Bf16));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn every_term_of_every_strategy_is_finite_and_never_negative(
        powers in prop::array::uniform6(0u32..5), micro_batches in 1u64..200, sequence_parallel: bool,
        fused_attention: bool, sharding in 0usize..5, recompute in 0usize..3, precision in 0usize..5,
        gpu in prop::sample::select(vec!["A100-80G", "MI300X", "RTX 4090", "GB200"]),
    ) {
        let [dp, tp, pp, cp, vpp, micro_batch] = powers.map(|power| 1u32 << power);
        let sharding = [
            Sharding::None, Sharding::Optimizer { group: None }, Sharding::Gradients, Sharding::Parameters,
            Sharding::ParametersInNode,
        ][sharding];
        let strategy = Strategy {
            dp, tp: tp.min(8), pp, cp, ep: 1, vpp, micro_batch: u64::from(micro_batch), micro_batches, sequence_parallel,
            fused_attention, sharding,
            recompute: [Recompute::None, Recompute::Selective, Recompute::Full][recompute],
            precision: [Precision::Bf16, Precision::Fp16, Precision::Fp32, Precision::Fp8, Precision::Fp4][precision],
            ..Strategy::single()
        };
        let time = time(&Architecture::from(&llama3_8b()), gpu, None, strategy);
        for (name, seconds) in time.terms() {
            prop_assert!(seconds.0.is_finite() && seconds.0 >= -1e-12, "{name}: {seconds:?}");
        }
        let sum: f64 = time.terms().iter().map(|(_, seconds)| seconds.0).sum();
        prop_assert!((sum / time.total().0 - 1.0).abs() < 1e-9);
    }
}
