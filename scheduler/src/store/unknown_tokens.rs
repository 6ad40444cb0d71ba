//! Tokens that were looked up in vain a moment ago: a client that keeps trying with a wrong one must not keep the
//! database busy. A token made by another process works after `REMEMBER` at the latest.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use headway_types::{Seconds, Timestamp};

use super::TokenHash;

const REMEMBER: Seconds = Seconds(2.0);
const REMEMBER_AT_MOST: usize = 4_096;

/// By hash: when it was looked up.
#[derive(Debug, Default)]
pub(super) struct UnknownTokens(Mutex<BTreeMap<TokenHash, Timestamp>>);

impl UnknownTokens {
    pub fn has(&self, hash: &TokenHash, now: Timestamp) -> bool {
        self.entries().get(hash).is_some_and(|seen| is_fresh(*seen, now))
    }

    pub fn remember(&self, hash: &TokenHash, now: Timestamp) {
        let mut entries = self.entries();
        if entries.len() >= REMEMBER_AT_MOST {
            entries.retain(|_, seen| is_fresh(*seen, now));
        }
        if entries.len() < REMEMBER_AT_MOST {
            entries.insert(hash.clone(), now);
        }
    }

    /// The token exists now.
    pub fn forget(&self, hash: &TokenHash) {
        self.entries().remove(hash);
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<TokenHash, Timestamp>> {
        // The map is valid between any two of its operations, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_fresh(seen: Timestamp, now: Timestamp) -> bool {
    now >= seen && now.since(seen) < REMEMBER
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_790_000_000_000_000);

    #[test]
    fn an_unknown_token_is_remembered_for_a_moment_or_until_it_exists() {
        let unknown = UnknownTokens::default();
        let hash = TokenHash::of("guess");
        assert!(!unknown.has(&hash, NOW));
        unknown.remember(&hash, NOW);
        assert!(unknown.has(&hash, NOW));
        assert!(!unknown.has(&hash, NOW + REMEMBER));
        unknown.forget(&hash);
        assert!(!unknown.has(&hash, NOW));
    }

    #[test]
    fn a_flood_of_guesses_takes_bounded_room() {
        let unknown = UnknownTokens::default();
        for guess in 0..2 * REMEMBER_AT_MOST {
            unknown.remember(&TokenHash::of(&guess.to_string()), NOW);
        }
        assert_eq!(unknown.entries().len(), REMEMBER_AT_MOST);
        unknown.remember(&TokenHash::of("later"), NOW + REMEMBER);
        assert!(unknown.has(&TokenHash::of("later"), NOW + REMEMBER), "old guesses make room");
    }
}
