//! A bare command as a specification: what it runs, where it was called, and a name after its script.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use super::{Place, Submission};

pub const SOURCE: &str = "the command line";
/// Longest name made of a command.
const NAME: usize = 40;
/// What runs a script, and is not what the job is about.
const RUNNERS: &[&str] = &["sh", "bash", "zsh", "env", "exec", "time", "nice", "python", "python3", "uv", "run"];

/// The specification of a command that was called in a directory; how many GPUs it gets is for flags to say. Of a command that nobody wrote to
/// be started again a failure of its own is the end, as it is in a shell; whatever nodes do to it is not held against it.
pub fn bare(command: &[String], directory: &Path) -> Submission {
    let body = json!({
        "version": 1,
        "name": name(command),
        "limits": { "max_restarts": 0 },
        "run": { "workdir": directory.display().to_string(), "command": command },
    });
    let notes = program_note(command, directory).into_iter().collect();
    let places = BTreeMap::from([("run.command".to_owned(), Place::Flag("the command after --"))]);
    Submission { source: SOURCE.into(), body, places, notes }
}

/// A command as a shell would read it back.
pub fn quoted(command: &Value) -> String {
    match command {
        Value::Array(words) => {
            let words = words.iter().filter_map(Value::as_str);
            // Only a NUL cannot be quoted, and no argument of a process holds one.
            shlex::try_join(words.clone()).unwrap_or_else(|_| words.collect::<Vec<_>>().join(" "))
        }
        other => other.as_str().unwrap_or_default().to_owned(),
    }
}

/// After the script where there is one, else after the program.
fn name(command: &[String]) -> String {
    let stem = |word: &str| Path::new(word).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let is_script = |word: &&String| [".py", ".sh", ".pl", ".jl"].iter().any(|end| word.ends_with(end));
    let plain = |word: &&String| !word.starts_with('-') && !RUNNERS.contains(&word.as_str()) && !word.contains('=');
    let word = command.iter().find(is_script).or_else(|| command.iter().find(plain)).or(command.first());
    let name = word.and_then(|word| stem(word)).unwrap_or_default();
    sanitised(&name)
}

/// A text as a name: what a name cannot hold becomes a dash.
pub fn sanitised(text: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    let name: String = text.chars().map(allowed).take(NAME).collect();
    let name = name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    if name.is_empty() { "job".to_owned() } else { name.to_owned() }
}

/// What may be wrong with a program that is named by its path. The nodes may see another file system, so it is only said.
fn program_note(command: &[String], directory: &Path) -> Option<String> {
    let program = command.first().filter(|program| program.contains('/') && !program.contains('{'))?;
    match std::fs::metadata(directory.join(program)) {
        Err(_) => Some(format!("there is no {program} here; the job ends with 127 unless its node has one")),
        Ok(found) if found.is_file() && found.permissions().mode() & 0o111 == 0 => Some(format!(
            "{program} is not executable, so the job would end with 126: `chmod +x {program}`, or submit `-- sh {program}`"
        )),
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn words(line: &str) -> Vec<String> {
        shlex::split(line).unwrap()
    }

    #[test]
    fn a_job_is_called_after_its_script() {
        for (line, expected) in [
            ("./train.sh", "train"),
            ("python -u src/pre_train.py --lr 3", "pre_train"),
            ("torchrun --nproc-per-node 8 train.py", "train"),
            ("nvidia-smi -L", "nvidia-smi"),
            ("env A=b /opt/bin/run_it", "run_it"),
            ("bash -c 'echo hi'", "echo-hi"),
            ("sh", "sh"),
            ("./_.sh", "job"),
        ] {
            assert_eq!(name(&words(line)), expected, "{line}");
        }
    }

    #[test]
    fn arguments_stay_as_they_were_given() {
        let command = words(r#"python train.py --text "it's $HOME" '*' "a  b" ''"#);
        let of = bare(&command, Path::new("/home/ada"));
        let spec = &super::super::Flags { gpus: Some("1".parse().unwrap()), ..Default::default() };
        let mut of = of;
        spec.lay_over(&mut of).unwrap();
        let job = of.check().unwrap().remove(0);
        assert_eq!(job.roles[0].run.command, headway_types::spec::Command::Argv(command.clone()));
        assert_eq!(job.roles[0].run.workdir.as_deref(), Some("/home/ada"));
        assert_eq!(job.limits.max_restarts, 0);
        assert_eq!(words(&quoted(&of.body["run"]["command"])), command);
    }

    #[test]
    fn a_program_that_is_not_there_or_cannot_be_run_is_told_beforehand() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("train.sh"), "true").unwrap();
        let note = |line: &str| program_note(&words(line), dir.path());
        assert!(note("./train.sh").unwrap().contains("chmod +x ./train.sh"));
        assert!(note("./trian.sh").unwrap().contains("there is no ./trian.sh here"));
        assert_eq!(note("python x"), None);
    }
}
