//! `run`: the command, its environment, and how many processes a node gets.

use headway_types::spec::{Command, Run, RunPer};
use serde_json::Value;

use super::hooks;
use super::progress;
use super::secrets;
use super::section::{Findings, Section, kind, text};
use super::template::{self, Has};

const EXAMPLE: &str = "as in run: {command: python train.py}";
const HIDDEN: &str = "null stands in place of the values of somebody else's job, which only its owner reads: write a value, or take \
                      your own with `headway submit --env NAME`";

/// Reads `run` of the whole specification. `tuned`: the job has a training section; `array`: it is one.
pub(super) fn read(spec: &Section<'_>, tuned: bool, array: bool) -> Option<Run> {
    let value = spec.require("run", EXAMPLE)?;
    let path = spec.field("run");
    let known = ["per", "command", "workdir", "env", "secrets", "hooks", "progress"];
    let section = Section::open(&path, value, &known, &["image", "mounts"], spec.findings())?;
    let has = Has { training: tuned, array };
    let per = section.word_or("per", RunPer::Node);
    let workdir = workdir(&section);
    let env = env(&section, has);
    let named = secrets::read(&section, &env);
    let command = command(&section, has);
    let hooks = hooks::read(&section, has);
    let progress = progress::read(spec);
    let secrets::Named { secrets, files: secret_files } = named?;
    Some(Run { per: per?, command: command?, workdir, env, secrets, secret_files, hooks, progress: progress? })
}

fn workdir(section: &Section<'_>) -> Option<String> {
    let dir = section.text("workdir")?;
    if !dir.starts_with('/') {
        let message = format!("must be an absolute path, not \"{dir}\": nodes have no directory in common");
        section.wrong_hint("workdir", message, "`headway submit --workdir DIR` takes one from where you are");
    }
    Some(dir)
}

fn env(section: &Section<'_>, has: Has) -> std::collections::BTreeMap<String, String> {
    let variables = section.words("env", HIDDEN).unwrap_or_default();
    for (name, value) in &variables {
        let field = section.field(&format!("env.{name}"));
        if !secrets::is_variable(name) {
            let message =
                "is no name of a variable that shells pass on: letters, digits and '_', not beginning with a digit";
            section.findings().add(&field, message);
        }
        check(value, has, &field, section.findings());
    }
    variables.into_iter().collect()
}

fn command(section: &Section<'_>, has: Has) -> Option<Command> {
    let field = section.field("command");
    let findings = section.findings();
    match section.require("command", EXAMPLE)? {
        Value::String(line) if line.trim().is_empty() => findings.add(&field, "must not be empty"),
        line @ Value::String(_) => {
            let line = text(line, &field, findings)?;
            check(&line, has, &field, findings);
            return Some(Command::Shell(line));
        }
        Value::Array(words) if words.is_empty() => findings.add(&field, "must not be empty"),
        Value::Array(words) => {
            let read = |(index, value): (usize, &Value)| {
                let field = format!("{field}[{index}]");
                let word = text(value, &field, findings)?;
                check(&word, has, &field, findings);
                Some(word)
            };
            // Every word is read before the first bad one ends it.
            let words: Vec<Option<String>> = words.iter().enumerate().map(read).collect();
            return words.into_iter().collect::<Option<_>>().map(Command::Argv);
        }
        other => findings.add(&field, format!("must be a shell line or a list of words, not {}", kind(other))),
    }
    None
}

pub(super) fn check(template: &str, has: Has, field: &str, findings: &Findings) {
    if let Err(error) = template::check(template, has) {
        findings.hint(field, error.to_string(), "write {{ and }} for braces that are meant literally");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::spec::{read_json, read_yaml};

    #[test]
    fn what_no_process_could_be_given_is_refused_wherever_it_stands() {
        let of_run = |run: &str| format!("version: 1\nname: a\nresources: {{gpus: 1}}\nrun: {run}\n");
        for (run, field) in [
            (r#"{command: "a\0b"}"#, "run.command"),
            (r#"{command: [a, "b\0"]}"#, "run.command[1]"),
            (r#"{command: a, workdir: "/w\0"}"#, "run.workdir"),
            (r#"{command: a, env: {A: "\0"}}"#, "run.env.A"),
            (r#"{command: a, env: {"A\0": b}}"#, "run.env"),
            (r#"{command: a, hooks: {prolog: "x\0"}}"#, "run.hooks.prolog"),
            (r#"{command: a, hooks: {epilog: "\0x"}}"#, "run.hooks.epilog"),
        ] {
            let error = read_yaml(&of_run(run)).unwrap_err();
            assert_eq!((error.field.as_str(), error.more.len()), (field, 0), "{run}: {error}");
            assert!(error.message.contains("NUL"), "{error}");
        }
        let labelled = of_run("{command: a}") + "labels: {a: \"b\\0\"}\n";
        assert_eq!(read_yaml(&labelled).unwrap_err().field, "labels.a");
        let sound =
            serde_json::json!({"version": 1, "name": "a", "resources": {"gpus": 1}, "run": {"command": "\u{1}"}});
        assert!(read_json(&sound).is_ok(), "any other character may be given");
    }
}
