//! What is wrong with a document: everything at once where it can be read at all, each with its place.

use serde::Serialize;

use crate::spec::{SpecError, nearest};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Path of the key ("jobs[3].goodput[0].gpus"); empty where the document as a whole is meant.
    pub field: String,
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Finding {
    /// For people, in one line.
    #[must_use]
    pub fn line(&self) -> String {
        let place = if self.field.is_empty() { String::new() } else { format!("{}: ", self.field) };
        let hint = self.hint.as_ref().map_or(String::new(), |hint| format!(" ({hint})"));
        format!("{place}{}{hint}", self.message)
    }
}

/// Why a document is no round. Never without a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{}", self.findings.iter().map(Finding::line).collect::<Vec<_>>().join("\n"))]
pub struct SolveError {
    pub findings: Vec<Finding>,
}

impl SolveError {
    #[must_use]
    pub fn one(field: &str, message: impl Into<String>, hint: Option<&str>) -> Self {
        let finding = Finding { field: field.into(), message: message.into(), hint: hint.map(Into::into) };
        Self { findings: vec![finding] }
    }
}

impl From<SpecError> for SolveError {
    fn from(error: SpecError) -> Self {
        let finding = |one: &SpecError| Finding {
            field: one.field.clone(),
            message: one.message.clone(),
            hint: one.hint.clone(),
        };
        Self { findings: error.all().map(finding).collect() }
    }
}

/// An error of the JSON reader, in the words of a document.
pub(super) fn misread(path: &str, error: &serde_json::Error, text: &str) -> SolveError {
    let place = if path == "." { "" } else { path };
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
    if error.is_data() {
        // What Rust calls its numbers is no help to others.
        let words =
            message.replace("expected u32", "expected a whole number").replace("expected f64", "expected a number");
        return SolveError::one(place, words, hint_of_data(message).as_deref());
    }
    let at = format!("line {} column {}", error.line(), error.column());
    let hint = no_number(error, text).then_some("JSON has no NaN and no Infinity; leave the row or the field out");
    SolveError::one(place, format!("not JSON at {at}: {message}"), hint)
}

/// The known key a mistyped one most resembles, from serde's own list.
fn hint_of_data(message: &str) -> Option<String> {
    if message == "missing field `version`" {
        return Some("a round begins with \"version\": 1".into());
    }
    let rest = message.strip_prefix("unknown ")?;
    let mut words = rest.split('`').skip(1).step_by(2);
    let unknown = words.next()?;
    nearest(unknown, words).map(|near| format!("did you mean {near}?"))
}

/// Whether the reader stumbled over what other languages write for a number that is none.
fn no_number(error: &serde_json::Error, text: &str) -> bool {
    let Some(line) = text.lines().nth(error.line().saturating_sub(1)) else { return false };
    let until = error.column().min(line.len());
    let from = until.saturating_sub(2);
    let near = line.get(from..).unwrap_or_default();
    ["NaN", "Infinity", "-Infinity", "nan", "inf"]
        .iter()
        .any(|word| near.trim_start_matches([':', ' ']).starts_with(word))
}
