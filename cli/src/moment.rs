//! Moments as people write them: `now`, `+2h`, `2026-12-06 02:30`, with a time zone or an offset behind it, or RFC 3339.
//!
//! A moment without a zone is one of this machine's zone (`TZ`). A local time that a change of clocks leaves out, or that happens twice, is refused:
//! any choice would be an hour wrong for somebody.

use chrono::{DateTime, Utc};
use jiff::civil;
use jiff::tz::{AmbiguousOffset, TimeZone};

const FORMS: &str = "write now, +2h, -30m, 2026-12-06, \"2026-12-06 02:30\", \"2026-12-06 02:30 Europe/Zurich\" or \
    2026-12-06T02:30:00+01:00";

/// Reads a moment of a command line.
pub fn parse_moment(text: &str) -> Result<DateTime<Utc>, String> {
    parse_at(text, Utc::now(), &TimeZone::system())
}

/// Reads a moment as it is written at `now` in a time zone.
fn parse_at(text: &str, now: DateTime<Utc>, local: &TimeZone) -> Result<DateTime<Utc>, String> {
    let text = text.trim();
    if text == "now" {
        return Ok(now);
    }
    if let Some(moment) = parse_relative(text, now) {
        return moment;
    }
    if let Ok(moment) = DateTime::parse_from_rfc3339(text) {
        return Ok(moment.to_utc());
    }
    let (time, zone) = split_zone(text);
    let time = parse_civil(time).ok_or_else(|| format!("\"{text}\" is no moment; {FORMS}"))?;
    let zone = match zone {
        None => local.clone(),
        Some(name) => find_zone(name)?,
    };
    place(time, &zone)
}

/// `+2h` and `-30m`, counted from now.
fn parse_relative(text: &str, now: DateTime<Utc>) -> Option<Result<DateTime<Utc>, String>> {
    let (sign, length) = match text.split_at_checked(1)? {
        ("+", length) => (1.0, length),
        ("-", length) => (-1.0, length),
        _ => return None,
    };
    let seconds = match headway_api::spec::duration(length) {
        Ok(length) => length.0 * sign,
        Err(_) => {
            return Some(Err(format!("\"{text}\" is no moment: after + and - stands a duration such as 90m or 2h")));
        }
    };
    let delta = chrono::TimeDelta::try_milliseconds((seconds * 1e3) as i64);
    let moment = delta.and_then(|delta| now.checked_add_signed(delta));
    Some(moment.ok_or_else(|| format!("{text} is too far away")))
}

/// The date and time of a text, and the zone or offset behind them.
fn split_zone(text: &str) -> (&str, Option<&str>) {
    if let Some(time) = text.strip_suffix('Z') {
        return (time, Some("UTC"));
    }
    match text.rsplit_once(' ') {
        Some((time, zone)) if zone.starts_with(|first: char| first.is_ascii_alphabetic() || "+-".contains(first)) => {
            (time, Some(zone))
        }
        _ => (text, None),
    }
}

/// A date, or a date and a time with or without seconds.
fn parse_civil(text: &str) -> Option<civil::DateTime> {
    let (date, time) = text.split_once([' ', 'T']).unwrap_or((text, "00:00"));
    let has_digits = date.len() == 10 && (time.len() == 5 || time.len() >= 8);
    let date: civil::Date = date.parse().ok().filter(|_| has_digits)?;
    let time: civil::Time = time.trim().parse().ok()?;
    Some(date.to_datetime(time))
}

/// A zone of the database of time zones, UTC, or an offset such as +01:00.
fn find_zone(name: &str) -> Result<TimeZone, String> {
    if name.starts_with(['+', '-']) {
        let at = format!("2000-01-01T00:00:00{name}");
        let offset = DateTime::parse_from_rfc3339(&at).map_err(|_| format!("{name} is no offset such as +01:00"))?;
        let offset = jiff::tz::Offset::from_seconds(offset.offset().local_minus_utc());
        return offset.map(TimeZone::fixed).map_err(|_| format!("{name} is no offset of a place on earth"));
    }
    TimeZone::get(name).map_err(|_| {
        format!("there is no time zone {name}: write one such as Europe/Zurich or UTC, or an offset such as +01:00")
    })
}

fn place(time: civil::DateTime, zone: &TimeZone) -> Result<DateTime<Utc>, String> {
    let name = zone.iana_name().unwrap_or("the local time zone").to_owned();
    let ambiguous = zone.to_ambiguous_timestamp(time);
    let shown = time.strftime("%Y-%m-%d %H:%M");
    match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { .. } => {}
        AmbiguousOffset::Gap { .. } => {
            return Err(format!("{shown} does not exist in {name}: clocks are put forward then; write another time"));
        }
        AmbiguousOffset::Fold { before, after } => {
            let [first, second] = [before, after].map(offset_in_words);
            return Err(format!("{shown} happens twice in {name}: write \"{shown} {first}\" or \"{shown} {second}\""));
        }
    }
    let timestamp = ambiguous.unambiguous().map_err(|error| format!("{shown} in {name}: {error}"))?;
    let out_of_range = || format!("{shown} is too far away");
    DateTime::from_timestamp_millis(timestamp.as_millisecond()).ok_or_else(out_of_range)
}

/// "+01:00".
fn offset_in_words(offset: jiff::tz::Offset) -> String {
    let minutes = offset.seconds() / 60;
    let sign = if minutes < 0 { '-' } else { '+' };
    format!("{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let now = "2026-11-28T18:00:00Z".parse().unwrap();
        let zurich = TimeZone::get("Europe/Zurich").unwrap();
        parse_at(text, now, &zurich).map(|moment| moment.to_rfc3339_opts(chrono::SecondsFormat::Secs, true))
    }

    #[test]
    fn a_moment_in_the_past_is_no_option() {
        use clap::Parser as _;
        for line in ["ps --at -30m", "events --since -2h", "logs --since -10m", "usage report --from -2h --to now"] {
            let words = ["headway"].into_iter().chain(line.split_whitespace());
            assert!(crate::Cli::try_parse_from(words).is_ok(), "{line}");
        }
    }

    #[test]
    fn a_moment_is_written_in_many_ways() {
        for (written, moment) in [
            ("now", "2026-11-28T18:00:00Z"),
            ("+2h", "2026-11-28T20:00:00Z"),
            ("-30m", "2026-11-28T17:30:00Z"),
            ("2026-12-06", "2026-12-05T23:00:00Z"),
            ("2026-12-06 02:30", "2026-12-06T01:30:00Z"),
            ("2026-07-06 02:30:15", "2026-07-06T00:30:15Z"),
            ("2026-12-06T02:30", "2026-12-06T01:30:00Z"),
            ("2026-12-06 02:30Z", "2026-12-06T02:30:00Z"),
            ("2026-12-06 02:30 UTC", "2026-12-06T02:30:00Z"),
            ("2026-12-06 02:30 America/New_York", "2026-12-06T07:30:00Z"),
            ("2026-12-06 02:30 +05:30", "2026-12-05T21:00:00Z"),
            ("2026-12-06T02:30:00+01:00", "2026-12-06T01:30:00Z"),
        ] {
            assert_eq!(read(written).as_deref(), Ok(moment), "{written}");
        }
    }

    #[test]
    fn what_is_no_moment_is_refused_with_what_is_one() {
        for (written, said) in [
            ("yesterday", "Europe/Zurich"),
            ("2026-12-06 2:30", "2026-12-06 02:30"),
            ("2026-13-06", "is no moment"),
            ("+soon", "duration such as 90m"),
            ("2026-12-06 02:30 Europe/Zurick", "there is no time zone Europe/Zurick"),
            ("2026-12-06 02:30 +1", "no offset such as +01:00"),
            ("2026-03-29 02:30", "does not exist in Europe/Zurich"),
            ("2026-10-25 02:30", "happens twice in Europe/Zurich: write \"2026-10-25 02:30 +02:00\""),
            ("", "is no moment"),
        ] {
            let refused = read(written).unwrap_err();
            assert!(refused.contains(said), "{written}: {refused}");
        }
    }
}
