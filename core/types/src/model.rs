//! The shape of a decoder, from which parameters, FLOPs, memory and traffic follow.

use serde::{Deserialize, Serialize};

/// Dimensions of a decoder-only transformer, dense or with experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ModelShape {
    pub layers: u32,
    pub hidden: u32,
    pub heads: u32,
    /// Key/value heads (= heads without grouped-query attention).
    pub kv_heads: u32,
    /// FFN width of layers without experts.
    pub ffn_hidden: u32,
    /// Gated MLP (SwiGLU): three matrices instead of two.
    pub gated: bool,
    pub vocab: u32,
    pub seq_len: u32,
    /// Output projection shares the embedding.
    pub tied: bool,
    /// Width of a head where it is not hidden / heads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_width: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experts: Option<Experts>,
    /// In place of grouped keys and values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latent: Option<Latent>,
    /// Absent: every layer has an attention over the whole sequence and an FFN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<LayerKinds>,
}

/// The experts of a mixture-of-experts model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    pub count: u32,
    /// Experts a token is routed to.
    pub active: u32,
    /// FFN width of one expert.
    pub ffn_hidden: u32,
    /// Summed FFN width of the experts every token passes.
    #[serde(default)]
    pub shared_ffn_hidden: u32,
    /// Layers with an ordinary FFN, wherever they stand.
    #[serde(default)]
    pub dense_layers: u32,
}

/// Keys and values from a low-rank latent (DeepSeek-V2); widths per head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latent {
    /// Absent: queries come from the hidden state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_rank: Option<u32>,
    pub kv_rank: u32,
    pub plain_width: u32,
    pub rotary_width: u32,
    pub value_width: u32,
}

/// Layers that are not one attention over the whole sequence followed by one FFN. Only counts are
/// kept: each stage of a pipeline is assumed to hold its share of every kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LayerKinds {
    /// Layers whose attention is limited to near tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<AttentionWindow>,
    /// Layers with a recurrence or a convolution in place of attention.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recurrent: Option<RecurrentLayers>,
    /// Layers of an FFN alone, without attention or recurrence.
    #[serde(skip_serializing_if = "is_zero")]
    pub ffn_only: u32,
    /// Layers of an attention or a recurrence alone, without an FFN.
    #[serde(skip_serializing_if = "is_zero")]
    pub without_ffn: u32,
    /// The attention's output passes a gate as wide as the queries (Qwen3-Next).
    #[serde(skip_serializing_if = "is_false")]
    pub gated_attention: bool,
    /// Rows of a table of learned positions.
    #[serde(skip_serializing_if = "is_zero")]
    pub positions: u32,
}

/// Attention that is limited to near tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionWindow {
    pub layers: u32,
    /// Most tokens that a token attends to.
    pub tokens: u32,
    /// The sequence is cut into chunks of so many tokens (Llama 4), instead of a window that slides.
    #[serde(default, skip_serializing_if = "is_false")]
    pub chunked: bool,
}

/// Layers whose cost per token does not grow with the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecurrentLayers {
    pub layers: u32,
    pub kind: RecurrentKind,
    /// Heads of values, and the width of one.
    pub heads: u32,
    pub head_width: u32,
    /// Width of the state per value channel: the state size of Mamba, the key width of linear attention.
    pub state: u32,
    /// Groups of heads that share keys (B and C of Mamba-2).
    pub groups: u32,
    /// Tokens that the short convolution spans; 0 without one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub convolution: u32,
    /// Rank of Mamba-1's time step.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rank: u32,
}

/// What a recurrent layer computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecurrentKind {
    /// Selective state space (Gu & Dao 2023).
    Mamba,
    /// Structured state-space duality (Dao & Gu 2024).
    Mamba2,
    /// Gated delta rule (Yang et al. 2024).
    GatedDelta,
    /// Linear attention with decay (Qin et al. 2024).
    Lightning,
    /// Gated short convolution (LFM2).
    Convolution,
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Of any FFN.
const WIDEST: u32 = 1 << 24;

/// Why dimensions make no model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelShapeError {
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    #[error("hidden {hidden} must be divisible by heads {heads}")]
    HeadsDoNotDivideHidden { hidden: u32, heads: u32 },
    #[error("heads {heads} must be divisible by kv_heads {kv_heads}")]
    KvHeadsDoNotDivideHeads { heads: u32, kv_heads: u32 },
    #[error("{active} of {count} experts cannot be active")]
    Active { active: u32, count: u32 },
    #[error("{dense} layers without experts of {layers}")]
    DenseLayers { dense: u32, layers: u32 },
    #[error("kinds name {counted} {kind}, more than the {layers} layers there are")]
    Kinds { kind: &'static str, counted: u64, layers: u32 },
    #[error("{name} {value} is beyond what any model has ({limit})")]
    Absurd { name: &'static str, value: u32, limit: u32 },
}

impl ModelShape {
    /// Refuses what no attention implementation can run and sizes that only a slip of the pen makes.
    pub fn check(&self) -> Result<(), ModelShapeError> {
        let dense = self.dense_layers() > 0;
        let limits = [
            ("layers", self.layers, 10_000),
            ("hidden", self.hidden, 1 << 20),
            ("heads", self.heads, 1 << 16),
            ("kv_heads", self.kv_heads, 1 << 16),
            ("head_width", self.head_width.unwrap_or(1), 1 << 16),
            ("ffn_hidden", if dense { self.ffn_hidden } else { self.ffn_hidden.max(1) }, WIDEST),
            ("vocab", self.vocab, 1 << 24),
            ("seq_len", self.seq_len, 1 << 27),
        ];
        let experts = self.experts.map(|of| {
            [
                ("experts.active", of.active, of.count),
                ("experts.ffn_hidden", of.ffn_hidden, WIDEST),
                ("experts.shared_ffn_hidden", of.shared_ffn_hidden.max(1), WIDEST),
                ("experts.count", of.count, 1 << 20),
            ]
        });
        let latent = self.latent.map(|of| {
            [
                ("latent.query_rank", of.query_rank.unwrap_or(1), 1 << 20),
                ("latent.kv_rank", of.kv_rank, 1 << 20),
                ("latent.plain_width", of.plain_width, 1 << 16),
                ("latent.rotary_width", of.rotary_width.max(1), 1 << 16),
                ("latent.value_width", of.value_width, 1 << 16),
            ]
        });
        for (name, value, limit) in
            limits.into_iter().chain(experts.into_iter().flatten()).chain(latent.into_iter().flatten())
        {
            if value == 0 {
                return Err(ModelShapeError::Zero(name));
            }
            if value > limit && name != "experts.active" {
                return Err(ModelShapeError::Absurd { name, value, limit });
            }
        }
        if let Some(Experts { active, count, dense_layers, .. }) = self.experts {
            if active > count {
                return Err(ModelShapeError::Active { active, count });
            }
            if dense_layers > self.layers {
                return Err(ModelShapeError::DenseLayers { dense: dense_layers, layers: self.layers });
            }
        }
        if let Some(kinds) = &self.kinds {
            self.check_kinds(kinds)?;
        }
        if self.latent.is_some() {
            return Ok(());
        }
        if self.head_width.is_none() && !self.hidden.is_multiple_of(self.heads) {
            return Err(ModelShapeError::HeadsDoNotDivideHidden { hidden: self.hidden, heads: self.heads });
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(ModelShapeError::KvHeadsDoNotDivideHeads { heads: self.heads, kv_heads: self.kv_heads });
        }
        Ok(())
    }

    fn check_kinds(&self, kinds: &LayerKinds) -> Result<(), ModelShapeError> {
        let window = kinds.window.map(|of| [("kinds.window.tokens", of.tokens, 1 << 27)]);
        let recurrent = kinds.recurrent.map(|of| {
            [
                ("kinds.recurrent.heads", of.heads, 1 << 20),
                ("kinds.recurrent.head_width", of.head_width, 1 << 20),
                ("kinds.recurrent.state", of.state, 1 << 16),
                ("kinds.recurrent.groups", of.groups, 1 << 16),
                ("kinds.recurrent.convolution", of.convolution.max(1), 1 << 10),
                ("kinds.recurrent.rank", of.rank.max(1), 1 << 20),
            ]
        });
        let positions = ("kinds.positions", kinds.positions.max(1), 1 << 27);
        let limits = window.into_iter().flatten().chain(recurrent.into_iter().flatten());
        for (name, value, limit) in limits.chain([positions]) {
            if value == 0 {
                return Err(ModelShapeError::Zero(name));
            }
            if value > limit {
                return Err(ModelShapeError::Absurd { name, value, limit });
            }
        }
        let of = |count: u32| u64::from(count);
        let window = kinds.window.map_or(0, |window| of(window.layers));
        let recurrent = kinds.recurrent.map_or(0, |recurrent| of(recurrent.layers));
        let dense = self.experts.map_or(0, |experts| of(experts.dense_layers));
        let counts = [
            ("windows, recurrences and FFNs alone", window + recurrent + of(kinds.ffn_only)),
            ("layers of one part alone", of(kinds.ffn_only) + of(kinds.without_ffn)),
            ("layers without an FFN or without experts", of(kinds.without_ffn) + dense),
        ];
        for (kind, counted) in counts {
            if counted > of(self.layers) {
                return Err(ModelShapeError::Kinds { kind, counted, layers: self.layers });
            }
        }
        Ok(())
    }

    /// Layers with an ordinary FFN.
    #[must_use]
    pub fn dense_layers(&self) -> u32 {
        match self.experts {
            Some(experts) => experts.dense_layers.min(self.layers),
            None => self.layers - self.kinds.map_or(0, |kinds| kinds.without_ffn.min(self.layers)),
        }
    }

    /// Layers with experts.
    #[must_use]
    pub fn expert_layers(&self) -> u32 {
        let without = self.kinds.map_or(0, |kinds| kinds.without_ffn);
        let others = self.dense_layers().saturating_add(without);
        if self.experts.is_some() { self.layers.saturating_sub(others) } else { 0 }
    }

    /// Layers with an attention, whether over the whole sequence or a window.
    #[must_use]
    pub fn attention_layers(&self) -> u32 {
        let Some(kinds) = self.kinds else { return self.layers };
        let recurrent = kinds.recurrent.map_or(0, |recurrent| recurrent.layers);
        self.layers.saturating_sub(recurrent.saturating_add(kinds.ffn_only))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::preset::presets;

    #[test]
    fn impossible_shapes_are_refused_by_name() {
        let good = presets()["llama-3-8b"].shape();
        let refused = |shape: ModelShape| shape.check().unwrap_err().to_string();
        assert_eq!(refused(ModelShape { layers: 0, ..good }), "layers must be at least 1");
        assert!(refused(ModelShape { hidden: u32::MAX, ..good }).contains("beyond what any model has"));
        assert_eq!(
            refused(ModelShape { heads: 48, kv_heads: 9, hidden: 4_800, ..good }),
            "heads 48 must be divisible by kv_heads 9"
        );
        let experts = Experts { count: 4, active: 5, ffn_hidden: 8, shared_ffn_hidden: 0, dense_layers: 0 };
        let of = |experts| ModelShape { experts: Some(experts), ..good };
        assert_eq!(refused(of(experts)), "5 of 4 experts cannot be active");
        let deep = Experts { active: 2, dense_layers: 33, ..experts };
        assert_eq!(refused(of(deep)), "33 layers without experts of 32");
        let wide = Experts { active: 2, shared_ffn_hidden: u32::MAX, ..experts };
        assert!(refused(of(wide)).starts_with("experts.shared_ffn_hidden"));
        let latent =
            Latent { query_rank: None, kv_rank: 512, plain_width: 128, rotary_width: u32::MAX, value_width: 128 };
        assert!(refused(ModelShape { latent: Some(latent), ..good }).starts_with("latent.rotary_width"));
    }

    #[test]
    fn kinds_of_layers_are_no_more_than_there_are_layers() {
        let good = presets()["llama-3-8b"].shape();
        let of = |kinds| ModelShape { kinds: Some(kinds), ..good };
        let window = AttentionWindow { layers: 20, tokens: 4096, chunked: false };
        let mixed = LayerKinds { window: Some(window), ffn_only: 12, ..LayerKinds::default() };
        assert_eq!(of(mixed).check(), Ok(()));
        assert_eq!(of(mixed).attention_layers(), 20);
        let refused = |kinds| of(kinds).check().unwrap_err().to_string();
        assert_eq!(
            refused(LayerKinds { ffn_only: 13, ..mixed }),
            "kinds name 33 windows, recurrences and FFNs alone, more than the 32 layers there are"
        );
        assert!(refused(LayerKinds { without_ffn: u32::MAX, ..mixed }).contains("one part alone"));
        let empty = AttentionWindow { tokens: 0, ..window };
        let empty = LayerKinds { window: Some(empty), ..mixed };
        assert_eq!(refused(empty), "kinds.window.tokens must be at least 1");
    }

    #[test]
    fn a_shape_from_before_there_were_kinds_is_read_and_written_as_it_was() {
        let shape = presets()["llama-3-8b"].shape();
        let text = serde_json::to_string(&shape).unwrap();
        assert!(!text.contains("kinds"), "{text}");
        assert_eq!(serde_json::from_str::<ModelShape>(&text).unwrap(), shape);
        let kinds = LayerKinds { without_ffn: 3, ..LayerKinds::default() };
        let text = serde_json::to_string(&ModelShape { kinds: Some(kinds), ..shape }).unwrap();
        assert!(text.ends_with(r#""kinds":{"without_ffn":3}}"#), "{text}");
    }
}
