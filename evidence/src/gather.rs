//! Runs what a report still lacks. Every run is written down as it ends, so that an interrupted report goes on where it stopped; whoever wants all
//! of it anew removes the file of runs.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::cluster::{Cluster, ClusterError};
use crate::contender::{ContenderError, shown_name};
use crate::document::Document;
use crate::plot::PlotError;
use crate::report::{Record, document};
use crate::run::{Outcome, Trial, TrialError, run_all, run_in_parallel};
use crate::single::{self, Comparison, Question, QuestionError, questions};
use crate::study::{Study, studies};
use crate::workload::{Plenty, Workload};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    #[error("reading or writing {path}")]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("line {line} of {path} is no run")]
    Line {
        path: PathBuf,
        line: usize,
        #[source]
        source: serde_json::Error,
    },
    #[error("no study is called \"{name}\"; there are {known}")]
    NoStudy { name: String, known: String },
    #[error("reading a study's cluster")]
    Cluster(#[from] ClusterError),
    #[error("reading a study's contenders")]
    Contender(#[from] ContenderError),
    #[error("running a study")]
    Trial(#[from] TrialError),
    #[error("asking what a single job gains")]
    Question(#[from] QuestionError),
    #[error("drawing the report")]
    Plot(#[from] PlotError),
}

/// The study of single jobs, beside those of `studies`.
const SINGLE: &str = "single";

/// What is wanted of a report.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    pub dir: &'a Path,
    /// By name; none: all.
    pub studies: &'a [String],
    pub seeds: RangeInclusive<u64>,
    pub threads: usize,
    /// As it stands in the report.
    pub command: &'a str,
}

/// Runs what is missing and writes `runs.jsonl`, `report.md`, `report.html`, `single.md` and the figures. `told` hears of each run as it ends.
pub fn gather(wanted: &Wanted<'_>, told: &(dyn Fn(&str) + Sync)) -> Result<(), GatherError> {
    check(wanted.studies)?;
    let path = wanted.dir.join("runs.jsonl");
    std::fs::create_dir_all(wanted.dir).map_err(at(wanted.dir))?;
    let mut records = read(&path)?;
    let file = OpenOptions::new().create(true).append(true).open(&path).map_err(at(&path))?;
    let file = Mutex::new(file);
    let asked = |name: &str| wanted.studies.is_empty() || wanted.studies.iter().any(|one| one == name);
    for study in studies().into_iter().filter(|study| asked(study.name)) {
        records.extend(run_study(&study, wanted, &records, &file, told)?);
    }
    if asked(SINGLE) {
        records.extend(run_single(wanted, &records, &file, told)?);
    }
    let report = document(&records, wanted.command)?;
    let forms = [("report.md".to_owned(), report.markdown()), ("report.html".to_owned(), report.html())];
    write(&report, forms, wanted.dir)?;
    let answers: Vec<&Comparison> = records
        .iter()
        .filter_map(|record| match record {
            Record::Single(comparison) => Some(comparison.as_ref()),
            Record::Run { .. } => None,
        })
        .collect();
    if answers.is_empty() {
        return Ok(());
    }
    let page = single::document(&answers, &format!("{} --studies {SINGLE}", wanted.command))?;
    write(&page, [("single.md".to_owned(), page.markdown())], wanted.dir)
}

/// Writes a document in some forms, and its figures.
fn write(
    document: &Document,
    forms: impl IntoIterator<Item = (String, String)>,
    dir: &Path,
) -> Result<(), GatherError> {
    let figures = document.figures().map(|(name, svg)| (name, svg.to_owned()));
    for (name, text) in forms.into_iter().chain(figures) {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(at(&path))?;
    }
    Ok(())
}

fn check(names: &[String]) -> Result<(), GatherError> {
    let known: Vec<&str> = studies().iter().map(|study| study.name).chain([SINGLE]).collect();
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(GatherError::NoStudy { name: name.clone(), known: known.join(", ") }),
    }
}

fn at(path: &Path) -> impl Fn(std::io::Error) -> GatherError {
    let path = path.to_owned();
    move |source| GatherError::File { path: path.clone(), source }
}

fn read(path: &Path) -> Result<Vec<Record>, GatherError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(at(path)(error)),
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(line, text)| {
            let wrong = |source| GatherError::Line { path: path.to_owned(), line: line + 1, source };
            serde_json::from_str(text).map(with_shown_name).map_err(wrong)
        })
        .collect()
}

/// A run of an earlier release counts under the name that its contender is shown by now.
fn with_shown_name(mut record: Record) -> Record {
    if let Record::Run { outcome, .. } = &mut record {
        outcome.contender = shown_name(&outcome.contender);
    }
    record
}

fn put(file: &Mutex<File>, record: &Record) {
    // What cannot be written now is run again next time; the report of this time has it all the same.
    if let Ok(line) = serde_json::to_string(record) {
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        let _written = writeln!(file, "{line}");
    }
}

fn run_study(
    study: &Study,
    wanted: &Wanted<'_>,
    known: &[Record],
    file: &Mutex<File>,
    told: &(dyn Fn(&str) + Sync),
) -> Result<Vec<Record>, GatherError> {
    let cluster: Cluster = study.cluster.parse()?;
    let contenders = study.contenders()?;
    let mut made = Vec::new();
    for (world, settings) in &study.worlds {
        let has = |load: f64, seed: u64, contender: &str| {
            known.iter().any(|record| match record {
                Record::Run { study: name, world: of, outcome } => {
                    let same = (outcome.load, outcome.seed, outcome.contender.as_str()) == (load, seed, contender);
                    name == study.name && of == world && same
                }
                Record::Single(_) => false,
            })
        };
        let draw = |load: f64, seed: u64| study.workload.draw(seed, &cluster, &Plenty { load, ..Plenty::default() });
        let workloads: Vec<(f64, u64, Workload)> = study
            .loads
            .iter()
            .flat_map(|load| wanted.seeds.clone().map(move |seed| (*load, seed)))
            .map(|(load, seed)| (load, seed, draw(load, seed)))
            .collect();
        let trials: Vec<Trial<'_>> = workloads
            .iter()
            .flat_map(|(load, seed, workload)| {
                let all = contenders.iter();
                all.map(|contender| Trial { seed: *seed, load: *load, workload, contender })
            })
            .filter(|trial| !has(trial.load, trial.seed, &trial.contender.name))
            .collect();
        let record = |outcome: &Outcome| Record::Run {
            study: study.name.into(),
            world: (*world).into(),
            outcome: Box::new(outcome.clone()),
        };
        let done = |outcome: &Outcome| {
            put(file, &record(outcome));
            let Outcome { contender, load, seed, measure, .. } = outcome;
            let (hours, cpu) = (measure.mean_time / 3_600.0, measure.cpu_seconds);
            told(&format!(
                "{} {world} {contender} at {load} seed {seed}: mean {hours:.2} h, {cpu:.1} CPU s",
                study.name
            ));
        };
        made.extend(run_all(&trials, settings, wanted.threads, &done)?.iter().map(record));
    }
    Ok(made)
}

fn run_single(
    wanted: &Wanted<'_>,
    known: &[Record],
    file: &Mutex<File>,
    told: &(dyn Fn(&str) + Sync),
) -> Result<Vec<Record>, GatherError> {
    let is_answered = |question: &Question| {
        known.iter().any(|record| matches!(record, Record::Single(one) if question.is_answered_by(one)))
    };
    let open: Vec<Question> =
        questions(wanted.seeds.clone()).into_iter().filter(|question| !is_answered(question)).collect();
    let answer = |question: &Question| {
        let answer = question.answer()?;
        let Comparison { model, cluster, course, world, rules, seed, .. } = &answer;
        let (gain, ceiling) = (answer.gain(), answer.ceiling());
        told(&format!(
            "{SINGLE} {model} on {cluster}, {course}, {world}, {rules}, seed {seed}: {gain:+.1} of {ceiling:.1} %"
        ));
        let record = Record::Single(Box::new(answer));
        put(file, &record);
        Ok(record)
    };
    run_in_parallel(&open, wanted.threads, &answer).into_iter().collect()
}
