//! When a job is done: a token budget, and which tokens count towards it.

use serde::{Deserialize, Serialize};

use crate::unit::Tokens;
use crate::word::words;

/// How many tokens a job is to train, and which count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub struct Target {
    pub tokens: Tokens,
    pub count: TargetCount,
}

words! {
    /// Which tokens count towards a target.
    #[derive(Default)]
    pub enum TargetCount {
        /// Those seen and those of progress: the job is done once it has both, so no theory shortens it.
        #[default]
        Both,
        /// Those seen.
        Raw,
        /// Those of progress, in reference tokens, with what the theory credits to batches below the reference.
        Reference,
    }
}

/// Rows written before a target said what it counts hold a number; they mean both.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    Tokens(Tokens),
    Target { tokens: Tokens, count: TargetCount },
}

impl From<Stored> for Target {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::Tokens(tokens) => tokens.into(),
            Stored::Target { tokens, count } => Target { tokens, count },
        }
    }
}

impl From<Tokens> for Target {
    fn from(tokens: Tokens) -> Self {
        Self { tokens, count: TargetCount::default() }
    }
}

impl Target {
    /// What is still to do after so many tokens seen and so many reference tokens of progress.
    #[must_use]
    pub fn left(&self, seen: Tokens, progress: Tokens) -> Tokens {
        Tokens((self.tokens.0 - self.counted(seen, progress).0).max(0.0))
    }

    /// Whether that is enough.
    #[must_use]
    pub fn is_reached(&self, seen: Tokens, progress: Tokens) -> bool {
        self.counted(seen, progress).0 >= self.tokens.0
    }

    /// Of both counters the tokens that count.
    #[must_use]
    pub fn counted(&self, seen: Tokens, progress: Tokens) -> Tokens {
        match self.count {
            TargetCount::Both => Tokens(seen.0.min(progress.0)),
            TargetCount::Raw => seen,
            TargetCount::Reference => progress,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: TargetCount) -> Target {
        Target { tokens: Tokens(100.0), count }
    }

    #[test]
    fn a_target_of_both_is_reached_by_neither_alone() {
        let both = of(TargetCount::Both);
        assert!(!both.is_reached(Tokens(99.0), Tokens(130.0)));
        assert!(!both.is_reached(Tokens(130.0), Tokens(99.0)));
        assert!(both.is_reached(Tokens(100.0), Tokens(100.0)));
        assert_eq!(both.left(Tokens(60.0), Tokens(80.0)), Tokens(40.0));
    }

    #[test]
    fn a_target_that_says_so_counts_one_of_them() {
        assert!(of(TargetCount::Raw).is_reached(Tokens(100.0), Tokens(50.0)));
        assert!(of(TargetCount::Reference).is_reached(Tokens(76.0), Tokens(100.0)));
        assert_eq!(of(TargetCount::Raw).left(Tokens(120.0), Tokens(0.0)), Tokens(0.0));
    }

    #[test]
    fn a_number_in_a_stored_row_means_both() {
        let stored: Target = serde_json::from_str("3e11").expect("an old row");
        assert_eq!(stored, Target::from(Tokens(3e11)));
        let written = serde_json::to_string(&of(TargetCount::Reference)).expect("it is written");
        assert_eq!(serde_json::from_str::<Target>(&written).expect("it is read"), of(TargetCount::Reference));
    }
}
