//! `headway secret …`: values that jobs are given by name. None is ever an argument, which other users of the machine could read.

use std::io::{IsTerminal as _, Read as _};

use clap::{Args, Subcommand};
use headway_api::client::Client;
use headway_api::secret::Secret as Value;
use headway_api::v1::{Secret as SecretReply, SecretScope};
use tokio::sync::oneshot;

use super::shutdown_token;
use crate::confirm::Yes;
use crate::failure::{Failure, Kind};
use crate::output::{Printer, moment};
use crate::prompt;
use crate::table::Column;

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
    Delete {
        #[command(flatten)]
        chosen: Chosen,
        #[command(flatten)]
        yes: Yes,
    },
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
            // From here on no signal ends the process on the spot: the terminal is to be given back first.
            let stopped = shutdown_token(None)?;
            let set = async {
                let value = value_of(&name).await?;
                client.set_secret(&name, project.as_deref(), value).await.map_err(Failure::from)
            };
            let set = tokio::select! {
                set = set => set?,
                () = stopped.cancelled() => return Err(Failure::new(Kind::Interrupted, "interrupted")),
            };
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
            print.list(&client.secrets(project.as_deref()).await?, &COLUMNS, row, |one| one.name.clone())
        }
        Secret::Delete { chosen: Chosen { name, project }, yes } => {
            yes.or_ask(client, &format!("delete secret {name}?"))?;
            client.delete_secret(&name, project.as_deref()).await?;
            if !print.structured() {
                say!("secret {name} is deleted")?;
            }
            Ok(())
        }
    }
}

const COLUMNS: [Column; 5] = [
    Column::new("NAME").cut(16),
    Column::new("OF").cut(12),
    Column::new("SET").rank(2),
    Column::new("BY").rank(1).cut(5),
    Column::new("LAST USED").rank(3),
];

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
async fn value_of(name: &str) -> Result<Value, Failure> {
    let instead = "headway secret set NAME < FILE";
    let text = if std::io::stdin().is_terminal() {
        prompt::hidden(&format!("value of {name}"), instead).await?
    } else {
        piped().await?
    };
    let value = text.strip_suffix('\n').map_or(text.as_str(), |text| text.strip_suffix('\r').unwrap_or(text));
    if value.is_empty() || value.len() as u64 > LONGEST {
        let message = format!("a secret's value has 1 to {LONGEST} bytes");
        return Err(Failure::new(Kind::Usage, message).hint(instead));
    }
    Ok(Value::new(value))
}

/// Read by a thread that ends with the process: a runtime would wait for it.
async fn piped() -> Result<String, Failure> {
    let (read, text) = oneshot::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        // Whoever asked may have given up.
        let _ = read.send(std::io::stdin().take(LONGEST + 2).read_to_string(&mut text).map(|_| text));
    });
    Ok(text.await.map_err(|died| Failure::from(anyhow::Error::new(died)))??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_fit_the_terminal() {
        let moment = "2026-03-01T12:00:00Z";
        let row = ["HUGGING_FACE_TOKEN_OF_THE_TEAM", "project research-language-models", moment, "ada", moment];
        for width in [60, 80, 100, 120] {
            let row = row.map(str::to_owned).to_vec();
            assert!(crate::table::widest(&COLUMNS, row, width) <= width, "{width}");
        }
    }
}
