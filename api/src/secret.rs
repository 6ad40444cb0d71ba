//! A value that nobody is to see: it prints as three dots, and is written out only where it is sent on purpose.

use core::fmt;

use serde::{Deserialize, Serialize};

/// Text that is shown to nobody.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself. Whoever calls this is answerable for where it goes.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_printed() {
        let of_launch = std::collections::BTreeMap::from([("HF_TOKEN".to_owned(), Secret::new("hunter22"))]);
        assert!(!format!("{of_launch:?}").contains("hunter22"));
        let launch = crate::agent::wire::Launch {
            secrets: [("HF_TOKEN".to_owned(), "hunter22".to_owned())].into(),
            ..Default::default()
        };
        let shown = format!("{launch:?}");
        assert!(shown.contains("HF_TOKEN") && !shown.contains("hunter22"), "{shown}");
    }
}
