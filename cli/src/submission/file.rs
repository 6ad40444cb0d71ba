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
    Ok(Submission { source, body, places, notes: Vec::new() })
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
