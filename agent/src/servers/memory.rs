//! Servers that an agent knows of beyond the list in its hand: those of the next start, and those that a leader has
//! ceased to name. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long a server is kept that the leader no longer names: one that restarts is not named for a moment, and sessions
/// last for days. It goes with the first list after that time.
pub(super) const UNNAMED_KEPT: Duration = Duration::from_secs(3_600);

/// Which servers a server names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// All servers of the cluster.
    All,
    /// Some of them.
    Part,
}

/// Servers that the agent knows beyond those that it dials.
#[derive(Default)]
pub(super) struct Memory {
    /// Servers that are stored for the next start, whether or not this one dials them.
    pub(super) remembered: Vec<String>,
    /// Since when a leader names all servers but these.
    unnamed_since: BTreeMap<String, Instant>,
}

impl Memory {
    /// Takes in whom a server names; returns those that have not been named for too long.
    pub(super) fn note_named(
        &mut self,
        urls: &[String],
        known: &[String],
        named: Named,
        now: Instant,
    ) -> BTreeSet<String> {
        let is_kept = |url: &String| known.contains(url) || self.remembered.contains(url);
        self.unnamed_since.retain(|url, _| is_kept(url) && !urls.contains(url));
        if named == Named::Part {
            return BTreeSet::new();
        }
        for url in known.iter().chain(&self.remembered).filter(|url| !urls.contains(url)) {
            self.unnamed_since.entry(url.clone()).or_insert(now);
        }
        let expired = |since: &Instant| now.duration_since(*since) >= UNNAMED_KEPT;
        let gone: BTreeSet<String> =
            self.unnamed_since.iter().filter(|(_, since)| expired(since)).map(|(url, _)| url.clone()).collect();
        self.unnamed_since.retain(|url, _| !gone.contains(url));
        gone
    }
}
