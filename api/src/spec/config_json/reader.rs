//! Access to the keys of a `config.json` that remembers which were read, so that no key that shapes the
//! model is passed over.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::ImportError;
use super::keys::looks_structural;

/// A key without a default: the file must have it.
pub(super) const NEEDED: u32 = 0;

/// An object of the file.
pub(super) struct ConfigReader<'a> {
    object: &'a Map<String, Value>,
    read: RefCell<BTreeSet<String>>,
}

impl<'a> ConfigReader<'a> {
    pub(super) fn new(object: &'a Map<String, Value>) -> Self {
        Self { object, read: RefCell::default() }
    }

    /// The value of a key, which counts as read.
    pub(super) fn value(&self, name: &str) -> Option<&'a Value> {
        let value = self.object.get(name)?;
        self.read.borrow_mut().insert(name.to_owned());
        Some(value)
    }

    /// Whether a key is there and neither null, false, zero nor empty.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.value(name).is_some_and(is_meaningful)
    }

    /// A number under any of its names; `None` where it is missing or null.
    pub(super) fn optional(&self, names: &[&str]) -> Result<Option<u32>, ImportError> {
        self.number(names).map(|found| found.and_then(|(_, value)| value))
    }

    /// A number under any of its names, which must not be null. A missing one has the family's default.
    pub(super) fn or_default(&self, names: &[&str], default: u32) -> Result<u32, ImportError> {
        match self.number(names)? {
            Some((_, Some(value))) => Ok(value),
            Some((name, None)) => Err(ImportError::NoNumber { key: name, value: "null".into() }),
            None if default == NEEDED => Err(ImportError::Missing(names.join(" or "))),
            None => Ok(default),
        }
    }

    /// The name and number of the first of several names that the file has. Others must agree with it.
    fn number(&self, names: &[&str]) -> Result<Option<(String, Option<u32>)>, ImportError> {
        let mut found: Option<(String, Option<u32>)> = None;
        for name in names {
            let Some(value) = self.value(name) else { continue };
            let number = to_number(name, value)?;
            match &found {
                Some((_, None)) | None => found = Some(((*name).to_owned(), number)),
                Some((first, Some(one))) if number.is_some_and(|other| other != *one) => {
                    let (first, second) = (first.clone(), (*name).to_owned());
                    return Err(ImportError::Disagree { first, second });
                }
                Some(_) => {}
            }
        }
        Ok(found)
    }

    /// A number, or `None` where the file leaves it to the code: missing, null or "auto".
    pub(super) fn automatic(&self, name: &str) -> Result<Option<u32>, ImportError> {
        if self.value(name).and_then(Value::as_str) == Some("auto") {
            return Ok(None);
        }
        self.optional(&[name])
    }

    /// A number that may be written as a list with the same one for each layer.
    pub(super) fn uniform(&self, names: &[&str], default: u32) -> Result<u32, ImportError> {
        for name in names {
            let Some(Value::Array(values)) = self.value(name) else { continue };
            let first = values.first().filter(|first| values.iter().all(|value| value == *first));
            let uneven = || ImportError::Unmodelled { key: (*name).to_owned(), why: "differs between layers" };
            let number = to_number(name, first.ok_or_else(uneven)?)?;
            return number.ok_or_else(uneven);
        }
        self.or_default(names, default)
    }

    /// A yes or no; `None` where it is missing or null.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, ImportError> {
        match self.value(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(ImportError::NoFlag { key: name.to_owned(), value: shorten(other) }),
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.value(name)?.as_str()
    }

    /// A list; `None` where it is missing, null or empty.
    pub(super) fn list(&self, name: &str) -> Result<Option<&'a [Value]>, ImportError> {
        match self.value(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Array(values)) => Ok(Some(values.as_slice()).filter(|values| !values.is_empty())),
            Some(_) => Err(ImportError::Unmodelled { key: name.to_owned(), why: "is no list" }),
        }
    }

    /// The indices that a list names.
    pub(super) fn indices(&self, name: &str) -> Result<Option<BTreeSet<u32>>, ImportError> {
        let Some(values) = self.list(name)? else { return Ok(None) };
        let index = |value: &Value| value.as_u64().and_then(|index| u32::try_from(index).ok());
        let indices: Option<BTreeSet<u32>> = values.iter().map(index).collect();
        let odd = || ImportError::Unmodelled { key: name.to_owned(), why: "is no list of layer numbers" };
        indices.map(Some).ok_or_else(odd)
    }

    /// An object within this one.
    pub(super) fn nested(&self, name: &str) -> Option<ConfigReader<'a>> {
        self.value(name)?.as_object().map(ConfigReader::new)
    }

    /// Marks keys as read that shape nothing in the family at hand.
    pub(super) fn ignore(&self, names: &[&str]) {
        for name in names {
            let _ = self.value(name);
        }
    }

    /// The longest sequence that the file allows.
    pub(super) fn longest_sequence(&self) -> Option<u32> {
        const NAMES: [&str; 8] = [
            "max_position_embeddings",
            "n_positions",
            "max_seq_len",
            "seq_length",
            "max_sequence_length",
            "model_max_length",
            "n_ctx",
            "max_length",
        ];
        let value = |name: &&str| self.value(name)?.as_u64().and_then(|value| u32::try_from(value).ok());
        NAMES.iter().filter_map(value).find(|value| *value > 0)
    }

    /// Refuses the file where a key that looks as if it shaped the model was not read.
    pub(super) fn refuse_unread(&self, family: &str) -> Result<(), ImportError> {
        let read = self.read.borrow();
        let is_unread = |(name, value): &(&String, &Value)| {
            !read.contains(name.as_str()) && is_meaningful(value) && looks_structural(name)
        };
        let keys: Vec<String> = self.object.iter().filter(is_unread).map(|(name, _)| name.clone()).collect();
        if keys.is_empty() { Ok(()) } else { Err(ImportError::Unread { family: family.to_owned(), keys }) }
    }
}

fn to_number(name: &str, value: &Value) -> Result<Option<u32>, ImportError> {
    if value.is_null() {
        return Ok(None);
    }
    let whole = value.as_u64().or_else(|| {
        let number = value.as_f64()?;
        (number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number)).then_some(number as u64)
    });
    let number = whole.and_then(|whole| u32::try_from(whole).ok());
    let odd = || ImportError::NoNumber { key: name.to_owned(), value: shorten(value) };
    number.map(Some).ok_or_else(odd)
}

fn is_meaningful(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Bool(true) => true,
        // A negative number stands for none.
        Value::Number(number) => number.as_f64().is_none_or(|number| number > 0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(values) => !values.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

fn shorten(value: &Value) -> String {
    const LONGEST: usize = 40;
    let text = value.to_string();
    if text.chars().count() <= LONGEST { text } else { text.chars().take(LONGEST).chain(['…']).collect() }
}
