//! `run.hooks`: what runs on each node before an attempt and after it.

use headway_types::Seconds;
use headway_types::spec::Hooks;
use serde_json::{Map, Value, json};

use super::quantity;
use super::run::check;
use super::section::Section;
use super::template::Has;

const EXAMPLE: &str = "as in hooks: {prolog: ./check.sh, epilog: ./sync.sh}";
/// GPUs wait for it.
const LONGEST: Seconds = Seconds(3_600.0);

/// Reads `hooks` of the run section.
pub(super) fn read(run: &Section<'_>, has: Has) -> Hooks {
    let mut hooks = Hooks::default();
    let Some(value) = run.get("hooks") else { return hooks };
    let path = run.field("hooks");
    let known = ["prolog", "epilog", "timeout"];
    let Some(section) = Section::open(&path, value, &known, &[], run.findings()) else { return hooks };
    hooks.prolog = line(&section, "prolog", has);
    hooks.epilog = line(&section, "epilog", has);
    if !section.has("prolog") && !section.has("epilog") {
        run.wrong_hint("hooks", "must have a prolog or an epilog", EXAMPLE);
    }
    if let Some(timeout) = section.quantity("timeout", quantity::duration) {
        if timeout.0 > LONGEST.0 {
            section.wrong("timeout", format!("must be {} at most: GPUs wait for it", LONGEST.words()));
        }
        hooks.timeout = timeout;
    }
    hooks
}

fn line(section: &Section<'_>, key: &str, has: Has) -> Option<String> {
    let line = section.text(key)?;
    if line.trim().is_empty() {
        section.wrong(key, "must not be empty");
    }
    check(&line, has, &section.field(key), section.findings());
    Some(line)
}

/// As it is read; `None`: there are none.
pub(super) fn to_json(hooks: &Hooks) -> Option<Value> {
    let entries = [
        ("prolog", hooks.prolog.as_ref().map(|line| json!(line))),
        ("epilog", hooks.epilog.as_ref().map(|line| json!(line))),
        ("timeout", Some(json!(format!("{}s", hooks.timeout.0)))),
    ];
    let entries = entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    (!hooks.are_none()).then(|| Value::Object(entries.collect::<Map<_, _>>()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::Seconds;

    use crate::spec::{read_json, read_yaml, to_json};

    fn with(hooks: &str) -> String {
        format!("version: 1\nname: a\nresources: {{gpus: 1}}\nrun: {{command: x, hooks: {hooks}}}\n")
    }

    #[test]
    fn hooks_are_read_as_they_are_written() {
        let spec = read_yaml(&with("{prolog: './check.sh {job_name}', timeout: 30s}")).unwrap();
        let hooks = &spec.role().run.hooks;
        assert_eq!((hooks.prolog.as_deref(), hooks.timeout), (Some("./check.sh {job_name}"), Seconds(30.0)));
        assert_eq!(read_json(&to_json(&spec)).unwrap(), spec);
    }

    #[test]
    fn mistakes_in_hooks_are_told() {
        let wrong =
            ["{}", "{prolog: ''}", "{epilog: 'x {nobody}'}", "{prolog: x, timeout: 2h}", "{prologue: x}", "./x"];
        let told: Vec<String> = wrong.iter().map(|one| read_yaml(&with(one)).unwrap_err().to_string()).collect();
        insta::assert_snapshot!(told.join("\n"));
    }
}
