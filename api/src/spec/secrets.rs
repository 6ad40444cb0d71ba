//! `run.secrets`: which variables stand for which secrets, and how each is handed over. Values are never in a specification.

use std::collections::{BTreeMap, BTreeSet};

use headway_types::spec::Run;
use serde_json::{Value, json};
use strum::{IntoStaticStr, VariantArray};

use super::section::{Findings, Section, kind, text};

/// Secrets of one job, at most.
const MOST: usize = 32;
const LONGEST_NAME: usize = 128;
const EXAMPLE: &str = "as in secrets: [HF_TOKEN], secrets: {HF_TOKEN: team-hf} where the variable has another name, or secrets: {HF_TOKEN: \
                       {name: team-hf, as: env}} where a script reads the variable itself";

/// Where a process finds the path of the file that stands for a variable.
const FILE: &str = "_FILE";

/// How a process is handed a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
enum Form {
    /// An open file in memory.
    File,
    /// A variable of its environment, which whoever looks at that sees.
    Env,
}

/// What a job names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Named {
    /// Secrets by variable.
    pub(super) secrets: BTreeMap<String, String>,
    /// Of these variables, those that are files.
    pub(super) files: BTreeSet<String>,
}

struct Entry {
    variable: String,
    name: String,
    form: Form,
}

/// Whether this can be the name of a secret.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    let begins_well = name.chars().next().is_some_and(|first| first.is_ascii_alphanumeric());
    let reads_well = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    begins_well && reads_well && name.len() <= LONGEST_NAME
}

/// A list of secrets, whose names are the variables' too, or a mapping of variables to secrets.
pub(super) fn read(run: &Section<'_>, env: &BTreeMap<String, String>) -> Option<Named> {
    let (field, findings) = (run.field("secrets"), run.findings());
    let entries: Vec<Option<Entry>> = match run.get("secrets") {
        None => return Some(Named::default()),
        Some(Value::Array(items)) => {
            let one = |(index, item)| entry(&format!("{field}[{index}]"), None, item, findings);
            items.iter().enumerate().map(one).collect()
        }
        Some(Value::Object(map)) => {
            let one = |(variable, item): (&String, &Value)| {
                entry(&format!("{field}.{variable}"), Some(variable), item, findings)
            };
            map.iter().map(one).collect()
        }
        Some(other) => {
            findings.hint(&field, format!("must be a list or a mapping, not {}", kind(other)), EXAMPLE);
            return None;
        }
    };
    let entries: Vec<Entry> = entries.into_iter().collect::<Option<_>>()?;
    if entries.len() > MOST {
        run.wrong("secrets", format!("a job has {MOST} secrets at most, not {}", entries.len()));
        return None;
    }
    let mut taken = BTreeSet::new();
    // Every one is looked at before the first bad one ends it.
    let sound = entries.iter().filter(|entry| {
        let at = format!("{field}.{}", entry.variable);
        let found_by = match entry.form {
            Form::File => format!("{}{FILE}", entry.variable),
            Form::Env => entry.variable.clone(),
        };
        if !is_variable(&entry.variable) {
            let message = "is no name of a variable: letters, digits and '_', not beginning with a digit";
            findings.hint(&at, message, EXAMPLE);
        } else if !is_secret_name(&entry.name) {
            let message = "must be 1 to 128 ASCII letters, digits, '-', '_' or '.', beginning with a letter or digit";
            findings.add(&at, format!("the name of a secret {message}"));
        } else if env.contains_key(&entry.variable) {
            findings.hint(&at, "is in run.env as well", "take it out of one of them");
        } else if env.contains_key(&found_by) {
            let message = format!("is found by {found_by}, which is in run.env as well");
            findings.hint(&at, message, "take that out of run.env, or write {name: SECRET, as: env}");
        } else if taken.contains(&entry.variable) || taken.contains(&found_by) {
            findings.add(&at, "is named twice");
        } else {
            taken.extend([entry.variable.clone(), found_by]);
            return true;
        }
        false
    });
    (sound.count() == entries.len()).then(|| Named {
        secrets: entries.iter().map(|entry| (entry.variable.clone(), entry.name.clone())).collect(),
        files: entries.iter().filter(|entry| entry.form == Form::File).map(|entry| entry.variable.clone()).collect(),
    })
}

/// One secret, by its name alone or with how it is handed over.
fn entry(at: &str, variable: Option<&String>, item: &Value, findings: &Findings) -> Option<Entry> {
    let (name, form) = match item {
        Value::Object(_) => {
            let section = Section::open(at, item, &["name", "as"], &[], findings)?;
            section.require("name", EXAMPLE);
            (section.text("name")?, section.word_or("as", Form::File)?)
        }
        name => (text(name, at, findings)?, Form::File),
    };
    Some(Entry { variable: variable.cloned().unwrap_or_else(|| name.clone()), name, form })
}

/// Says of every variable what submits it again as it is, whatever is usual by then.
pub(super) fn to_json(run: &Run) -> Option<Value> {
    let one = |(variable, name): (&String, &String)| {
        let form = if run.secret_files.contains(variable) { json!(name) } else { json!({"name": name, "as": "env"}) };
        (variable.clone(), form)
    };
    (!run.secrets.is_empty()).then(|| run.secrets.iter().map(one).collect())
}

pub(super) fn is_variable(name: &str) -> bool {
    let begins_well = name.chars().next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
    begins_well && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && name.len() <= LONGEST_NAME
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::spec::{SpecError, read_yaml, to_json};
    use headway_types::JobSpec;

    fn job(run: &str) -> Result<JobSpec, SpecError> {
        read_yaml(&format!("{{version: 1, name: a, resources: {{gpus: 1}}, run: {{command: train, {run}}}}}"))
    }

    #[test]
    fn secrets_are_files_unless_a_job_says_otherwise_and_variables_may_have_names_of_their_own() {
        for (run, name, is_file) in [
            ("secrets: [HF_TOKEN]", "HF_TOKEN", true),
            ("secrets: {HF_TOKEN: team-hf}", "team-hf", true),
            ("secrets: [{name: HF_TOKEN}]", "HF_TOKEN", true),
            ("secrets: [{name: HF_TOKEN, as: env}]", "HF_TOKEN", false),
            ("secrets: {HF_TOKEN: {name: team-hf, as: env}}", "team-hf", false),
            ("secrets: {HF_TOKEN: {name: team-hf, as: file}}", "team-hf", true),
        ] {
            let spec = job(run).unwrap();
            let of = &spec.role().run;
            assert_eq!(of.secrets, [("HF_TOKEN".to_owned(), name.to_owned())].into(), "{run}");
            assert_eq!(of.secret_files.contains("HF_TOKEN"), is_file, "{run}");
            assert_eq!(crate::spec::read_json(&to_json(&spec)).unwrap(), spec, "{run}");
        }
    }

    #[test]
    fn a_job_of_an_earlier_release_goes_on_with_variables_and_can_be_submitted_again_so() {
        let mut stored = serde_json::to_value(job("secrets: [HF_TOKEN]").unwrap()).unwrap();
        let run = stored["roles"][0]["run"].as_object_mut().unwrap();
        assert!(run.remove("secret_files").is_some());
        let spec: JobSpec = serde_json::from_value(stored).unwrap();
        assert!(spec.role().run.secret_files.is_empty() && spec.role().run.secrets.contains_key("HF_TOKEN"));
        assert_eq!(crate::spec::read_json(&to_json(&spec)).unwrap(), spec);
    }

    #[test]
    fn a_mistake_is_told_with_its_place() {
        for (run, place) in [
            ("secrets: HF_TOKEN", "run.secrets"),
            ("secrets: [1]", "run.secrets[0]"),
            ("secrets: ['2HF']", "run.secrets.2HF"),
            ("secrets: {HF: 'a/b'}", "run.secrets.HF"),
            ("secrets: [HF, HF]", "run.secrets.HF"),
            ("secrets: [HF], env: {HF: x}", "run.secrets.HF"),
            ("secrets: [HF], env: {HF_FILE: x}", "run.secrets.HF"),
            ("secrets: [HF, HF_FILE]", "run.secrets.HF_FILE"),
            ("secrets: [{as: env}]", "run.secrets[0].name"),
            ("secrets: {HF: {name: a, as: fd}}", "run.secrets.HF.as"),
            ("secrets: {HF: {name: a, in: env}}", "run.secrets.HF.in"),
        ] {
            assert_eq!(job(run).unwrap_err().field, place, "{run}");
        }
        assert!(job("secrets: [{name: HF, as: env}], env: {HF_FILE: x}").is_ok());
    }
}
