//! Walking a specification: one mapping at a time, every key accounted for, every error with its place.

use std::cell::{Cell, RefCell};

use serde_json::{Map, Value};
use strum::VariantArray;

use super::SpecError;

/// No count in a specification is larger, so that products of a few of them stay within 64 bits.
pub const COUNT_AT_MOST: u32 = 1 << 20;

/// A vocabulary of which specifications name a value.
pub(super) trait Word: VariantArray + Into<&'static str> + Copy {}

impl<T: VariantArray + Into<&'static str> + Copy> Word for T {}

/// Findings of one text that are told; the others are counted.
const MOST_FINDINGS: usize = 100;

/// What is wrong so far. Reading goes on after an error, so that one attempt shows them all.
#[derive(Debug, Default)]
pub(super) struct Findings {
    told: RefCell<Vec<SpecError>>,
    more: Cell<usize>,
}

impl Findings {
    pub(super) fn add(&self, field: &str, message: impl Into<String>) {
        self.put(field, message.into(), None);
    }

    pub(super) fn hint(&self, field: &str, message: impl Into<String>, hint: impl Into<String>) {
        self.put(field, message.into(), Some(hint.into()));
    }

    fn put(&self, field: &str, message: String, hint: Option<String>) {
        let mut told = self.told.borrow_mut();
        if told.len() < MOST_FINDINGS {
            told.push(SpecError { field: field.to_owned(), message, hint, more: Vec::new() });
        } else {
            self.more.set(self.more.get() + 1);
        }
    }

    /// The first finding with the others behind it, or `None` where all is well.
    pub(super) fn into_error(self) -> Option<SpecError> {
        let more = self.more.get();
        let untold = (more > 0).then(|| SpecError::whole(format!("and {more} more like these")));
        let mut all = self.told.into_inner().into_iter().chain(untold);
        let first = all.next()?;
        Some(SpecError { more: all.collect(), ..first })
    }
}

/// One mapping of the specification.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section<'a> {
    path: &'a str,
    map: &'a Map<String, Value>,
    findings: &'a Findings,
}

impl<'a> Section<'a> {
    /// Opens a mapping. Keys that are neither `known` nor planned for `later` are reported with the nearest known one.
    pub(super) fn open(
        path: &'a str,
        value: &'a Value,
        known: &[&str],
        later: &[&str],
        findings: &'a Findings,
    ) -> Option<Self> {
        let Value::Object(map) = value else {
            findings.add(path, format!("must be a mapping, not {}", kind(value)));
            return None;
        };
        let section = Self { path, map, findings };
        for key in map.keys().filter(|key| !known.contains(&key.as_str())) {
            let field = section.field(key);
            if later.contains(&key.as_str()) {
                findings.hint(&field, "is not supported yet", instead_of(key));
            } else if let Some(near) = nearest(key, known.iter().copied()) {
                findings.hint(&field, "is not a known key", format!("did you mean {near}?"));
            } else {
                findings.hint(&field, "is not a known key", format!("known keys are {}", known.join(", ")));
            }
        }
        Some(section)
    }

    pub(super) fn findings(&self) -> &'a Findings {
        self.findings
    }

    /// Path of a key of this mapping.
    pub(super) fn field(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The value of a key; `null` counts as absent.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Whether the key is there without a value.
    pub(super) fn is_null(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(Value::is_null)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// The value of a key that must be there.
    pub(super) fn require(&self, key: &str, example: &str) -> Option<&'a Value> {
        let value = self.get(key);
        if value.is_none() {
            self.findings.hint(&self.field(key), "is required", example);
        }
        value
    }

    pub(super) fn wrong(&self, key: &str, message: impl Into<String>) {
        self.findings.add(&self.field(key), message);
    }

    pub(super) fn wrong_hint(&self, key: &str, message: impl Into<String>, hint: impl Into<String>) {
        self.findings.hint(&self.field(key), message, hint);
    }

    pub(super) fn text(&self, key: &str) -> Option<String> {
        text(self.get(key)?, &self.field(key), self.findings)
    }

    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        let value = self.get(key)?;
        if value.as_bool().is_none() {
            self.wrong(key, format!("must be true or false, not {}", kind(value)));
        }
        value.as_bool()
    }

    /// A whole number from `least` to `COUNT_AT_MOST`.
    pub(super) fn whole(&self, key: &str, least: u32) -> Option<u32> {
        whole(self.get(key)?, least, &self.field(key), self.findings)
    }

    /// A finite number.
    pub(super) fn number(&self, key: &str) -> Option<f64> {
        let value = self.get(key)?;
        if value.as_f64().is_none() {
            self.wrong(key, format!("must be a number, not {}", kind(value)));
        }
        value.as_f64()
    }

    /// One of several words.
    pub(super) fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Option<T> {
        let word = self.text(key)?;
        let found = choices.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
        if found.is_none() {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            self.wrong(key, format!("must be one of {}, not \"{word}\"", names.join(", ")));
        }
        found
    }

    /// One of a vocabulary.
    pub(super) fn word<T: Word>(&self, key: &str) -> Option<T> {
        let choices: Vec<(&str, T)> = T::VARIANTS.iter().map(|one| ((*one).into(), *one)).collect();
        self.choice(key, &choices)
    }

    /// One of a vocabulary, if the key is there.
    pub(super) fn word_or<T: Word>(&self, key: &str, absent: T) -> Option<T> {
        if self.has(key) { self.word(key) } else { Some(absent) }
    }

    /// A quantity with its unit, as `parse` reads it.
    pub(super) fn quantity<T>(&self, key: &str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let value = self.get(key)?;
        let text = match value {
            Value::String(text) => text.clone(),
            // Shown to the parser without a unit, which tells what is missing.
            Value::Number(number) => number.to_string(),
            other => {
                self.wrong(key, format!("must be a quantity with its unit, not {}", kind(other)));
                return None;
            }
        };
        match parse(&text) {
            Ok(quantity) => Some(quantity),
            Err(message) => {
                self.wrong(key, message);
                None
            }
        }
    }

    /// A mapping of words to words; numbers and booleans count as the words they are written as. `without`: what to do about a name
    /// that has no value.
    pub(super) fn words(&self, key: &str, without: &str) -> Option<Vec<(String, String)>> {
        let value = self.get(key)?;
        let Value::Object(map) = value else {
            self.wrong(key, format!("must be a mapping, not {}", kind(value)));
            return None;
        };
        let path = self.field(key);
        let word = |(name, value): (&String, &Value)| {
            if name.contains('\0') {
                self.wrong(key, "must not have a name with a NUL character");
                return None;
            }
            let value = match value {
                Value::Bool(_) | Value::Number(_) => value.to_string(),
                Value::Null => {
                    self.findings.hint(&format!("{path}.{name}"), "has no value", without);
                    return None;
                }
                other => text(other, &format!("{path}.{name}"), self.findings)?,
            };
            Some((name.clone(), value))
        };
        Some(map.iter().filter_map(word).collect())
    }
}

/// Any text but one with a NUL: no argument, variable or path can hold that, nor can the store.
pub(super) fn text(value: &Value, field: &str, findings: &Findings) -> Option<String> {
    match value {
        Value::String(text) if text.contains('\0') => {
            findings.hint(field, "must not contain a NUL character", "in YAML, \"\\0\" between double quotes is one");
            None
        }
        Value::String(text) => Some(text.clone()),
        other => {
            findings.hint(field, format!("must be text, not {}", kind(other)), "quote it");
            None
        }
    }
}

pub(super) fn whole(value: &Value, least: u32, field: &str, findings: &Findings) -> Option<u32> {
    // JSON and YAML know one kind of number: 8.0 is as whole as 8.
    let number = value
        .as_f64()
        .filter(|number| number.fract() == 0.0 && (f64::from(least)..=f64::from(COUNT_AT_MOST)).contains(number));
    let number = number.map(|number| number as u32);
    if number.is_none() {
        let message = |got: &str| format!("must be a whole number from {least} to {COUNT_AT_MOST}, not {got}");
        match value {
            Value::Number(number) => findings.add(field, message(&number.to_string())),
            Value::String(text) if text.parse::<u32>().is_ok() => {
                findings.hint(field, message(&format!("the text \"{text}\"")), "take the quotes away");
            }
            Value::String(text) => findings.add(field, message(&format!("\"{text}\""))),
            other => findings.add(field, message(kind(other))),
        }
    }
    number
}

/// What there is in place of a key that the design foresees and this release does not know.
fn instead_of(key: &str) -> &'static str {
    match key {
        "image" | "mounts" => "start the container in run.command: docker run …, apptainer exec …",
        _ => "remove it; Headway would not act on it",
    }
}

/// One value, or a list of them.
pub(super) fn one_or_many(value: &Value) -> &[Value] {
    match value {
        Value::Array(many) => many,
        one => std::slice::from_ref(one),
    }
}

pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

/// The known word a mistyped one most resembles, if any does. Comparing two words takes as long as their lengths multiplied,
/// and the word is a stranger's: those that differ too much in length alone are not compared.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    let allowed = (length / 3).max(1);
    known
        .filter(|candidate| candidate.chars().count().abs_diff(length) <= allowed)
        .map(|candidate| (strsim::damerau_levenshtein(&word.to_lowercase(), candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}
