//! The pattern by which steps are found in what a script prints: what it may be, and what it finds in a line.
//!
//! Patterns and lines are strangers'. A pattern is compiled within bounds, and a search takes time that is linear in the line, whatever
//! stands in either. Lines are bytes: `.` is any of them, and `\d`, `\w` and `\s` are those of ASCII, unless the pattern says `(?u)`.

use regex::bytes::{CaptureLocations, Regex, RegexBuilder};
use strum::VariantArray;

use crate::spec::nearest;

/// Bytes that a compiled pattern may take; many times what lines of training logs need.
const COMPILED: usize = 128 * 1024;
/// Bytes that a search may keep of what it has worked out.
const SEARCHING: usize = 1024 * 1024;
/// Groups within groups.
const NESTED: u32 = 32;
/// Whole numbers up to here are exact where a number is read.
const LARGEST_WHOLE: f64 = 9_007_199_254_740_992.0;

/// What a group may be called, and so what may be read of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
enum Group {
    Step,
    Loss,
    Seconds,
    Milliseconds,
    Tokens,
    Samples,
    Consumed,
    TokensPerSecond,
}

/// A compiled pattern.
#[derive(Clone, Debug)]
pub struct Pattern {
    regex: Regex,
    /// Which groups are read, by their number in the pattern.
    groups: Vec<(usize, Group)>,
    found: CaptureLocations,
}

/// What a line tells. Of what is per step, the step is the one that it names.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Printed {
    pub step: u64,
    /// May be no finite number: scripts print that too.
    pub loss: Option<f64>,
    /// Per step.
    pub seconds: Option<f64>,
    /// Per step.
    pub tokens: Option<f64>,
    /// Sequences per step.
    pub samples: Option<u64>,
    /// Sequences since the job began.
    pub consumed: Option<u64>,
    pub tokens_per_second: Option<f64>,
}

/// Why no steps can be found by a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PatternError {
    pub message: String,
    pub hint: String,
}

impl Pattern {
    /// # Errors
    /// What is no regular expression, is too large, or has no group for the step.
    pub fn compile(pattern: &str) -> Result<Self, PatternError> {
        let mut builder = RegexBuilder::new(pattern);
        builder.unicode(false).size_limit(COMPILED).dfa_size_limit(SEARCHING).nest_limit(NESTED);
        let regex = builder.build().map_err(uncompiled)?;
        let groups = groups(&regex)?;
        let found = regex.capture_locations();
        Ok(Self { regex, groups, found })
    }

    /// Whether lines say how many samples were consumed, so that it does not follow from the number of steps.
    #[must_use]
    pub fn tells_consumed(&self) -> bool {
        self.groups.iter().any(|(_, group)| *group == Group::Consumed)
    }

    /// What a line tells; `None` if the pattern does not match or what it calls the step is no whole number.
    pub fn read(&mut self, line: &[u8]) -> Option<Printed> {
        self.regex.captures_read(&mut self.found, line)?;
        let (mut printed, mut step) = (Printed::default(), None);
        for (place, group) in &self.groups {
            let number = self.found.get(*place).and_then(|(from, to)| number(&line[from..to]));
            let finite = number.filter(|number| number.is_finite() && *number >= 0.0);
            let whole = finite.filter(|number| *number <= LARGEST_WHOLE).map(|number| number as u64);
            match group {
                Group::Step => step = whole,
                Group::Loss => printed.loss = number,
                Group::Seconds => printed.seconds = finite,
                Group::Milliseconds => printed.seconds = finite.map(|milliseconds| milliseconds / 1_000.0),
                Group::Tokens => printed.tokens = finite,
                Group::Samples => printed.samples = whole,
                Group::Consumed => printed.consumed = whole,
                Group::TokensPerSecond => printed.tokens_per_second = finite,
            }
        }
        Some(Printed { step: step?, ..printed })
    }
}

/// By their names; without any, the first is the step and the second the tokens per second.
fn groups(regex: &Regex) -> Result<Vec<(usize, Group)>, PatternError> {
    let words = || Group::VARIANTS.iter().map(|group| <&'static str>::from(*group));
    let mut groups = Vec::new();
    for (place, name) in regex.capture_names().enumerate().filter_map(|(place, name)| Some((place, name?))) {
        let known = Group::VARIANTS.iter().find(|group| <&str>::from(**group) == name);
        let unknown = || PatternError {
            message: format!("has a group named {name}, of which nothing is known"),
            hint: match nearest(name, words()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("groups are {}", words().collect::<Vec<_>>().join(", ")),
            },
        };
        groups.push((place, *known.ok_or_else(unknown)?));
    }
    let unnamed = regex.captures_len() - 1;
    match (groups.is_empty(), unnamed) {
        (true, 1) => Ok(vec![(1, Group::Step)]),
        (true, 2) => Ok(vec![(1, Group::Step), (2, Group::TokensPerSecond)]),
        (false, _) if groups.iter().any(|(_, group)| *group == Group::Step) => Ok(groups),
        (_, unnamed) => Err(PatternError {
            message: match (groups.is_empty(), unnamed) {
                (true, 0) => "has no group for the step".into(),
                (true, many) => format!("has {many} groups without names, of which two can be told apart"),
                _ => "has no group named step".into(),
            },
            hint: r"as in 'step=(?P<step>\d+).*loss=(?P<loss>\S+)', or 'step=(\d+).*tok/s=([\d.]+)'; (?:…) groups without finding".into(),
        }),
    }
}

fn uncompiled(error: regex::Error) -> PatternError {
    let (message, hint) = match &error {
        regex::Error::CompiledTooBig(_) => {
            ("takes too much room once it is compiled".into(), "count fewer repetitions: \\d+ instead of \\d{1,500}")
        }
        // Above it stands the pattern with marks below it, which one line cannot show.
        error => {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            (format!("is no regular expression: {last}"), "in YAML, put it between single quotes")
        }
    };
    PatternError { message, hint: hint.into() }
}

/// With or without separators between thousands.
fn number(text: &[u8]) -> Option<f64> {
    let text = core::str::from_utf8(text).ok()?.trim();
    if text.contains(',') { text.replace(',', "").parse().ok() } else { text.parse().ok() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(pattern: &str, line: &str) -> Option<Printed> {
        Pattern::compile(pattern).unwrap().read(line.as_bytes())
    }

    #[test]
    fn groups_without_names_are_the_step_and_the_tokens_per_second() {
        let told = Printed { step: 7, tokens_per_second: Some(1234.5), ..Printed::default() };
        assert_eq!(read(r"step=(\d+).*tok/s=([\d.]+)", "[x] step=7 loss=2 tok/s=1234.5"), Some(told));
        assert_eq!(read(r"(\d+)/\d+", " 43%|████▎     | 43/100 [00:04<00:05]").unwrap().step, 43);
    }

    #[test]
    fn what_groups_are_called_says_what_they_find() {
        let megatron = r"iteration +(?P<step>\d+)/.*consumed samples: +(?P<consumed>\d+).*iteration \(ms\): (?P<milliseconds>[\d.]+).*lm loss: (?P<loss>\S+)";
        let line = " [2026-08-22 15:22:22.000001] iteration       10/   50000 | consumed samples:         2560 | elapsed time per iteration (ms): 1250.5 | learning rate: 3.000000E-05 | global batch size:   256 | lm loss: 8.123456E+00 | loss scale: 1.0 |";
        let told = Printed {
            step: 10,
            consumed: Some(2560),
            seconds: Some(1.2505),
            loss: Some(8.123456),
            ..Printed::default()
        };
        assert_eq!(read(megatron, line), Some(told));
        let torchtitan = "\x1b[31mstep: 20  \x1b[32mloss:  4.81234  \x1b[38;2;180;60;0mgrad_norm:  1.2345";
        let told = read(r"step: +(?P<step>\d+) .*?loss: +(?P<loss>[\d.]+)", torchtitan).unwrap();
        assert_eq!((told.step, told.loss), (20, Some(4.81234)));
        let batch = read(r"(?P<step>[\d,]+) (?P<samples>\d+)", "1,024 32").unwrap();
        assert_eq!((batch.step, batch.samples), (1024, Some(32)));
        // A group beside named ones that has no name only groups.
        assert_eq!(read(r"(it|step) (?P<step>\d+)", "it 3").unwrap().step, 3);
    }

    #[test]
    fn a_step_is_a_whole_number_and_a_loss_whatever_was_printed() {
        for line in ["step , loss 1", "step 99999999999999999999 loss 1", "step loss 1"] {
            assert_eq!(read(r"step (?P<step>\S*) loss", line), None, "{line}");
        }
        let loss = |text: &str| read(r"(?P<step>\d+) (?P<loss>\S+)", text).unwrap().loss;
        assert!(loss("3 nan").unwrap().is_nan() && loss("3 inf") == Some(f64::INFINITY));
        assert_eq!(loss("3 n/a"), None);
    }

    #[test]
    fn bytes_that_are_no_text_hide_nothing() {
        let mut pattern = Pattern::compile(r"step (\d+).* tok/s=([\d.]+)").unwrap();
        let told = pattern.read(b"\xff\xfe\0 step 12 \x80\x81 tok/s=9.5").unwrap();
        assert_eq!((told.step, told.tokens_per_second), (12, Some(9.5)));
    }

    #[test]
    fn a_pattern_that_cannot_work_is_refused_with_what_would() {
        for (pattern, message) in [
            ("(", "is no regular expression: unclosed group"),
            (r"(?<=a)(\d+)", "is no regular expression: look-around"),
            (r"(\d+)\1", "is no regular expression: backreferences"),
            ("step", "has no group for the step"),
            ("loss (?P<loss>.)", "has no group named step"),
            ("(.)(.)(.)", "has 3 groups without names"),
            ("(?P<step>.)(?P<mood>.)", "has a group named mood"),
            (r"((\d{500}){500})", "takes too much room"),
            (&"(".repeat(200), "is no regular expression"),
        ] {
            let error = Pattern::compile(pattern).unwrap_err();
            assert!(error.message.starts_with(message) && !error.hint.is_empty(), "{pattern}: {error:?}");
        }
        let near = Pattern::compile("(?P<step>.)(?P<second>.)").unwrap_err();
        assert_eq!(near.hint, "did you mean seconds?");
    }
}
