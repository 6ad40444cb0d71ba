//! When running jobs are moved without anybody's word: what needs no approval, and at which times of the week moves are made.

use core::fmt;
use core::str::FromStr;

use headway_types::{GpuSeconds, Plan, Seconds, Timestamp};
use serde::{Deserialize, Serialize};

const DAY: u32 = 1_440;
const WEEK: u32 = 7 * DAY;
/// The epoch was a Thursday.
const EPOCH: u32 = 3 * DAY;
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// Plans that need no approval in advisory mode: those that keep all of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AutoApprove {
    /// Most running jobs that are moved.
    pub max_moves: u32,
    /// Most GPU-time that they stand still together.
    pub max_lost: GpuSeconds,
    /// Whether a job may lose all its GPUs.
    pub preempt: bool,
}

impl AutoApprove {
    /// Whether a plan may be adopted at once.
    #[must_use]
    pub fn covers(&self, plan: &Plan) -> bool {
        let moves = || plan.report.moves.iter().filter(|one| one.kind.disturbs());
        let lost: f64 = moves().map(|one| f64::from(one.from_gpus.0) * one.downtime.0).sum();
        let preempts = moves().any(|one| one.to_gpus.0 == 0);
        moves().count() <= self.max_moves as usize && lost <= self.max_lost.0 && (self.preempt || !preempts)
    }
}

/// A time of the week, UTC: "Mon-Fri 22:00-06:00", "Sat,Sun 00:00-24:00", "01:00-05:00" (every day). Named are the days on which it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MoveWindow {
    /// One bit per day, Monday's first.
    days: u8,
    /// Minutes of the day.
    from: u32,
    lasts: u32,
}

/// Why a text is no time of the week.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is no time of the week ({wrong}): write \"Mon-Fri 22:00-06:00\", in UTC")]
pub struct NoWindow {
    text: String,
    wrong: String,
}

impl MoveWindow {
    #[must_use]
    pub fn contains(&self, at: Timestamp) -> bool {
        let now = minute_of_week(at);
        self.begins().any(|begin| (now + WEEK - begin) % WEEK < self.lasts)
    }

    /// When it opens next.
    #[must_use]
    pub fn opens(&self, after: Timestamp) -> Timestamp {
        let now = minute_of_week(after);
        let wait =
            self.begins().map(|begin| (begin + WEEK - now) % WEEK).map(|wait| if wait == 0 { WEEK } else { wait });
        let minutes = after.0.div_euclid(60_000_000) + i64::from(wait.min().unwrap_or(WEEK));
        Timestamp(minutes * 60_000_000)
    }

    fn begins(&self) -> impl Iterator<Item = u32> {
        let (days, from) = (self.days, self.from);
        (0..7).filter(move |day| days & (1 << day) != 0).map(move |day| day * DAY + from)
    }
}

/// Until moves are made again, if none are now. No window: they always are.
#[must_use]
pub(crate) fn closed_until(windows: &[MoveWindow], now: Timestamp) -> Option<Timestamp> {
    let closed = !windows.is_empty() && !windows.iter().any(|one| one.contains(now));
    if closed { windows.iter().map(|one| one.opens(now)).min() } else { None }
}

fn minute_of_week(at: Timestamp) -> u32 {
    let minutes = at.0.div_euclid(60_000_000).rem_euclid(i64::from(WEEK));
    (minutes as u32 + EPOCH) % WEEK
}

impl FromStr for MoveWindow {
    type Err = NoWindow;

    fn from_str(text: &str) -> Result<Self, NoWindow> {
        let wrong = |wrong: String| NoWindow { text: text.to_owned(), wrong };
        let (days, times) = match text.trim().rsplit_once(' ') {
            Some((days, times)) => (day_bits(days).map_err(wrong)?, times),
            None => (0b111_1111, text.trim()),
        };
        let (from, to) = times.split_once('-').ok_or_else(|| wrong("it has no from-to".into()))?;
        let (from, to) = (minutes(from).map_err(wrong)?, minutes(to).map_err(wrong)?);
        if from == DAY {
            return Err(wrong("24:00 begins nothing".into()));
        }
        let lasts = if to > from { to - from } else { to + DAY - from };
        Ok(Self { days, from, lasts })
    }
}

fn day_bits(text: &str) -> Result<u8, String> {
    let day = |name: &str| {
        let known = DAYS.iter().position(|day| day.eq_ignore_ascii_case(name.trim()));
        known.ok_or_else(|| format!("\"{}\" is no day; days are {}", name.trim(), DAYS.join(", ")))
    };
    let mut bits = 0;
    for part in text.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (day(first)?, day(last)?),
            None => (day(part)?, day(part)?),
        };
        let count = (last + 7 - first) % 7 + 1;
        bits = (0..count).fold(bits, |bits, at| bits | 1 << ((first + at) % 7));
    }
    Ok(bits)
}

fn minutes(text: &str) -> Result<u32, String> {
    let number = |text: &str| text.parse::<u32>().ok().filter(|_| text.len() == 2);
    let read = text.split_once(':').and_then(|(hour, minute)| Some((number(hour)?, number(minute)?)));
    match read {
        Some((24, 0)) => Ok(DAY),
        Some((hour @ 0..24, minute @ 0..60)) => Ok(60 * hour + minute),
        _ => Err(format!("\"{text}\" is no time of day from 00:00 to 24:00")),
    }
}

impl fmt::Display for MoveWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.days != 0b111_1111 {
            let named = (0..7).filter(|day| self.days & (1 << day) != 0).map(|day| DAYS[day]);
            write!(f, "{} ", named.collect::<Vec<_>>().join(","))?;
        }
        let to = (self.from + self.lasts - 1) % DAY + 1;
        write!(f, "{:02}:{:02}-{:02}:{:02}", self.from / 60, self.from % 60, to / 60, to % 60)
    }
}

impl TryFrom<String> for MoveWindow {
    type Error = NoWindow;
    fn try_from(text: String) -> Result<Self, NoWindow> {
        text.parse()
    }
}

impl From<MoveWindow> for String {
    fn from(of: MoveWindow) -> Self {
        of.to_string()
    }
}

/// How long a proposal waits for somebody, unless told otherwise.
pub(super) fn proposals_last() -> Seconds {
    Seconds(86_400.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    /// Monday, 2026-11-23, 00:00 UTC.
    const MONDAY: i64 = 1_795_392_000;

    fn at(day: i64, hour: i64, minute: i64) -> Timestamp {
        Timestamp((MONDAY + day * 86_400 + hour * 3_600 + minute * 60) * 1_000_000)
    }

    #[test]
    fn a_window_over_midnight_ends_on_the_next_day() {
        let nights: MoveWindow = "Mon-Fri 22:00-06:00".parse().unwrap();
        assert!(nights.contains(at(0, 22, 0)) && nights.contains(at(1, 5, 59)) && nights.contains(at(5, 3, 0)));
        assert!(!nights.contains(at(0, 5, 0)) && !nights.contains(at(1, 6, 0)) && !nights.contains(at(5, 22, 30)));
        assert_eq!(nights.opens(at(0, 12, 0)), at(0, 22, 0));
        assert_eq!(nights.opens(at(5, 12, 0)), at(7, 22, 0));
        assert_eq!(closed_until(&[nights], at(0, 12, 0)), Some(at(0, 22, 0)));
        assert_eq!(closed_until(&[nights], at(0, 23, 0)), None);
        assert_eq!(closed_until(&[], at(0, 12, 0)), None);
    }

    #[test]
    fn what_is_no_time_of_the_week_is_told_with_one() {
        for (text, wrong) in [
            ("Mo 22:00-06:00", "\"Mo\" is no day; days are Mon, Tue, Wed, Thu, Fri, Sat, Sun"),
            ("22:00", "it has no from-to"),
            ("Mon 25:00-06:00", "\"25:00\" is no time of day from 00:00 to 24:00"),
            ("24:00-06:00", "24:00 begins nothing"),
        ] {
            let told = text.parse::<MoveWindow>().unwrap_err().to_string();
            assert_eq!(
                told,
                format!("\"{text}\" is no time of the week ({wrong}): write \"Mon-Fri 22:00-06:00\", in UTC")
            );
        }
    }

    proptest! {
        #[test]
        fn a_window_is_read_as_it_is_written(days in 1u8..128, from in 0u32..1_440, lasts in 1u32..=1_440) {
            let window = MoveWindow { days, from, lasts };
            prop_assert_eq!(window.to_string().parse(), Ok(window));
        }

        #[test]
        fn a_window_opens_where_it_says(days in 1u8..128, from in 0u32..1_440, lasts in 1u32..=1_440, now in 0i64..1 << 42) {
            let window = MoveWindow { days, from, lasts };
            let opens = window.opens(Timestamp(now * 1_000));
            prop_assert!(opens > Timestamp(now * 1_000) && window.contains(opens));
            prop_assert!(opens.since(Timestamp(now * 1_000)).0 <= 7.0 * 86_400.0);
        }
    }
}
