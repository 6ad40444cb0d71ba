#![allow(clippy::unwrap_used)]
//! Layers of several kinds in parameters, memory and time.

use headway_types::{AttentionWindow, Experts, LayerKinds, ModelShape, RecurrentKind, RecurrentLayers};

use crate::architecture::Architecture;
use crate::catalog::Catalog;
use crate::collective::Cluster;
use crate::estimate::step_time_of;
use crate::examples::llama3_8b;
use crate::memory::memory_of;
use crate::physics::Parameters;
use crate::strategy::{Sharding, Strategy};

fn with(kinds: LayerKinds) -> ModelShape {
    ModelShape { kinds: Some(kinds), ..llama3_8b() }
}

fn window(layers: u32, tokens: u32) -> LayerKinds {
    let window = AttentionWindow { layers, tokens, chunked: false };
    LayerKinds { window: Some(window), ..LayerKinds::default() }
}

fn mamba2(layers: u32) -> RecurrentLayers {
    RecurrentLayers {
        layers,
        kind: RecurrentKind::Mamba2,
        heads: 128,
        head_width: 64,
        state: 128,
        groups: 8,
        convolution: 4,
        rank: 0,
    }
}

fn hybrid(layers: u32) -> ModelShape {
    with(LayerKinds { recurrent: Some(mamba2(layers)), ..LayerKinds::default() })
}

/// Seconds of a step and bytes of activations on eight GPUs.
fn estimate(shape: &ModelShape) -> (f64, f64) {
    let hardware = Catalog::built_in().find("H100-80G").unwrap();
    let profile = Parameters::built_in().profile(None);
    let strategy = Strategy { dp: 8, sharding: Sharding::Parameters, ..Strategy::single() };
    let cluster = Cluster::usual(&hardware, &profile, 8);
    let architecture = Architecture::from(shape);
    let time = step_time_of(&architecture, &strategy, &cluster).total().0;
    (time, memory_of(&architecture, &strategy, &cluster).activations)
}

#[test]
fn kinds_that_change_nothing_change_no_estimate() {
    let plain = estimate(&llama3_8b());
    let same = estimate(&with(window(32, 8192)));
    assert!((same.0 / plain.0 - 1.0).abs() < 1e-12 && (same.1 / plain.1 - 1.0).abs() < 1e-12);
    let (plain, same) = (Architecture::from(&llama3_8b()), Architecture::from(&with(LayerKinds::default())));
    assert_eq!(plain.parameters(), same.parameters());
    let ratio = same.training_flops_per_token() / plain.training_flops_per_token();
    assert!((ratio - 1.0).abs() < 1e-12, "{ratio}");
}

#[test]
fn a_window_saves_what_its_layers_do_not_attend_to() {
    let long = |shape: ModelShape| ModelShape { seq_len: 65_536, ..shape };
    let (whole, _) = estimate(&long(llama3_8b()));
    let (half, _) = estimate(&long(with(window(16, 1024))));
    let (all, _) = estimate(&long(with(window(32, 1024))));
    assert!(all < half && half < whole, "{all} {half} {whole}");
    assert!(((whole - half) / (whole - all) - 0.5).abs() < 0.01, "{all} {half} {whole}");
    let flops = |shape: ModelShape| Architecture::from(&long(shape)).training_flops_per_token();
    let attended = 2.0 * 1024.0 - 1024.0 * 1024.0 / 65_536.0;
    let saved = 3.0 * 2.0 * 16.0 * (65_536.0 - attended) * 4096.0;
    let ours = flops(llama3_8b()) - flops(with(window(16, 1024)));
    assert!((ours / saved - 1.0).abs() < 1e-9, "{ours} against {saved}");
}

#[test]
fn a_recurrence_costs_the_same_per_token_at_any_length() {
    let per_token = |layers, seq_len| {
        let (time, _) = estimate(&ModelShape { seq_len, ..hybrid(layers) });
        time / f64::from(seq_len)
    };
    let growth = |layers| per_token(layers, 131_072) / per_token(layers, 32_768);
    assert!(growth(32) < 1.02 && growth(28) < growth(0) && growth(0) > 1.5, "{} {}", growth(28), growth(0));
}

#[test]
fn layers_of_one_part_cost_and_hold_half_of_those_with_both() {
    // As many attentions and FFNs, each on a layer of its own.
    let kinds = LayerKinds { ffn_only: 32, without_ffn: 32, ..LayerKinds::default() };
    let split = ModelShape { layers: 64, ..with(kinds) };
    let (plain, split_size) = (Architecture::from(&llama3_8b()), Architecture::from(&split));
    assert_eq!(plain.parameters(), split_size.parameters());
    let (plain, split) = (estimate(&llama3_8b()), estimate(&split));
    assert!((split.0 / plain.0 - 1.0).abs() < 0.03, "{} against {}", split.0, plain.0);
    assert!((split.1 / plain.1 - 1.0).abs() < 1e-9, "{} against {}", split.1, plain.1);
}

#[test]
fn experts_on_some_layers_count_where_they_are() {
    let experts = Experts { count: 16, active: 2, ffn_hidden: 14_336, shared_ffn_hidden: 0, dense_layers: 16 };
    let plain = ModelShape { experts: Some(experts), ..llama3_8b() };
    let windowed = ModelShape { kinds: window(8, 4096).into(), ..plain };
    let (plain, windowed) = (Architecture::from(&plain), Architecture::from(&windowed));
    assert_eq!(plain.parameters(), windowed.parameters());
    assert_eq!(plain.active_parameters(), windowed.active_parameters());
    let bare = LayerKinds { without_ffn: 8, ..LayerKinds::default() };
    let bare = ModelShape { experts: Some(experts), ..with(bare) };
    assert_eq!((bare.dense_layers(), bare.expert_layers()), (16, 8));
    assert!(estimate(&bare).0 > 0.0);
}

#[test]
fn recurrent_layers_hold_their_own_parameters_in_place_of_attention() {
    let (none, all) = (Architecture::from(&hybrid(0)), Architecture::from(&hybrid(32)));
    assert_eq!(none.parameters(), Architecture::from(&llama3_8b()).parameters());
    let layer = crate::recurrent::recurrent_parameters(4096, &mamba2(1));
    let attention = none.attention_parameters();
    let difference = all.parameters() - none.parameters();
    assert!((difference / (32.0 * (layer - attention)) - 1.0).abs() < 1e-9);
    assert!(estimate(&hybrid(32)).1 > 0.0);
}
