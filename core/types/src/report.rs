//! What workers say of themselves.

use serde::{Deserialize, Serialize};

use crate::configuration::Configuration;
use crate::id::{Generation, JobId};
use crate::unit::{Bytes, Seconds, Sequences, Tokens};
use crate::word::words;

/// Squared gradient norms of one or several steps, from which the noise scale is estimated
/// (McCandlish et al. 2018, appendix A.1). Sums, not ratios: they add up over steps and layouts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoiseSample {
    /// Mean squared norm of the small-batch gradients.
    pub small_sqr: f64,
    /// Squared norm of the full-batch gradient.
    pub big_sqr: f64,
    /// Sequences per small batch.
    pub small_batch: f64,
    /// Sequences per full batch.
    pub big_batch: f64,
}

/// One report from rank 0 of a worker group, covering one or several optimizer steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    pub job: JobId,
    pub generation: Generation,
    /// Last optimizer step covered.
    pub step: u64,
    /// Optimizer steps covered by this report.
    pub steps: u32,
    /// Sequences consumed since the job began, over all generations: the progress clock.
    pub samples_seen: Sequences,
    /// Raw tokens of the steps covered.
    pub tokens: Tokens,
    /// Wall time of the steps covered.
    pub duration: Seconds,
    pub configuration: Configuration,
    pub loss: Option<f64>,
    pub noise: Option<NoiseSample>,
    /// The same of the gradients as Adam scales them.
    #[serde(default)]
    pub preconditioned: Option<NoiseSample>,
    /// Most device memory held so far, on the fullest GPU that the script knows of; of a script that names none, what the device says
    /// is in use, its context included.
    #[serde(default)]
    pub memory_peak: Option<Bytes>,
}

/// What a script can change while it runs; declared by the SDK at `init()`, or defaulted from the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    pub batch: Flexibility,
    pub layout: Flexibility,
}

words! {
    /// How a script takes a change.
    pub enum Flexibility {
        /// In the running process.
        Live,
        /// After checkpoint and restart.
        Restart,
        /// Not at all.
        Never,
    }
}
