//! Models by name, as their publishers' configurations state them (`presets.toml`): one list for specifications and for estimates.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::model::ModelShape;

/// A model as its publisher states it.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Published parameters, in billions.
    pub parameters: f64,
    /// Of them those a token passes; all where it is absent.
    pub active: Option<f64>,
    pub layers: u32,
    pub hidden: u32,
    pub heads: u32,
    kv_heads: Option<u32>,
    head_width: Option<u32>,
    pub ffn_hidden: u32,
    /// Gated MLP: three matrices instead of two.
    #[serde(default = "gated")]
    pub gated: bool,
    pub vocab: u32,
    /// Output projection shares the embedding.
    #[serde(default)]
    pub tied: bool,
    pub seq_len: u32,
    pub experts: Option<Experts>,
    pub latent: Option<Latent>,
}

fn gated() -> bool {
    true
}

/// The experts of a mixture-of-experts model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latent {
    pub query_rank: u32,
    pub kv_rank: u32,
    pub plain_width: u32,
    pub rotary_width: u32,
    pub value_width: u32,
}

/// Why jobs cannot be of a model: what a [`ModelShape`] does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Beyond {
    #[error("mixture of experts")]
    Experts,
    #[error("latent attention")]
    Latent,
    #[error("heads of width {width} on hidden {hidden}")]
    HeadWidth { width: u32, hidden: u32 },
}

impl Preset {
    #[must_use]
    pub fn kv_heads(&self) -> u32 {
        self.kv_heads.unwrap_or(self.heads)
    }

    #[must_use]
    pub fn head_width(&self) -> u32 {
        self.head_width.unwrap_or(self.hidden / self.heads.max(1))
    }

    /// The shape of a job of this model, or what of it a shape does not hold.
    pub fn shape(&self) -> Result<ModelShape, Beyond> {
        let (width, hidden) = (self.head_width(), self.hidden);
        if self.experts.is_some() {
            return Err(Beyond::Experts);
        }
        if self.latent.is_some() {
            return Err(Beyond::Latent);
        }
        if u64::from(width) * u64::from(self.heads) != u64::from(hidden) {
            return Err(Beyond::HeadWidth { width, hidden });
        }
        let &Self { layers, heads, ffn_hidden, gated, vocab, seq_len, tied, .. } = self;
        Ok(ModelShape { layers, hidden, heads, kv_heads: self.kv_heads(), ffn_hidden, gated, vocab, seq_len, tied })
    }
}

/// The built-in models, by name.
#[must_use]
pub fn presets() -> &'static BTreeMap<String, Preset> {
    static PRESETS: LazyLock<BTreeMap<String, Preset>> = LazyLock::new(|| {
        toml::from_str(include_str!("presets.toml")).expect("the committed presets are tested to parse")
    });
    &PRESETS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_jobs_can_be_of_has_a_possible_shape() {
        let shapes: Vec<ModelShape> = presets().values().filter_map(|preset| preset.shape().ok()).collect();
        assert!(shapes.len() >= 28, "{}", shapes.len());
        assert!(shapes.iter().all(|shape| shape.check().is_ok()));
        assert_eq!(presets()["mixtral-8x7b"].shape(), Err(Beyond::Experts));
        assert_eq!(presets()["gemma-7b"].shape(), Err(Beyond::HeadWidth { width: 256, hidden: 3072 }));
    }
}
