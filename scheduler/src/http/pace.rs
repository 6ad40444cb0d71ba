//! How fast a user may ask, by whatever tokens: so many requests at once after a silence, and so many a second in the long run. What is kept
//! is a number per user, in the memory of this process: how much of the burst is used up, and when that was. A quota that changes holds
//! at once.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headway_engine::record::UserQuota;

use super::problem::Problem;
use crate::metrics;
use crate::server::network;

/// How fast one address may ask without a token: many people may be behind it.
#[derive(Clone, Copy, Debug)]
pub struct OfAddress {
    per_second: u32,
    at_once: u32,
    /// In metrics, and in words.
    what: (&'static str, &'static str),
}

pub const LOGINS: OfAddress = OfAddress { per_second: 10, at_once: 60, what: ("logins", "to log in") };
/// The page has some dozens of files.
pub const PAGES: OfAddress =
    OfAddress { per_second: 100, at_once: 1_000, what: ("pages", "for what is open to everybody") };
/// With so many users those are forgotten who have been silent long enough.
const USERS_AT_MOST: usize = 4_096;

/// Users who asked of late.
#[derive(Clone, Default)]
pub struct Paces(Arc<Mutex<BTreeMap<String, Pace>>>);

impl Paces {
    /// Takes one request of a user, unless it comes too fast.
    pub fn admit(&self, user: &str, quota: UserQuota, now: Instant) -> Result<(), Problem> {
        let mut users = self.users();
        if users.len() >= USERS_AT_MOST && !users.contains_key(user) {
            users.retain(|_, pace| !pace.is_over(now));
        }
        let pace = users.entry(user.to_owned()).or_insert(Pace { used: 0, at: now });
        pace.take(quota, now).map_err(|wait| too_fast(user, quota, wait))
    }

    /// Takes one request of somebody who has no token, unless too many come from the address. With very many addresses all further ones count as one.
    pub fn admit_address(&self, address: Option<IpAddr>, pace: OfAddress, now: Instant) -> Result<(), Problem> {
        let mut addresses = self.users();
        let mut key = network(address).to_string();
        if addresses.len() >= USERS_AT_MOST && !addresses.contains_key(&key) {
            addresses.retain(|_, pace| !pace.is_over(now));
            if addresses.len() >= USERS_AT_MOST {
                key = "all others".into();
            }
        }
        let OfAddress { per_second, at_once, what: (metric, words) } = pace;
        let quota = UserQuota { requests_per_second: per_second, request_burst: at_once, ..UserQuota::default() };
        addresses.entry(key).or_insert(Pace { used: 0, at: now }).take(quota, now).map_err(|wait| {
            metrics::quota_refused(metric);
            let detail = format!("this address asks more than {per_second} times a second {words}");
            Problem::too_many("too_many_requests", detail, wait).hint("wait as Retry-After says")
        })
    }

    fn users(&self) -> MutexGuard<'_, BTreeMap<String, Pace>> {
        // The map is valid between any two of its operations, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn too_fast(user: &str, quota: UserQuota, wait: Duration) -> Problem {
    metrics::quota_refused("requests");
    let UserQuota { requests_per_second, request_burst, .. } = quota;
    let detail = format!(
        "{user} asks more than {requests_per_second} times a second, and has used up {request_burst} requests at once"
    );
    Problem::too_many("too_many_requests", detail, wait).hint(format!(
        "wait as Retry-After says; an operator allows more with `headway user quota {user} --requests-per-second N`"
    ))
}

/// Of a request: what a nanosecond gives back at one request a second.
const BILLIONTHS: u128 = 1_000_000_000;

/// What somebody has asked of late.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pace {
    /// Of the burst, in billionths of a request.
    used: u128,
    at: Instant,
}

impl Pace {
    /// Takes a request, or says for how long none is taken.
    fn take(&mut self, quota: UserQuota, now: Instant) -> Result<(), Duration> {
        let rate = u128::from(quota.requests_per_second.max(1));
        let given_back = now.saturating_duration_since(self.at).as_nanos().saturating_mul(rate);
        let room = u128::from(quota.request_burst.max(1)) * BILLIONTHS;
        // Of a burst that was larger no more is owed than there is now.
        let used = self.used.saturating_sub(given_back).min(room) + BILLIONTHS;
        if used > room {
            let wait = (used - room).div_ceil(rate);
            return Err(Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX)));
        }
        *self = Self { used, at: self.at.max(now) };
        Ok(())
    }

    /// Whether all is given back at the slowest pace there is.
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at).as_nanos() >= self.used
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use axum::http::StatusCode;
    use axum::response::IntoResponse as _;
    use proptest::prelude::*;

    use super::*;

    fn quota(requests_per_second: u32, request_burst: u32) -> UserQuota {
        UserQuota { requests_per_second, request_burst, ..UserQuota::default() }
    }

    /// Moments at which one asks, in milliseconds between them.
    fn pauses() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(prop_oneof![3 => Just(0), 3 => 0..20_u64, 1 => 0..2_000_u64], 1..300)
    }

    proptest! {
        #[test]
        fn within_any_span_no_more_are_taken_than_the_burst_and_the_rate_allow(
            pauses in pauses(), rate in 1..200_u32, burst in 1..50_u32,
        ) {
            let (began, mut at, mut taken) = (Instant::now(), Duration::ZERO, Vec::new());
            let mut pace = Pace { used: 0, at: began };
            for pause in pauses {
                at += Duration::from_millis(pause);
                if pace.take(quota(rate, burst), began + at).is_ok() {
                    taken.push(at.as_secs_f64());
                }
            }
            for (place, from) in taken.iter().enumerate() {
                for (count, to) in taken[place..].iter().enumerate() {
                    let most = f64::from(burst) + (to - from) * f64::from(rate) + 1e-3;
                    prop_assert!((count + 1) as f64 <= most, "{} within {} s", count + 1, to - from);
                }
            }
        }

        #[test]
        fn whoever_keeps_the_pace_is_never_refused(rate in 1..200_u32, burst in 1..50_u32, asks in 1..300_u32) {
            let began = Instant::now();
            let mut pace = Pace { used: 0, at: began };
            for ask in 0..asks {
                let at = began + Duration::from_secs(1) * ask / rate + Duration::from_micros(ask.into());
                prop_assert!(pace.take(quota(rate, burst), at).is_ok());
            }
        }

        #[test]
        fn whoever_waits_as_told_is_taken_and_no_sooner(pauses in pauses(), rate in 1..200_u32, burst in 1..50_u32) {
            let (mut now, quota) = (Instant::now(), quota(rate, burst));
            let mut pace = Pace { used: 0, at: now };
            for pause in pauses {
                now += Duration::from_millis(pause);
                if let Err(wait) = pace.take(quota, now) {
                    let (mut soon, mut then) = (pace, pace);
                    prop_assert!(soon.take(quota, now + wait - Duration::from_nanos(1)).is_err());
                    prop_assert!(then.take(quota, now + wait).is_ok());
                }
            }
        }
    }

    #[test]
    fn a_user_who_floods_waits_and_nobody_else_does() {
        let (paces, now) = (Paces::default(), Instant::now());
        let ask = |user: &str, at: Instant| paces.admit(user, quota(2, 5), at);
        (0..5).for_each(|_| ask("ada", now).unwrap());
        let refused = ask("ada", now).unwrap_err();
        assert_eq!(refused.code(), "too_many_requests");
        let reply = refused.into_response();
        assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(reply.headers()["retry-after"], "1");
        ask("bob", now).unwrap();
        ask("ada", now + Duration::from_millis(500)).unwrap();
    }

    #[test]
    fn strangers_are_paced_by_address_and_what_is_kept_of_them_is_bounded() {
        let (paces, now) = (Paces::default(), Instant::now());
        let of = |number: u32| Some(IpAddr::from(number.to_be_bytes()));
        let admit = |number| paces.admit_address(of(number), LOGINS, now);
        (0..LOGINS.at_once).for_each(|_| admit(1).unwrap());
        let refused = admit(1).unwrap_err();
        assert_eq!(refused.code(), "too_many_requests");
        admit(2).unwrap();
        let refused = (3..6_000).filter(|number| admit(*number).is_err()).count();
        assert!(refused > 1_500, "{refused}: further addresses count as one");
        assert!(paces.users().len() <= USERS_AT_MOST + 1);
    }

    #[test]
    fn a_quota_that_is_raised_holds_at_once() {
        let (paces, now) = (Paces::default(), Instant::now());
        (0..5).for_each(|_| paces.admit("ada", quota(1, 5), now).unwrap());
        paces.admit("ada", quota(1, 5), now).unwrap_err();
        paces.admit("ada", quota(1, 50), now).unwrap();
        paces.admit("ada", quota(1, 6), now).unwrap_err();
        paces.admit("ada", quota(1_000, 6), now + Duration::from_millis(1)).unwrap();
        (0..10_000).for_each(|_| paces.admit("ada", UserQuota::UNBOUNDED, now).unwrap());
    }

    #[test]
    fn a_quota_that_is_lowered_keeps_nobody_out_for_what_was_allowed_before() {
        let now = Instant::now();
        let wait = Pace { used: 1_000 * BILLIONTHS, at: now }.take(quota(1, 2), now);
        assert_eq!(wait, Err(Duration::from_secs(1)));
    }

    #[test]
    fn users_who_are_silent_are_forgotten() {
        let (paces, now) = (Paces::default(), Instant::now());
        (0..3 * USERS_AT_MOST).for_each(|user| {
            let at = now + Duration::from_millis(user as u64);
            paces.admit(&format!("user-{user}"), quota(100, 10), at).unwrap();
        });
        assert!(paces.users().len() <= USERS_AT_MOST);
    }
}
