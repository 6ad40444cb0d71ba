//! Reading a specification from a file: YAML, TOML (`.toml`), or JSON, which is YAML too.

use std::io::Read as _;
use std::path::Path;

use headway_api::spec;
use serde_json::Value;

use super::{Place, Submission};
use crate::failure::{Failure, Kind};

const EXAMPLE: &str = "a specification begins with version: 1; docs/job-specification.md has a whole one, and \
                       `headway submit --gpus 1 -- COMMAND` needs none";

/// Reads a file, or standard input for `-`.
pub fn read(file: &Path) -> Result<Submission, Failure> {
    let source = if is_stdin(file) { "standard input".to_owned() } else { file.display().to_string() };
    let text = text(file, &source)?;
    if is_script(&text) {
        let what = if text.contains("#SBATCH") { "is a script for Slurm" } else { "is a script, not a specification" };
        let hint = if text.contains("#SBATCH") {
            format!("submit it with `headway submit --from-sbatch {source}`")
        } else {
            let here = if source.contains('/') { "" } else { "./" };
            format!("run it with `headway submit --gpus 1 -- {here}{source}`")
        };
        return Err(Failure::new(Kind::Usage, format!("{source} {what}")).hint(hint));
    }
    let toml = file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
    let read = if toml { spec::document_toml(&text) } else { spec::submission_yaml(&text) };
    let (body, lines) = read.map_err(|error| {
        let failure = Failure::new(Kind::Usage, format!("{source}: {}", error.message));
        match unreadable(&text, toml) {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })?;
    if body.is_null() {
        return Err(Failure::new(Kind::Usage, format!("{source} is empty")).hint(EXAMPLE));
    }
    if let Value::String(words) = &body {
        let begin: String = words.chars().take(40).collect();
        return Err(Failure::new(Kind::Usage, format!("{source} is no specification: \"{begin}\"")).hint(EXAMPLE));
    }
    let places = lines.into_iter().map(|(path, line)| (path, Place::Line(line))).collect();
    let mut submission = Submission { source, body, places, notes: Vec::new() };
    take_in_models(&mut submission, file.parent().unwrap_or(Path::new(".")))?;
    Ok(submission)
}

/// Puts in place of a model's `config.json` (`model: config.json`, `model: {config: config.json, …}`) what is in it: the scheduler cannot see the file.
fn take_in_models(submission: &mut Submission, beside: &Path) -> Result<(), Failure> {
    let mut unreadable = None;
    for (path, job) in submission.jobs() {
        let Some(model) = job.pointer_mut("/training/model") else { continue };
        let field = if model.is_object() { "training.model.config" } else { "training.model" };
        let named = model.get("config").unwrap_or(model).as_str().filter(|name| spec::is_model_file(name));
        let Some(name) = named.map(str::to_owned) else { continue };
        let read = std::fs::read_to_string(beside.join(&name)).map_err(|error| error.to_string());
        match read.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string())) {
            Ok(config) => {
                let config: Value = config;
                match model {
                    Value::Object(told) => drop(told.insert("config".into(), config)),
                    _ => *model = serde_json::json!({ "config": config }),
                }
            }
            Err(error) => {
                unreadable.get_or_insert((format!("{path}{field}"), format!("{name} cannot be read: {error}")));
            }
        }
    }
    let Some((field, why)) = unreadable else { return Ok(()) };
    Err(Failure::new(Kind::Usage, format!("{}: {field}: {why}", submission.at(&field)))
        .hint("a model's config.json is looked for beside the specification"))
}

/// The text of a file, which must be one.
pub(super) fn text(file: &Path, source: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = if is_stdin(file) {
        std::io::stdin().read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    read.map_err(|error| {
        let failure = Failure::new(Kind::Usage, format!("{source} cannot be read: {error}"));
        match error.kind() {
            std::io::ErrorKind::NotFound => failure.hint("is the name right, and is this the directory it lies in?"),
            std::io::ErrorKind::IsADirectory => failure.hint("name the specification in it"),
            _ => failure,
        }
    })?;
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    text.ok_or_else(|| Failure::new(Kind::Usage, format!("{source} is no text")).hint(EXAMPLE))
}

fn is_stdin(file: &Path) -> bool {
    file.as_os_str() == "-"
}

fn is_script(text: &str) -> bool {
    text.starts_with("#!")
}

/// What often makes a text unreadable.
fn unreadable(text: &str, toml: bool) -> Option<String> {
    if !toml {
        let tab = text.lines().position(|line| line.trim_start_matches(' ').starts_with('\t'));
        if let Some(line) = tab {
            return Some(format!("line {} is indented by a tab; YAML is indented by spaces", line + 1));
        }
    }
    None
}
