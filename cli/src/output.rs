//! Printing: tables for people, JSON, YAML and CSV for programs, names for pipes. Numbers keep their units.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};

use chrono::{DateTime, Utc};
use clap::ValueEnum;
use headway_api::v1::SolvedBy;
use headway_api::yaml;
use serde::Serialize;

use crate::failure::{Failure, Kind};
use crate::table::{self, Column};

/// Writes a line to standard output. Whoever reads it may go away (`| head`): that is an error to pass on, not a panic. A terminal
/// obeys nothing of what others have written.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::tell(format_args!("{}\n", format_args!($($text)*))) };
}

/// The same without the end of the line.
macro_rules! put {
    ($($text:tt)*) => { $crate::output::tell(format_args!($($text)*)) };
}

/// Writes a line to standard error, for people beside what is printed; as harmless as [`say!`]. Where nobody can be told there is nothing to do.
macro_rules! aside {
    ($($text:tt)*) => { $crate::output::tell_aside(&format!($($text)*)) };
}

/// What `aside!` does.
pub fn tell_aside(text: &str) {
    let mut err = io::stderr();
    let text = if err.is_terminal() { harmless(text) } else { Cow::Borrowed(text) };
    let _ = writeln!(err, "{text}");
}

/// What `say!` and `put!` do: files and pipes get the text as it is.
pub fn tell(text: fmt::Arguments<'_>) -> io::Result<()> {
    let mut out = io::stdout();
    if out.is_terminal() { out.write_all(harmless(&text.to_string()).as_bytes()) } else { out.write_fmt(text) }
}

/// Names, messages and last lines of logs are strangers' to whoever reads them. What a terminal would obey (moving about, titles, its
/// clipboard), and what turns the direction of writing around, is shown as a replacement character; colours stay, they are ours.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let obeyed = |letter: char| {
        (letter.is_control() && !matches!(letter, '\n' | '\t'))
            || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let colour = colour(rest);
        let (taken, behind) = rest.split_at(colour.max(letter.len_utf8()));
        if colour > 0 || !obeyed(letter) {
            shown.push_str(taken);
        } else {
            shown.push(char::REPLACEMENT_CHARACTER);
        }
        rest = behind;
    }
    Cow::Owned(shown)
}

/// Length of the colour that a text begins with; 0 where it begins with none.
fn colour(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\x1b[") else { return 0 };
    let numbers = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b';').count();
    if rest[numbers..].starts_with('m') { 2 + numbers + 1 } else { 0 }
}

/// Sends what is still written to standard output nowhere.
pub fn silence() -> std::io::Result<()> {
    let nowhere = std::fs::File::options().write(true).open("/dev/null")?;
    Ok(nix::unistd::dup2_stdout(nowhere)?)
}

/// What `-o` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// What fits the terminal; whole, where it goes to a file or a pipe.
    Table,
    /// All columns, whole.
    Wide,
    Json,
    Yaml,
    Name,
    /// All columns of a list, for spreadsheets.
    Csv,
    /// JSON, an item of a list a line.
    Jsonl,
}

/// For whom is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people; lists as their [`Layout`] says.
    Table,
    Json,
    Yaml,
    Name,
}

/// How a list is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// The usual columns, within so many columns of a terminal, where there is one.
    Within(Option<usize>),
    Wide,
    Csv,
    /// An item a line, of JSON.
    Lines,
}

#[derive(Clone, Copy, Debug)]
pub struct Printer {
    pub format: Format,
    pub headers: bool,
    pub layout: Layout,
    pub colours: bool,
}

impl Printer {
    /// One that writes as standard output takes it: within the width of a terminal, and there in colour unless `NO_COLOR` is set.
    pub fn new(output: Output, headers: bool) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let colours = terminal && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
        let format = match output {
            Output::Table | Output::Wide | Output::Csv => Format::Table,
            Output::Json | Output::Jsonl => Format::Json,
            Output::Yaml => Format::Yaml,
            Output::Name => Format::Name,
        };
        let layout = match output {
            Output::Wide => Layout::Wide,
            Output::Csv => Layout::Csv,
            Output::Jsonl => Layout::Lines,
            _ => Layout::Within(if terminal { terminal_width() } else { None }),
        };
        Self { format, headers, layout, colours }
    }

    /// A table that neither knows a terminal nor has colours.
    pub const fn plain() -> Self {
        Self { format: Format::Table, headers: true, layout: Layout::Within(None), colours: false }
    }

    /// Prints values: as the table `row` describes, or whole for programs.
    pub fn list<T: Serialize, C: Copy + Into<Column>>(
        &self,
        items: &[T],
        columns: &[C],
        row: impl Fn(&T) -> Vec<String>,
        name: impl Fn(&T) -> String,
    ) -> Result<(), Failure> {
        let columns = || columns.iter().map(|column| (*column).into()).collect::<Vec<Column>>();
        match self.format {
            Format::Table if self.layout == Layout::Csv => {
                put!("{}", csv(&columns(), self.headers, items.iter().map(row))?)?;
            }
            // Without a header an empty list is no line, not an empty one.
            Format::Table if items.is_empty() && !self.headers => {}
            Format::Table => say!("{}", self.rows(&columns(), items.iter().map(row).collect()))?,
            Format::Name => {
                for item in items {
                    say!("{}", name(item))?;
                }
            }
            Format::Json if self.layout == Layout::Lines => items.iter().try_for_each(|item| self.value(item))?,
            Format::Json | Format::Yaml => self.value(&items)?,
        }
        Ok(())
    }

    /// The table of a list, as wide as it may be.
    pub fn rows(&self, columns: &[Column], rows: Vec<Vec<String>>) -> String {
        let (wide, width) = match self.layout {
            Layout::Within(width) => (false, width),
            Layout::Wide | Layout::Csv | Layout::Lines => (true, None),
        };
        let shown: Vec<usize> = (0..columns.len()).filter(|index| wide || !columns[*index].wide).collect();
        let of = |row: Vec<String>| shown.iter().filter_map(|index| row.get(*index).cloned()).collect();
        let columns: Vec<Column> = shown.iter().map(|index| columns[*index]).collect();
        table::render(&columns, rows.into_iter().map(of).collect(), self.headers, width, self.colours)
    }

    /// Prints one value for programs (YAML also where a table was asked for: it reads well).
    pub fn value<T: Serialize>(&self, value: &T) -> Result<(), Failure> {
        let text = match self.format {
            Format::Json if self.layout == Layout::Lines => {
                serde_json::to_string(value).map_err(|error| error.to_string())
            }
            Format::Json => serde_json::to_string_pretty(value).map_err(|error| error.to_string()),
            _ => yaml::write(value).map_err(|error| error.to_string()),
        };
        let text = text.map_err(|error| Failure::new(Kind::Failed, format!("printing: {error}")))?;
        say!("{}", text.trim_end())?;
        Ok(())
    }

    /// Prints one thing for programs, or by the name that a list gives it.
    pub fn one<T: Serialize>(&self, value: &T, name: &str) -> Result<(), Failure> {
        if self.format == Format::Name {
            return Ok(say!("{name}")?);
        }
        self.value(value)
    }

    /// Whether one thing is printed for programs, whole or by its name.
    pub fn is_for_programs(&self) -> bool {
        self.format != Format::Table
    }

    /// Whether a program reads what is printed.
    pub fn structured(&self) -> bool {
        matches!(self.format, Format::Json | Format::Yaml)
    }

    /// A table within a page of text, as wide as that may be.
    pub fn table<C: Copy + Into<Column>>(&self, columns: &[C], rows: impl Iterator<Item = Vec<String>>) -> String {
        let columns: Vec<Column> = columns.iter().map(|column| (*column).into()).collect();
        self.rows(&columns, rows.collect())
    }

    /// A table whose columns are named by what is in it; as wide as it comes.
    pub fn table_of(&self, names: &[String], rows: impl Iterator<Item = Vec<String>>) -> String {
        let columns: Vec<Column> = vec![Column::new(""); names.len()];
        let headed = self.headers.then(|| names.to_vec());
        table::render(&columns, headed.into_iter().chain(rows).collect(), false, None, false)
    }
}

/// `COLUMNS` where somebody has set it, else what the terminal says.
fn terminal_width() -> Option<usize> {
    let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let asked = || rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
    told.or_else(asked).filter(|columns| *columns > 0)
}

fn csv(columns: &[Column], headers: bool, rows: impl Iterator<Item = Vec<String>>) -> Result<String, Failure> {
    let broken = |error: String| Failure::new(Kind::Failed, format!("printing: {error}"));
    let mut writer = csv::Writer::from_writer(Vec::new());
    let named: Vec<String> = columns.iter().map(|one| one.header.to_lowercase().replace([' ', '/'], "_")).collect();
    for row in headers.then_some(named).into_iter().chain(rows) {
        writer.write_record(row).map_err(|error| broken(error.to_string()))?;
    }
    let bytes = writer.into_inner().map_err(|error| broken(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| broken(error.to_string()))
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

/// "1 GPU", "8 GPUs".
pub fn gpus(count: impl Into<u64>) -> String {
    match count.into() {
        1 => "1 GPU".into(),
        count => format!("{count} GPUs"),
    }
}

/// "1480.50", "0.08", "0.0008": of little enough that it is told from nothing.
pub fn gpu_hours(hours: f64) -> String {
    if hours > 0.0 && hours < 0.01 { format!("{hours:.4} GPU-hours") } else { format!("{hours:.2} GPU-hours") }
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

/// 3725 s → "1h"; the largest unit.
pub fn age(seconds: f64) -> String {
    let total = seconds.max(0.0) as u64;
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    match units.into_iter().find(|(unit, _)| total >= *unit) {
        Some((unit, name)) => format!("{}{name}", total / unit),
        None => format!("{total}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_nothing_that_others_have_written() {
        for (written, shown) in [
            ("llama 8b\tü 日本\n", "llama 8b\tü 日本\n"),
            ("\x1b[38;5;10mrunning\x1b[39m \x1b[0m", "\x1b[38;5;10mrunning\x1b[39m \x1b[0m"),
            ("a\x1b[2J\x1b[1;1Hb", "a\u{fffd}[2J\u{fffd}[1;1Hb"),
            ("\x1b]0;title\x07\x1b]52;c;AAAA\x1b\\", "\u{fffd}]0;title\u{fffd}\u{fffd}]52;c;AAAA\u{fffd}\\"),
            ("ok\rno\u{9b}2J\x7f\x1b", "ok\u{fffd}no\u{fffd}2J\u{fffd}\u{fffd}"),
            ("gpj\u{202e}exe", "gpj\u{fffd}exe"),
        ] {
            assert_eq!(harmless(written), shown, "{written:?}");
        }
    }

    #[test]
    fn csv_has_every_column_and_quotes_what_needs_it() {
        let columns = [Column::new("GPU TYPE"), Column::new("TOK/S").wide()];
        let text = csv(&columns, true, [vec!["a, \"b\"".to_owned(), "1".into()]].into_iter()).expect("UTF-8");
        assert_eq!(text, "gpu_type,tok_s\n\"a, \"\"b\"\"\",1\n");
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(si(0.0), "0");
        assert_eq!(si(7.0), "7");
        assert_eq!(si(1234.5), "1.23k");
        assert_eq!(si(56_789.0), "56.8k");
        assert_eq!(si(3.2e9), "3.20G");
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!((gpus(1u32), gpus(0u32), gpus(8u64)), ("1 GPU".into(), "0 GPUs".into(), "8 GPUs".into()));
    }

    #[test]
    fn durations_show_two_units() {
        assert_eq!(duration(42.0), "42s");
        assert_eq!(duration(3725.0), "1h02m");
        assert_eq!(duration(90_000.0), "1d01h");
        assert_eq!(duration(125.0), "2m05s");
    }
}
