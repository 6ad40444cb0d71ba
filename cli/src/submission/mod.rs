//! What a person wants to run, from wherever it comes: files in YAML, TOML or JSON, a bare command with flags, or a script for Slurm.
//! All become the same tree, which remembers where each of its values was written, so that whoever refuses one can be told where.

mod bare;
mod file;
mod flags;
mod sbatch;
mod slurm;

use std::collections::BTreeMap;
use std::fmt;

use headway_api::spec;
use headway_types::JobSpec;
use serde_json::Value;

use crate::failure::{Failure, Kind};

pub use bare::bare;
pub use file::{describe_origin, read};
pub use flags::Flags;
pub use slurm::read_script;

/// One submission: a job, or several that are admitted together.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    /// The file it is from, or "the command line".
    pub source: String,
    /// As `POST /jobs` takes it.
    pub body: Value,
    /// By the path of the value.
    places: BTreeMap<String, Place>,
    /// What a person should know of how it came about.
    pub notes: Vec<String>,
}

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Line(usize),
    Flag(&'static str),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

impl Submission {
    /// The jobs it is of, or everything that is wrong with it and where.
    pub fn check(&self) -> Result<Vec<JobSpec>, Failure> {
        spec::read_submission_json(&self.body).map_err(|error| {
            let all: Vec<_> = error.all().collect();
            let of = |one: &spec::SpecError| match one.field.as_str() {
                "" => one.message.clone(),
                field => format!("{field}: {}", one.message),
            };
            match all.as_slice() {
                [only] => {
                    let failure = Failure::new(Kind::Usage, format!("{}: {}", self.at(&only.field), of(only)));
                    Failure { hint: only.hint.clone(), ..failure }
                }
                several => {
                    let lines = several.iter().map(|one| {
                        let place = self.place(&one.field).map(|place| format!("{place}: ")).unwrap_or_default();
                        let hint = one.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
                        format!("\n  {place}{}{hint}", of(one))
                    });
                    let lines: String = lines.collect();
                    Failure::new(Kind::Usage, format!("{}: {} mistakes{lines}", self.source, several.len()))
                }
            }
        })
    }

    /// The source, with the place of a field as far as it is known.
    pub fn at(&self, field: &str) -> String {
        match self.place(field) {
            Some(Place::Line(line)) => format!("{}:{line}", self.source),
            Some(Place::Flag(flag)) => format!("{}, {flag}", self.source),
            None => self.source.clone(),
        }
    }

    /// Where a field was written, or what it would be part of.
    fn place(&self, field: &str) -> Option<&Place> {
        let mut path = field;
        while !path.is_empty() {
            if let Some(place) = self.places.get(path) {
                return Some(place);
            }
            path = &path[..path.rfind(['.', '[']).unwrap_or(0)];
        }
        None
    }

    /// What a bare command runs, and where; `None` for what was written elsewhere, and can be read there.
    pub fn command_line(&self) -> Option<String> {
        let run = self.body.get("run").filter(|_| self.source == bare::SOURCE)?;
        Some(format!("{} in {}", bare::quoted(run.get("command")?), run.get("workdir")?.as_str()?))
    }

    /// The job of this submission, or those, each with the path before its fields.
    fn jobs(&mut self) -> Vec<(String, &mut Value)> {
        if self.body.get("jobs").is_some_and(Value::is_array) {
            let jobs = self.body["jobs"].as_array_mut().into_iter().flatten();
            return jobs.enumerate().map(|(index, job)| (format!("jobs[{index}]."), job)).collect();
        }
        vec![(String::new(), &mut self.body)]
    }
}
