//! Job arrays: one specification, many jobs that differ in their index.

use core::fmt;
use core::str::FromStr;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Elements of one array: they are admitted in one batch.
pub const MOST_ELEMENTS: usize = 1_000;
/// The largest index, as Slurm's.
pub const LARGEST_INDEX: u32 = 4_000_000;

/// What makes a specification an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArraySpec {
    pub indices: Indices,
    /// Elements that may run at once; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<u32>,
}

/// The indices of an array's elements: at least one, ascending.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Indices(Vec<u32>);

/// What is wrong with indices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    #[error("\"{0}\" is no index, no range (0-99) and no range with a step (0-99:2)")]
    Unreadable(String),
    #[error("{0}-{1} goes down")]
    Backwards(u32, u32),
    #[error("a step is at least 1")]
    NoStep,
    #[error("{0} is above {LARGEST_INDEX}, the largest index")]
    TooLarge(u64),
    #[error("{0} comes twice")]
    Twice(u32),
    #[error("an array has {MOST_ELEMENTS} elements at most, not {0}")]
    TooMany(u64),
    #[error("an array has one element at least")]
    Empty,
}

impl Indices {
    /// Of a list, in any order.
    ///
    /// # Errors
    /// None, too many, too large, or one that comes twice.
    pub fn try_new(list: impl IntoIterator<Item = u32>) -> Result<Self, IndexError> {
        let mut seen = BTreeSet::new();
        for index in list {
            if index > LARGEST_INDEX {
                return Err(IndexError::TooLarge(index.into()));
            }
            if !seen.insert(index) {
                return Err(IndexError::Twice(index));
            }
            if seen.len() > MOST_ELEMENTS {
                return Err(IndexError::TooMany(seen.len() as u64));
            }
        }
        if seen.is_empty() { Err(IndexError::Empty) } else { Ok(Self(seen.into_iter().collect())) }
    }

    /// The one index of an element.
    #[must_use]
    pub fn only(index: u32) -> Self {
        Self(vec![index])
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + Clone {
        self.0.iter().copied()
    }

    /// How many: never none.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.len() as u32
    }
}

/// "0-99", "0-99:2", "1,3,5-9".
impl FromStr for Indices {
    type Err = IndexError;

    fn from_str(text: &str) -> Result<Self, IndexError> {
        let mut all = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (first, last, step) = range(part)?;
            let many = u64::from((last - first) / step) + 1;
            if all.len() as u64 + many > MOST_ELEMENTS as u64 {
                return Err(IndexError::TooMany(all.len() as u64 + many));
            }
            all.extend((first..=last).step_by(step as usize));
        }
        Self::try_new(all)
    }
}

fn range(part: &str) -> Result<(u32, u32, u32), IndexError> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.len() <= 18 && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse::<u64>().ok().filter(|_| digits);
        let number = number.ok_or_else(|| IndexError::Unreadable(part.to_owned()))?;
        u32::try_from(number).ok().filter(|one| *one <= LARGEST_INDEX).ok_or(IndexError::TooLarge(number))
    };
    let (ends, step) = match part.split_once(':') {
        Some((ends, step)) => (ends, number(step)?),
        None => (part, 1),
    };
    match ends.split_once('-') {
        _ if step == 0 => Err(IndexError::NoStep),
        Some((first, last)) => match (number(first)?, number(last)?) {
            (first, last) if first > last => Err(IndexError::Backwards(first, last)),
            (first, last) => Ok((first, last, step)),
        },
        None if ends.len() < part.len() => Err(IndexError::Unreadable(part.to_owned())),
        None => number(ends).map(|only| (only, only, 1)),
    }
}

/// As short as it is read back: runs of three and more with one step become ranges.
impl fmt::Display for Indices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        let mut separator = "";
        while let Some(&first) = rest.first() {
            let step = rest.get(1).map_or(1, |second| second - first);
            let run = 1 + rest.windows(2).take_while(|pair| pair[1] - pair[0] == step).count();
            let last = rest[run - 1];
            let taken = match (run, step) {
                (3.., 1) => write!(f, "{separator}{first}-{last}").map(|()| run),
                (3.., _) => write!(f, "{separator}{first}-{last}:{step}").map(|()| run),
                _ => write!(f, "{separator}{first}").map(|()| 1),
            }?;
            rest = &rest[taken..];
            separator = ",";
        }
        Ok(())
    }
}

impl From<Indices> for String {
    fn from(indices: Indices) -> Self {
        indices.to_string()
    }
}

impl TryFrom<String> for Indices {
    type Error = IndexError;

    fn try_from(text: String) -> Result<Self, IndexError> {
        text.parse()
    }
}

/// "sweep[7]".
#[must_use]
pub fn element_name(array: &str, index: u32) -> String {
    format!("{array}[{index}]")
}

/// Of an element's name that of its array, "sweep"; of any other name that itself. Brackets stand in no name that users give.
#[must_use]
pub fn family_name(name: &str) -> &str {
    name.split_once('[').map_or(name, |(array, _)| array)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_are_read_as_slurm_reads_them() {
        for (text, indices, shown) in [
            ("0-3", vec![0, 1, 2, 3], "0-3"),
            ("0-9:3", vec![0, 3, 6, 9], "0-9:3"),
            ("9,1, 3-5", vec![1, 3, 4, 5, 9], "1,3-5,9"),
            ("7", vec![7], "7"),
            ("1,2", vec![1, 2], "1,2"),
            ("4000000", vec![4_000_000], "4000000"),
        ] {
            let read: Indices = text.parse().unwrap();
            assert_eq!((read.iter().collect::<Vec<_>>(), read.to_string()), (indices, shown.to_owned()));
        }
    }

    #[test]
    fn what_is_no_array_is_told_in_words() {
        for (text, told) in [
            ("", "\"\" is no index, no range (0-99) and no range with a step (0-99:2)"),
            ("5:2", "\"5:2\" is no index, no range (0-99) and no range with a step (0-99:2)"),
            ("3-1", "3-1 goes down"),
            ("0-9:0", "a step is at least 1"),
            ("1,1", "1 comes twice"),
            ("0-1000", "an array has 1000 elements at most, not 1001"),
            ("0-999999999999", "999999999999 is above 4000000, the largest index"),
        ] {
            assert_eq!(text.parse::<Indices>().unwrap_err().to_string(), told, "{text}");
        }
        assert_eq!(Indices::try_new([]), Err(IndexError::Empty));
    }

    #[test]
    fn an_element_is_called_after_its_array() {
        assert_eq!(element_name("sweep", 7), "sweep[7]");
        assert_eq!((family_name("sweep[7]"), family_name("sweep")), ("sweep", "sweep"));
    }

    proptest! {
        #[test]
        fn indices_are_read_as_they_are_shown(list in proptest::collection::btree_set(0_u32..60, 1..40)) {
            let indices = Indices::try_new(list.iter().copied()).unwrap();
            prop_assert_eq!(&indices.to_string().parse::<Indices>().unwrap(), &indices);
            prop_assert!(indices.iter().eq(list));
        }

        #[test]
        fn whatever_is_written_is_read_or_refused(text in "[0-9:,\\- ]{0,16}|.{0,12}") {
            let _ = text.parse::<Indices>();
        }
    }
}
