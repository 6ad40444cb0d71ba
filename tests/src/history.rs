//! What was done to a cluster and what came of it: every call of every client with its outcome, and every start and end of a worker as the worker
//! itself told it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headway_api::v1::JobStateKind;

/// Of one clock that clients and workers share, since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Duration);

impl Moment {
    pub fn now() -> Self {
        Self(SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970"))
    }
}

/// What a client wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Submit,
    Cancel,
    Hold,
    Release,
    Read,
}

/// What a client was told of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub id: String,
    pub state: JobStateKind,
    pub generation: u64,
    /// Not by a standby, which says that what it shows is old.
    pub by_leader: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done(Seen),
    /// Nothing was done, for this reason (the problem's code).
    Refused(String),
    /// No answer: it may have been done, or be done later.
    Unknown,
}

/// One call. Whoever submits does so under one name and key until he is answered, and that is one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub client: usize,
    /// The job's name, which is its key.
    pub job: String,
    pub deed: Deed,
    pub invoked: Moment,
    pub completed: Moment,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Start,
    /// It is about to exit with 0.
    End,
    /// It started on a GPU whose lock another live process holds.
    Taken,
}

/// What a worker told of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub mark: Mark,
    pub job: String,
    pub generation: u64,
    /// Nodes have one GPU each.
    pub gpu: String,
    pub at: Moment,
}

/// A job as it is found when all is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub id: String,
    pub name: String,
    pub state: JobStateKind,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    pub calls: Vec<Call>,
    pub runs: Vec<Run>,
    pub stored: Vec<Stored>,
}

/// Takes down what clients do.
#[derive(Debug, Default)]
pub struct Recorder(Mutex<Vec<Call>>);

impl Recorder {
    pub fn take(&self, call: Call) {
        self.0.lock().expect("nobody panics with it").push(call);
    }

    pub fn calls(&self) -> Vec<Call> {
        self.0.lock().expect("nobody panics with it").clone()
    }
}

/// A program for jobs of one GPU that works so many seconds and tells of it in `runs`. A lock per GPU, which the kernel gives back when its last
/// holder is gone, shows whether anybody lives there.
pub fn worker_script(runs: &Path, locks: &Path) -> String {
    format!(
        r#"#!/bin/bash
node=$(dirname "$HEADWAY_SOCKET")
node=${{node##*/}}
say() {{ printf '%s\n' "$1 $HEADWAY_JOB_ID $HEADWAY_GENERATION $node $EPOCHREALTIME" >>'{}'; }}
exec 9>>'{}'/"$node"
flock -n 9 || say taken
say start
sleep "$1"
say end
"#,
        runs.display(),
        locks.display()
    )
}

/// What workers have told so far. A line that is not whole yet is none.
pub fn read_runs(file: &Path) -> Vec<Run> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.split_inclusive('\n').filter(|line| line.ends_with('\n')).filter_map(run).collect()
}

fn run(line: &str) -> Option<Run> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [mark, job, generation, gpu, at] = words[..] else { return None };
    let mark = match mark {
        "start" => Mark::Start,
        "end" => Mark::End,
        "taken" => Mark::Taken,
        _ => return None,
    };
    let at = Moment(Duration::try_from_secs_f64(at.replace(',', ".").parse().ok()?).ok()?);
    Some(Run { mark, job: job.into(), generation: generation.parse().ok()?, gpu: gpu.into(), at })
}

impl History {
    /// All that concerns some jobs, line by line in the order of time; for people who look for the cause.
    pub fn of(&self, names: &[String]) -> String {
        let ids: BTreeMap<&str, &str> =
            self.names().into_iter().filter(|(_, name)| names.iter().any(|one| one == name)).collect();
        let mut lines = Vec::new();
        for call in self.calls.iter().filter(|call| names.contains(&call.job)) {
            let (took, outcome) = (call.completed.0.saturating_sub(call.invoked.0), &call.outcome);
            let (client, job, deed) = (call.client, &call.job, call.deed);
            lines.push((
                call.invoked,
                format!("client {client} {deed:?} {job}, {:.3} s: {outcome:?}", took.as_secs_f64()),
            ));
        }
        for run in self.runs.iter().filter(|run| ids.contains_key(run.job.as_str())) {
            let name = ids[run.job.as_str()];
            lines.push((run.at, format!("{} {:?} {name}, generation {}", run.gpu, run.mark, run.generation)));
        }
        lines.sort();
        let mut text: String =
            lines.into_iter().map(|(at, line)| format!("{:.3} {line}\n", at.0.as_secs_f64())).collect();
        for job in self.stored.iter().filter(|job| names.contains(&job.name)) {
            text.push_str(&format!("at the end: {} {} is {:?}\n", job.name, job.id, job.state));
        }
        text
    }

    /// Names by id, as far as anybody was told.
    pub fn names(&self) -> BTreeMap<&str, &str> {
        let told = self.calls.iter().filter_map(|call| match &call.outcome {
            Outcome::Done(seen) => Some((seen.id.as_str(), call.job.as_str())),
            Outcome::Refused(_) | Outcome::Unknown => None,
        });
        self.stored.iter().map(|job| (job.id.as_str(), job.name.as_str())).chain(told).collect()
    }
}
