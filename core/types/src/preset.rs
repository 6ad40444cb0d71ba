//! Models by name, as their publishers' configurations state them (`presets.toml`): one list for specifications and for estimates.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::model::{Experts, Latent, ModelShape};

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

impl Preset {
    /// The shape of a job of this model.
    #[must_use]
    pub fn shape(&self) -> ModelShape {
        let &Self { layers, hidden, heads, ffn_hidden, gated, vocab, seq_len, tied, experts, latent, .. } = self;
        let kv_heads = self.kv_heads.unwrap_or(heads);
        let head_width = self.head_width.filter(|width| u64::from(*width) * u64::from(heads) != u64::from(hidden));
        ModelShape {
            layers,
            hidden,
            heads,
            kv_heads,
            ffn_hidden,
            gated,
            vocab,
            seq_len,
            tied,
            head_width,
            experts,
            latent,
            kinds: None,
        }
    }
}

/// The built-in model of a name; case and separators between family and size do not matter ("Llama3-70B").
#[must_use]
pub fn named(name: &str) -> Option<&'static Preset> {
    let plain = |name: &str| name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let wanted = plain(name);
    presets().iter().find(|(known, _)| plain(known) == wanted).map(|(_, preset)| preset)
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
    fn names_are_forgiving_about_separators() {
        assert_eq!(named("Llama3-70B"), presets().get("llama-3-70b"));
        assert_eq!(named("qwen2.5-7b"), presets().get("qwen-2.5-7b"));
        assert_eq!(named("llama-9-7b"), None);
    }

    #[test]
    fn every_model_has_a_possible_shape() {
        assert!(presets().len() >= 40, "{}", presets().len());
        for (name, preset) in presets() {
            assert_eq!(preset.shape().check(), Ok(()), "{name}");
        }
        assert_eq!(presets()["llama-3-8b"].shape().head_width, None, "hidden / heads needs no saying");
        assert_eq!(presets()["gemma-7b"].shape().head_width, Some(256));
        assert_eq!(presets()["mixtral-8x7b"].shape().experts.map(|of| of.count), Some(8));
    }
}
