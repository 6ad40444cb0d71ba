//! How much a specification may hold: one table, by which texts are refused before anything is read of them, the OpenAPI document tells each
//! bound, and docs/job-specification.md lists them. Everything that the table does not name has the bounds of `ELSEWHERE`.
//!
//! They bound what one job costs everybody else: rows that are stored and listed, launch orders, environments.

use headway_types::spec::{MOST_DEPENDENCIES, MOST_ELEMENTS, MOST_NODE_LABELS, MOST_WEBHOOKS};
use serde_json::Value;

use super::section::Findings;

/// Specifications of one submission; elements of arrays count.
pub const MOST_JOBS: usize = 1_000;
/// Characters of all texts and names of one specification.
pub const MOST_TEXT: usize = 262_144;
/// Findings of one specification that are told.
const MOST_TOLD: usize = 20;
/// Characters of a name that a finding repeats.
const NAME_TOLD: usize = 64;

/// In what form a value may come, as far as its bounds go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    List,
    TextOrList,
    /// Names of somebody's own, each with a value.
    Map,
    ListOrMap,
    /// One mapping of known keys, or a list of them.
    Mappings,
}

/// What one key may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Path of the key, indices left out ("run.env").
    pub field: &'static str,
    pub form: Form,
    /// Entries of a list or a mapping.
    pub entries: usize,
    /// Characters of each name, of a mapping of names of somebody's own.
    pub names: usize,
    /// Characters of the text, or of each text in it.
    pub text: usize,
}

const fn text(field: &'static str, text: usize) -> Bound {
    Bound { field, form: Form::Text, text, ..ELSEWHERE }
}

const fn list(field: &'static str, form: Form, entries: usize, text: usize) -> Bound {
    Bound { field, form, entries, text, ..ELSEWHERE }
}

const fn map(field: &'static str, entries: usize, names: usize, text: usize) -> Bound {
    Bound { field, form: Form::Map, entries, names, text }
}

/// Of whatever the table does not name.
pub const ELSEWHERE: Bound = Bound { field: "", form: Form::Text, entries: 64, names: 128, text: 1_024 };

/// The table. A key whose form is a mapping of own names has no rows below it.
pub const BOUNDS: &[Bound] = &[
    text("name", 128),
    text("project", 128),
    map("labels", 64, 128, 256),
    list("resources.gpus.sizes", Form::List, 256, 16),
    list("resources.gpus.type", Form::TextOrList, 64, 128),
    list("resources.nodes.include", Form::TextOrList, 4_096, 128),
    list("resources.nodes.exclude", Form::TextOrList, 4_096, 128),
    map("resources.nodes.labels", MOST_NODE_LABELS, 63, 63),
    map("training.curve", 1_024, 16, 64),
    map("training.layouts", 256, 32, 64),
    // Files list some settings for each layer.
    map("training.model.config", 1_024, 128, 1_024),
    text("training.checkpoint.dir", 4_096),
    list("after", Form::Mappings, MOST_DEPENDENCIES, 256),
    list("array.range", Form::TextOrList, MOST_ELEMENTS, 16_384),
    list("notify", Form::Mappings, MOST_WEBHOOKS, 128),
    text("notify.webhook", 2_048),
    list("run.command", Form::TextOrList, 4_096, 131_072),
    text("run.workdir", 4_096),
    map("run.env", 512, 256, 32_768),
    Bound { form: Form::ListOrMap, ..map("run.secrets", 32, 128, 128) },
    text("run.hooks.prolog", 32_768),
    text("run.hooks.epilog", 32_768),
];

fn of(pattern: &str) -> Bound {
    BOUNDS.iter().find(|bound| bound.field == pattern).copied().unwrap_or(ELSEWHERE)
}

/// Whether a specification that stands at `path` is within all bounds; what is not is told.
pub(super) fn check(path: &str, value: &Value, findings: &Findings) -> bool {
    let mut walk = Walk { findings, told: 0, text: 0 };
    walk.value("", path, value);
    if walk.told == 0 && walk.text > MOST_TEXT {
        walk.tell(path, format!("has {} characters in all, at most {MOST_TEXT}", walk.text), FILES);
    }
    walk.told == 0
}

const FILES: &str = "keep what is long in files that its nodes see";

struct Walk<'a> {
    findings: &'a Findings,
    told: usize,
    /// Characters so far.
    text: usize,
}

impl Walk<'_> {
    fn value(&mut self, pattern: &str, path: &str, value: &Value) {
        if self.told >= MOST_TOLD {
            return;
        }
        let bound = of(pattern);
        match value {
            Value::String(text) => self.text(path, text, bound.text),
            Value::Array(items) => {
                if self.entries(path, items.len(), bound.entries) {
                    let each = |(index, item)| self.value(pattern, &format!("{path}[{index}]"), item);
                    items.iter().enumerate().for_each(each);
                }
            }
            Value::Object(map) => {
                if self.entries(path, map.len(), bound.entries) {
                    map.iter().for_each(|(name, value)| self.entry(pattern, path, (name.as_str(), value), bound));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn entry(&mut self, pattern: &str, path: &str, (name, value): (&str, &Value), bound: Bound) {
        let told: String = name.chars().take(NAME_TOLD).collect();
        let path = if path.is_empty() { told } else { format!("{path}.{told}") };
        let length = name.chars().count();
        self.text += length;
        if length > bound.names {
            return self.tell(&path, format!("has a name of {length} characters, at most {}", bound.names), FILES);
        }
        let own_names = matches!(bound.form, Form::Map | Form::ListOrMap);
        match (own_names, pattern) {
            (true, _) => self.value(pattern, &path, value),
            (false, "") => self.value(name, &path, value),
            (false, _) => self.value(&format!("{pattern}.{name}"), &path, value),
        }
    }

    fn text(&mut self, path: &str, text: &str, most: usize) {
        let length = text.chars().count();
        self.text += length;
        if length > most {
            self.tell(path, format!("has {length} characters, at most {most}"), FILES);
        }
    }

    fn entries(&mut self, path: &str, entries: usize, most: usize) -> bool {
        if entries > most {
            self.tell(
                path,
                format!("has {entries} entries, at most {most}"),
                "docs/job-specification.md lists all bounds",
            );
        }
        entries <= most
    }

    fn tell(&mut self, path: &str, message: String, hint: &str) {
        self.told += 1;
        if self.told <= MOST_TOLD {
            self.findings.hint(path, message, hint);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::spec::{read_json, read_submission_json};

    fn spec() -> Value {
        json!({"version": 1, "name": "a", "resources": {"gpus": 1}, "run": {"command": "train"}})
    }

    /// A value of the form, with so many entries and texts of such a length.
    fn value(bound: &Bound, entries: usize, text: usize) -> Value {
        let word = "x".repeat(text);
        match bound.form {
            Form::Text => json!(word),
            Form::List | Form::TextOrList => json!(vec![word; entries]),
            Form::Map | Form::ListOrMap => (0..entries).map(|index| (format!("n{index}"), json!(word))).collect(),
            Form::Mappings => json!(vec![json!({"x": word}); entries]),
        }
    }

    fn with(bound: &Bound, value: Value) -> Value {
        let mut spec = spec();
        let mut at = &mut spec;
        for key in bound.field.split('.') {
            if !at[key].is_object() {
                at[key] = json!({});
            }
            at = &mut at[key];
        }
        *at = value;
        spec
    }

    fn objections(spec: &Value) -> Vec<String> {
        let findings = Findings::default();
        check("", spec, &findings);
        findings
            .into_error()
            .iter()
            .flat_map(|error| error.all().map(super::super::SpecError::line).collect::<Vec<_>>())
            .collect()
    }

    #[test]
    fn each_bound_holds_at_its_place_and_one_below_does_not() {
        for bound in BOUNDS {
            let text = (MOST_TEXT / 2).min(bound.text);
            let listed = bound.form != Form::Text;
            let fits = if listed { (bound.entries, 1) } else { (1, text) };
            assert_eq!(objections(&with(bound, value(bound, fits.0, fits.1))), [""; 0], "{}", bound.field);
            if listed {
                let told = objections(&with(bound, value(bound, bound.entries + 1, 1)));
                assert!(told[0].starts_with(&format!("{}: has {}", bound.field, bound.entries + 1)), "{told:?}");
            }
            if bound.form != Form::Mappings {
                let told = objections(&with(bound, value(bound, 1, bound.text + 1)));
                assert!(
                    told[0].starts_with(bound.field) && told[0].contains(&format!("at most {}", bound.text)),
                    "{told:?}"
                );
            }
        }
    }

    #[test]
    fn what_the_table_does_not_name_is_bounded_too() {
        for (value, what) in [
            (json!({"elastic": {"min_runtime": "9".repeat(2_000)}}), "elastic.min_runtime: has 2000 characters"),
            (json!({"x".repeat(5_000): 1}), "has a name of 5000 characters"),
            (json!({"priority": vec![0; 100_000]}), "priority: has 100000 entries"),
        ] {
            let mut all = spec();
            value.as_object().unwrap().iter().for_each(|(key, value)| all[key] = value.clone());
            let told = objections(&all);
            assert!(told.len() == 1 && told[0].contains(what), "{told:?}");
        }
    }

    #[test]
    fn the_page_on_specifications_lists_the_table() {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/job-specification.md")).unwrap();
        let count = |number: usize, told: bool| if told { number.to_string() } else { "–".into() };
        for bound in BOUNDS {
            let own_names = matches!(bound.form, Form::Map | Form::ListOrMap);
            let entries = count(bound.entries, bound.form != Form::Text);
            let row = format!("| `{}` | {entries} | {} | {} |", bound.field, count(bound.names, own_names), bound.text);
            assert!(page.contains(&row), "{row}");
        }
        let rest = format!("| anything else | {} | {} | {} |", ELSEWHERE.entries, ELSEWHERE.names, ELSEWHERE.text);
        assert!(page.contains(&rest), "{rest}");
        let bounds = page.split("## Bounds").nth(1).unwrap();
        assert_eq!(bounds.lines().filter(|line| line.starts_with("| `")).count(), BOUNDS.len());
    }

    #[test]
    fn many_short_texts_are_not_more_than_a_long_one() {
        let env: Value = (0..500).map(|index| (format!("V{index}"), json!("x".repeat(1_000)))).collect();
        let mut all = spec();
        all["run"]["env"] = env;
        assert!(objections(&all)[0].contains("characters in all, at most 262144"), "{:?}", objections(&all));
    }

    #[test]
    fn a_hundred_thousand_labels_are_one_short_finding() {
        let mut all = spec();
        all["labels"] = (0..100_000).map(|index| (format!("l{index}"), json!("v"))).collect();
        let error = read_json(&all).unwrap_err();
        assert_eq!((error.field.as_str(), error.more.len()), ("labels", 0));
        assert_eq!(error.message, "has 100000 entries, at most 64");
        assert!(error.hint.is_some());
        let error = read_submission_json(&json!({"jobs": [spec(), all]})).unwrap_err();
        assert_eq!(error.field, "jobs[1].labels");
    }

    #[test]
    fn a_specification_of_nothing_but_mistakes_is_told_in_few_words() {
        let mut all = spec();
        all["run"]["env"] = (0..512).map(|index| (format!("V{index}"), json!(null))).collect();
        all["labels"] = (0..64).map(|index| (format!("l{index}"), json!([]))).collect();
        let told = read_json(&all).unwrap_err().to_string();
        assert!(told.lines().count() <= 101 && told.contains("more"), "{} lines", told.lines().count());
    }
}
