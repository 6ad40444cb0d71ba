//! Instants. Time is always an argument: the live shell reads a clock, the simulator turns a virtual one.

use core::fmt;
use core::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

use crate::unit::Seconds;

/// Microseconds since the Unix epoch, UTC: Postgres' own resolution, so a value survives the store unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// How long `earlier` is ago; zero when it lies ahead (clocks step back).
    #[must_use]
    pub fn since(self, earlier: Timestamp) -> Seconds {
        Seconds((self.0.saturating_sub(earlier.0)).max(0) as f64 / 1e6)
    }
}

impl Add<Seconds> for Timestamp {
    type Output = Timestamp;
    // Seconds become the timestamp's microseconds before they add.
    #[allow(clippy::suspicious_arithmetic_impl)]
    fn add(self, rhs: Seconds) -> Timestamp {
        Timestamp(self.0.saturating_add((rhs.0 * 1e6) as i64))
    }
}

impl Sub<Seconds> for Timestamp {
    type Output = Timestamp;
    #[allow(clippy::suspicious_arithmetic_impl)]
    fn sub(self, rhs: Seconds) -> Timestamp {
        Timestamp(self.0.saturating_sub((rhs.0 * 1e6) as i64))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_ahead_is_zero_seconds_ago() {
        assert_eq!(Timestamp(5).since(Timestamp(9)), Seconds(0.0));
        assert_eq!(Timestamp(2_500_000).since(Timestamp(0)), Seconds(2.5));
    }
}
