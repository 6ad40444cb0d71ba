//! The job specification, `version: 1`: from YAML or JSON to `JobSpec`, or to a list of everything that is wrong.
//!
//! Nothing is ignored: a key that is unknown or not supported yet is an error with its place and the nearest known
//! key, so that nobody believes in a setting that does nothing. Only the text is judged here; whether the cluster can
//! run the job is admission's question.

mod after;
mod array;
mod bounds;
mod config_json;
mod echo;
mod hooks;
mod limits;
mod model;
mod nodes;
mod notify;
mod progress;
mod quantity;
mod resources;
mod run;
mod secrets;
mod section;
mod sizes;
mod template;
mod toml;
mod training;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use chrono::DateTime;
use headway_types::spec::{Elasticity, Limits, Priority, Role, Training};
use headway_types::{GpuSeconds, JobSpec, ModelShape, Timestamp};
use serde_json::Value;

use crate::yaml;
use section::{Findings, Section, kind};

pub use bounds::{BOUNDS, Bound, ELSEWHERE, Form, MOST_JOBS, MOST_TEXT};
pub use config_json::{ImportError, ImportedModel, import, parse_config};
pub use echo::to_json;
pub use model::is_file as is_model_file;
pub use quantity::duration;
pub use secrets::is_secret_name;
pub use section::{COUNT_AT_MOST, nearest};
pub use template::{RenderError, literal, render};
pub use toml::document_toml;

const SECTIONS: &[&str] = &[
    "version",
    "name",
    "project",
    "priority",
    "labels",
    "resources",
    "training",
    "elastic",
    "limits",
    "after",
    "array",
    "deadline",
    "budget",
    "notify",
    "run",
];
const SECTIONS_LATER: &[&str] = &["image", "roles"];
const LONGEST_NAME: usize = 128;
const MOST_GPU_HOURS: f64 = 1e9;

/// What is wrong with a specification: the first finding, and the others behind it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.all().map(SpecError::line).collect::<Vec<_>>().join("\n"))]
pub struct SpecError {
    /// Path of the key ("training.batch.min"); empty where the text as a whole is meant.
    pub field: String,
    pub message: String,
    pub hint: Option<String>,
    /// Further findings, each without `more` of its own.
    pub more: Vec<SpecError>,
}

impl SpecError {
    /// This finding and all others.
    pub fn all(&self) -> impl Iterator<Item = &SpecError> {
        std::iter::once(self).chain(&self.more)
    }

    /// This finding alone, for people.
    #[must_use]
    pub fn line(&self) -> String {
        let place = if self.field.is_empty() { String::new() } else { format!("{}: ", self.field) };
        let hint = self.hint.as_ref().map_or(String::new(), |hint| format!(" ({hint})"));
        format!("{place}{}{hint}", self.message)
    }

    fn whole(message: String) -> Self {
        Self { field: String::new(), message, hint: None, more: Vec::new() }
    }
}

/// Reads one specification in YAML.
pub fn read_yaml(text: &str) -> Result<JobSpec, SpecError> {
    read_json(&document(text)?)
}

/// Reads one specification of the same shape in JSON.
pub fn read_json(value: &Value) -> Result<JobSpec, SpecError> {
    let findings = Findings::default();
    let spec = job("", value, &findings);
    finish(spec, findings)
}

/// Reads the body of a submission in YAML: one specification, several below `jobs`, or several documents of either.
pub fn read_submission_yaml(text: &str) -> Result<Vec<JobSpec>, SpecError> {
    // Lines are for whoever has the text before him; they would cost what is kept of them for each value.
    read_submission_json(&put_together(documents(text)?, Vec::new()).0)
}

/// The submission that a text in YAML is, as `read_submission_json` reads it, with the line of each of its values.
pub fn submission_yaml(text: &str) -> Result<(Value, yaml::Lines), SpecError> {
    Ok(put_together(documents(text)?, yaml::lines(text)))
}

fn put_together(mut documents: Vec<Value>, mut lines: Vec<yaml::Lines>) -> (Value, yaml::Lines) {
    if documents.len() == 1 {
        return (documents.remove(0), lines.pop().unwrap_or_default());
    }
    let (mut jobs, mut places) = (Vec::new(), yaml::Lines::new());
    // A document that is no mapping may have no line at all; none of the documents is left out for that.
    for (mut document, lines) in
        documents.into_iter().zip(lines.into_iter().chain(std::iter::repeat_with(yaml::Lines::new)))
    {
        let first = jobs.len();
        let several = match document.get_mut("jobs").map(Value::take) {
            Some(Value::Array(several)) => several,
            _ => {
                places.extend(lines.into_iter().map(|(path, line)| (format!("jobs[{first}].{path}"), line)));
                jobs.push(document);
                continue;
            }
        };
        for index in 0..several.len() {
            let (was, is) = (format!("jobs[{index}]"), format!("jobs[{}]", first + index));
            let of_job = lines.iter().filter_map(|(path, line)| Some((path.strip_prefix(&was)?, line)));
            places.extend(of_job.map(|(rest, line)| (format!("{is}{rest}"), *line)));
        }
        jobs.extend(several);
    }
    (serde_json::json!({ "jobs": jobs }), places)
}

/// Reads the body of a submission in JSON: one specification, or several below `jobs`.
pub fn read_submission_json(value: &Value) -> Result<Vec<JobSpec>, SpecError> {
    if value.get("jobs").is_none() {
        return read_json(value).map(|spec| vec![spec]);
    }
    let findings = Findings::default();
    let specs = batch(value, &findings);
    finish(specs, findings)
}

/// Reads a model as `training.model` has it: a preset's name or a mapping of dimensions.
pub fn read_model(text: &str) -> Result<ModelShape, SpecError> {
    let findings = Findings::default();
    let shape = model::read(&document(text)?, "model", &findings);
    finish(shape, findings)
}

/// Reads a `training` section that stands at `path` of another document, for the job of this name.
pub fn read_training(value: &Value, path: &str, job: &str) -> Result<Training, SpecError> {
    let findings = Findings::default();
    let training = training::read(path, value, job, &findings);
    finish(training, findings)
}

fn batch(value: &Value, findings: &Findings) -> Option<Vec<JobSpec>> {
    let section = Section::open("", value, &["jobs"], &[], findings)?;
    match section.get("jobs") {
        Some(Value::Array(jobs)) if jobs.len() > MOST_JOBS => {
            let many = jobs.len();
            section.wrong("jobs", format!("has {many} specifications, at most {MOST_JOBS} at once"));
            None
        }
        Some(Value::Array(jobs)) if !jobs.is_empty() => {
            jobs.iter().enumerate().map(|(index, value)| job(&format!("jobs[{index}]"), value, findings)).collect()
        }
        _ => {
            section.wrong("jobs", "must be a list of specifications");
            None
        }
    }
}

fn finish<T>(read: Option<T>, findings: Findings) -> Result<T, SpecError> {
    match (read, findings.into_error()) {
        (_, Some(error)) => Err(error),
        (Some(value), None) => Ok(value),
        (None, None) => Err(SpecError::whole("the specification cannot be read".into())),
    }
}

fn document(text: &str) -> Result<Value, SpecError> {
    let mut documents = documents(text)?;
    match documents.len() {
        1 => Ok(documents.remove(0)),
        many => Err(SpecError::whole(format!("one specification is expected, and {many} documents are there"))),
    }
}

/// The documents of a text, at least one; those without content do not count beside others.
fn documents(text: &str) -> Result<Vec<Value>, SpecError> {
    let mut documents = yaml::documents(text).map_err(|error| SpecError::whole(format!("not YAML: {error}")))?;
    if documents.is_empty() {
        documents.push(Value::Null);
    }
    Ok(documents)
}

fn job(path: &str, value: &Value, findings: &Findings) -> Option<JobSpec> {
    if !bounds::check(path, value, findings) {
        return None;
    }
    let section = Section::open(path, value, SECTIONS, SECTIONS_LATER, findings)?;
    version(&section);
    // Each part is read even where another is wrong, so that one attempt shows everything.
    let name = name(&section);
    let project = project(&section);
    let priority = priority(&section);
    let labels = section
        .words("labels", "write one, or take the name out")
        .unwrap_or_default()
        .into_iter()
        .collect::<BTreeMap<_, _>>();
    let resources = resources::read(&section);
    let training = section.get("training").map(|value| {
        let path = section.field("training");
        training::read(&path, value, name.as_deref().unwrap_or_default(), findings)
    });
    let tuned = training.is_some();
    let elastic = elastic(&section);
    let limits = Limits { deadline: deadline(&section), budget: budget(&section), ..limits::read(&section) };
    let after = after::read(&section);
    let array = array::read(&section);
    let notify = notify::read(&section);
    let run = run::read(&section, tuned, section.has("array"));
    let (gpus, per_node, nodes) = resources?;
    let training: Option<Training> = training.map_or(Some(None), |t| t.map(Some))?;
    let gpus = training.as_ref().map_or(gpus.clone(), |training| sizes::bound(&section, gpus, &training.layouts));
    let role = Role { name: "trainer".into(), gpus, per_node, nodes, training, run: run? };
    progress::check(&section, &role);
    if role.training.is_none() && role.gpus.min != role.gpus.max {
        section.wrong_hint(
            "resources.gpus",
            "a range needs a training section: without it Headway cannot tell what a size is worth",
            "add training, or give one number of GPUs",
        );
    }
    resources::check_mix(&section, &role);
    let (name, project, priority) = (name?, project?, priority?);
    Some(JobSpec {
        name,
        project,
        priority,
        labels,
        roles: vec![role],
        elastic,
        limits,
        after: after?,
        array: array?,
        notify: notify?,
    })
}

fn version(section: &Section<'_>) {
    match section.require("version", "the first line is version: 1") {
        Some(value) if value.as_u64() == Some(1) => {}
        Some(value) => section.wrong("version", format!("must be 1, not {value}")),
        None => {}
    }
}

fn name(section: &Section<'_>) -> Option<String> {
    section.require("name", "as in name: llama-8b-pretrain")?;
    word(section, "name")
}

fn project(section: &Section<'_>) -> Option<String> {
    if section.has("project") { word(section, "project") } else { Some("default".into()) }
}

/// A name that is safe in paths, URLs and on command lines.
fn word(section: &Section<'_>, key: &str) -> Option<String> {
    let text = section.text(key)?;
    if is_word(&text) {
        return Some(text);
    }
    section.wrong(
        key,
        format!("must be 1 to {LONGEST_NAME} ASCII letters, digits, '-', '_' or '.', beginning with a letter or digit"),
    );
    None
}

/// Likewise what a job is called that exists: elements of arrays have their index behind their name.
fn job_name(section: &Section<'_>, key: &str) -> Option<String> {
    let text = section.text(key)?;
    let index = |rest: &str| rest.strip_suffix(']')?.parse::<u32>().ok();
    let element = text.split_once('[').is_some_and(|(name, rest)| is_word(name) && index(rest).is_some());
    if element { Some(text) } else { word(section, key) }
}

fn is_word(text: &str) -> bool {
    let begins_well = text.chars().next().is_some_and(|first| first.is_ascii_alphanumeric());
    let reads_well = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    begins_well && reads_well && text.len() <= LONGEST_NAME
}

fn priority(section: &Section<'_>) -> Option<Priority> {
    let level = match section.get("priority") {
        None => return Some(Priority::default()),
        Some(Value::String(word)) => match word.as_str() {
            "low" => Some(25),
            "normal" => Some(50),
            "high" => Some(Priority::HIGH.0),
            _ => None,
        },
        Some(Value::Number(level)) => level.as_u64().and_then(|level| u8::try_from(level).ok()).filter(|l| *l <= 100),
        Some(other) => {
            section.wrong("priority", format!("must be low, normal, high or 0 to 100, not {}", kind(other)));
            return None;
        }
    };
    if level.is_none() {
        section.wrong("priority", "must be low, normal, high or a whole number from 0 to 100");
    }
    level.map(Priority)
}

fn elastic(section: &Section<'_>) -> Elasticity {
    let mut elastic = Elasticity::default();
    let Some(value) = section.get("elastic") else { return elastic };
    let path = section.field("elastic");
    let known = ["min_runtime", "max_resizes_per_hour", "max_overhead_pct", "min_share"];
    let Some(section) = Section::open(&path, value, &known, &[], section.findings()) else { return elastic };
    if let Some(time) = section.quantity("min_runtime", quantity::duration_or_none) {
        elastic.min_runtime = time;
    }
    if let Some(resizes) = section.whole("max_resizes_per_hour", 0) {
        elastic.max_resizes_per_hour = resizes;
    }
    if let Some(percent) = section.number("max_overhead_pct") {
        if (0.0..=100.0).contains(&percent) {
            elastic.max_overhead = percent / 100.0;
        } else {
            section.wrong("max_overhead_pct", "must be between 0 and 100");
        }
    }
    if let Some(share) = section.number("min_share") {
        if share > 0.0 && share <= 1.0 {
            elastic.min_share = Some(share);
        } else {
            section.wrong_hint("min_share", "must be above 0 and at most 1", "0.5 is half of the job's fair share");
        }
    }
    elastic
}

fn deadline(section: &Section<'_>) -> Option<Timestamp> {
    let text = section.text("deadline")?;
    match DateTime::parse_from_rfc3339(&text) {
        Ok(at) => Some(Timestamp(at.timestamp_micros())),
        Err(_) => {
            let message = format!("must be a time in RFC 3339 with its offset, not \"{text}\"");
            section.wrong_hint("deadline", message, "as in deadline: 2026-12-24T18:00:00Z");
            None
        }
    }
}

fn budget(section: &Section<'_>) -> Option<GpuSeconds> {
    let value = section.get("budget")?;
    let path = section.field("budget");
    let section = Section::open(&path, value, &["gpu_hours"], &["cost"], section.findings())?;
    section.require("gpu_hours", "as in budget: {gpu_hours: 512}")?;
    let hours = section.number("gpu_hours")?;
    if hours > 0.0 && hours <= MOST_GPU_HOURS {
        return Some(GpuSeconds(hours * 3_600.0));
    }
    section.wrong("gpu_hours", format!("must be more than 0 and at most {MOST_GPU_HOURS:e}"));
    None
}
