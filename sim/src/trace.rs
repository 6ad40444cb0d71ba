//! Traces of real clusters, read into scenarios. The schema is that of the common job table: one row per job with its
//! submission, size and recorded duration; empty cells are not known.

use headway_types::spec::{GpuRange, Work};
use headway_types::{GpuCount, Seconds, Sequences, Tokens};

use crate::faults::{FaultKind, Faults};
use crate::scenario::{NodeShape, Scenario, SimJob, spec, training};

/// One job of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceJob {
    pub name: String,
    pub submitted: Seconds,
    pub gpus: GpuCount,
    /// On so many GPUs.
    pub duration: Seconds,
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("the table has no column {0}")]
    NoColumn(&'static str),
    #[error("line {line}: {column} is no number")]
    NoNumber { line: u64, column: &'static str },
    /// A row with more or fewer cells than the header; it names its line.
    #[error("reading the table")]
    Row(#[source] csv::Error),
}

/// Tokens per second and GPU of the made-up truth; only ratios matter.
const RATE: f64 = 2_000.0;
/// Tokens per sequence, and sequences per GPU and step: steps of about eight seconds.
const SEQ_LEN: u32 = 2_048;
const PER_GPU: u64 = 8;

/// Reads the table.
pub fn read(text: &str) -> Result<Vec<TraceJob>, TraceError> {
    let mut table = csv::Reader::from_reader(text.as_bytes());
    let header = table.headers().map_err(TraceError::Row)?.clone();
    let column = |name: &'static str| header.iter().position(|one| one == name).ok_or(TraceError::NoColumn(name));
    let (name, submit) = (column("job_id")?, column("submit_time_s")?);
    let (gpus, duration) = (column("num_gpus")?, column("duration_s")?);
    let mut jobs = Vec::new();
    for row in table.records() {
        let row = row.map_err(TraceError::Row)?;
        let line = row.position().map_or(0, |position| line(text, position));
        let number = |at: usize, column: &'static str| {
            let cell = row[at].parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
            cell.ok_or(TraceError::NoNumber { line, column })
        };
        jobs.push(TraceJob {
            name: row[name].to_owned(),
            submitted: Seconds(number(submit, "submit_time_s")?),
            gpus: GpuCount(number(gpus, "num_gpus")? as u32),
            duration: Seconds(number(duration, "duration_s")?),
        });
    }
    Ok(jobs)
}

/// The line a row stands on: its position is that of the empty lines before it.
fn line(text: &str, position: &csv::Position) -> u64 {
    let from = text.bytes().skip(position.byte() as usize);
    position.line() + from.take_while(|byte| matches!(byte, b'\r' | b'\n')).filter(|byte| *byte == b'\n').count() as u64
}

/// A day of a trace on nodes of eight GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    pub nodes: u32,
    pub gpu_type: String,
    /// Where the day begins in the trace's own time; jobs that run then are taken along with what they have left.
    pub from: Seconds,
    pub lasts: Seconds,
    /// Node failures per thousand node-days.
    pub failures: f64,
    pub seed: u64,
}

impl Replay {
    /// The scenario: jobs keep their size, save every quarter of an hour and take two minutes to start.
    #[must_use]
    pub fn scenario(&self, jobs: &[TraceJob]) -> Scenario {
        let mut scenario = Scenario::empty(self.seed, &[]);
        scenario.nodes = vec![NodeShape::new(8, &self.gpu_type); self.nodes as usize];
        let until = Seconds(self.from.0 + self.lasts.0);
        let present = jobs.iter().filter(|job| {
            job.submitted.0 < until.0 && job.submitted.0 + job.duration.0 > self.from.0 && job.gpus.0 > 0
        });
        scenario.jobs = present.map(|job| self.job(job)).collect();
        scenario.horizon = self.lasts;
        scenario.cut = true;
        scenario.faults = self.faults();
        scenario.config.lease = Seconds(100.0);
        scenario.config.restart_prior = Seconds(120.0);
        // Long jobs are moved rarely: a round every ten minutes unless something has changed.
        scenario.policy.round_every = Seconds(600.0);
        scenario.policy.round_pause = Seconds(5.0);
        scenario
    }

    fn job(&self, job: &TraceJob) -> SimJob {
        let left = (job.submitted.0 + job.duration.0) - job.submitted.0.max(self.from.0);
        let work = Tokens(left * RATE * f64::from(job.gpus.0));
        let mut training = training(work, true, false);
        let points = [(job.gpus, 1.0)].into_iter().collect();
        training.work = Work::Curve { points, seq_len: SEQ_LEN };
        let batch = Sequences(u64::from(job.gpus.0) * PER_GPU);
        (training.reference_batch, training.batch.min, training.batch.max) = (batch, batch, batch);
        training.checkpoint.every = Seconds(900.0);
        training.checkpoint.grace = Seconds(180.0);
        let gpus = GpuRange { min: job.gpus, max: job.gpus, sizes: Vec::new(), types: Vec::new(), mixed: false };
        let mut spec = spec(job.name.clone(), gpus, Some(training));
        spec.limits.max_restarts = 50;
        SimJob {
            arrives: Seconds((job.submitted.0 - self.from.0).max(0.0)),
            spec,
            tokens_per_second: RATE,
            noise_scale: 1e6,
            runs: Seconds(left),
            startup: Seconds(120.0),
            cancelled_after: None,
            hidden: None,
        }
    }

    /// The published rate, split as in Meta's table for Llama 3: about half of the failures are GPUs', a quarter
    /// take the node down, the rest are single processes.
    fn faults(&self) -> Faults {
        let per_day = self.failures / 1_000.0 * f64::from(self.nodes);
        let every = |share: f64| Seconds(86_400.0 / (per_day * share));
        let mut faults = Faults { until: self.lasts, ..Faults::calm() };
        if per_day > 0.0 {
            faults.every.insert(FaultKind::GpuBreak, every(0.5));
            faults.every.insert(FaultKind::NodeReboot, every(0.25));
            faults.every.insert(FaultKind::WorkerDeath, every(0.25));
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_table_is_read_by_its_column_names() {
        let jobs = read("num_gpus,job_id,duration_s,submit_time_s,model\n64,a,100,5,\n\n8,b,7.5,90,x\n").unwrap();
        assert_eq!(jobs.len(), 2);
        assert_eq!((jobs[1].name.as_str(), jobs[1].gpus, jobs[1].duration), ("b", GpuCount(8), Seconds(7.5)));
    }

    #[test]
    fn a_comma_within_quotes_is_no_end_of_a_cell() {
        let jobs = read("job_id,model,submit_time_s,num_gpus,duration_s\na,\"7b, chat\",1,8,3\n").unwrap();
        assert_eq!((jobs[0].submitted, jobs[0].gpus), (Seconds(1.0), GpuCount(8)));
    }

    #[test]
    fn a_table_that_cannot_be_read_says_where() {
        let wrong = |text: &str| {
            let error = read(text).unwrap_err();
            let source = std::error::Error::source(&error).map_or(String::new(), |source| format!(": {source}"));
            format!("{error}{source}")
        };
        assert_eq!(wrong("job_id,num_gpus\n"), "the table has no column submit_time_s");
        let header = "job_id,submit_time_s,num_gpus,duration_s\n";
        assert_eq!(wrong(&format!("{header}a,1,many,3\n")), "line 2: num_gpus is no number");
        assert_eq!(wrong(&format!("{header}a,1,2,3\n\na,1,2,NaN\n")), "line 4: duration_s is no number");
        let short = wrong(&format!("{header}a,1,2,3\nb,1\n"));
        assert!(short.contains("line: 3"), "{short}");
    }
}
