//! Until when this process may act without having spoken to Postgres again. It is shorter than what Postgres allows, and counts from before
//! each word, so that whoever was stopped or cut off knows it before anybody else can lead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// So much earlier than Postgres ends a silent session, at most.
const MARGIN: Duration = Duration::from_millis(500);

/// Clones are one lease.
#[derive(Clone, Debug)]
pub struct Lease {
    lasts: Duration,
    began: Instant,
    /// Nanoseconds after `began` until which it stands.
    until: Arc<AtomicU64>,
}

impl Lease {
    /// Of a session that Postgres ends after so long a silence. It does not stand yet.
    pub fn of(session: Duration) -> Self {
        Self { lasts: session - MARGIN.min(session / 4), began: Instant::now(), until: Arc::default() }
    }

    /// Postgres has answered what was said at this moment.
    pub(super) fn renew(&self, said: Instant) {
        let until = (said + self.lasts).saturating_duration_since(self.began);
        self.until.fetch_max(u64::try_from(until.as_nanos()).unwrap_or(u64::MAX), Ordering::AcqRel);
    }

    #[must_use]
    pub fn stands(&self) -> bool {
        Instant::now() < self.until()
    }

    /// How long it has not stood.
    #[must_use]
    pub fn over_for(&self) -> Duration {
        Instant::now().saturating_duration_since(self.until())
    }

    /// Returns when what is said now is the last that it counts by.
    pub(super) async fn over(&self) {
        tokio::time::sleep_until(self.until()).await;
    }

    fn until(&self) -> Instant {
        self.began + Duration::from_nanos(self.until.load(Ordering::Acquire))
    }
}

#[cfg(test)]
impl Lease {
    /// One that outlasts any test.
    pub fn standing() -> Self {
        let lease = Self::of(Duration::from_secs(3_600));
        lease.renew(Instant::now());
        lease
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lease_is_over_before_postgres_ends_the_session() {
        let session = Duration::from_millis(200);
        let lease = Lease::of(session);
        assert!(lease.lasts < session && Lease::of(Duration::from_secs(3)).lasts < Duration::from_secs(3));
        assert!(!lease.stands());
        let said = Instant::now();
        lease.renew(said);
        lease.over().await;
        assert!(!lease.stands());
        // An answer that comes late to what was said long ago renews nothing.
        lease.renew(said);
        assert!(!lease.stands());
    }
}
