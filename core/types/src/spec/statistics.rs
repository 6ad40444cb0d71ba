//! What of a recipe is statistics: which batch is chosen, by which noise, and how the learning rate follows.

use serde::{Deserialize, Serialize};

use crate::word::words;

/// What chooses a job's batch. It is shown by the name that specifications have for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum BatchPolicy {
    /// Most goodput: throughput × statistical efficiency.
    #[default]
    Goodput,
    /// The norm test (Lau et al., arXiv 2412.21124): the gradient's variance at the batch is at most η²|G|².
    NormTest { eta: NormTestEta },
}

/// Bound η on the relative error of a step's gradient in the norm test; the paper uses 0.05 to 0.3, small models need less strictness.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct NormTestEta(f64);

/// A bound that no gradient could meet, or that asks for nothing.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("must be above 0 and at most 1, not {0}")]
pub struct NormTestEtaError(f64);

impl TryFrom<f64> for NormTestEta {
    type Error = NormTestEtaError;

    fn try_from(eta: f64) -> Result<Self, NormTestEtaError> {
        if eta > 0.0 && eta <= 1.0 { Ok(Self(eta)) } else { Err(NormTestEtaError(eta)) }
    }
}

impl From<NormTestEta> for f64 {
    fn from(eta: NormTestEta) -> f64 {
        eta.0
    }
}

words! {
    /// Of which gradients a job's noise scale is.
    #[derive(Default)]
    pub enum NoiseKind {
        /// As they are.
        #[default]
        Raw,
        /// As Adam scales them, damped.
        Adam,
    }

    /// How the learning rate follows the batch.
    pub enum LrScaling {
        None,
        Sqrt,
        Linear,
        Adascale,
    }
}
