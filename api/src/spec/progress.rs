//! How the scheduler hears of a job's steps: over the worker socket, or from what its script prints. It stands in `training`, or in
//! `run` of a job that has no such section.

use headway_types::Sequences;
use headway_types::report::Flexibility;
use headway_types::spec::{PrintedProgress, PrintingRank, Role};
use serde_json::{Map, Value, json};

use super::quantity;
use super::section::Section;
use crate::progress::Pattern;

const EXAMPLE: &str = r"as in progress: {source: stdout, regex: 'step=(?P<step>\d+).*loss=(?P<loss>\S+)'}";

/// Where steps come from.
#[derive(Clone, Copy, PartialEq)]
enum Source {
    Socket,
    Stdout,
}

/// Reads it wherever it stands in the whole specification. `None` inside: steps come over the socket.
pub(super) fn read(spec: &Section<'_>) -> Option<Option<PrintedProgress>> {
    let below = |key: &str| spec.get(key).and_then(|section| section.get("progress")).filter(|value| !value.is_null());
    match (below("training"), below("run")) {
        (None, None) => Some(None),
        (None, Some(_)) if spec.has("training") => {
            let hint = "write it there as training.progress";
            spec.wrong_hint("run.progress", "belongs to the training section of a job that has one", hint);
            None
        }
        (Some(value), Some(_)) => {
            spec.wrong_hint("run.progress", "stands in training.progress already", "take one of them out");
            progress(spec, "training.progress", value)
        }
        (Some(value), None) => progress(spec, "training.progress", value),
        (None, Some(value)) => progress(spec, "run.progress", value),
    }
}

fn progress(spec: &Section<'_>, key: &str, value: &Value) -> Option<Option<PrintedProgress>> {
    let path = spec.field(key);
    let tuned = key.starts_with("training");
    // What a step of a tuned job amounts to, its configuration says.
    let known: &[&str] = match tuned {
        true => &["source", "regex", "rank"],
        false => &["source", "regex", "rank", "samples_per_step", "tokens_per_step", "sequence_length"],
    };
    let section = Section::open(&path, value, known, &[], spec.findings())?;
    let default = if section.has("regex") { Source::Stdout } else { Source::Socket };
    let sources = [("socket", Source::Socket), ("stdout", Source::Stdout)];
    let source = if section.has("source") { section.choice("source", &sources)? } else { default };
    if source == Source::Socket {
        if section.has("regex") {
            section.wrong_hint("regex", "reads output, and these steps come over the socket", EXAMPLE);
        }
        return Some(None);
    }
    section.require("regex", EXAMPLE)?;
    let regex = section.text("regex")?;
    if let Err(error) = Pattern::compile(&regex) {
        section.wrong_hint("regex", error.message, error.hint);
    }
    let rank = section.word_or("rank", PrintingRank::default());
    let samples_per_step = section.whole("samples_per_step", 1).map(|samples| Sequences(u64::from(samples)));
    let tokens_per_step = section.quantity("tokens_per_step", quantity::tokens);
    let sequence_length = section.whole("sequence_length", 1);
    Some(Some(PrintedProgress { regex, rank: rank?, samples_per_step, tokens_per_step, sequence_length }))
}

/// Steps count samples only while they are all of one batch: where the batch may differ between starts, lines have to say it.
pub(super) fn check(spec: &Section<'_>, role: &Role) {
    let (Some(training), Some(progress)) = (&role.training, &role.run.progress) else { return };
    let differs = training.batch.min < training.batch.max && training.reconfigure.batch != Flexibility::Never;
    if differs && Pattern::compile(&progress.regex).is_ok_and(|pattern| !pattern.tells_consumed()) {
        let hint = r"add a group (?P<consumed>\d+) for the sequences since the beginning, or leave training.batch out";
        spec.wrong_hint(
            "training.progress.regex",
            "cannot tell how much was trained while training.batch may change",
            hint,
        );
    }
}

/// As it is written, in the section where it stands.
pub(super) fn to_json(progress: &PrintedProgress) -> Value {
    let PrintedProgress { regex, rank, samples_per_step, tokens_per_step, sequence_length } = progress;
    let optional = [
        ("rank", (*rank != PrintingRank::default()).then(|| json!(rank))),
        ("samples_per_step", samples_per_step.map(|samples| json!(samples.0))),
        ("tokens_per_step", tokens_per_step.map(|tokens| json!(format!("{} tokens", tokens.0)))),
        ("sequence_length", sequence_length.map(|length| json!(length))),
    ];
    let mut written = Map::from_iter([("source".into(), json!("stdout")), ("regex".into(), json!(regex))]);
    written.extend(optional.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    Value::Object(written)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::JobSpec;

    use super::*;
    use crate::spec::{SpecError, read_json, read_yaml};

    fn bare(progress: &str) -> Result<JobSpec, SpecError> {
        let run = format!("run: {{command: train, progress: {progress}}}");
        read_yaml(&format!("version: 1\nname: a\nresources: {{gpus: 1}}\n{run}\n"))
    }

    fn tuned(progress: &str, run: &str) -> Result<JobSpec, SpecError> {
        let training = format!("{{model: llama-3-8b, reference_batch: 64 sequences, progress: {progress}}}");
        read_yaml(&format!(
            "version: 1\nname: a\nresources: {{gpus: 8}}\ntraining: {training}\nrun: {{command: train{run}}}\n"
        ))
    }

    #[test]
    fn it_stands_in_the_training_section_or_where_there_is_none_in_run() {
        let one = bare(r"{source: stdout, regex: 'step (\d+)', rank: last, samples_per_step: 16, sequence_length: 64}");
        let one = one.unwrap();
        let read = one.role().run.progress.clone().unwrap();
        assert_eq!(
            (read.rank, read.samples_per_step, read.sequence_length),
            (PrintingRank::Last, Some(Sequences(16)), Some(64))
        );
        assert_eq!(one.reads_steps_by(), Some("run.progress"));
        let other = tuned(r"{regex: 'step (\d+)'}", "").unwrap();
        assert_eq!(other.reads_steps_by(), Some("training.progress"));
        let tokens = bare(r"{regex: '(\d+)', tokens_per_step: 4Ki tokens}").unwrap();
        for spec in [one, other, tokens] {
            assert_eq!(read_json(&crate::spec::to_json(&spec)).unwrap(), spec);
        }
        assert_eq!(tuned("{source: socket}", "").unwrap().role().run.progress, None);
    }

    #[test]
    fn a_mistake_is_told_with_its_place() {
        for (told, place) in [
            (bare("{source: stdout}"), "run.progress.regex"),
            (bare("{source: file}"), "run.progress.source"),
            (bare("{source: stdout, regex: '('}"), "run.progress.regex"),
            (bare("{source: stdout, regex: 'no group'}"), "run.progress.regex"),
            (bare(r"{source: socket, regex: '(\d)'}"), "run.progress.regex"),
            (bare(r"{regex: '(\d)', rank: middle}"), "run.progress.rank"),
            (bare(r"{regex: '(\d)', samples_per_step: 0}"), "run.progress.samples_per_step"),
            (tuned("{source: stdout, regex: 'step'}", ""), "training.progress.regex"),
            (tuned(r"{regex: '(\d)', sequence_length: 64}", ""), "training.progress.sequence_length"),
            (tuned(r"{regex: '(\d)'}, batch: {max: 128 sequences}", ""), "training.progress.regex"),
            (tuned(r"{regex: '(\d)'}", r", progress: {regex: '(\d)'}"), "run.progress"),
            (bare(&format!("{{regex: '(\\d){}'}}", "x".repeat(2_000))), "run.progress.regex"),
        ] {
            let error = told.unwrap_err();
            assert_eq!((error.field.as_str(), error.more.len()), (place, 0), "{error}");
        }
    }
}
