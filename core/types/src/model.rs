//! The shape of a dense decoder, from which parameters, FLOPs, memory and traffic follow.

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
    /// Leading layers with an ordinary FFN.
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
    #[error("{dense} leading layers without experts of {layers}")]
    DenseLayers { dense: u32, layers: u32 },
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

    /// Layers with an ordinary FFN.
    #[must_use]
    pub fn dense_layers(&self) -> u32 {
        self.experts.map_or(self.layers, |experts| experts.dense_layers.min(self.layers))
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
        assert_eq!(refused(of(deep)), "33 leading layers without experts of 32");
        let wide = Experts { active: 2, shared_ffn_hidden: u32::MAX, ..experts };
        assert!(refused(of(wide)).starts_with("experts.shared_ffn_hidden"));
        let latent =
            Latent { query_rank: None, kv_rank: 512, plain_width: 128, rotary_width: u32::MAX, value_width: 128 };
        assert!(refused(ModelShape { latent: Some(latent), ..good }).starts_with("latent.rotary_width"));
    }
}
