//! Names of things. An id is never a bare string or number once it is past the border of the process.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::random::SplitMix64;
use crate::time::Timestamp;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.fmt(f) }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> { Uuid::from_str(text).map(Self) }
        }
    };
}

uuid_id!(
    /// A job: what a user submitted, for its whole life (UUIDv7, so ids sort by submission).
    JobId
);
uuid_id!(
    /// An array: jobs of one specification that differ in their index.
    ArrayId
);
uuid_id!(
    /// A node, as the agent's data directory names it; survives restarts of the agent and of the machine.
    NodeId
);
uuid_id!(
    /// A plan: one immutable decision of the planner.
    PlanId
);
uuid_id!(
    /// A reservation of nodes for some jobs over a span of time.
    ReservationId
);

/// A GPU's own identity (NVML's `GPU-…`, or one the agent made for a declared or emulated device).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuUuid(pub String);

impl fmt::Display for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One boot of a node's kernel; a new one proves that no process of the old one is left.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootId(pub String);

/// The fencing number of a job's allocation. Issued by the engine, strictly increasing per job, carried by
/// commands, workers, checkpoints and reports. Generation 0 is "none yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub u64);

impl Generation {
    /// The next fencing number.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}", self.0)
    }
}

/// One leadership of the scheduler. Commits are guarded by it and agents refuse commands of an older one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Term(pub u64);

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}

/// The place of a command among those of its term: each that is sent has a higher one than those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Serial(pub u64);

/// A seeded source of UUIDv7 ids: the same seed and the same times give the same ids, so that a replay
/// names everything as the first run did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IdSource {
    state: SplitMix64,
    /// The last millisecond named and how many ids it has had, so that ids of one moment sort in the order of their making.
    last: (u64, u16),
}

impl IdSource {
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self { state: SplitMix64(seed), last: (0, 0) }
    }

    /// A fresh job id, ordered by `now`.
    pub fn job(&mut self, now: Timestamp) -> JobId {
        JobId(self.next_v7(now))
    }

    /// A fresh array id, ordered by `now`.
    pub fn array(&mut self, now: Timestamp) -> ArrayId {
        ArrayId(self.next_v7(now))
    }

    /// A fresh node id, ordered by `now`.
    pub fn node(&mut self, now: Timestamp) -> NodeId {
        NodeId(self.next_v7(now))
    }

    /// A fresh plan id, ordered by `now`.
    pub fn plan(&mut self, now: Timestamp) -> PlanId {
        PlanId(self.next_v7(now))
    }

    /// A fresh reservation id, ordered by `now`.
    pub fn reservation(&mut self, now: Timestamp) -> ReservationId {
        ReservationId(self.next_v7(now))
    }

    fn next_v7(&mut self, now: Timestamp) -> Uuid {
        let millis = now.0.div_euclid(1_000).max(0).unsigned_abs();
        let count = if self.last.0 == millis { self.last.1.wrapping_add(1) } else { 0 };
        self.last = (millis, count);
        let mut random = [0u8; 10];
        // RFC 9562 §6.2, method 1: the 12 bits after the time are a counter.
        random[..2].copy_from_slice(&(count & 0x0fff).to_be_bytes());
        random[2..].copy_from_slice(&self.state.bits().to_be_bytes());
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_time_give_the_same_id() {
        let at = Timestamp(1_700_000_000_000_000);
        assert_eq!(IdSource::seeded(7).job(at), IdSource::seeded(7).job(at));
        assert_ne!(IdSource::seeded(7).job(at), IdSource::seeded(8).job(at));
    }

    #[test]
    fn ids_sort_by_time_and_within_a_moment_by_making() {
        let mut ids = IdSource::seeded(1);
        let at = Timestamp(5_000_000);
        let made: Vec<JobId> = (0..100).map(|_| ids.job(at)).collect();
        assert!(made.is_sorted());
        let early = ids.job(Timestamp(1_000_000_000));
        let late = ids.job(Timestamp(2_000_000_000));
        assert!(early < late);
        assert_eq!(early.0.get_version_num(), 7);
    }
}
