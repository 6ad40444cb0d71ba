//! How the steps of a script are found in what it prints, where it does not tell of them itself.

use serde::{Deserialize, Serialize};

use crate::unit::{Sequences, Tokens};
use crate::word::words;

/// A pattern for lines of output, and what a step amounts to where no line says so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrintedProgress {
    /// As `headway_api::progress::Pattern` compiles it.
    pub regex: String,
    #[serde(default)]
    pub rank: PrintingRank,
    /// Absent: the global batch of the job's configuration, 1 where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples_per_step: Option<Sequences>,
    /// Absent: as many as the samples have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_step: Option<Tokens>,
    /// Tokens per sequence. Of a job with a training section the order says it, by that section.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_length: Option<u32>,
}

words! {
    /// Whose output has the steps.
    #[derive(Default)]
    pub enum PrintingRank {
        #[default]
        First,
        Last,
    }
}
