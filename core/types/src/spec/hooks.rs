//! What runs on each node around an attempt of a job.

use serde::{Deserialize, Serialize};

use crate::unit::Seconds;

/// Shell lines, as the job's user. `{name}` is substituted as in the command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hooks {
    /// Before an attempt starts; where it fails there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prolog: Option<String>,
    /// After an attempt that had started has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epilog: Option<String>,
    /// How long each may take.
    pub timeout: Seconds,
}

impl Default for Hooks {
    fn default() -> Self {
        Self { prolog: None, epilog: None, timeout: Seconds(300.0) }
    }
}

impl Hooks {
    /// Whether there are none.
    #[must_use]
    pub fn are_none(&self) -> bool {
        self.prolog.is_none() && self.epilog.is_none()
    }

    /// How much longer a node may take to prepare for them.
    #[must_use]
    pub fn before(&self) -> Seconds {
        if self.prolog.is_some() { self.timeout } else { Seconds(0.0) }
    }

    /// How much longer a node may take to come down for them.
    #[must_use]
    pub fn after(&self) -> Seconds {
        if self.epilog.is_some() { self.timeout } else { Seconds(0.0) }
    }
}
