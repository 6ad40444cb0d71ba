//! How much a job must use its GPUs to keep them.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::unit::Seconds;

/// The mean share of time in which a job's GPUs have to compute.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeastUse {
    /// Above 0, at most 1.
    pub share: f64,
    /// Over which the mean is taken.
    pub window: Seconds,
}

impl fmt::Display for LeastUse {
    /// As specifications have it: "10%/3600s".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%/{}s", (self.share * 1e8).round() / 1e6, self.window.0)
    }
}
