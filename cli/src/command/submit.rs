//! `headway submit` and `headway validate`.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use headway_api::client::Client;
use headway_api::v1::{Job, JobValidation, Submitted};
use headway_goodput::summary::summarize_model;
use headway_types::spec::Work;
use headway_types::{JobSpec, JobStateKind};
use tokio::time::Instant;

use super::{short, why};
use crate::failure::{Failure, Kind};
use crate::output::{Format, Printer, gpus};
use crate::submission::{self, Flags, Submission};

/// How long a job that was just submitted is watched for where it will run; a round takes less unless the scheduler is busy.
const OUTLOOK: Duration = Duration::from_secs(2);

#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "headway submit [OPTIONS] FILE...\n       headway submit --gpus N [OPTIONS] -- COMMAND...\n       \
    headway submit [OPTIONS] --from-sbatch SCRIPT [-- ARGUMENT...]"
)]
pub struct Submit {
    /// Specification files: YAML, JSON or TOML (`.toml`), `-` for standard input. The jobs of one file (several documents, or a list
    /// below `jobs`) are admitted together.
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// A script for Slurm: its #SBATCH options are mapped, or named with what to do instead.
    #[arg(long, value_name = "SCRIPT", conflicts_with = "files")]
    pub from_sbatch: Option<PathBuf>,
    /// Options of the script that may be lost, such as `array`.
    #[arg(long, value_name = "OPTION", requires = "from_sbatch", value_delimiter = ',')]
    pub leave_out: Vec<String>,
    #[command(flatten)]
    pub flags: Flags,
    /// Makes a retry of this command safe: the same key submits once.
    #[arg(long)]
    pub idempotency_key: Option<String>,
    /// Submit nothing: say at which sizes the jobs could run on the present nodes, what quotas say, and when they would start.
    #[arg(long)]
    pub dry_run: bool,
    /// Also submit jobs that the cluster as it is can never run: they wait for nodes to come.
    #[arg(long)]
    pub wait_for_nodes: bool,
    /// The command to run, in this directory; or arguments of the script for Slurm.
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "files")]
    pub command: Vec<String>,
}

#[derive(Args, Clone, Debug)]
pub struct Validate {
    /// Specification files (YAML, JSON, or TOML by its ending), `-` for standard input.
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
}

pub async fn run(client: &Client, print: &Printer, submit: Submit) -> Result<(), Failure> {
    // All are read and checked before the first is sent: a typing error costs no round trip, names its file, and submits nothing.
    let mut checked = Vec::new();
    for mut one in submissions(&submit)? {
        submit.flags.lay_over(&mut one)?;
        let jobs = one.check()?;
        one.notes.extend(handed_as_files(&jobs));
        one.notes.extend(missing_directories(&jobs));
        one.notes.iter().for_each(|note| aside!("headway: {}: {note}", one.source));
        let models: Vec<Option<String>> = jobs.iter().map(describe_model).collect();
        checked.push((one, jobs.len(), models));
    }
    if submit.dry_run {
        for (one, jobs, models) in &checked {
            let told_jobs = client.validate(&one.body).await.map_err(|error| named(one, *jobs, error.into()))?.jobs;
            let models = models.iter().map(Option::as_deref).chain(std::iter::repeat(None));
            match print.format {
                Format::Json | Format::Yaml => print.value(&told_jobs)?,
                Format::Table | Format::Name => {
                    told_jobs.iter().zip(models).try_for_each(|(job, model)| put!("{}", told(job, model)))?;
                }
            }
        }
        return Ok(());
    }
    let mut refused = Vec::new();
    for (index, (one, jobs, _)) in checked.iter().enumerate() {
        let key = match &submit.idempotency_key {
            Some(key) if checked.len() == 1 => key.clone(),
            Some(key) => format!("{key}-{index}"),
            None => uuid::Uuid::now_v7().to_string(),
        };
        match client.submit_json_for(&one.body, Some(&key), submit.wait_for_nodes).await {
            Ok(reply) => submitted(client, print, one, &reply).await?,
            Err(error) => {
                let failure = named(one, *jobs, error.into());
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

/// What is to be submitted, from wherever it comes.
fn submissions(submit: &Submit) -> Result<Vec<Submission>, Failure> {
    let here = || {
        std::env::current_dir()
            .map_err(|error| Failure::new(Kind::Usage, format!("finding the directory this was called in: {error}")))
    };
    if let Some(script) = &submit.from_sbatch {
        return Ok(vec![submission::read_script(script, &submit.command, &here()?, &submit.leave_out)?]);
    }
    if !submit.command.is_empty() {
        if submit.flags.gpus.is_none() {
            return Err(Failure::new(Kind::Usage, "how many GPUs is the command to have?").hint("give --gpus 1"));
        }
        return Ok(vec![submission::bare(&submit.command, &here()?)]);
    }
    if submit.files.is_empty() {
        return Err(Failure::new(Kind::Usage, "nothing to submit")
            .hint("name a specification, or give a command: headway submit --gpus 1 -- ./train.sh"));
    }
    submit.files.iter().map(|file| submission::read(file)).collect()
}

async fn submitted(client: &Client, print: &Printer, from: &Submission, reply: &Submitted) -> Result<(), Failure> {
    let told = |detail: &str| eprintln!("headway: {}: {detail}", from.source);
    match reply.notes.as_slice() {
        [] => {}
        [only] => told(&only.detail),
        [first, others @ ..] => told(&format!("{}; likewise of {} more", first.detail, others.len())),
    }
    match print.format {
        Format::Table => {
            let mut told = BTreeSet::new();
            for job in &reply.jobs {
                match &job.array {
                    None => say!("job {} submitted ({})", job.name, short(&job.id.to_string()))?,
                    Some(of) if told.insert(of.array_id) => {
                        let (name, count) = (&of.name, of.count);
                        say!("array {name} submitted: {count} jobs ({})", short(&of.array_id.to_string()))?;
                        say!("next: headway array get {name}, headway logs -f '{}'", job.name)?;
                    }
                    Some(_) => {}
                }
            }
            match (client.is_dry_run(), reply.jobs.as_slice()) {
                (false, [only]) if only.array.is_none() => follow_up(client, from, only).await,
                _ => Ok(()),
            }
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

/// Where scripts find secrets that are files: those for earlier releases read variables.
fn handed_as_files(jobs: &[JobSpec]) -> Option<String> {
    let files: BTreeSet<&str> = jobs.iter().flat_map(|job| &job.role().run.secret_files).map(String::as_str).collect();
    let (first, names) = (files.first()?, Vec::from_iter(files.iter().copied()).join(", "));
    Some(format!(
        "secrets are handed over as files ({names}): the path is in ${first}_FILE; `{{name: SECRET, as: env}}` sets the variable instead"
    ))
}

/// Working directories that this machine does not have. The nodes may see another file system, so they are only named.
fn missing_directories(jobs: &[JobSpec]) -> Vec<String> {
    let named = jobs.iter().filter_map(|job| job.role().run.workdir.as_deref());
    let missing: BTreeSet<&str> =
        named.filter(|dir| dir.starts_with('/') && !dir.contains('{') && !Path::new(dir).is_dir()).collect();
    let note =
        |dir: &str| format!("there is no directory {dir} here (run.workdir); the job fails unless its node has one");
    missing.into_iter().map(note).collect()
}

/// Where a job will run, as far as that is known at once, and what to type next.
async fn follow_up(client: &Client, from: &Submission, job: &Job) -> Result<(), Failure> {
    // Nobody looks at a pipe, or at what --quiet leaves out: scripts do not wait for a round.
    let is_watched = std::io::stdout().is_terminal();
    let now = if is_watched { wait_for_round(client, job).await } else { job.clone() };
    // A project of which nobody knows may be a typing error: its jobs count for nobody else's.
    if job.project != "default"
        && let Ok(projects) = client.projects().await
        && !projects.iter().any(|project| project.name == job.project)
    {
        let known: Vec<&str> = projects.iter().map(|project| project.name.as_str()).collect();
        let known =
            if known.is_empty() { "none has".to_owned() } else { format!("those that have: {}", known.join(", ")) };
        aside!("headway: the project {} has no rules, so no quota binds it ({known})", job.project);
    }
    if let Some(runs) = from.command_line() {
        say!("  {runs}")?;
    }
    if is_watched {
        tell_outlook(client, &now).await?;
    }
    say!("next: headway logs -f {}", job.name)?;
    Ok(())
}

/// The job after the round that decides about it, or after as long as a person waits for one.
async fn wait_for_round(client: &Client, job: &Job) -> Job {
    let deadline = Instant::now() + OUTLOOK;
    let mut now = job.clone();
    while matches!(now.state, JobStateKind::Queued) && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(100)).await;
        // The job is submitted, whatever comes of this question.
        let Ok(detail) = client.job(&job.id.to_string()).await else { break };
        now = detail.job;
    }
    now
}

/// Where a job runs, or why it waits.
async fn tell_outlook(client: &Client, now: &Job) -> Result<(), Failure> {
    match now.state {
        JobStateKind::Queued => {
            if let Ok(explain) = client.explain(&now.id.to_string()).await {
                say!("  {}", explain.headline)?;
                if let Some(start) = &explain.predicted_start {
                    say!("  {}", why::start(start))?;
                }
            }
        }
        JobStateKind::Starting | JobStateKind::Running if !now.nodes.is_empty() => {
            say!("  on {} of {}", gpus(now.gpus), now.nodes.join(", "))?;
        }
        state => say!("  {} already", state_in_words(state))?,
    }
    Ok(())
}

/// "it has failed".
fn state_in_words(state: JobStateKind) -> String {
    match state {
        JobStateKind::Succeeded | JobStateKind::Failed => format!("it has {state}"),
        JobStateKind::Cancelled => "it was cancelled".to_owned(),
        _ => format!("it is {state}"),
    }
}

/// The jobs of a file are admitted together or not at all, so that one which is refused speaks for all of them.
fn named(from: &Submission, jobs: usize, failure: Failure) -> Failure {
    let what = if jobs == 1 { "its job".to_owned() } else { format!("none of its {jobs} jobs") };
    let not = if jobs == 1 { "was not submitted" } else { "was submitted" };
    // A refusal begins with the field it is about, if it is about one.
    let field = failure.message.split(": ").next().unwrap_or_default();
    Failure { message: format!("{}: {what} {not}: {}", from.at(field), failure.message), ..failure }
}

fn summed(mut refused: Vec<Failure>, files: usize) -> Result<(), Failure> {
    if refused.len() > 1 {
        refused.iter().for_each(|failure| aside!("{failure}"));
        let kind = refused[0].kind;
        return Err(Failure::new(kind, format!("{} of {files} files were not submitted", refused.len())));
    }
    refused.pop().map_or(Ok(()), Err)
}

/// Describes the model that a job trains, with the length of its sequences.
fn describe_model(job: &JobSpec) -> Option<String> {
    match &job.training()?.work {
        Work::Model(shape) => Some(summarize_model(shape)),
        Work::Curve { .. } => None,
    }
}

/// What a job would find: a line each for its model, sizes, quota and start.
fn told(job: &JobValidation, model: Option<&str>) -> String {
    let sizes = match (job.sizes.as_slice(), &job.reason) {
        ([only], _) => format!("could run at {}", gpus(*only)),
        ([least, .., most], _) => format!("could run at {} sizes, {least} to {most} GPUs", job.sizes.len()),
        ([], why) => why.clone().unwrap_or_else(|| "cannot run on the present nodes".into()),
    };
    let closest = job.closest.as_ref().map_or_else(String::new, |one| format!("  {one}\n"));
    let quota = job.quota.as_ref().map(|quota| {
        let (project, said) = (&quota.project, quota.verdict.replace('_', " "));
        let (needed, held, of) = (gpus(quota.needed_gpus), quota.gpus, quota.quota_gpus);
        format!("  quota of project {project}: {said} ({needed} needed, {held} of {of} held)\n")
    });
    let start = match (&job.start_left_out, job.starts_with_gpus, &job.predicted_start) {
        (Some(why), ..) => format!("  No word on when it would start: {why}\n"),
        (None, Some(count), _) => format!("  Starts at once with {}\n", gpus(count)),
        (None, None, start) => start.as_ref().map(|start| format!("  {}\n", why::start(start))).unwrap_or_default(),
    };
    let model = model.map_or_else(String::new, |model| format!("  Model: {model}\n"));
    format!("job {}: {sizes}\n{closest}{model}{}{start}", job.name, quota.unwrap_or_default())
}

pub fn validate(print: &Printer, validate: Validate) -> Result<(), Failure> {
    for file in &validate.files {
        let of = submission::read(file)?;
        let jobs = of.check()?;
        of.notes.iter().for_each(|note| aside!("headway: {}: {note}", of.source));
        match (print.structured(), jobs.as_slice()) {
            (true, [job]) => print.value(job)?,
            (true, jobs) => print.value(&jobs)?,
            (false, jobs) => {
                for job in jobs {
                    say!("{}: job {} is well formed", of.source, job.name)?;
                }
            }
        }
    }
    Ok(())
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
            waits_for: Vec::new(),
            starts_with_gpus: Some(4),
            predicted_start: None,
            start_left_out: None,
        }
    }

    #[test]
    fn what_is_refused_of_a_file_is_said_of_all_its_jobs() {
        let refused =
            || Failure::new(Kind::Usage, "jobs[1].resources.gpus: b cannot run on this cluster").hint("do this");
        let dir = tempfile::tempdir().unwrap();
        let from = |name: &str, text: &str| {
            std::fs::write(dir.path().join(name), text).unwrap();
            let mut read = submission::read(&dir.path().join(name)).unwrap();
            read.source = name.into();
            read
        };
        let many = from("night.yaml", "jobs:\n- name: a\n- name: b\n  resources: {gpus: 99}\n");
        let of_many = named(&many, 3, refused());
        let why = "jobs[1].resources.gpus: b cannot run on this cluster";
        assert_eq!(of_many.message, format!("night.yaml:4: none of its 3 jobs was submitted: {why}"));
        assert_eq!(of_many.hint.as_deref(), Some("do this"));
        let of_one = named(&from("a.yaml", "name: a\n"), 1, refused());
        assert_eq!(of_one.message, format!("a.yaml: its job was not submitted: {why}"));
        let sum = summed(vec![of_many, of_one], 5).unwrap_err();
        assert_eq!(sum.message, "2 of 5 files were not submitted");
        assert!(summed(Vec::new(), 5).is_ok());
    }

    #[test]
    fn a_working_directory_that_is_not_here_is_named() {
        let here = tempfile::tempdir().unwrap();
        let job = |workdir: &Path| {
            let flags = Flags { gpus: Some("1".parse().unwrap()), ..Flags::default() };
            let mut bare = submission::bare(&["true".to_owned()], workdir);
            flags.lay_over(&mut bare).unwrap();
            bare.check().unwrap()
        };
        assert!(missing_directories(&job(here.path())).is_empty());
        let missing = missing_directories(&job(&here.path().join("nope")));
        assert!(missing.len() == 1 && missing[0].contains("/nope here (run.workdir)"), "{missing:?}");
    }

    #[test]
    fn the_end_of_a_job_is_told_in_words() {
        assert_eq!(state_in_words(JobStateKind::Failed), "it has failed");
        assert_eq!(state_in_words(JobStateKind::Cancelled), "it was cancelled");
        assert_eq!(state_in_words(JobStateKind::Held), "it is held");
    }

    #[test]
    fn a_dry_run_tells_sizes_and_start() {
        assert_eq!(told(&checked(), None), "job 7b: could run at 3 sizes, 1 to 4 GPUs\n  Starts at once with 4 GPUs\n");
    }

    #[test]
    fn a_dry_run_repeats_the_model_with_the_length_of_its_sequences() {
        let text = "{version: 1, name: a, resources: {gpus: 8}, run: {command: [x]}, training: {model: llama-3-8b, \
                    reference_batch: 64 sequences}}";
        let job = headway_api::spec::read_yaml(text).unwrap();
        let model = describe_model(&job);
        let line = "  Model: 8.0B parameters; 32 layers; sequence length 8192\n";
        assert!(told(&checked(), model.as_deref()).contains(line), "{model:?}");
    }

    #[test]
    fn a_start_that_nobody_looked_at_is_said_with_the_reason() {
        let late = "planning the round with it takes longer than 15 s; ask again";
        let of = JobValidation { starts_with_gpus: None, start_left_out: Some(late.into()), ..checked() };
        assert!(
            told(&of, None).ends_with(&format!("  No word on when it would start: {late}\n")),
            "{}",
            told(&of, None)
        );
    }

    #[test]
    fn a_job_that_cannot_run_says_why() {
        let why = "Cannot run on this cluster: it needs 16 GPUs of one node class, and the largest has 8";
        let of = JobValidation { sizes: Vec::new(), reason: Some(why.into()), starts_with_gpus: None, ..checked() };
        assert_eq!(told(&of, None), format!("job 7b: {why}\n"));
    }
}
