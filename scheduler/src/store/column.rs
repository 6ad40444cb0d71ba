//! Between the project's types and Postgres' columns.

use chrono::{DateTime, Utc};
use headway_types::Timestamp;
use serde::Serialize;

/// A moment as a column; moments Postgres cannot hold become the nearest it can.
pub(super) fn time(at: Timestamp) -> DateTime<Utc> {
    /// Year 9999: later than any lease, earlier than the end of `timestamptz`.
    const LATEST: i64 = 253_402_300_799_000_000;
    DateTime::from_timestamp_micros(at.0.clamp(0, LATEST)).expect("a moment of the common era is in range")
}

pub(super) fn moment(column: DateTime<Utc>) -> Timestamp {
    Timestamp(column.timestamp_micros())
}

/// Counters stay far below the range of `bigint`.
pub(super) fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(column: i64) -> u64 {
    u64::try_from(column).unwrap_or(0)
}

pub(super) fn small(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

pub(super) fn count(column: i32) -> u32 {
    u32::try_from(column).unwrap_or(0)
}

/// Text for a column: Postgres cannot hold NUL, and a worker's last words may contain one.
pub(super) fn text(value: &str) -> String {
    value.replace('\0', "\u{fffd}")
}

/// A record as JSON text without NUL, for a `jsonb` column.
pub(super) fn document<T: Serialize>(record: &T) -> String {
    let json = serde_json::to_string(record).expect("records have string keys only");
    if !json.contains("\\u0000") {
        return json;
    }
    let mut value = serde_json::to_value(record).expect("it has just been written as text");
    strip_nul(&mut value);
    value.to_string()
}

fn strip_nul(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(string) => *string = text(string),
        serde_json::Value::Array(items) => items.iter_mut().for_each(strip_nul),
        serde_json::Value::Object(fields) => {
            *fields = std::mem::take(fields)
                .into_iter()
                .map(|(key, mut field)| {
                    strip_nul(&mut field);
                    (text(&key), field)
                })
                .collect();
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_never_carries_nul_into_the_database() {
        let record = serde_json::json!({"a\0": ["x\0y", "a literal \\u0000 stays"]});
        let stored: serde_json::Value = serde_json::from_str(&document(&record)).expect("valid JSON");
        assert_eq!(stored, serde_json::json!({"a\u{fffd}": ["x\u{fffd}y", "a literal \\u0000 stays"]}));
    }

    #[test]
    fn a_moment_survives_the_column() {
        let at = Timestamp(1_750_000_000_123_456);
        assert_eq!(moment(time(at)), at);
        assert_eq!(moment(time(Timestamp(-5))), Timestamp(0));
        assert!(moment(time(Timestamp(i64::MAX))) > at);
    }
}
