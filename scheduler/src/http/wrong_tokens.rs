//! Who keeps trying tokens, or cookies, that open nothing is made to wait. What counts is how many different wrong tokens came from an address
//! within a minute: a script that repeats one mistake shuts nobody else of its machine out, and whoever guesses soon waits. A token
//! that has opened something not long ago is never made to wait (`auth`).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::problem::Problem;
use crate::metrics;
use crate::server::network;

const WINDOW: Duration = Duration::from_secs(60);
const WRONG_AT_MOST: usize = 30;
/// With this many addresses all others count as one.
const ADDRESSES_AT_MOST: usize = 4_096;

/// Wrong tokens of the last minute by address: digests, with when each first came.
#[derive(Clone, Default)]
pub struct WrongTokens(Arc<Mutex<BTreeMap<IpAddr, Tried>>>);

type Tried = BTreeMap<[u8; 8], Instant>;

impl WrongTokens {
    /// Whether a token from this address that is not known to be right is looked up at all.
    pub fn admit(&self, address: Option<IpAddr>, now: Instant) -> Result<(), Problem> {
        match self.wait(address, now) {
            None => Ok(()),
            Some(wait) => Err(throttled(wait)),
        }
    }

    /// Counts a token, or a cookie, that opens nothing.
    pub fn count(&self, address: Option<IpAddr>, digest: &[u8; 32], now: Instant) {
        metrics::wrong_token("refused");
        let mut entries = self.entries();
        if entries.len() >= ADDRESSES_AT_MOST {
            entries.values_mut().for_each(|tried| forget(tried, now));
            entries.retain(|_, tried| !tried.is_empty());
        }
        let key = place(&entries, network(address));
        let tried = entries.entry(key).or_default();
        forget(tried, now);
        if tried.len() < WRONG_AT_MOST {
            let [a, b, c, d, e, f, g, h, ..] = *digest;
            tried.entry([a, b, c, d, e, f, g, h]).or_insert(now);
        }
    }

    fn wait(&self, address: Option<IpAddr>, now: Instant) -> Option<Duration> {
        let mut entries = self.entries();
        let key = place(&entries, network(address));
        let tried = entries.get_mut(&key)?;
        forget(tried, now);
        let oldest = tried.values().min()?;
        (tried.len() >= WRONG_AT_MOST).then(|| (*oldest + WINDOW).saturating_duration_since(now))
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Tried>> {
        // The map is valid between any two of its operations, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn throttled(wait: Duration) -> Problem {
    metrics::wrong_token("throttled");
    Problem::too_many("too_many_wrong_tokens", "too many wrong tokens came from this address", wait)
        .hint("wait, and send a token that is right; tokens that have been in use go on working")
}

fn forget(tried: &mut Tried, now: Instant) {
    tried.retain(|_, first| now.saturating_duration_since(*first) < WINDOW);
}

/// Where an address is counted.
fn place(entries: &BTreeMap<IpAddr, Tried>, of: IpAddr) -> IpAddr {
    let full = entries.len() >= ADDRESSES_AT_MOST && !entries.contains_key(&of);
    if full { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { of }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use axum::http::StatusCode;
    use axum::response::IntoResponse as _;

    use super::*;

    fn digest(number: usize) -> [u8; 32] {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&number.to_be_bytes());
        digest
    }

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    #[test]
    fn many_different_wrong_tokens_make_their_address_wait_and_no_other() {
        let (wrong, now) = (WrongTokens::default(), Instant::now());
        for number in 0..WRONG_AT_MOST {
            assert!(wrong.admit(address(1), now).is_ok());
            wrong.count(address(1), &digest(number), now);
        }
        let reply = wrong.admit(address(1), now).unwrap_err().into_response();
        assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(reply.headers()["retry-after"], "60");
        assert!(wrong.admit(address(2), now).is_ok());
        assert!(wrong.admit(address(1), now + WINDOW).is_ok(), "a minute later it may try again");
    }

    #[test]
    fn one_mistake_repeated_shuts_nobody_out() {
        let (wrong, now) = (WrongTokens::default(), Instant::now());
        (0..10_000).for_each(|_| wrong.count(address(1), &digest(7), now));
        assert!(wrong.admit(address(1), now).is_ok());
    }

    #[test]
    fn what_is_kept_is_bounded_however_many_addresses_try() {
        let (wrong, now) = (WrongTokens::default(), Instant::now());
        for number in 0..2 * ADDRESSES_AT_MOST as u32 {
            wrong.count(Some(IpAddr::from(number.to_be_bytes())), &digest(number as usize), now);
        }
        assert!(wrong.entries().len() <= ADDRESSES_AT_MOST + 1);
        assert!(wrong.entries().values().all(|tried| tried.len() <= WRONG_AT_MOST));
    }
}
