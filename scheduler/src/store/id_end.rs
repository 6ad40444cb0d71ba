//! The beginning or the end of an id, by which people name jobs and arrays: lists show the last eight digits.

use std::str::FromStr;

use uuid::Uuid;

/// Hexadecimal digits and dashes, as an id is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdEnd(String);

/// The text is no part of any id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id has hexadecimal digits and dashes, 36 of them at most")]
pub struct NoIdEnd;

const LOWEST: &str = "00000000-0000-0000-0000-000000000000";
const HIGHEST: &str = "ffffffff-ffff-ffff-ffff-ffffffffffff";

impl FromStr for IdEnd {
    type Err = NoIdEnd;

    fn from_str(text: &str) -> Result<Self, NoIdEnd> {
        let written = |sign: char| sign.is_ascii_hexdigit() || sign == '-';
        match (1..=LOWEST.len()).contains(&text.len()) && text.chars().all(written) {
            true => Ok(Self(text.to_ascii_lowercase())),
            false => Err(NoIdEnd),
        }
    }
}

impl IdEnd {
    /// The first and the last id that begin so; none where no id does, since its dashes are elsewhere.
    pub(super) fn range(&self) -> Option<(Uuid, Uuid)> {
        let with = |rest: &str| Uuid::parse_str(&format!("{}{}", self.0, &rest[self.0.len()..])).ok();
        with(LOWEST).zip(with(HIGHEST))
    }

    /// As a pattern of ids that are read backwards: what ends so begins with it, which an index finds.
    pub(super) fn backwards(&self) -> String {
        self.0.chars().rev().chain(['%']).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn range(text: &str) -> Option<[String; 2]> {
        let (first, last) = text.parse::<IdEnd>().unwrap().range()?;
        Some([first.to_string(), last.to_string()])
    }

    #[test]
    fn what_begins_so_lies_in_a_row() {
        let of_a_dash = ["018bcfe5-0000-0000-0000-000000000000", "018bcfe5-ffff-ffff-ffff-ffffffffffff"];
        assert_eq!(range("018BCFE5").unwrap(), of_a_dash);
        assert_eq!(range("018bcfe5-").unwrap(), of_a_dash);
        let whole = "018bcfe5-0001-7000-8000-00000000000a";
        assert_eq!(range(whole).unwrap(), [whole, whole]);
        for elsewhere in ["-018b", "018bcfe50", "018-"] {
            assert_eq!(range(elsewhere), None, "{elsewhere}");
        }
    }

    #[test]
    fn what_ends_so_begins_so_backwards() {
        assert_eq!("8000-00A".parse::<IdEnd>().unwrap().backwards(), "a00-0008%");
        for wrong in ["", "train", "0%", "018bcfe5-0001-7000-8000-00000000000a0"] {
            assert_eq!(wrong.parse::<IdEnd>(), Err(NoIdEnd), "{wrong}");
        }
    }
}
