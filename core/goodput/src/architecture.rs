//! The architecture of a decoder in full: dense or with experts, grouped or latent attention. Wider than `headway_types::ModelShape`,
//! which it can be made from; for a dense shape both count the same parameters and FLOPs. It knows no hardware.

use headway_types::ModelShape;
pub use headway_types::preset::Experts;
use serde::{Deserialize, Serialize};

/// How queries, keys and values are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attention {
    /// Groups of heads share a key/value head (Ainslie et al. 2023); as many groups as heads is plain attention.
    Grouped { kv_heads: u32, head_width: u32 },
    /// Keys and values from a low-rank latent (DeepSeek-V2); widths per head.
    Latent { query_rank: Option<u32>, kv_rank: u32, plain_width: u32, rotary_width: u32, value_width: u32 },
}

/// A decoder-only transformer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// Why an architecture is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchitectureError {
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    #[error("heads {heads} must be divisible by kv_heads {kv_heads}")]
    KvHeads { heads: u32, kv_heads: u32 },
    #[error("{active} of {count} experts cannot be active")]
    Active { active: u32, count: u32 },
    #[error("{dense} dense layers of {layers}")]
    DenseLayers { dense: u32, layers: u32 },
    #[error("{name} {value} is beyond what any model has ({limit})")]
    Absurd { name: &'static str, value: u32, limit: u32 },
}

impl From<&ModelShape> for Architecture {
    fn from(shape: &ModelShape) -> Self {
        Self {
            layers: shape.layers,
            hidden: shape.hidden,
            heads: shape.heads,
            attention: Attention::Grouped { kv_heads: shape.kv_heads, head_width: shape.hidden / shape.heads.max(1) },
            ffn_hidden: shape.ffn_hidden,
            gated: shape.gated,
            experts: None,
            vocab: shape.vocab,
            tied: shape.tied,
            seq_len: shape.seq_len,
        }
    }
}

impl Architecture {
    /// Refuses what no attention implementation can run and sizes that only a slip of the pen makes.
    pub fn check(&self) -> Result<(), ArchitectureError> {
        let limits = [
            ("layers", self.layers, 10_000),
            ("hidden", self.hidden, 1 << 20),
            ("heads", self.heads, 1 << 16),
            ("vocab", self.vocab, 1 << 24),
            ("seq_len", self.seq_len, 1 << 27),
        ];
        for (name, value, limit) in limits {
            if value == 0 {
                return Err(ArchitectureError::Zero(name));
            }
            if value > limit {
                return Err(ArchitectureError::Absurd { name, value, limit });
            }
        }
        if let Attention::Grouped { kv_heads, head_width } = self.attention {
            if kv_heads == 0 || head_width == 0 {
                return Err(ArchitectureError::Zero(if kv_heads == 0 { "kv_heads" } else { "head_width" }));
            }
            if !self.heads.is_multiple_of(kv_heads) {
                return Err(ArchitectureError::KvHeads { heads: self.heads, kv_heads });
            }
        }
        if self.dense_layers() > 0 && self.ffn_hidden == 0 {
            return Err(ArchitectureError::Zero("ffn_hidden"));
        }
        let Some(experts) = self.experts else { return Ok(()) };
        if experts.active == 0 || experts.active > experts.count || experts.count > 1 << 20 {
            return Err(ArchitectureError::Active { active: experts.active, count: experts.count });
        }
        if experts.dense_layers > self.layers {
            return Err(ArchitectureError::DenseLayers { dense: experts.dense_layers, layers: self.layers });
        }
        Ok(())
    }

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
        self.experts.map_or(self.layers, |experts| experts.dense_layers.min(self.layers))
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
                f64::from(plain_width + rotary_width + value_width) / 2.0
            }
        }
    }

    /// Width of what is passed around for other ranks' queries: keys and values, or the latent they come from.
    pub(crate) fn kv_width(&self) -> f64 {
        match self.attention {
            Attention::Grouped { kv_heads, head_width } => 2.0 * f64::from(kv_heads) * f64::from(head_width),
            Attention::Latent { kv_rank, rotary_width, .. } => f64::from(kv_rank + rotary_width),
        }
    }

    /// The attention's matrices.
    pub(crate) fn attention_matrices(&self) -> ([Matrix; 4], usize) {
        let (hidden, heads) = (f64::from(self.hidden), f64::from(self.heads));
        let nothing = Matrix { outputs: 0.0, inputs: 0.0, split: Split::Neither };
        match self.attention {
            Attention::Grouped { head_width, .. } => {
                let width = heads * f64::from(head_width);
                let first = Matrix { outputs: width + self.kv_width(), inputs: hidden, split: Split::Outputs };
                let last = Matrix { outputs: hidden, inputs: width, split: Split::Inputs };
                ([first, last, nothing, nothing], 2)
            }
            Attention::Latent { query_rank, kv_rank, plain_width, rotary_width, value_width } => {
                let query = heads * f64::from(plain_width + rotary_width);
                let rank = f64::from(query_rank.unwrap_or(0));
                let down = Matrix { outputs: rank + self.kv_width(), inputs: hidden, split: Split::Neither };
                let inputs = if query_rank.is_some() { rank } else { hidden };
                let up_query = Matrix { outputs: query, inputs, split: Split::Outputs };
                let up_value = Matrix {
                    outputs: heads * f64::from(plain_width + value_width),
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

    /// Parameters of one embedding table or of the output projection.
    #[must_use]
    pub fn table_parameters(&self) -> f64 {
        f64::from(self.vocab) * f64::from(self.hidden)
    }

    /// All parameters.
    #[must_use]
    pub fn parameters(&self) -> f64 {
        let dense = f64::from(self.dense_layers());
        let (outside, routed) = self.layer_parameters();
        let tables = if self.tied { 1.0 } else { 2.0 };
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
        self.parameters() - f64::from(self.layers - self.dense_layers()) * idle
    }

    /// Forward FLOPs per token of the layers; causal attention counted once, as kernels do it.
    #[must_use]
    pub fn forward_layer_flops_per_token(&self) -> f64 {
        let tables = if self.tied { 1.0 } else { 2.0 };
        let hidden = f64::from(self.hidden);
        let norms = (2.0 * f64::from(self.layers) + 1.0) * hidden;
        let matrices = self.active_parameters() - tables * self.table_parameters() - norms;
        2.0 * matrices + 2.0 * f64::from(self.layers) * f64::from(self.seq_len) * self.attention_width()
    }

    /// FLOPs to train on one token; the backward pass costs twice the forward pass.
    #[must_use]
    pub fn training_flops_per_token(&self) -> f64 {
        3.0 * (self.forward_layer_flops_per_token() + 2.0 * self.table_parameters())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::examples::{gpt3_175b, llama2_7b, llama3_8b, tiny};
    use crate::shape::{parameters, training_flops_per_token};
    use proptest::prelude::*;

    #[test]
    fn a_dense_architecture_counts_as_its_shape_does() {
        for shape in [tiny(), llama2_7b(), llama3_8b(), gpt3_175b()] {
            let architecture = Architecture::from(&shape);
            assert!((architecture.parameters() / parameters(&shape) - 1.0).abs() < 1e-12);
            let ratio = architecture.training_flops_per_token() / training_flops_per_token(&shape);
            assert!((ratio - 1.0).abs() < 1e-12, "{ratio}");
        }
    }

    #[test]
    fn impossible_architectures_are_refused_by_name() {
        let good = Architecture::from(&llama3_8b());
        let refused = |architecture: Architecture| architecture.check().unwrap_err().to_string();
        assert_eq!(refused(Architecture { layers: 0, ..good }), "layers must be at least 1");
        assert!(refused(Architecture { hidden: u32::MAX, ..good }).contains("beyond what any model has"));
        let experts = Experts { count: 4, active: 5, ffn_hidden: 8, shared_ffn_hidden: 0, dense_layers: 0 };
        assert_eq!(refused(Architecture { experts: Some(experts), ..good }), "5 of 4 experts cannot be active");
    }

    proptest! {
        #[test]
        fn a_token_never_passes_more_than_there_is(count in 1u32..300, active in 1u32..300, ffn in 1u32..20_000) {
            let experts = Experts { count, active, ffn_hidden: ffn, shared_ffn_hidden: 64, dense_layers: 3 };
            let architecture = Architecture { experts: Some(experts), ..Architecture::from(&llama3_8b()) };
            if architecture.check().is_ok() {
                prop_assert!(architecture.active_parameters() <= architecture.parameters());
                prop_assert!(architecture.training_flops_per_token() > 0.0);
            }
        }
    }
}
