//! `headway submit` and `headway validate`.

use std::path::{Path, PathBuf};

use clap::Args;
use headway_api::client::Client;
use headway_api::spec;

use super::{read, short};
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
}

#[derive(Args, Clone, Debug)]
pub struct Validate {
    /// Specification files (YAML), `-` for standard input.
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
}

pub async fn run(client: &Client, print: &Printer, submit: Submit) -> Result<(), Failure> {
    for (index, file) in submit.files.iter().enumerate() {
        let text = read(file)?;
        // Checked here first: a typing error costs no round trip and names its file.
        check(file, &text)?;
        let key = match &submit.idempotency_key {
            Some(key) if submit.files.len() == 1 => key.clone(),
            Some(key) => format!("{key}-{index}"),
            None => uuid::Uuid::now_v7().to_string(),
        };
        let reply = client.submit_yaml(&text, Some(&key)).await?;
        match print.format {
            Format::Table => {
                for job in &reply.jobs {
                    say!("job {} submitted ({})", job.name, short(&job.id.to_string()))?;
                }
            }
            Format::Name => {
                for job in &reply.jobs {
                    say!("{}", job.id)?;
                }
            }
            Format::Json | Format::Yaml => print.value(&reply)?,
        }
    }
    Ok(())
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
