//! One line of a measurement file, by column name. Columns may be missing, in any order, empty or more than are known here.

use csv::StringRecord;

/// Column names of one file, in its order.
#[derive(Clone, Debug)]
pub struct Columns(Vec<String>);

/// A line with its columns.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    columns: &'a Columns,
    record: &'a StringRecord,
}

impl Columns {
    #[must_use]
    pub fn new(header: &StringRecord) -> Self {
        Self(header.iter().map(|name| name.trim_start_matches('\u{feff}').trim().to_ascii_lowercase()).collect())
    }

    /// Whether the file has a column at all.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|column| column == name)
    }

    #[must_use]
    pub fn row<'a>(&'a self, record: &'a StringRecord) -> Row<'a> {
        Row { columns: self, record }
    }
}

impl Row<'_> {
    /// The text of a column; `None` where it is empty or missing.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        let index = self.columns.0.iter().position(|column| column == name)?;
        let text = self.record.get(index)?.trim();
        let absent = text.is_empty()
            || text.eq_ignore_ascii_case("nan")
            || text.eq_ignore_ascii_case("none") && name != "recompute";
        (!absent).then_some(text)
    }

    /// The number of a column; `None` where it is empty, missing, no number or not finite.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        self.text(name)?.parse().ok().filter(|value: &f64| value.is_finite())
    }

    /// The positive number of a column.
    #[must_use]
    pub fn positive(&self, name: &str) -> Option<f64> {
        self.number(name).filter(|value| *value > 0.0)
    }

    /// The whole positive number of a column ("8" or "8.0").
    #[must_use]
    pub fn count(&self, name: &str) -> Option<u32> {
        let value = self.positive(name)?;
        (value.fract() == 0.0 && value <= f64::from(u32::MAX)).then_some(value as u32)
    }

    /// Yes or no of a column.
    #[must_use]
    pub fn flag(&self, name: &str) -> Option<bool> {
        match self.text(name)? {
            "true" | "True" | "yes" => Some(true),
            "false" | "False" | "no" => Some(false),
            _ => self.number(name).map(|value| value != 0.0),
        }
    }
}
