//! The signal by which a job hears that its end is near.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::unit::Seconds;
use crate::word::words;

/// Which signal a job gets how long before its time limit ends it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    pub signal: NoticeSignal,
    pub before: Seconds,
    #[serde(default)]
    pub to: NoticeTo,
}

words! {
    /// Signals that a process may handle.
    pub enum NoticeSignal {
        Hup,
        Int,
        Quit,
        Usr1,
        Usr2,
        Term,
    }

    /// Who hears it: nobody else could but die of it.
    #[derive(Default)]
    pub enum NoticeTo {
        /// Every process of the job that handles it.
        #[default]
        Handlers,
        /// The command itself, if it handles it, and nothing that it has started.
        Command,
    }
}

impl NoticeSignal {
    /// As Linux numbers them.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::Hup => 1,
            Self::Int => 2,
            Self::Quit => 3,
            Self::Usr1 => 10,
            Self::Usr2 => 12,
            Self::Term => 15,
        }
    }

    /// "USR1", "SIGUSR1", "usr1" or "10".
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        use strum::VariantArray;
        let name = text.to_ascii_lowercase();
        let name = name.strip_prefix("sig").unwrap_or(&name);
        let numbered = || Self::VARIANTS.iter().copied().find(|one| one.number().to_string() == name);
        Self::from_str(name).ok().or_else(numbered)
    }

    /// "USR1".
    #[must_use]
    pub fn name(self) -> String {
        self.to_string().to_ascii_uppercase()
    }
}

impl fmt::Display for Notice {
    /// As specifications have it: "USR1@120s", "B:TERM@60s".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = if self.to == NoticeTo::Command { "B:" } else { "" };
        write!(f, "{to}{}@{}s", self.signal.name(), self.before.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_named_or_numbered() {
        for text in ["USR1", "SIGUSR1", "usr1", "10"] {
            assert_eq!(NoticeSignal::read(text), Some(NoticeSignal::Usr1), "{text}");
        }
        for text in ["KILL", "9", "", "SIG", "USR3", "SIGSIGUSR1"] {
            assert_eq!(NoticeSignal::read(text), None, "{text}");
        }
    }
}
