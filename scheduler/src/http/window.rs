//! A span of the past in steps, as pages ask for series.

use chrono::{DateTime, Utc};
use headway_api::spec;
use headway_types::{Seconds, Timestamp};

use super::conversions;
use super::problem::Problem;
use crate::store::Steps;

/// Points of a series: at most, and as many as fit unless a step is given.
const POINTS_AT_MOST: f64 = 1_500.0;
const POINTS: f64 = 288.0;
/// Steps are whole minutes: figures are kept once in so many seconds.
const MINUTE: f64 = 60.0;

/// The span that is asked for: until now and `usual` long where nobody says, at most `longest`.
pub fn span(
    from: Option<DateTime<Utc>>,
    to: Option<DateTime<Utc>>,
    now: Timestamp,
    usual: Seconds,
    longest: Seconds,
) -> Result<(Timestamp, Timestamp), Problem> {
    let to = to.map_or(now, conversions::timestamp).min(now);
    let from = from.map_or(to - usual, conversions::timestamp);
    if from >= to {
        return Err(Problem::bad_request("the span of time ends before it begins").field("from"));
    }
    if to.since(from) > longest {
        let days = longest.0 / 86_400.0;
        return Err(Problem::bad_request(format!("a span is {days} days at most")).field("from"));
    }
    Ok((from, to))
}

/// The span in steps as they are asked for ("5m"), or in about 288. Steps begin at whole multiples of their length.
pub fn steps((from, to): (Timestamp, Timestamp), step: Option<&str>) -> Result<Steps, Problem> {
    let wrong = |detail: String| Problem::bad_request(detail).field("step");
    let length = to.since(from).0;
    let step = match step {
        Some(text) => spec::duration(text).map_err(|error| wrong(error).hint("as in 1m, 5m, 1h"))?,
        None => Seconds((length / POINTS / MINUTE).ceil().max(1.0) * MINUTE),
    };
    if step.0 < MINUTE || step.0 % MINUTE != 0.0 {
        return Err(wrong("a step is of whole minutes".into()).hint("as in 1m, 5m, 1h"));
    }
    if length / step.0 > POINTS_AT_MOST {
        let detail = format!("a series has at most {POINTS_AT_MOST} points");
        return Err(wrong(detail).hint("take a longer step, or a shorter span"));
    }
    Ok(Steps { from, to, step })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const DAY: Seconds = Seconds(86_400.0);

    fn at(seconds: i64) -> Timestamp {
        Timestamp(1_700_000_000_000_000 + seconds * 1_000_000)
    }

    fn asked(length: i64, step: Option<&str>) -> Result<f64, Problem> {
        steps((at(0), at(length)), step).map(|of| of.step.0)
    }

    #[test]
    fn a_series_has_as_many_points_as_a_page_shows() {
        assert_eq!(asked(86_400, None).unwrap(), 300.0);
        assert_eq!(asked(10, None).unwrap(), 60.0);
        assert_eq!(asked(86_400, Some("1h")).unwrap(), 3_600.0);
        for wrong in ["0s", "90s", "soon", "-5m"] {
            assert!(asked(3_600, Some(wrong)).is_err(), "{wrong}");
        }
        assert!(asked(90 * 86_400, Some("1m")).is_err());
    }

    #[test]
    fn a_span_has_bounds() {
        let moment = |seconds| Some(conversions::time(at(seconds)));
        let asked = |from, to| span(from, to, at(0), DAY, DAY);
        assert_eq!(asked(None, None).unwrap(), (at(0) - DAY, at(0)));
        assert_eq!(asked(moment(-10), moment(99)).unwrap(), (at(-10), at(0)), "what is to come has no past");
        assert!(asked(moment(10), None).is_err());
        assert!(asked(moment(-90_000), None).is_err());
    }
}
