//! Printing: tables for people, JSON and YAML for programs, names for pipes. Numbers keep their units.

use chrono::{DateTime, Utc};
use clap::ValueEnum;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use headway_api::v1::SolvedBy;
use headway_api::yaml;
use serde::Serialize;

use crate::failure::{Failure, Kind};

/// Writes a line to standard output. Whoever reads it may go away (`| head`): that is an error to pass on, not a panic.
macro_rules! say {
    ($($text:tt)*) => { std::io::Write::write_fmt(&mut std::io::stdout(), format_args!("{}\n", format_args!($($text)*))) };
}

/// The same without the end of the line.
macro_rules! put {
    ($($text:tt)*) => { std::io::Write::write_fmt(&mut std::io::stdout(), format_args!($($text)*)) };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
    Yaml,
    Name,
}

#[derive(Clone, Copy, Debug)]
pub struct Printer {
    pub format: Format,
    pub headers: bool,
}

impl Printer {
    /// Prints a value: as the table `rows` describes, or whole for programs.
    pub fn list<T: Serialize>(
        &self,
        items: &[T],
        headers: &[&str],
        row: impl Fn(&T) -> Vec<String>,
        name: impl Fn(&T) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table => say!("{}", self.table(headers, items.iter().map(row)))?,
            Format::Name => {
                for item in items {
                    say!("{}", name(item))?;
                }
            }
            Format::Json | Format::Yaml => self.value(&items)?,
        }
        Ok(())
    }

    /// Prints one value for programs (YAML also where a table was asked for: it reads well).
    pub fn value<T: Serialize>(&self, value: &T) -> Result<(), Failure> {
        let text = match self.format {
            Format::Json => serde_json::to_string_pretty(value).map_err(|error| error.to_string()),
            _ => yaml::write(value).map_err(|error| error.to_string()),
        };
        let text = text.map_err(|error| Failure::new(Kind::Failed, format!("printing: {error}")))?;
        say!("{}", text.trim_end())?;
        Ok(())
    }

    /// Whether a program reads what is printed.
    pub fn structured(&self) -> bool {
        matches!(self.format, Format::Json | Format::Yaml)
    }

    /// A plain table without borders, as kubectl prints.
    pub fn table(&self, headers: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        if self.headers {
            table.set_header(headers.iter().copied());
        }
        for row in rows {
            table.add_row(row);
        }
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((u16::from(index > 0), 1));
            column.set_cell_alignment(CellAlignment::Left);
        }
        table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }
}

/// 1234.5 → "1.23k"; three significant digits with SI suffixes.
pub fn si(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        v if v >= 1e12 => (value / 1e12, "T"),
        v if v >= 1e9 => (value / 1e9, "G"),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        v if v >= 100.0 || (v.fract() == 0.0 && suffix.is_empty()) => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{scaled:.digits$}{suffix}")
}

/// "bound 2.25, gap 0.01 %", or that nothing is proven.
pub fn proven(bound: Option<f64>, gap: Option<f64>, digits: usize) -> String {
    match (bound, gap) {
        (Some(bound), Some(gap)) => format!("bound {bound:.4}, gap {:.digits$} %", gap * 100.0),
        _ => "no bound".into(),
    }
}

/// "solved by microlp 0.6.0", with why it was not the solver that the policy asks for.
pub fn solved_by(of: &SolvedBy) -> String {
    let instead = of.instead.as_ref().map(|reason| format!(" instead of the policy's solver: {reason}"));
    format!("solved by {} {}{}", of.name, of.version, instead.unwrap_or_default())
}

/// "+4.5 %"; what more than doubles is told as a factor: "× 12".
pub fn change(pct: f64) -> String {
    let factor = 1.0 + pct / 100.0;
    match factor {
        factor if factor >= 9.95 => format!("× {factor:.0}"),
        factor if factor > 2.0 => format!("× {factor:.1}"),
        _ => format!("{pct:+.1} %"),
    }
}

/// An absent number is a dash, never a zero.
pub fn optional(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "-".into(), show)
}

/// To the second, in UTC, as `--at` takes it.
pub fn moment(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// 3725 s → "1h02m"; the two largest units.
pub fn duration(seconds: f64) -> String {
    let total = seconds.max(0.0).round() as u64;
    let (days, hours, minutes, seconds) = (total / 86_400, total / 3_600 % 24, total / 60 % 60, total % 60);
    if days > 0 {
        format!("{days}d{hours:02}h")
    } else if hours > 0 {
        format!("{hours}h{minutes:02}m")
    } else if minutes > 0 {
        format!("{minutes}m{seconds:02}s")
    } else {
        format!("{seconds}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(si(0.0), "0");
        assert_eq!(si(7.0), "7");
        assert_eq!(si(1234.5), "1.23k");
        assert_eq!(si(56_789.0), "56.8k");
        assert_eq!(si(3.2e9), "3.20G");
    }

    #[test]
    fn durations_show_two_units() {
        assert_eq!(duration(42.0), "42s");
        assert_eq!(duration(3725.0), "1h02m");
        assert_eq!(duration(90_000.0), "1d01h");
        assert_eq!(duration(125.0), "2m05s");
    }
}
