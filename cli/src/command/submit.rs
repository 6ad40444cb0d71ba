//! `headway submit` and `headway validate`.

use std::path::{Path, PathBuf};

use clap::Args;
use headway_api::client::Client;
use headway_api::spec;
use headway_api::v1::{JobValidation, Submitted};

use super::{read, short, why};
use crate::failure::{Failure, Kind};
use crate::output::{Format, Printer};

#[derive(Args, Clone, Debug)]
pub struct Submit {
    /// Specification files (YAML; several documents or a list below `jobs` are admitted together), `-` for standard input.
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Makes a retry of this command safe: the same key submits once.
    #[arg(long)]
    pub idempotency_key: Option<String>,
    /// Submit nothing: say at which sizes the jobs could run on the present nodes, what quotas say, and when they would start.
    #[arg(long)]
    pub dry_run: bool,
    /// Also submit jobs that the cluster as it is can never run: they wait for nodes to come.
    #[arg(long)]
    pub wait_for_nodes: bool,
}

#[derive(Args, Clone, Debug)]
pub struct Validate {
    /// Specification files (YAML), `-` for standard input.
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
}

pub async fn run(client: &Client, print: &Printer, submit: Submit) -> Result<(), Failure> {
    // All are read and checked before the first is sent: a typing error costs no round trip, names its file, and submits nothing.
    let mut checked = Vec::with_capacity(submit.files.len());
    for file in &submit.files {
        let text = read(file)?;
        let jobs = check(file, &text)?;
        checked.push((file, text, jobs.len()));
    }
    if submit.dry_run {
        for (_, text, _) in &checked {
            let checked = client.validate_yaml(text).await?.jobs;
            match print.format {
                Format::Json | Format::Yaml => print.value(&checked)?,
                Format::Table | Format::Name => checked.iter().try_for_each(|job| put!("{}", told(job)))?,
            }
        }
        return Ok(());
    }
    let mut refused = Vec::new();
    for (index, (file, text, jobs)) in checked.iter().enumerate() {
        let key = match &submit.idempotency_key {
            Some(key) if submit.files.len() == 1 => key.clone(),
            Some(key) => format!("{key}-{index}"),
            None => uuid::Uuid::now_v7().to_string(),
        };
        match client.submit_yaml_for(text, Some(&key), submit.wait_for_nodes).await {
            Ok(reply) => submitted(print, &reply)?,
            Err(error) => {
                let failure = named(file, *jobs, error.into());
                // Whoever cannot be reached will not be for the next file either.
                if matches!(failure.kind, Kind::Unreachable | Kind::Denied) {
                    return Err(failure);
                }
                refused.push(failure);
            }
        }
    }
    summed(refused, checked.len())
}

fn submitted(print: &Printer, reply: &Submitted) -> Result<(), Failure> {
    match print.format {
        Format::Table => {
            for job in &reply.jobs {
                say!("job {} submitted ({})", job.name, short(&job.id.to_string()))?;
            }
            Ok(())
        }
        Format::Name => {
            for job in &reply.jobs {
                say!("{}", job.id)?;
            }
            Ok(())
        }
        Format::Json | Format::Yaml => print.value(reply),
    }
}

/// The jobs of a file are admitted together or not at all, so that one which is refused speaks for all of them.
fn named(file: &Path, jobs: usize, failure: Failure) -> Failure {
    let what = if jobs == 1 { "its job".to_owned() } else { format!("none of its {jobs} jobs") };
    let not = if jobs == 1 { "was not submitted" } else { "was submitted" };
    Failure { message: format!("{}: {what} {not}: {}", file.display(), failure.message), ..failure }
}

fn summed(mut refused: Vec<Failure>, files: usize) -> Result<(), Failure> {
    if refused.len() > 1 {
        refused.iter().for_each(|failure| eprintln!("{failure}"));
        let kind = refused[0].kind;
        return Err(Failure::new(kind, format!("{} of {files} files were not submitted", refused.len())));
    }
    refused.pop().map_or(Ok(()), Err)
}

/// What a job would find: a line each for sizes, quota and start.
fn told(job: &JobValidation) -> String {
    let sizes = match (job.sizes.as_slice(), &job.reason) {
        ([only], _) => format!("could run at {only} GPUs"),
        ([least, .., most], _) => format!("could run at {} sizes, {least} to {most} GPUs", job.sizes.len()),
        ([], why) => why.clone().unwrap_or_else(|| "cannot run on the present nodes".into()),
    };
    let closest = job.closest.as_ref().map_or_else(String::new, |one| format!("  {one}\n"));
    let quota = job.quota.as_ref().map(|quota| {
        let (project, said) = (&quota.project, quota.verdict.replace('_', " "));
        let (needed, held, of) = (quota.needed_gpus, quota.gpus, quota.quota_gpus);
        format!("  quota of project {project}: {said} ({needed} GPUs needed, {held} of {of} held)\n")
    });
    let start = match (&job.start_left_out, job.starts_with_gpus, &job.predicted_start) {
        (Some(why), ..) => format!("  No word on when it would start: {why}\n"),
        (None, Some(gpus), _) => format!("  Starts at once with {gpus} GPUs\n"),
        (None, None, start) => start.as_ref().map(|start| format!("  {}\n", why::start(start))).unwrap_or_default(),
    };
    format!("job {}: {sizes}\n{closest}{}{start}", job.name, quota.unwrap_or_default())
}

pub fn validate(print: &Printer, validate: Validate) -> Result<(), Failure> {
    for file in &validate.files {
        let jobs = check(file, &read(file)?)?;
        match (print.structured(), jobs.as_slice()) {
            (true, [job]) => print.value(job)?,
            (true, jobs) => print.value(&jobs)?,
            (false, jobs) => {
                for job in jobs {
                    say!("{}: job {} is well formed", file.display(), job.name)?;
                }
            }
        }
    }
    Ok(())
}

fn check(file: &Path, text: &str) -> Result<Vec<headway_types::JobSpec>, Failure> {
    spec::read_submission_yaml(text).map_err(|error| Failure::new(Kind::Usage, format!("{}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn checked() -> JobValidation {
        JobValidation {
            name: "7b".into(),
            feasible: true,
            points: Vec::new(),
            reason: None,
            closest: None,
            sizes: vec![1, 2, 4],
            quota: None,
            starts_with_gpus: Some(4),
            predicted_start: None,
            start_left_out: None,
        }
    }

    #[test]
    fn what_is_refused_of_a_file_is_said_of_all_its_jobs() {
        let refused =
            || Failure::new(Kind::Usage, "jobs[1].resources.gpus: b cannot run on this cluster").hint("do this");
        let of_many = named(Path::new("night.yaml"), 3, refused());
        let why = "jobs[1].resources.gpus: b cannot run on this cluster";
        assert_eq!(of_many.message, format!("night.yaml: none of its 3 jobs was submitted: {why}"));
        assert_eq!(of_many.hint.as_deref(), Some("do this"));
        let of_one = named(Path::new("a.yaml"), 1, refused());
        assert_eq!(of_one.message, format!("a.yaml: its job was not submitted: {why}"));
        let sum = summed(vec![of_many, of_one], 5).unwrap_err();
        assert_eq!(sum.message, "2 of 5 files were not submitted");
        assert!(summed(Vec::new(), 5).is_ok());
    }

    #[test]
    fn a_dry_run_tells_sizes_and_start() {
        assert_eq!(told(&checked()), "job 7b: could run at 3 sizes, 1 to 4 GPUs\n  Starts at once with 4 GPUs\n");
    }

    #[test]
    fn a_start_that_nobody_looked_at_is_said_with_the_reason() {
        let late = "planning the round with it takes longer than 15 s; ask again";
        let of = JobValidation { starts_with_gpus: None, start_left_out: Some(late.into()), ..checked() };
        assert!(told(&of).ends_with(&format!("  No word on when it would start: {late}\n")), "{}", told(&of));
    }

    #[test]
    fn a_job_that_cannot_run_says_why() {
        let why = "Cannot run on this cluster: it needs 16 GPUs of one node class, and the largest has 8";
        let of = JobValidation { sizes: Vec::new(), reason: Some(why.into()), starts_with_gpus: None, ..checked() };
        assert_eq!(told(&of), format!("job 7b: {why}\n"));
    }
}
