//! Which part of a job's output is asked for: ranks, attempts, moments, as people write them.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use headway_api::spec::duration;
use headway_types::Generation;

use crate::http::problem::Problem;

/// Ranks that are read at once; each takes room while it is.
pub const MOST_RANKS: usize = 64;

/// Which ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranks {
    /// Every process that writes.
    All,
    These(BTreeSet<u32>),
}

/// Which attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    Newest,
    Generation(Generation),
    /// The first is 1.
    Number(u32),
    /// The one before the newest.
    Previous,
}

/// "3", "0,3", "0-3,8", "all"; absent: 0.
pub fn ranks(text: Option<&str>) -> Result<Ranks, Problem> {
    let Some(text) = text else { return Ok(Ranks::These([0].into())) };
    if text == "all" {
        return Ok(Ranks::All);
    }
    let wrong = || {
        Problem::bad_request(format!("\"{text}\" names no ranks")).field("rank").hint("write 3, or 0,3, or 0-7, or all")
    };
    let mut ranks = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
        if first > last {
            return Err(wrong());
        }
        if (last - first) as usize >= MOST_RANKS {
            return Err(too_many());
        }
        ranks.extend(first..=last);
    }
    if ranks.len() > MOST_RANKS { Err(too_many()) } else { Ok(Ranks::These(ranks)) }
}

pub fn too_many() -> Problem {
    Problem::bad_request(format!("{MOST_RANKS} ranks are read at once, at most"))
        .field("rank")
        .hint("name those that matter: rank=0-63, and the others after them")
}

/// "10m" before now, or a moment in RFC 3339; in milliseconds since 1970.
pub fn since(text: &str, now: DateTime<Utc>) -> Result<i64, Problem> {
    if let Ok(at) = DateTime::parse_from_rfc3339(text) {
        return Ok(at.timestamp_millis());
    }
    let ago = duration(text).map_err(|_| {
        Problem::bad_request(format!("\"{text}\" is neither a time nor a moment"))
            .field("since")
            .hint("write 10m, 2h, or 2026-12-24T18:00:00Z")
    })?;
    Ok(now.timestamp_millis() - (ago.0 * 1e3) as i64)
}

/// At most one of them names an attempt.
pub fn attempt(generation: Option<u64>, number: Option<u32>, previous: bool) -> Result<Attempt, Problem> {
    match (generation, number, previous) {
        (None, None, false) => Ok(Attempt::Newest),
        (Some(generation), None, false) => Ok(Attempt::Generation(Generation(generation))),
        (None, Some(0), false) => Err(Problem::bad_request("the first attempt is 1").field("attempt")),
        (None, Some(number), false) => Ok(Attempt::Number(number)),
        (None, None, true) => Ok(Attempt::Previous),
        _ => Err(Problem::bad_request("generation, attempt and previous each name an attempt").field("attempt")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ranks_are_read_as_people_write_them() {
        let these = |ranks: &[u32]| Ranks::These(ranks.iter().copied().collect());
        assert_eq!(ranks(None).unwrap(), these(&[0]));
        assert_eq!(ranks(Some("3")).unwrap(), these(&[3]));
        assert_eq!(ranks(Some("8,0-3,2")).unwrap(), these(&[0, 1, 2, 3, 8]));
        assert_eq!(ranks(Some("all")).unwrap(), Ranks::All);
        for wrong in ["", "a", "3-1", "1-", "-1", "1,,2", "0-4294967295", "0-63,64"] {
            assert!(ranks(Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_moment_is_written_or_counted_back() {
        let now = DateTime::parse_from_rfc3339("2026-12-24T18:00:00Z").unwrap().to_utc();
        let ms = now.timestamp_millis();
        assert_eq!(since("10m", now).unwrap(), ms - 600_000);
        assert_eq!(since("2026-12-24T17:00:00Z", now).unwrap(), ms - 3_600_000);
        assert_eq!(since("2026-12-24T19:00:00+02:00", now).unwrap(), ms - 3_600_000);
        assert!(since("yesterday", now).is_err());
    }

    #[test]
    fn an_attempt_is_named_once() {
        assert_eq!(attempt(None, Some(2), false).unwrap(), Attempt::Number(2));
        assert_eq!(attempt(None, None, true).unwrap(), Attempt::Previous);
        assert!(attempt(Some(1), Some(2), false).is_err() && attempt(None, Some(0), false).is_err());
    }
}
