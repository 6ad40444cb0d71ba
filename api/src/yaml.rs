//! YAML as this project reads and writes it. What is read may come from anybody, so how much work and memory a text can
//! cause is bounded here, whatever it looks like; `docs/decisions/0011-yaml-parser.md` says why by this crate.
//!
//! Words mean what YAML 1.2 says: `yes` and `on` are text, and so are numbers with leading zeros or underscores. Keys
//! given twice, merge keys (`<<`, which are of YAML 1.1) and tags of somebody's own are errors.

mod lines;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use serde_saphyr::{DefaultMessageFormatter, Error, MessageFormatter, Options, alias_limits, budget, options};

pub use lines::{Lines, lines};

/// Longest text.
const BYTES: usize = 2 << 20;
/// Nodes of a text: some two hundred for each of a thousand jobs.
const NODES: usize = 200_000;
/// Nodes that its aliases may stand for beside them.
const ALIASED: usize = 50_000;
const ALIASES: usize = 10_000;
const DOCUMENTS: usize = 10_000;
const DEPTH: usize = 32;
/// Text in all its nodes, those that aliases stand for among them.
const WORDS: usize = 4 * BYTES;

/// Why a text is no YAML that is read here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}{message}")]
pub struct YamlError {
    /// "line 3, column 5: ", where there is one place.
    place: String,
    message: String,
}

impl YamlError {
    fn whole(message: String) -> Self {
        Self { place: String::new(), message }
    }
}

impl From<serde_saphyr::Error> for YamlError {
    fn from(error: serde_saphyr::Error) -> Self {
        let mut error = error.without_snippet();
        let place = error.location().map(|at| format!("line {}, column {}: ", at.line(), at.column()));
        // What is wrong with an alias is told of the place that uses it.
        while let Error::AliasError { error: inner, .. } = error {
            error = inner;
        }
        let message = match error {
            Error::DuplicateMappingKey { key: Some(key), .. } => format!("the key {key} is given twice"),
            Error::MergeKeyNotAllowed { .. } => {
                "merge keys (<<) are not read; an alias stands for a whole mapping".to_owned()
            }
            Error::AliasReplayLimitExceeded { .. } | Error::AliasReplayStackDepthExceeded { .. } => too_much_aliased(),
            Error::Budget { breach, .. } => bound(breach),
            // The parser looks ahead, and may come upon the same bound first.
            Error::ExternalMessage { msg, .. } if msg == "recursion limit exceeded" => too_deep(),
            other => DefaultMessageFormatter.format_message(other).into_owned(),
        };
        Self { place: place.unwrap_or_default(), message }
    }
}

fn too_deep() -> String {
    format!("it is nested deeper than {DEPTH}")
}

fn too_much_aliased() -> String {
    format!("its aliases stand for more than {ALIASED} nodes")
}

/// Which bound was crossed.
fn bound(breach: &BudgetBreach) -> String {
    match breach {
        BudgetBreach::Depth { .. } => too_deep(),
        BudgetBreach::Nodes { .. } | BudgetBreach::Events { .. } => format!("it has more than {NODES} nodes"),
        BudgetBreach::Documents { .. } => format!("it has more than {DOCUMENTS} documents"),
        BudgetBreach::Aliases { .. } | BudgetBreach::Anchors { .. } => {
            format!("it has more than {ALIASES} aliases or anchors")
        }
        BudgetBreach::RecordedAnchorEvents { .. } | BudgetBreach::RecordedAnchorBytes { .. } => too_much_aliased(),
        BudgetBreach::ScalarBytes { .. } => {
            format!("with what its aliases stand for it has more than {WORDS} bytes of text")
        }
        other => format!("it asks for too much: {other:?}"),
    }
}

/// Reads the documents of a text; those without content are left out.
pub fn documents(text: &str) -> Result<Vec<Value>, YamlError> {
    read_with(text, |text, options| serde_saphyr::from_multiple_with_options(text, options))
}

/// Reads a text of one document.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    read_with(text, |text, options| serde_saphyr::from_str_with_options(text, options))
}

/// Writes one document.
pub fn write(value: &impl Serialize) -> Result<String, YamlError> {
    serde_saphyr::to_string(value).map_err(|error| YamlError::whole(error.to_string()))
}

fn read_with<T: for<'a> Deserialize<'a>>(
    text: &str,
    parse: impl FnOnce(&str, Options) -> Result<T, serde_saphyr::Error>,
) -> Result<T, YamlError> {
    if text.len() > BYTES {
        return Err(YamlError::whole(format!("it has {} bytes, and at most {BYTES} are read", text.len())));
    }
    Ok(parse(text, within_bounds())?)
}

fn within_bounds() -> Options {
    options! {
        budget: budget! {
            max_events: 4 * NODES,
            max_nodes: NODES,
            max_depth: DEPTH,
            flow_nesting_limit: DEPTH,
            max_documents: DOCUMENTS,
            max_aliases: ALIASES,
            max_anchors: ALIASES,
            max_recorded_anchor_events: ALIASED,
            max_recorded_anchor_bytes: WORDS,
            max_total_scalar_bytes: WORDS,
            max_merge_keys: 0,
            // Many jobs may share one anchor; how much that may come to is bounded as it is.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: alias_limits! {
            max_total_replayed_events: ALIASED,
            max_replay_stack_depth: DEPTH,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        reject_unsupported_tags: true,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn one(text: &str) -> Value {
        documents(text).unwrap().remove(0)
    }

    #[test]
    fn words_and_numbers_mean_what_yaml_1_2_says() {
        let text = "[yes, no, on, off, true, False, ~, 010, 1_000, 0x10, 0o10, 1.5, 1e3, '1', 12:30]";
        assert_eq!(
            one(text),
            json!(["yes", "no", "on", "off", true, false, null, "010", "1_000", 16, 8, 1.5, 1e3, "1", "12:30"])
        );
        assert_eq!(one("{1: a, 2.5: b, true: c}"), json!({"1": "a", "2.5": "b", "true": "c"}));
    }

    #[test]
    fn an_anchor_may_be_used_by_a_thousand_jobs() {
        let text = format!("env: &env {{A: b}}\njobs: [{}]", vec!["{env: *env}"; 1_000].join(", "));
        assert_eq!(one(&text)["jobs"][999], json!({"env": {"A": "b"}}));
    }

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let value = json!({
            "words": ["yes", "no", "~", "null", "010", "1_000", "0x10", "", " a ", "a: b", "- a", "#", "*a", "two\nlines\n", "ü"],
            "numbers": [0, -7, 18_446_744_073_709_551_615_u64, 0.1, 1e300],
            "nothing": [null, {}, []], "1": {"true": false},
        });
        assert_eq!(one(&write(&value).unwrap()), value);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, place) in [
            ("a: 1\nb: 2\na: 3\n", "line 3"),
            ("a: [1, 2\nb: 3\n", "line 2"),
            ("base: &base {a: 1}\nuser:\n  <<: *base\n", "line 3"),
            ("a: 1\nb: *nobody\n", "line 2"),
            ("a: !mine 1\n", "line 1"),
            ("a: .nan\n", "line 1"),
        ] {
            let error = documents(text).unwrap_err().to_string();
            assert!(error.starts_with(place) && !error.contains('\n'), "{text:?}: {error}");
        }
    }
}
