//! What a person would check when something is wrong: `look` gathers, `judge` says what it means, purely. Each finding says what to do.

mod judge;
mod look;
mod reservations;

use serde::Serialize;

pub use judge::database;
pub use look::{Places, look};

/// How bad it is, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Ok,
    /// Could not be looked at from here.
    Skipped,
    Warn,
    Fail,
}

impl Level {
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skipped => "skipped",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }
}

/// One thing that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub level: Level,
    /// What was found, in a sentence.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, found: found.into(), advice: None }
    }

    pub fn skipped(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, level: Level::Skipped, found: found.into(), advice: None }
    }

    pub fn warn(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, level: Level::Warn, found: found.into(), advice: Some(advice.into()) }
    }

    pub fn fail(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, level: Level::Fail, found: found.into(), advice: Some(advice.into()) }
    }
}
