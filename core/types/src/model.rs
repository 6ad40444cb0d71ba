//! The shape of a dense decoder, from which parameters, FLOPs, memory and traffic follow.

use serde::{Deserialize, Serialize};

/// Dimensions of a decoder-only transformer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ModelShape {
    pub layers: u32,
    pub hidden: u32,
    pub heads: u32,
    /// Key/value heads (= heads without grouped-query attention).
    pub kv_heads: u32,
    pub ffn_hidden: u32,
    /// Gated MLP (SwiGLU): three matrices instead of two.
    pub gated: bool,
    pub vocab: u32,
    pub seq_len: u32,
    /// Output projection shares the embedding.
    pub tied: bool,
}

/// Why dimensions make no model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelShapeError {
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    #[error("hidden {hidden} must be divisible by heads {heads}")]
    HeadsDoNotDivideHidden { hidden: u32, heads: u32 },
    #[error("heads {heads} must be divisible by kv_heads {kv_heads}")]
    KvHeadsDoNotDivideHeads { heads: u32, kv_heads: u32 },
}

impl ModelShape {
    /// Checks the divisibility every attention implementation relies on.
    pub fn check(&self) -> Result<(), ModelShapeError> {
        let dimensions = [
            ("layers", self.layers),
            ("hidden", self.hidden),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("ffn_hidden", self.ffn_hidden),
            ("vocab", self.vocab),
            ("seq_len", self.seq_len),
        ];
        if let Some((name, _)) = dimensions.into_iter().find(|(_, value)| *value == 0) {
            return Err(ModelShapeError::Zero(name));
        }
        if !self.hidden.is_multiple_of(self.heads) {
            return Err(ModelShapeError::HeadsDoNotDivideHidden { hidden: self.hidden, heads: self.heads });
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(ModelShapeError::KvHeadsDoNotDivideHeads { heads: self.heads, kv_heads: self.kv_heads });
        }
        Ok(())
    }
}
