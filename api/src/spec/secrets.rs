//! `run.secrets`: which variables are set to which secrets. Values are never in a specification.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::section::{Section, kind, text};

/// Secrets of one job, at most.
const MOST: usize = 32;
const LONGEST_NAME: usize = 128;
const EXAMPLE: &str = "as in secrets: [HF_TOKEN], or secrets: {HF_TOKEN: team-hf} where the variable has another name";

/// Whether this can be the name of a secret.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    let begins_well = name.chars().next().is_some_and(|first| first.is_ascii_alphanumeric());
    let reads_well = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    begins_well && reads_well && name.len() <= LONGEST_NAME
}

/// A list of names, which are the variables' too, or a mapping of variables to names.
pub(super) fn read(run: &Section<'_>, env: &BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    let (field, findings) = (run.field("secrets"), run.findings());
    let named: Vec<Option<(String, String)>> = match run.get("secrets") {
        None => return Some(BTreeMap::new()),
        Some(Value::Array(names)) => {
            let name = |(index, name)| text(name, &format!("{field}[{index}]"), findings);
            names.iter().enumerate().map(name).map(|name| name.map(|name| (name.clone(), name))).collect()
        }
        Some(Value::Object(map)) => {
            let name = |(variable, name): (&String, &Value)| {
                Some((variable.clone(), text(name, &format!("{field}.{variable}"), findings)?))
            };
            map.iter().map(name).collect()
        }
        Some(other) => {
            findings.hint(&field, format!("must be a list or a mapping, not {}", kind(other)), EXAMPLE);
            return None;
        }
    };
    let named: Vec<(String, String)> = named.into_iter().collect::<Option<_>>()?;
    if named.len() > MOST {
        run.wrong("secrets", format!("a job has {MOST} secrets at most, not {}", named.len()));
        return None;
    }
    let mut variables = BTreeSet::new();
    // Every one is looked at before the first bad one ends it.
    let sound = named.iter().filter(|(variable, name)| {
        let at = format!("{field}.{variable}");
        if !is_variable(variable) {
            let message = "is no name of a variable: letters, digits and '_', not beginning with a digit";
            findings.hint(&at, message, EXAMPLE);
        } else if !is_secret_name(name) {
            let message = "must be 1 to 128 letters, digits, '-', '_' or '.', beginning with a letter or digit";
            findings.add(&at, format!("the name of a secret {message}"));
        } else if env.contains_key(variable) {
            findings.hint(&at, "is in run.env as well", "take it out of one of them");
        } else if !variables.insert(variable) {
            findings.add(&at, "is named twice");
        } else {
            return true;
        }
        false
    });
    (sound.count() == named.len()).then(|| named.iter().cloned().collect())
}

fn is_variable(name: &str) -> bool {
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
    fn variables_are_called_like_their_secrets_or_by_names_of_their_own() {
        let same = job("secrets: [HF_TOKEN]").unwrap();
        assert_eq!(same.role().run.secrets, [("HF_TOKEN".to_owned(), "HF_TOKEN".to_owned())].into());
        let other = job("secrets: {HF_TOKEN: team-hf}").unwrap();
        assert_eq!(other.role().run.secrets, [("HF_TOKEN".to_owned(), "team-hf".to_owned())].into());
        for spec in [same, other] {
            assert_eq!(crate::spec::read_json(&to_json(&spec)).unwrap(), spec);
        }
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
        ] {
            assert_eq!(job(run).unwrap_err().field, place, "{run}");
        }
    }
}
