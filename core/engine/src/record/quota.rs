//! The most that one user may have of the scheduler, and what of it is in use.

use core::fmt;
use std::io;

use headway_types::JobSpec;
use serde::{Deserialize, Serialize};

/// The most that a user may have, whatever the tokens it comes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserQuota {
    /// Jobs that have not ended; elements of arrays count one by one.
    pub unfinished_jobs: u32,
    /// Bytes of their specifications, as they are stored.
    pub specification_bytes: u64,
    /// Requests that are answered in the long run; at least 1.
    pub requests_per_second: u32,
    /// Requests that may come at once after a silence; at least 1.
    pub request_burst: u32,
}

impl UserQuota {
    /// For whoever simulates: one client hands in everybody's jobs.
    pub const UNBOUNDED: Self = Self {
        unfinished_jobs: u32::MAX,
        specification_bytes: u64::MAX,
        requests_per_second: u32::MAX,
        request_burst: u32::MAX,
    };

    /// Whether a user who has `held` may have `more`.
    pub fn admit(self, user: &str, held: UserLoad, more: UserLoad) -> Result<(), OverQuota> {
        let of = |quota, held, more, limit| OverQuota { user: user.to_owned(), quota, held, more, limit };
        let jobs = of(QuotaKind::Jobs, held.jobs.into(), more.jobs.into(), self.unfinished_jobs.into());
        let bytes = of(QuotaKind::Bytes, held.bytes, more.bytes, self.specification_bytes);
        match [jobs, bytes].into_iter().find(OverQuota::is_over) {
            Some(over) => Err(over),
            None => Ok(()),
        }
    }
}

impl Default for UserQuota {
    fn default() -> Self {
        Self { unfinished_jobs: 10_000, specification_bytes: 64 << 20, requests_per_second: 100, request_burst: 1_000 }
    }
}

/// What one user has instead of everybody's quota; what is `None` is as everybody's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnQuota {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfinished_jobs: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub specification_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_burst: Option<u32>,
}

impl OwnQuota {
    /// This where it says something, everybody's elsewhere.
    #[must_use]
    pub fn over(self, everybodys: UserQuota) -> UserQuota {
        UserQuota {
            unfinished_jobs: self.unfinished_jobs.unwrap_or(everybodys.unfinished_jobs),
            specification_bytes: self.specification_bytes.unwrap_or(everybodys.specification_bytes),
            requests_per_second: self.requests_per_second.unwrap_or(everybodys.requests_per_second),
            request_burst: self.request_burst.unwrap_or(everybodys.request_burst),
        }
    }
}

/// What a user's unfinished jobs come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserLoad {
    pub jobs: u32,
    /// Of their specifications.
    pub bytes: u64,
}

impl UserLoad {
    /// What a submission of these would add, or a little more: elements of an array are weighed as the last of them, whose name is the longest.
    #[must_use]
    pub fn of_submission(specs: &[JobSpec]) -> Self {
        specs.iter().fold(Self::default(), |sum, spec| {
            let (count, one) = match spec.array.as_ref().and_then(|array| array.indices.iter().last().zip(Some(array)))
            {
                Some((last, array)) => (array.indices.count(), weight(&spec.element(last))),
                None => (1, weight(spec)),
            };
            let bytes = one.saturating_mul(count.into());
            Self { jobs: sum.jobs.saturating_add(count), bytes: sum.bytes.saturating_add(bytes) }
        })
    }
}

/// What is bounded of what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum QuotaKind {
    Jobs,
    Bytes,
}

/// More than a user may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverQuota {
    pub user: String,
    pub quota: QuotaKind,
    /// In use now.
    pub held: u64,
    /// What was asked beyond it.
    pub more: u64,
    pub limit: u64,
}

impl OverQuota {
    /// Whoever asks for nothing more of a kind is not held to it.
    fn is_over(&self) -> bool {
        self.more > 0 && self.held.saturating_add(self.more) > self.limit
    }
}

impl fmt::Display for OverQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, held, more, limit, .. } = self;
        match self.quota {
            QuotaKind::Jobs => {
                write!(f, "{user} has {held} unfinished jobs of {limit} allowed: {more} more are too many")
            }
            QuotaKind::Bytes => write!(
                f,
                "specifications of {user}'s unfinished jobs take {held} bytes of {limit} allowed: {more} more are too many"
            ),
        }
    }
}

/// Bytes of a specification as it is stored.
#[must_use]
pub fn weight(spec: &JobSpec) -> u64 {
    struct Count(u64);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, spec).expect("a specification can be stored, and counting does not fail");
    count.0
}

#[cfg(test)]
mod tests {
    use headway_types::example;
    use headway_types::spec::{ArraySpec, Indices};
    use proptest::prelude::*;

    use super::*;

    fn load() -> impl Strategy<Value = UserLoad> {
        (0..40_u32, 0..40_u64).prop_map(|(jobs, bytes)| UserLoad { jobs, bytes })
    }

    proptest! {
        #[test]
        fn whoever_is_admitted_keeps_the_quota_and_whoever_is_refused_would_not(
            held in load(), more in load(), (jobs, bytes) in (0..60_u32, 0..60_u64),
        ) {
            let quota = UserQuota { unfinished_jobs: jobs, specification_bytes: bytes, ..UserQuota::default() };
            let fits = |held: u64, more: u64, limit: u64| more == 0 || held + more <= limit;
            let keeps = fits(held.jobs.into(), more.jobs.into(), jobs.into()) && fits(held.bytes, more.bytes, bytes);
            prop_assert_eq!(quota.admit("ada", held, more).is_ok(), keeps);
        }

        #[test]
        fn a_submission_is_never_weighed_for_less_than_it_adds(last in 0..400_u32) {
            let array = ArraySpec { indices: format!("0-{last}").parse::<Indices>().expect("a range"), parallel: None };
            let spec = JobSpec { array: Some(array.clone()), ..example::spec("sweep", example::gpus(1, 1), None) };
            let weighed = UserLoad::of_submission(std::slice::from_ref(&spec));
            let added: u64 = array.indices.iter().map(|index| weight(&spec.element(index))).sum();
            prop_assert_eq!(weighed.jobs, last + 1);
            prop_assert!(weighed.bytes >= added, "{} < {added}", weighed.bytes);
            prop_assert!(weighed.bytes <= added + 16 * u64::from(last + 1), "{} for {added}", weighed.bytes);
        }
    }

    #[test]
    fn what_a_user_has_of_its_own_goes_before_what_everybody_has() {
        let own = OwnQuota { unfinished_jobs: Some(7), ..OwnQuota::default() };
        let quota = own.over(UserQuota::default());
        assert_eq!(quota, UserQuota { unfinished_jobs: 7, ..UserQuota::default() });
    }

    #[test]
    fn a_refusal_says_what_is_used_and_what_is_allowed() {
        let quota = UserQuota { unfinished_jobs: 10, ..UserQuota::default() };
        let over = quota.admit("ada", UserLoad { jobs: 9, bytes: 0 }, UserLoad { jobs: 2, bytes: 5 });
        let told = over.expect_err("eleven are too many").to_string();
        assert_eq!(told, "ada has 9 unfinished jobs of 10 allowed: 2 more are too many");
    }
}
