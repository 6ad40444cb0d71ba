//! What is wrong so far. Checking goes on after a finding, so that one attempt shows them all.

use std::fmt::Display;
use std::ops::RangeInclusive;

use headway_api::solve::{Finding, SolveError};
use headway_types::Seconds;

/// No count of a round is larger: products of a few of them stay within 64 bits.
pub const MOST: u32 = 1 << 20;
/// Longest time taken for meant: three centuries.
const LONGEST_SECONDS: f64 = 1e10;
/// Largest amount of work or GPU-time, and largest rate: sums over any round stay finite.
pub const LARGEST: f64 = 1e24;
pub const FASTEST: f64 = 1e18;
/// Findings reported; more say nothing new.
const ENOUGH: usize = 32;

#[derive(Debug, Default)]
pub struct Findings {
    found: Vec<Finding>,
    more: usize,
}

impl Findings {
    pub fn add(&mut self, field: impl Display, message: impl Into<String>) {
        self.put(field, message.into(), None);
    }

    pub fn hint(&mut self, field: impl Display, message: impl Into<String>, hint: impl Into<String>) {
        self.put(field, message.into(), Some(hint.into()));
    }

    pub fn include(&mut self, error: SolveError) {
        for finding in error.findings {
            self.put(finding.field, finding.message, finding.hint);
        }
    }

    fn put(&mut self, field: impl Display, message: String, hint: Option<String>) {
        if self.found.len() == ENOUGH {
            self.more += 1;
            return;
        }
        self.found.push(Finding { field: field.to_string(), message, hint });
    }

    pub fn into_result(mut self) -> Result<(), SolveError> {
        if self.more > 0 {
            let message = format!("{} more findings of this kind", self.more);
            self.found.push(Finding { field: String::new(), message, hint: None });
        }
        if self.found.is_empty() { Ok(()) } else { Err(SolveError { findings: self.found }) }
    }

    /// A number within bounds. What is outside is reported and replaced by the nearest bound, which nobody will see.
    pub fn number(&mut self, value: f64, bounds: RangeInclusive<f64>, field: impl Display) -> f64 {
        if bounds.contains(&value) {
            return value;
        }
        let (least, most) = (bounds.start(), bounds.end());
        self.add(field, format!("must be a number from {} to {}, not {}", brief(*least), brief(*most), brief(value)));
        *least
    }

    pub fn seconds(&mut self, value: f64, field: impl Display) -> Seconds {
        if (0.0..=LONGEST_SECONDS).contains(&value) {
            return Seconds(value);
        }
        self.add(field, format!("must be seconds from 0 to {LONGEST_SECONDS:e}, not {}", brief(value)));
        Seconds(0.0)
    }

    /// Seconds before (negative) or after now.
    pub fn moment(&mut self, value: f64, field: impl Display) -> f64 {
        self.number(value, -LONGEST_SECONDS..=LONGEST_SECONDS, field)
    }

    pub fn whole(&mut self, value: u32, bounds: RangeInclusive<u32>, field: impl Display) -> u32 {
        if bounds.contains(&value) {
            return value;
        }
        self.add(field, format!("must be a whole number from {} to {}, not {value}", bounds.start(), bounds.end()));
        *bounds.start()
    }
}

/// A number without a row of zeros.
pub fn brief(value: f64) -> String {
    if value == 0.0 || (1e-4..1e7).contains(&value.abs()) { value.to_string() } else { format!("{value:e}") }
}
