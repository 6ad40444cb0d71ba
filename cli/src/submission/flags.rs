//! Fields of a specification as flags. They make one of a bare command, and come before what a file says.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use headway_api::spec;
use headway_types::spec::Condition;
use serde_json::{Map, Value, json};

use super::{Place, Submission};
use crate::failure::{Failure, Kind};

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Fields of the specification (they come before what a file says)")]
pub struct Flags {
    /// How many GPUs: a number (8), a range (8-64) or sizes (8,16,32). A range needs a training section.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub gpus: Option<Gpus>,
    /// GPU type, or several with commas, H100 is enough where only one type begins so.
    #[arg(long, value_name = "TYPE", value_delimiter = ',')]
    pub gpu_type: Vec<String>,
    /// Name of the job [default: after the script].
    #[arg(long)]
    pub name: Option<String>,
    /// Whom it counts for.
    #[arg(long)]
    pub project: Option<String>,
    /// low, normal, high or 0 to 100.
    #[arg(long)]
    pub priority: Option<String>,
    /// Running time after which it is stopped ("48h").
    #[arg(long, value_name = "TIME")]
    pub time: Option<String>,
    /// The signal by which it hears that its time limit is near, and how long before ("USR1@120s"); with B: before it only the command itself
    /// hears it. A job that does not speak to the agent hears it also before it is stopped for others.
    #[arg(long, value_name = "[B:]SIGNAL[@TIME]")]
    pub signal: Option<String>,
    /// Without a step, or without output where it tells of no steps, for so long it is started again ("20m").
    #[arg(long, value_name = "TIME")]
    pub stall_after: Option<String>,
    /// Reads its steps from what it prints: a regular expression with a group named step, as in 'step (?P<step>\d+) loss (?P<loss>\S+)'.
    #[arg(long, value_name = "REGEX")]
    pub progress: Option<String>,
    /// How much of a time it must use its GPUs ("10%/1h"): below it is warned, and after as long again it has failed.
    #[arg(long, value_name = "SHARE/TIME")]
    pub min_gpu_util: Option<String>,
    /// How often it is started again after failures of its own [default: 0 for a bare command, 20 in a file].
    #[arg(long, value_name = "N")]
    pub max_restarts: Option<u32>,
    /// Never run it twice: whatever ends it after a process was started, it fails instead of starting again.
    #[arg(long, conflicts_with_all = ["requeue", "max_restarts"])]
    pub no_requeue: bool,
    /// Other jobs may take its GPUs although it has no training section: it starts again later, and resumes by itself.
    #[arg(long)]
    pub requeue: bool,
    /// Another job that comes before it: its name or id, and what is waited for: success (as by default), failure, any end of it, or its start. May be
    /// given more than once; adds to what a file says.
    #[arg(long, value_name = "JOB[:success|failure|any|start]", value_parser = after)]
    pub after: Vec<Value>,
    /// One job per index: 0-99, 0-99:2, 1,3,5-9; behind a % how many of them may run at once: 0-99%8.
    #[arg(long, value_name = "RANGE[%N]")]
    pub array: Option<String>,
    /// Nodes that it takes no others than, several with commas; in place of those that a file names.
    #[arg(long = "node", value_name = "NAME", value_delimiter = ',')]
    pub nodes: Vec<String>,
    /// A label that its nodes have to have; may be given more than once.
    #[arg(long = "node-label", value_name = "NAME=VALUE", value_parser = pair)]
    pub node_labels: Vec<(String, String)>,
    /// NAME=VALUE; may be given more than once.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = pair)]
    pub labels: Vec<(String, String)>,
    /// NAME=VALUE, or NAME alone for the value it has here; may be given more than once.
    #[arg(long = "env", short = 'e', value_name = "NAME[=VALUE]", value_parser = variable)]
    pub env: Vec<(String, String)>,
    /// Directory in which the command runs [default for a bare command: this one].
    #[arg(long, value_name = "DIR")]
    pub workdir: Option<PathBuf>,
}

/// GPUs as a flag names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gpus {
    Count(u32),
    Range(u32, u32),
    Sizes(Vec<u32>),
}

impl FromStr for Gpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("must be a number (8), a range (8-64) or sizes (8,16,32), not \"{text}\"");
        let count = |text: &str| text.trim().parse::<u32>().map_err(|_| wanted());
        if text.contains(',') {
            return text.split(',').map(count).collect::<Result<_, _>>().map(Self::Sizes);
        }
        match text.split_once('-') {
            Some((min, max)) => Ok(Self::Range(count(min)?, count(max)?)),
            None => count(text).map(Self::Count),
        }
    }
}

impl Flags {
    /// Lays the flags over a submission, and notes what of a file they replace.
    pub fn lay_over(&self, submission: &mut Submission) -> Result<(), Failure> {
        let mut changed = Vec::new();
        let mut places = BTreeMap::new();
        let jobs = submission.jobs();
        if jobs.len() > 1 && self.name.is_some() {
            let several = format!("--name is for one job, and {} are there", jobs.len());
            return Err(Failure::new(Kind::Usage, several).hint("give each its name in the file"));
        }
        for (path, job) in jobs {
            if job.is_object() {
                Overlay { path: &path, job, changed: &mut changed, places: &mut places }.all(self)?;
            }
        }
        for (field, flag) in places {
            let below = |path: &str| path.strip_prefix(field.as_str()).is_some_and(|rest| rest.starts_with(['.', '[']));
            submission.places.retain(|path, _| !below(path));
            submission.places.insert(field, Place::Flag(flag));
        }
        // Of a bare command nothing was written that they could replace.
        if submission.command_line().is_none() {
            submission.notes.extend(changed);
        }
        Ok(())
    }
}

/// The flags on their way into one job.
struct Overlay<'a> {
    path: &'a str,
    job: &'a mut Value,
    changed: &'a mut Vec<String>,
    places: &'a mut BTreeMap<String, &'static str>,
}

impl Overlay<'_> {
    fn all(&mut self, flags: &Flags) -> Result<(), Failure> {
        self.gpus(flags)?;
        let text = |text: &Option<String>| text.clone().map(Value::from);
        let priority = flags.priority.as_ref().map(|text| text.parse::<u8>().map_or_else(|_| json!(text), Value::from));
        self.set(&["name"], text(&flags.name), "--name")?;
        self.set(&["project"], text(&flags.project), "--project")?;
        self.set(&["priority"], priority, "--priority")?;
        self.set(&["limits", "time"], text(&flags.time), "--time")?;
        self.set(&["limits", "signal"], text(&flags.signal), "--signal")?;
        self.set(&["limits", "stall_after"], text(&flags.stall_after), "--stall-after")?;
        self.set(&["limits", "min_gpu_util"], text(&flags.min_gpu_util), "--min-gpu-util")?;
        let section = if self.job.get("training").is_some_and(|value| !value.is_null()) { "training" } else { "run" };
        let progress = flags.progress.as_ref().map(|regex| json!({ "source": "stdout", "regex": regex }));
        self.set(&[section, "progress"], progress, "--progress")?;
        self.set(&["limits", "max_restarts"], flags.max_restarts.map(Value::from), "--max-restarts")?;
        match (flags.requeue, flags.no_requeue) {
            (true, _) => self.set(&["limits", "restartable"], Some(json!(true)), "--requeue")?,
            (_, true) => {
                self.set(&["limits", "restartable"], Some(json!(false)), "--no-requeue")?;
                self.set(&["limits", "max_restarts"], Some(json!(0)), "--no-requeue")?;
            }
            (false, false) => {}
        }
        let workdir = flags.workdir.as_ref().map(std::path::absolute).transpose()?;
        self.set(&["run", "workdir"], workdir.map(|dir| json!(dir.display().to_string())), "--workdir")?;
        self.set(&["array"], text(&flags.array), "--array")?;
        self.after(&flags.after)?;
        let nodes = Some(json!(flags.nodes)).filter(|_| !flags.nodes.is_empty());
        self.set(&["resources", "nodes", "include"], nodes, "--node")?;
        for (name, value) in &flags.node_labels {
            self.set(&["resources", "nodes", "labels", name], Some(json!(value)), "--node-label")?;
        }
        for (name, value) in &flags.labels {
            self.set(&["labels", name], Some(json!(value)), "--label")?;
        }
        for (name, value) in &flags.env {
            self.set(&["run", "env", name], Some(json!(value)), "--env")?;
        }
        Ok(())
    }

    /// A number of GPUs leaves the types as they are, and the other way round.
    fn gpus(&mut self, flags: &Flags) -> Result<(), Failure> {
        let before = self.job["resources"].get("gpus").cloned();
        let types = match flags.gpu_type.as_slice() {
            [] => before.as_ref().and_then(|gpus| gpus.get("type")).cloned(),
            types => Some(json!(types)),
        };
        let count = match (&flags.gpus, &before) {
            (None, _) if flags.gpu_type.is_empty() => return Ok(()),
            (Some(Gpus::Count(count)), _) if types.is_none() => json!(count),
            (Some(Gpus::Count(count)), _) => json!({ "min": count, "max": count }),
            (Some(Gpus::Range(min, max)), _) => json!({ "min": min, "max": max }),
            (Some(Gpus::Sizes(sizes)), _) => json!({ "sizes": sizes }),
            (None, Some(Value::Object(before))) => Value::Object(before.clone()),
            (None, Some(count)) => json!({ "min": count, "max": count }),
            (None, None) => json!({}),
        };
        let mut gpus = count;
        if let Some(types) = types {
            gpus["type"] = types;
        }
        let flag = if flags.gpus.is_some() { "--gpus" } else { "--gpu-type" };
        self.set(&["resources", "gpus"], Some(gpus), flag)
    }

    /// Whom a file names stays named: jobs of one file may wait for each other.
    fn after(&mut self, more: &[Value]) -> Result<(), Failure> {
        let written = match self.job.get("after") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(list)) => list.clone(),
            Some(one) => vec![one.clone()],
        };
        if more.is_empty() {
            return Ok(());
        }
        let Value::Object(job) = &mut *self.job else { return Err(no_mapping("after", "--after")) };
        let places = (written.len()..written.len() + more.len()).map(|at| format!("{}after[{at}]", self.path));
        self.places.extend(places.map(|field| (field, "--after")));
        job.insert("after".into(), written.into_iter().chain(more.iter().cloned()).collect());
        Ok(())
    }

    /// Sets a field where the flag was given.
    fn set(&mut self, keys: &[&str], value: Option<Value>, flag: &'static str) -> Result<(), Failure> {
        let Some(value) = value else { return Ok(()) };
        let field = format!("{}{}", self.path, keys.join("."));
        let Some((last, above)) = keys.split_last() else { return Ok(()) };
        let mut at = &mut *self.job;
        for key in above {
            at = step_into(at, key, &field, flag)?;
        }
        let Value::Object(map) = at else { return Err(no_mapping(&field, flag)) };
        let before = map.insert((*last).to_owned(), value.clone());
        if let Some(before) = before.filter(|before| !before.is_null() && *before != value) {
            // What stands in the environment is nobody's to read over a shoulder.
            let shown = |value: &Value| match keys {
                ["run", "env", ..] => "…".to_owned(),
                ["resources", "gpus"] => gpus_in_words(value),
                _ => value.to_string(),
            };
            self.changed.push(format!("{field}: {} by {flag}, instead of {}", shown(&value), shown(&before)));
        }
        self.places.insert(field, flag);
        Ok(())
    }
}

/// "8", "8-64", "8,16,32 of H100": as the flags say it.
fn gpus_in_words(gpus: &Value) -> String {
    let list = |value: &Value| match value {
        Value::Array(items) => items.iter().map(word).collect::<Vec<_>>().join(","),
        one => word(one),
    };
    let Value::Object(fields) = gpus else { return word(gpus) };
    let count = match (fields.get("sizes"), fields.get("min"), fields.get("max")) {
        (Some(sizes), ..) => list(sizes),
        (None, Some(min), Some(max)) if min == max => word(min),
        (None, min, max) => format!("{}-{}", min.map(word).unwrap_or_default(), max.map(word).unwrap_or_default()),
    };
    match fields.get("type") {
        Some(types) => format!("{count} of {}", list(types)),
        None => count,
    }
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn step_into<'a>(at: &'a mut Value, key: &str, field: &str, flag: &str) -> Result<&'a mut Value, Failure> {
    let Value::Object(map) = at else { return Err(no_mapping(field, flag)) };
    let below = map.entry(key).or_insert(Value::Null);
    if below.is_null() {
        *below = Value::Object(Map::new());
    }
    Ok(below)
}

fn no_mapping(field: &str, flag: &str) -> Failure {
    Failure::new(Kind::Usage, format!("{flag} cannot set {field}: what is above it in the file is no mapping"))
}

fn after(text: &str) -> Result<Value, String> {
    match text.split_once(':') {
        None => Ok(json!({ "job": text })),
        Some((job, on)) => match on.parse::<Condition>() {
            Ok(on) => Ok(json!({ "job": job, "on": on })),
            Err(_) => Err("must be JOB, or JOB: with success, failure, any or start".into()),
        },
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("must be NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn variable(text: &str) -> Result<(String, String), String> {
    if text.contains('=') {
        return pair(text);
    }
    match std::env::var(text) {
        // A value from here is meant as it is: its braces are no placeholders.
        Ok(value) => Ok((text.to_owned(), spec::literal(&value))),
        Err(_) => Err(format!("{text} is not set here; give {text}=VALUE")),
    }
}
