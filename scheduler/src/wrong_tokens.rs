//! Who keeps trying tokens, or cookies, that open nothing is made to wait. What counts is how many different wrong tokens came from an address
//! within a minute: a script that repeats one mistake shuts nobody else of its machine out, and whoever guesses soon waits. Each port
//! counts for itself, and says whom it never makes to wait (`http/auth.rs`, `grpc/credentials.rs`).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::server::network;

const WINDOW: Duration = Duration::from_secs(60);
const WRONG_AT_MOST: usize = 30;
/// With this many addresses all others count as one.
const ADDRESSES_AT_MOST: usize = 4_096;

/// Wrong tokens of the last minute by address: digests, with when each first came.
#[derive(Clone, Default)]
pub struct WrongTokens(Arc<Mutex<BTreeMap<IpAddr, Tried>>>);

#[derive(Default)]
struct Tried {
    /// When each first came.
    tokens: BTreeMap<[u8; 8], Instant>,
    /// When it was last told that the address has to wait.
    told: Option<Instant>,
}

impl WrongTokens {
    /// Counts a token, or a cookie, that opens nothing. Whether its address has to wait from now on, which is told once a minute at most.
    #[must_use = "who has to wait from now on stands in the audit"]
    pub fn count(&self, address: Option<IpAddr>, digest: &[u8; 32], now: Instant) -> bool {
        let mut entries = self.entries();
        if entries.len() >= ADDRESSES_AT_MOST {
            entries.values_mut().for_each(|tried| forget(tried, now));
            entries.retain(|_, tried| !tried.tokens.is_empty());
        }
        let key = place(&entries, network(address));
        let tried = entries.entry(key).or_default();
        forget(tried, now);
        if tried.tokens.len() < WRONG_AT_MOST {
            let [a, b, c, d, e, f, g, h, ..] = *digest;
            tried.tokens.entry([a, b, c, d, e, f, g, h]).or_insert(now);
        }
        let full = tried.tokens.len() >= WRONG_AT_MOST;
        let news = full && tried.told.is_none_or(|told| now.saturating_duration_since(told) >= WINDOW);
        if news {
            tried.told = Some(now);
        }
        news
    }

    /// For how long no token from this address that is not known to be right is looked up.
    pub fn wait(&self, address: Option<IpAddr>, now: Instant) -> Option<Duration> {
        let mut entries = self.entries();
        let key = place(&entries, network(address));
        let tried = entries.get_mut(&key)?;
        forget(tried, now);
        let oldest = tried.tokens.values().min()?;
        (tried.tokens.len() >= WRONG_AT_MOST).then(|| (*oldest + WINDOW).saturating_duration_since(now))
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Tried>> {
        // The map is valid between any two of its operations, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn forget(tried: &mut Tried, now: Instant) {
    tried.tokens.retain(|_, first| now.saturating_duration_since(*first) < WINDOW);
}

/// Where an address is counted.
fn place(entries: &BTreeMap<IpAddr, Tried>, of: IpAddr) -> IpAddr {
    let full = entries.len() >= ADDRESSES_AT_MOST && !entries.contains_key(&of);
    if full { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { of }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
            assert_eq!(wrong.wait(address(1), now), None);
            assert_eq!(wrong.count(address(1), &digest(number), now), number + 1 == WRONG_AT_MOST);
        }
        assert!(!wrong.count(address(1), &digest(WRONG_AT_MOST), now), "it is told once");
        assert_eq!(wrong.wait(address(1), now), Some(WINDOW));
        assert_eq!(wrong.wait(address(2), now), None);
        assert_eq!(wrong.wait(address(1), now + WINDOW), None, "a minute later it may try again");
    }

    #[test]
    fn one_mistake_repeated_shuts_nobody_out() {
        let (wrong, now) = (WrongTokens::default(), Instant::now());
        assert!((0..10_000).all(|_| !wrong.count(address(1), &digest(7), now)));
        assert_eq!(wrong.wait(address(1), now), None);
    }

    #[test]
    fn what_is_kept_is_bounded_however_many_addresses_try() {
        let (wrong, now) = (WrongTokens::default(), Instant::now());
        for number in 0..2 * ADDRESSES_AT_MOST as u32 {
            // Those beyond the bound are counted as one, which is told of.
            let _told = wrong.count(Some(IpAddr::from(number.to_be_bytes())), &digest(number as usize), now);
        }
        assert!(wrong.entries().len() <= ADDRESSES_AT_MOST + 1);
        assert!(wrong.entries().values().all(|tried| tried.tokens.len() <= WRONG_AT_MOST));
    }
}
