//! What a decoder's shape means: its matrices, parameters and FLOPs, dense or with experts, with grouped or latent attention. Pure arithmetic; it
//! knows no hardware. The worker's `headway/flops.py` has the formulas of grouped attention, dense and with experts, so that an emulated device takes
//! the time this crate is about.

pub use headway_types::Experts;
use headway_types::{Latent, LayerKinds, ModelShape};

use crate::mix::LayerMix;
use crate::recurrent::{recurrent_parameters, scan_flops_per_token};

/// How queries, keys and values are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// Groups of heads share a key/value head (Ainslie et al. 2023); as many groups as heads is plain attention.
    Grouped { kv_heads: u32, head_width: u32 },
    /// Keys and values from a low-rank latent (DeepSeek-V2); widths per head.
    Latent { query_rank: Option<u32>, kv_rank: u32, plain_width: u32, rotary_width: u32, value_width: u32 },
}

/// A decoder-only transformer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Architecture {
    pub layers: u32,
    pub hidden: u32,
    pub heads: u32,
    pub attention: Attention,
    /// FFN width of layers without experts.
    pub ffn_hidden: u32,
    /// Gated MLP: three matrices instead of two.
    pub gated: bool,
    pub experts: Option<Experts>,
    pub vocab: u32,
    /// Output projection shares the embedding.
    pub tied: bool,
    pub seq_len: u32,
    /// Absent: every layer has an attention over the whole sequence and an FFN.
    pub kinds: Option<LayerKinds>,
    mix: LayerMix,
    counts: Counts,
}

/// What is asked for with every configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    /// Parameters of a layer outside its routed experts, and of these, on average over layers with and without.
    shared: f64,
    routed: f64,
    /// Cost of the output projection, in layers.
    projection: f64,
}

/// A matrix multiplication of one layer with its weights: outputs × inputs per rank, before tensor parallelism splits one of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Matrix {
    pub outputs: f64,
    pub inputs: f64,
    /// Which side tensor parallelism splits.
    pub split: Split,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    Outputs,
    Inputs,
    Neither,
}

impl From<&ModelShape> for Architecture {
    fn from(shape: &ModelShape) -> Self {
        let uncounted = Self {
            layers: shape.layers,
            hidden: shape.hidden,
            heads: shape.heads,
            attention: match shape.latent {
                Some(Latent { query_rank, kv_rank, plain_width, rotary_width, value_width }) => {
                    Attention::Latent { query_rank, kv_rank, plain_width, rotary_width, value_width }
                }
                None => Attention::Grouped {
                    kv_heads: shape.kv_heads,
                    head_width: shape.head_width.unwrap_or(shape.hidden / shape.heads.max(1)),
                },
            },
            ffn_hidden: shape.ffn_hidden,
            gated: shape.gated,
            experts: shape.experts,
            vocab: shape.vocab,
            tied: shape.tied,
            seq_len: shape.seq_len,
            kinds: shape.kinds,
            mix: LayerMix::new(shape),
            counts: Counts::default(),
        };
        Self { counts: Counts::of(&uncounted), ..uncounted }
    }
}

impl Counts {
    fn of(architecture: &Architecture) -> Self {
        let dense = f64::from(architecture.dense_layers()) / f64::from(architecture.layers);
        let (outside, routed) = architecture.layer_parameters();
        let layer = architecture.forward_layer_flops_per_token() / f64::from(architecture.layers);
        let projection = 2.0 * architecture.table_parameters() / layer.max(1.0);
        if architecture.kinds.is_some() {
            let layers = f64::from(architecture.layers);
            let (shared, routed) = architecture.mixed_parameters();
            return Self { shared: shared / layers, routed: routed / layers, projection };
        }
        Self {
            shared: dense * architecture.dense_layer_parameters() + (1.0 - dense) * outside,
            routed: (1.0 - dense) * routed,
            projection,
        }
    }
}

impl Architecture {
    /// Heads whose keys and values are kept apart; tensor parallelism cannot split them further without copies.
    #[must_use]
    pub fn kv_heads(&self) -> u32 {
        match self.attention {
            Attention::Grouped { kv_heads, .. } => kv_heads,
            Attention::Latent { .. } => self.heads,
        }
    }

    /// Layers with an ordinary FFN.
    #[must_use]
    pub fn dense_layers(&self) -> u32 {
        self.mix.dense_layers
    }

    /// Shares of layers by what they consist of.
    pub(crate) fn mix(&self) -> &LayerMix {
        &self.mix
    }

    /// Width of the attention's queries and values over all heads, on average.
    pub(crate) fn attention_width(&self) -> f64 {
        f64::from(self.heads) * self.head_width()
    }

    /// Width of one head in the attention matrix products, on average of queries and values.
    pub(crate) fn head_width(&self) -> f64 {
        match self.attention {
            Attention::Grouped { head_width, .. } => f64::from(head_width),
            Attention::Latent { plain_width, rotary_width, value_width, .. } => {
                (f64::from(plain_width) + f64::from(rotary_width) + f64::from(value_width)) / 2.0
            }
        }
    }

    /// Width of what is passed around for other ranks' queries: keys and values, or the latent they come from.
    pub(crate) fn kv_width(&self) -> f64 {
        match self.attention {
            Attention::Grouped { kv_heads, head_width } => 2.0 * f64::from(kv_heads) * f64::from(head_width),
            Attention::Latent { kv_rank, rotary_width, .. } => f64::from(kv_rank) + f64::from(rotary_width),
        }
    }

    /// The attention's matrices.
    pub(crate) fn attention_matrices(&self) -> ([Matrix; 4], usize) {
        let (hidden, heads) = (f64::from(self.hidden), f64::from(self.heads));
        let nothing = Matrix { outputs: 0.0, inputs: 0.0, split: Split::Neither };
        match self.attention {
            Attention::Grouped { head_width, .. } => {
                let width = heads * f64::from(head_width);
                let gate = if self.kinds.is_some_and(|kinds| kinds.gated_attention) { width } else { 0.0 };
                let first = Matrix { outputs: width + self.kv_width() + gate, inputs: hidden, split: Split::Outputs };
                let last = Matrix { outputs: hidden, inputs: width, split: Split::Inputs };
                ([first, last, nothing, nothing], 2)
            }
            Attention::Latent { query_rank, kv_rank, plain_width, rotary_width, value_width } => {
                let query = heads * (f64::from(plain_width) + f64::from(rotary_width));
                let rank = f64::from(query_rank.unwrap_or(0));
                let down = Matrix { outputs: rank + self.kv_width(), inputs: hidden, split: Split::Neither };
                let inputs = if query_rank.is_some() { rank } else { hidden };
                let up_query = Matrix { outputs: query, inputs, split: Split::Outputs };
                let up_value = Matrix {
                    outputs: heads * (f64::from(plain_width) + f64::from(value_width)),
                    inputs: f64::from(kv_rank),
                    split: Split::Outputs,
                };
                let last = Matrix { outputs: hidden, inputs: heads * f64::from(value_width), split: Split::Inputs };
                ([down, up_query, up_value, last], 4)
            }
        }
    }

    /// The two multiplications of an FFN of a width; a gated one's first has both of its matrices.
    pub(crate) fn ffn_matrices(&self, width: f64) -> [Matrix; 2] {
        let hidden = f64::from(self.hidden);
        let first = if self.gated { 2.0 * width } else { width };
        [
            Matrix { outputs: first, inputs: hidden, split: Split::Outputs },
            Matrix { outputs: hidden, inputs: width, split: Split::Inputs },
        ]
    }

    /// Attention parameters of one layer.
    #[must_use]
    pub fn attention_parameters(&self) -> f64 {
        let (matrices, count) = self.attention_matrices();
        matrices[..count].iter().map(|matrix| matrix.outputs * matrix.inputs).sum()
    }

    fn ffn_parameters(&self, width: f64) -> f64 {
        self.ffn_matrices(width).iter().map(|matrix| matrix.outputs * matrix.inputs).sum()
    }

    /// Parameters of one layer with an ordinary FFN, norms included.
    #[must_use]
    pub fn dense_layer_parameters(&self) -> f64 {
        self.attention_parameters() + self.ffn_parameters(f64::from(self.ffn_hidden)) + 2.0 * f64::from(self.hidden)
    }

    /// Parameters of one layer outside its routed experts, and of these alone. Without experts the second is 0.
    #[must_use]
    pub fn layer_parameters(&self) -> (f64, f64) {
        let Some(experts) = self.experts else { return (self.dense_layer_parameters(), 0.0) };
        let router = f64::from(self.hidden) * f64::from(experts.count);
        let shared = self.ffn_parameters(f64::from(experts.shared_ffn_hidden));
        let outside = self.attention_parameters() + 2.0 * f64::from(self.hidden) + router + shared;
        (outside, f64::from(experts.count) * self.ffn_parameters(f64::from(experts.ffn_hidden)))
    }

    /// All layers' parameters outside their routed experts, and in these, where layers are of several
    /// kinds. A table of learned positions counts among the first.
    fn mixed_parameters(&self) -> (f64, f64) {
        let (hidden, mix) = (f64::from(self.hidden), &self.mix);
        let recurrent = self
            .kinds
            .and_then(|kinds| kinds.recurrent)
            .map_or(0.0, |of| f64::from(of.layers) * recurrent_parameters(self.hidden, &of));
        let positions = self.kinds.map_or(0.0, |kinds| f64::from(kinds.positions) * hidden);
        let attention = f64::from(mix.attention_layers) * self.attention_parameters();
        let dense = f64::from(mix.dense_layers) * self.ffn_parameters(f64::from(self.ffn_hidden));
        let (shared, routed) = self.experts.map_or((0.0, 0.0), |experts| {
            let router = hidden * f64::from(experts.count);
            let shared = self.ffn_parameters(f64::from(experts.shared_ffn_hidden));
            let routed = f64::from(experts.count) * self.ffn_parameters(f64::from(experts.ffn_hidden));
            (router + shared, routed)
        });
        let with_experts = f64::from(mix.expert_layers);
        // A norm before each part of a layer.
        let norms = 2.0 * mix.parts * f64::from(self.layers) * hidden;
        let outside = attention + recurrent + dense + with_experts * shared + norms + positions;
        (outside, with_experts * routed)
    }

    /// Of a layer, on average: parameters outside its routed experts, and of these.
    pub(crate) fn mean_layer_parameters(&self) -> (f64, f64) {
        (self.counts.shared, self.counts.routed)
    }

    /// Cost of the output projection, in layers.
    pub(crate) fn projection_in_layers(&self) -> f64 {
        self.counts.projection
    }

    /// Parameters of one embedding table or of the output projection.
    #[must_use]
    pub fn table_parameters(&self) -> f64 {
        f64::from(self.vocab) * f64::from(self.hidden)
    }

    /// All parameters.
    #[must_use]
    pub fn parameters(&self) -> f64 {
        let tables = if self.tied { 1.0 } else { 2.0 };
        if self.kinds.is_some() {
            let (outside, routed) = self.mixed_parameters();
            return outside + routed + tables * self.table_parameters() + f64::from(self.hidden);
        }
        let dense = f64::from(self.dense_layers());
        let (outside, routed) = self.layer_parameters();
        dense * self.dense_layer_parameters()
            + (f64::from(self.layers) - dense) * (outside + routed)
            + tables * self.table_parameters()
            + f64::from(self.hidden)
    }

    /// Parameters a token passes.
    #[must_use]
    pub fn active_parameters(&self) -> f64 {
        let Some(experts) = self.experts else { return self.parameters() };
        let idle = f64::from(experts.count - experts.active) * self.ffn_parameters(f64::from(experts.ffn_hidden));
        self.parameters() - f64::from(self.mix.expert_layers) * idle
    }

    /// Forward FLOPs per token of the layers; causal attention counted once, as kernels do it.
    #[must_use]
    pub fn forward_layer_flops_per_token(&self) -> f64 {
        let tables = if self.tied { 1.0 } else { 2.0 };
        let hidden = f64::from(self.hidden);
        let norms = (2.0 * f64::from(self.layers) + 1.0) * hidden;
        let matrices = self.active_parameters() - tables * self.table_parameters() - norms;
        if self.kinds.is_some() {
            return self.forward_mixed_flops_per_token();
        }
        2.0 * matrices + 2.0 * f64::from(self.layers) * f64::from(self.seq_len) * self.attention_width()
    }

    /// The same where layers are of several kinds: windows in place of the whole sequence, and what
    /// recurrences compute beside their matrices.
    fn forward_mixed_flops_per_token(&self) -> f64 {
        let (hidden, layers, mix) = (f64::from(self.hidden), f64::from(self.layers), &self.mix);
        let tables = if self.tied { 1.0 } else { 2.0 };
        let positions = self.kinds.map_or(0.0, |kinds| f64::from(kinds.positions) * hidden);
        let norms = (2.0 * mix.parts * layers + 1.0) * hidden;
        let matrices = self.active_parameters() - tables * self.table_parameters() - norms - positions;
        let length = f64::from(self.seq_len);
        let attended = layers * (mix.whole * length + mix.windowed * mix.window_length);
        let scans = self
            .kinds
            .and_then(|kinds| kinds.recurrent)
            .map_or(0.0, |of| f64::from(of.layers) * scan_flops_per_token(&of));
        2.0 * matrices + 2.0 * attended * self.attention_width() + scans
    }

    /// FLOPs to train on one token; the backward pass costs twice the forward pass.
    #[must_use]
    pub fn training_flops_per_token(&self) -> f64 {
        3.0 * (self.forward_layer_flops_per_token() + 2.0 * self.table_parameters())
    }
}

/// All parameters of a shape.
#[must_use]
pub fn parameters(shape: &ModelShape) -> f64 {
    Architecture::from(shape).parameters()
}

/// FLOPs to train a shape on one token; the backward pass costs twice the forward pass.
#[must_use]
pub fn training_flops_per_token(shape: &ModelShape) -> f64 {
    Architecture::from(shape).training_flops_per_token()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::preset::presets;
    use proptest::prelude::*;

    use super::*;
    use crate::examples::{gpt3_175b, llama2_7b, llama3_8b, tiny};

    #[test]
    fn known_models_have_their_published_sizes() {
        for (name, preset) in presets() {
            let near = |ours: f64, theirs: f64, what: &str| {
                let off = ours / 1e9 / theirs - 1.0;
                assert!(off.abs() < 0.012, "{name}: {what} {:.4} B against {theirs} B ({off:+.4})", ours / 1e9);
            };
            let architecture = Architecture::from(&preset.shape());
            near(architecture.parameters(), preset.parameters, "parameters");
            near(architecture.active_parameters(), preset.active.unwrap_or(preset.parameters), "active parameters");
        }
    }

    #[test]
    fn models_of_round_numbers_are_counted_to_the_digits_that_are_published() {
        let billions = |shape: &ModelShape| parameters(shape) / 1e9;
        assert!((billions(&llama3_8b()) - 8.03).abs() < 0.005, "{}", billions(&llama3_8b()));
        assert!((billions(&llama2_7b()) - 6.74).abs() < 0.005, "{}", billions(&llama2_7b()));
        assert!((billions(&gpt3_175b()) - 174.6).abs() < 0.5, "{}", billions(&gpt3_175b()));
    }

    #[test]
    fn training_costs_about_six_flops_per_parameter_and_token() {
        let ratio = training_flops_per_token(&llama2_7b()) / parameters(&llama2_7b());
        assert!((6.0..6.6).contains(&ratio), "{ratio}");
    }

    #[test]
    fn the_tiny_model_agrees_with_the_worker() {
        // layers 4, hidden 64, ffn 172, gated, vocab 256, seq 64, as `headway.flops.ModelShape` computes them.
        let matrices = 2.0 * 64.0 * 64.0 * 2.0 + 3.0 * 64.0 * 172.0;
        assert_eq!(parameters(&tiny()), 4.0 * (matrices + 128.0) + 2.0 * 256.0 * 64.0 + 64.0);
        let forward = 2.0 * 4.0 * matrices + 2.0 * 4.0 * 64.0 * 64.0 + 2.0 * 64.0 * 256.0;
        assert_eq!(training_flops_per_token(&tiny()), 3.0 * forward);
    }

    proptest! {
        #[test]
        fn a_token_never_passes_more_than_there_is(count in 1u32..300, active in 1u32..300, ffn_hidden in 1u32..20_000) {
            let experts = Experts { count, active, ffn_hidden, shared_ffn_hidden: 64, dense_layers: 3 };
            let shape = ModelShape { experts: Some(experts), ..llama3_8b() };
            if shape.check().is_ok() {
                let architecture = Architecture::from(&shape);
                prop_assert!(architecture.active_parameters() <= architecture.parameters());
                prop_assert!(architecture.training_flops_per_token() > 0.0);
            }
        }

        #[test]
        fn every_possible_shape_is_counted(
            numbers in prop::array::uniform8(1u32..1 << 20), widths in prop::array::uniform5(1u32..1 << 17),
            latent: bool, gated: bool,
        ) {
            let [layers, hidden, kv_heads, groups, ffn_hidden, vocab, count, active] = numbers;
            let [query, kv_rank, plain_width, rotary_width, value_width] = widths;
            let experts = Experts { count, active, ffn_hidden, shared_ffn_hidden: ffn_hidden, dense_layers: 1 };
            let latent = latent.then_some(Latent { query_rank: Some(query), kv_rank, plain_width, rotary_width, value_width });
            let shape = ModelShape {
                layers: layers % 10_000 + 1, hidden, heads: kv_heads % 64 * (groups % 8 + 1), kv_heads: kv_heads % 64,
                head_width: Some(plain_width), ffn_hidden, gated, experts: Some(experts), latent, vocab, ..llama3_8b()
            };
            if shape.check().is_ok() {
                let architecture = Architecture::from(&shape);
                prop_assert!(architecture.parameters().is_finite() && architecture.parameters() > 0.0);
                prop_assert!(architecture.training_flops_per_token().is_finite());
                prop_assert!(architecture.training_flops_per_token() > 0.0);
            }
        }
    }
}
