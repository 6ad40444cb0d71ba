//! `headway job wait`: until jobs have ended, or are in a state; its exit code is the job's own where that has one.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use headway_api::client::{Client, ClientError};
use headway_api::v1::Job;
use headway_types::{JobStateKind, Seconds};
use strum::VariantArray;
use tokio::time::Instant;

use super::resolve_only_job;
use crate::failure::{Failure, Kind};
use crate::output::{Printer, duration};

/// Between two looks at a job.
const POLL: Duration = Duration::from_millis(500);
/// How long a scheduler that cannot be reached is asked again: it may be restarting.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Args, Clone, Debug)]
pub struct Wait {
    /// Ids, unique ends or beginnings of them, or names.
    #[arg(required = true, value_name = "JOB")]
    pub jobs: Vec<String>,
    /// Give up after this ("30m"), with the exit code 124.
    #[arg(long, value_name = "TIME", value_parser = headway_api::spec::duration)]
    pub timeout: Option<Seconds>,
    /// Until each is, or has been and ended, in this state [default: until each has ended].
    #[arg(long = "for", value_name = "STATE", value_parser = PossibleValuesParser::new(states()))]
    pub state: Option<String>,
}

fn states() -> impl Iterator<Item = &'static str> {
    JobStateKind::VARIANTS.iter().map(|state| <&str>::from(*state))
}

pub async fn run(client: &Client, print: &Printer, wait: Wait) -> Result<ExitCode, Failure> {
    let deadline = wait.timeout.map(|time| Instant::now() + Duration::from_secs_f64(time.0));
    let wanted = match &wait.state {
        Some(word) => Some(word.parse::<JobStateKind>().map_err(|error| Failure::new(Kind::Usage, error.to_string()))?),
        None => None,
    };
    let mut ids = Vec::with_capacity(wait.jobs.len());
    for text in &wait.jobs {
        ids.push(resolve_only_job(client, text).await?);
    }
    let mut first_bad = None;
    for id in &ids {
        let job = until(client, id, wanted, deadline, &wait).await?;
        if print.structured() {
            print.value(&job)?;
        } else {
            let why = job.state_cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
            say!("job {} {}{why}", job.name, job.state)?;
        }
        let code = code(&job, wanted);
        if code != 0 && first_bad.is_none() {
            first_bad = Some(code);
        }
    }
    Ok(ExitCode::from(first_bad.unwrap_or(0)))
}

/// The job once it has ended, or is in the wanted state.
async fn until(
    client: &Client,
    id: &str,
    wanted: Option<JobStateKind>,
    deadline: Option<Instant>,
    wait: &Wait,
) -> Result<Job, Failure> {
    let mut silent_since: Option<Instant> = None;
    loop {
        let job = match client.job(id).await {
            Ok(detail) => {
                silent_since = None;
                Some(detail.job)
            }
            Err(error) if passes(&error) && silent_since.is_none_or(|since| since.elapsed() < PATIENCE) => {
                silent_since.get_or_insert_with(Instant::now);
                None
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(job) = job.as_ref().filter(|job| wanted == Some(job.state) || job.state.is_final()) {
            return Ok(job.clone());
        }
        let now = Instant::now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            let waited = duration(wait.timeout.map_or(0.0, |time| time.0));
            let of = job.map_or_else(|| id.to_owned(), |job| format!("{} is {}", job.name, job.state));
            return Err(Failure::new(Kind::WaitTimeout, format!("waited {waited}: {of}")));
        }
        let pause = deadline.map_or(POLL, |deadline| POLL.min(deadline - now));
        tokio::time::sleep(pause).await;
    }
}

/// What a scheduler that restarts or is busy says.
fn passes(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } => true,
        ClientError::Problem(problem) => matches!(problem.status, 503 | 504),
        _ => false,
    }
}

/// 0 for what was waited for; of what failed its own exit code, else 1.
fn code(job: &Job, wanted: Option<JobStateKind>) -> u8 {
    match (wanted, job.state) {
        (Some(wanted), state) if wanted == state => 0,
        (None, JobStateKind::Succeeded) => 0,
        (_, JobStateKind::Failed) => {
            let failure = job.last_failure.as_ref();
            let own = failure.and_then(|failure| failure.exit_code).and_then(|code| u8::try_from(code).ok());
            own.filter(|code| *code != 0).unwrap_or(1)
        }
        _ => 1,
    }
}
