//! How the micro-batches of a step are shared out among data-parallel replicas.

use core::fmt::Write;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// Micro-batches of a replica per cycle, where those on faster nodes take more (Cannikin: Nie et al. 2024, who share out samples). A step has whole cycles.
/// In rank order the replicas on slower nodes come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Shares {
    /// Micro-batches of each replica on slower nodes.
    pub slower: u32,
    /// Micro-batches of each replica on faster nodes.
    pub faster: u32,
    /// Replicas on faster nodes, the last ones.
    pub of_faster: u32,
}

impl Shares {
    /// One each.
    pub const EVEN: Shares = Shares { slower: 1, faster: 1, of_faster: 0 };

    /// No replica takes more in a cycle.
    pub const MOST: u32 = 64;

    #[must_use]
    pub fn are_even(&self) -> bool {
        *self == Self::EVEN
    }

    /// Whether the replicas can be shared out so: even, or each of the last ones takes more than each of the first.
    #[must_use]
    pub fn are_sound(&self, replicas: u32) -> bool {
        let Shares { slower, faster, of_faster } = *self;
        self.are_even()
            || (0 < slower && slower < faster && faster <= Self::MOST && 0 < of_faster && of_faster < replicas)
    }

    /// Micro-batches of all replicas in a cycle.
    #[must_use]
    pub fn micro_batches(&self, replicas: u32) -> u64 {
        let (faster, slower) = (replicas.min(self.of_faster), replicas.saturating_sub(self.of_faster));
        u64::from(slower) * u64::from(self.slower) + u64::from(faster) * u64::from(self.faster)
    }

    /// Those of each replica, as `1,1,2,2`.
    #[must_use]
    pub fn list(&self, replicas: u32) -> String {
        let mut list = String::new();
        for share in self.by_replica(replicas) {
            // Writing to a string cannot fail.
            let _ = write!(list, "{}{share}", if list.is_empty() { "" } else { "," });
        }
        list
    }

    /// Those of each replica.
    pub fn by_replica(&self, replicas: u32) -> impl Iterator<Item = u32> + use<> {
        let Shares { slower, faster, of_faster } = *self;
        let first = replicas.saturating_sub(of_faster);
        (0..replicas).map(move |replica| if replica < first { slower } else { faster })
    }
}

/// Why a text is no shares.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not micro-batches by replica, as 1,1,2,2, where none takes more before one that takes less")]
pub struct SharesError {
    pub text: String,
}

/// Of what each replica takes in a cycle: `1,1,2,2`.
impl FromStr for Shares {
    type Err = SharesError;

    fn from_str(text: &str) -> Result<Self, SharesError> {
        let error = || SharesError { text: text.to_owned() };
        let each: Vec<u32> = text.split(',').map(str::parse).collect::<Result<_, _>>().map_err(|_| error())?;
        let (slower, faster) = (each[0], each[each.len() - 1]);
        let of_faster = each.iter().rev().take_while(|share| **share == faster && faster > slower).count() as u32;
        let shares = Shares { slower, faster, of_faster };
        let replicas = each.len() as u32;
        (shares.are_sound(replicas) && shares.by_replica(replicas).eq(each)).then_some(shares).ok_or_else(error)
    }
}

impl Default for Shares {
    fn default() -> Self {
        Self::EVEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_replicas_are_on_the_faster_nodes() {
        let shares = Shares { slower: 2, faster: 3, of_faster: 2 };
        assert_eq!(shares.by_replica(5).collect::<Vec<_>>(), [2, 2, 2, 3, 3]);
        assert_eq!((shares.micro_batches(5), Shares::EVEN.micro_batches(5)), (12, 5));
        assert_eq!(Shares::EVEN.by_replica(3).collect::<Vec<_>>(), [1; 3]);
    }

    #[test]
    fn a_list_is_read_as_it_is_written() {
        for (shares, replicas) in [(Shares::EVEN, 3), (Shares { slower: 2, faster: 3, of_faster: 2 }, 5)] {
            assert_eq!(shares.list(replicas).parse(), Ok(shares));
        }
        for text in ["", "1,x", "2,1", "1,2,1", "2,2", "0,1", "1,2,3", "1,65"] {
            let error = text.parse::<Shares>().expect_err(text);
            assert!(error.to_string().contains(&format!("\"{text}\"")), "{error}");
        }
    }

    #[test]
    fn nonsense_is_told_and_never_overflows() {
        let nonsense =
            [(0, 1, 1), (2, 2, 1), (2, 1, 1), (1, 2, 0), (1, 2, 4), (1, 65, 1), (u32::MAX, u32::MAX, u32::MAX)];
        for (slower, faster, of_faster) in nonsense {
            let shares = Shares { slower, faster, of_faster };
            assert!(!shares.are_sound(4), "{shares:?}");
            let total: u64 = shares.by_replica(4).map(u64::from).sum();
            assert_eq!(shares.micro_batches(4), total);
        }
        assert!(Shares::EVEN.are_sound(1) && Shares { slower: 1, faster: 2, of_faster: 3 }.are_sound(4));
    }
}
