//! `headway secret …`: values that jobs are given by name. None is ever an argument, which other users of the machine could read.

use std::io::{IsTerminal as _, Read as _};

use clap::{Args, Subcommand};
use headway_api::client::Client;
use headway_api::secret::Secret as Value;
use headway_api::v1::{Secret as SecretReply, SecretScope};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::failure::{Failure, Kind};
use crate::output::{Printer, moment};

/// What the server takes, in bytes; one more is read to tell that it is too much.
const LONGEST: u64 = 32 * 1024;

#[derive(Subcommand, Clone, Debug)]
pub enum Secret {
    /// Set a secret: its value is asked for, or read from standard input.
    Set(Chosen),
    /// List your secrets, or a project's, without their values.
    List {
        /// Those of a project.
        #[arg(long)]
        project: Option<String>,
    },
    /// Delete a secret. Jobs that name it and wait will fail when they are started.
    Delete(Chosen),
}

#[derive(Args, Clone, Debug)]
pub struct Chosen {
    /// What jobs call it: letters, digits, '-', '_' and '.'.
    pub name: String,
    /// Of a project, for jobs of its members [default: yours].
    #[arg(long)]
    pub project: Option<String>,
}

pub async fn run(client: &Client, print: &Printer, secret: Secret) -> Result<(), Failure> {
    match secret {
        Secret::Set(Chosen { name, project }) => {
            let value = tokio::task::spawn_blocking({
                let name = name.clone();
                move || value_of(&name)
            });
            let value = value.await.map_err(|died| Failure::from(anyhow::Error::new(died)))??;
            let set = client.set_secret(&name, project.as_deref(), value).await?;
            if print.structured() {
                return print.value(&set);
            }
            say!(
                "secret {} of {} is set; a job names it so: run: {{secrets: [{}]}}",
                set.name,
                holder(&set),
                set.name
            )?;
            Ok(())
        }
        Secret::List { project } => {
            print.list(&client.secrets(project.as_deref()).await?, HEADERS, row, |one| one.name.clone())
        }
        Secret::Delete(Chosen { name, project }) => {
            client.delete_secret(&name, project.as_deref()).await?;
            if !print.structured() {
                say!("secret {name} is deleted")?;
            }
            Ok(())
        }
    }
}

const HEADERS: &[&str] = &["NAME", "OF", "SET", "BY", "LAST USED"];

fn row(secret: &SecretReply) -> Vec<String> {
    vec![
        secret.name.clone(),
        holder(secret),
        moment(secret.set_at),
        secret.set_by.clone(),
        secret.used_at.map_or_else(|| "never".into(), moment),
    ]
}

fn holder(of: &SecretReply) -> String {
    match of.scope {
        SecretScope::User => of.owner.clone(),
        SecretScope::Project => format!("project {}", of.owner),
    }
}

/// Asked for without echo on a terminal; else standard input, without a newline at its end.
fn value_of(name: &str) -> Result<Value, Failure> {
    let stdin = std::io::stdin();
    let mut text = String::new();
    if stdin.is_terminal() {
        eprint!("value of {name} (not shown): ");
        let _quiet = Quiet::begin();
        stdin.read_line(&mut text)?;
        eprintln!();
    } else {
        stdin.take(LONGEST + 2).read_to_string(&mut text)?;
    }
    let value = text.strip_suffix('\n').map_or(text.as_str(), |text| text.strip_suffix('\r').unwrap_or(text));
    if value.is_empty() || value.len() as u64 > LONGEST {
        let message = format!("a secret's value has 1 to {LONGEST} bytes");
        return Err(Failure::new(Kind::Usage, message).hint("headway secret set NAME < FILE"));
    }
    Ok(Value::new(value))
}

/// A terminal that shows nothing of what is typed, until this is dropped.
struct Quiet(Option<rustix::termios::Termios>);

impl Quiet {
    fn begin() -> Self {
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin).ok();
        if let Some(mut quiet) = before.clone() {
            quiet.local_modes.remove(LocalModes::ECHO);
            // A terminal that will not be quiet is asked all the same: it says so by echoing.
            let _ = tcsetattr(&stdin, OptionalActions::Flush, &quiet);
        }
        Self(before)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, before);
        }
    }
}
