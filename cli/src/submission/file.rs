//! Reading a specification from a file: YAML, TOML (`.toml`), or JSON, which is YAML too.

use std::io::Read as _;
use std::path::Path;

use headway_api::spec;
use headway_goodput::summary::summarize_model;
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
/// Notes what was read from each.
fn take_in_models(submission: &mut Submission, beside: &Path) -> Result<(), Failure> {
    let mut unreadable = None;
    let mut notes = Vec::new();
    for (path, job) in submission.jobs() {
        let Some(model) = job.pointer_mut("/training/model") else { continue };
        let field = if model.is_object() { "training.model.config" } else { "training.model" };
        let named = model.get("config").unwrap_or(model).as_str().filter(|name| spec::is_model_file(name));
        let name = named.map(str::to_owned);
        if let Some(name) = &name {
            let read = std::fs::read_to_string(beside.join(name)).map_err(|error| error.to_string());
            match read.and_then(|text| spec::parse_config(&text).map_err(|error| error.to_string())) {
                Ok(config) => match model {
                    Value::Object(told) => drop(told.insert("config".into(), config)),
                    _ => *model = serde_json::json!({ "config": config }),
                },
                Err(error) => {
                    unreadable.get_or_insert((format!("{path}{field}"), format!("{name} cannot be read: {error}")));
                    continue;
                }
            }
        }
        let origin = name.as_deref().unwrap_or("the model configuration");
        notes.extend(note_import(origin, model).map(|note| format!("{path}training.model: {note}")));
    }
    submission.notes.extend(notes);
    let Some((field, why)) = unreadable else { return Ok(()) };
    Err(Failure::new(Kind::Usage, format!("{}: {field}: {why}", submission.at(&field)))
        .hint("a model's config.json is looked for beside the specification"))
}

/// Says from which file a model was read, by whose rules, and what of the file does not count.
pub fn describe_origin(file: &str, imported: &spec::ImportedModel) -> String {
    let notes: String = imported.notes.iter().map(|note| format!("; {note}")).collect();
    format!("read from {file} ({}{notes})", imported.model_type)
}

/// What a model's configuration was read as: "read from config.json (gpt_oss): 117B parameters, …". What is wrong
/// with it the check of the specification says.
fn note_import(origin: &str, model: &Value) -> Option<String> {
    let config = model.get("config")?;
    let seq_len = model.get("seq_len").and_then(Value::as_u64).and_then(|length| u32::try_from(length).ok());
    let imported = spec::import(config, seq_len).ok()?;
    let dimensions = model.as_object()?.keys().filter(|key| !matches!(key.as_str(), "config" | "seq_len"));
    let changed: Vec<&str> = dimensions.map(String::as_str).collect();
    let summary = format!("{}: {}", describe_origin(origin, &imported), summarize_model(&imported.shape));
    if changed.is_empty() { Some(summary) } else { Some(format!("{summary}; changed: {}", changed.join(", "))) }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A specification of a model that a `config.json` beside it describes.
    fn read_beside(config: &str, model: &str) -> Result<Submission, Failure> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.json"), config).unwrap();
        let text = format!(
            "{{version: 1, name: a, resources: {{gpus: 8}}, run: {{command: [x]}},\n\
             training: {{model: {model}, reference_batch: 64 sequences}}}}"
        );
        std::fs::write(dir.path().join("job.yaml"), text).unwrap();
        read(&dir.path().join("job.yaml"))
    }

    const GPT_OSS: &str = r#"{"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"},
        "max_position_embeddings": 131072}"#;

    #[test]
    fn what_a_configuration_was_read_as_is_repeated() {
        let read = read_beside(GPT_OSS, "{config: config.json, seq_len: 4096}").unwrap();
        assert_eq!(
            read.notes,
            ["training.model: read from config.json (gpt_oss; quantization_config (mxfp4) does not matter: precision \
              says how it is trained): 117B parameters, 5.7B active; 36 layers (18 sliding-window 128), 128 experts, \
              4 active; sequence length 4096"]
        );
        assert_eq!(read.check().unwrap().len(), 1);
        let changed = read_beside(GPT_OSS, "{config: config.json, seq_len: 4096, layers: 24}").unwrap();
        assert!(changed.notes[0].ends_with("; changed: layers"), "{:?}", changed.notes);
    }

    #[test]
    fn a_configuration_without_a_length_of_sequences_is_refused_with_what_it_allows() {
        for model in ["config.json", "{config: config.json}"] {
            let failure = read_beside(GPT_OSS, model).unwrap().check().unwrap_err();
            assert!(
                failure.message.contains("training.model.seq_len: the length of the training sequences is missing")
            );
            assert!(failure.message.contains("up to 131072 tokens"), "{}", failure.message);
            assert!(failure.hint.unwrap().contains("seq_len: 4096"));
        }
        let unknown = read_beside(r#"{"model_type": "gpt_4"}"#, "{config: config.json, seq_len: 4096}").unwrap();
        assert!(unknown.check().unwrap_err().message.contains("model_type gpt_4 is not known"));
    }
}
