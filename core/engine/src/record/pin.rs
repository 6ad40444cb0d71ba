//! What people say of where a job is.

use core::fmt;

use headway_types::Timestamp;
use serde::{Deserialize, Serialize};

/// A person's word that a job stays on the GPUs it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    pub by: String,
    pub reason: Option<String>,
    pub since: Timestamp,
}

/// A person's word that a job may be moved once, whatever its cooldown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resize {
    pub by: String,
    pub reason: Option<String>,
    pub at: Timestamp,
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Some(reason) => write!(f, "pinned by {}: {reason}", self.by),
            None => write!(f, "pinned by {}", self.by),
        }
    }
}
