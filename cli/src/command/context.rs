//! `headway context …`: the clusters a user knows by name, and which of them commands speak to.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::context::{self, Connection, Contexts, read_token};
use crate::failure::{Failure, Kind};
use crate::output::Printer;
use crate::table::Column;

#[derive(Subcommand, Clone, Debug)]
pub enum Context {
    /// Clusters by name; the one in use is marked.
    List,
    /// Have commands speak to this cluster from now on.
    Use { name: String },
    /// Keep the address of a cluster and the file of a token under a name, once the cluster has accepted the token.
    Add(Add),
}

#[derive(Args, Clone, Debug)]
pub struct Add {
    /// Name of the context: letters, digits, '-', '_' and '.'.
    pub name: String,
    /// PEM file of the authority that signs the scheduler's certificate [default: the authorities of the system].
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Replace a context of this name.
    #[arg(long)]
    pub replace: bool,
}

#[derive(Serialize)]
struct Row {
    name: String,
    current: bool,
    url: String,
    token_file: String,
}

const COLUMNS: [Column; 4] =
    [Column::new(""), Column::new("NAME"), Column::new("URL").cut_late(20, 60), Column::new("TOKEN").rank(1).cut(12)];

pub async fn run(connection: &Connection, print: &Printer, context: Context) -> Result<(), Failure> {
    let mut known = Contexts::load()?;
    match context {
        Context::List => {
            let row = |(name, one): (&String, &crate::context::Context)| Row {
                name: name.clone(),
                current: known.current.as_ref() == Some(name),
                url: one.url.clone(),
                token_file: one.token_file.display().to_string(),
            };
            let rows: Vec<Row> = known.contexts.iter().map(row).collect();
            let mark = |row: &Row| if row.current { "*".to_owned() } else { String::new() };
            let cells = |row: &Row| vec![mark(row), row.name.clone(), row.url.clone(), row.token_file.clone()];
            print.list(&rows, &COLUMNS, cells, |row| row.name.clone())
        }
        Context::Use { name } => {
            known.chosen(Some(&name))?;
            known.current = Some(name.clone());
            known.save()?;
            say!("commands speak to {name} now")?;
            Ok(())
        }
        Context::Add(add) => {
            let (name, context) = checked_context(connection, &add, &known)?;
            let token = context.client(&read_token(&context.token_file)?)?.whoami().await?;
            let user = token.user.unwrap_or_else(|| "agents".into());
            known.contexts.insert(name.clone(), context);
            known.current = Some(name.clone());
            known.save()?;
            say!("{user} with the scope {}; commands speak to {name} now", token.scope)?;
            Ok(())
        }
    }
}

/// The context that is asked for, with paths that hold in every directory.
fn checked_context(
    connection: &Connection,
    add: &Add,
    known: &Contexts,
) -> Result<(String, context::Context), Failure> {
    let usage = |message: String| Failure::new(Kind::Usage, message);
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
    if add.name.is_empty() || !add.name.chars().all(is_name) {
        return Err(usage(format!("{} is no name of a context", add.name)).hint("use letters, digits, '-', '_', '.'"));
    }
    if known.contexts.contains_key(&add.name) && !add.replace {
        let message = format!("there is a context {} already", add.name);
        return Err(Failure::new(Kind::Conflict, message).hint("choose another name, or give --replace"));
    }
    let url = connection
        .url
        .clone()
        .ok_or_else(|| usage("the address of the cluster is missing".into()).hint("give --url https://HOST:7600"))?;
    let token_file = connection
        .token_file
        .as_deref()
        .ok_or_else(|| usage("the file of the token is missing".into()).hint("give --token-file FILE"))?;
    let (token_file, authority) = (absolute(token_file)?, add.ca.as_deref().map(absolute).transpose()?);
    Ok((add.name.clone(), context::Context { url, token_file, authority }))
}

fn absolute(file: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(file).map_err(|error| Failure::new(Kind::Usage, format!("{}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn connection(url: Option<&str>, token_file: Option<&str>) -> Connection {
        Connection {
            url: url.map(str::to_owned),
            context: None,
            token_file: token_file.map(Into::into),
            dry_run: false,
        }
    }

    fn add(name: &str, replace: bool) -> Add {
        Add { name: name.into(), ca: Some("ca.pem".into()), replace }
    }

    #[test]
    fn a_context_holds_paths_that_mean_the_same_in_every_directory() {
        let whole = connection(Some("https://headway.example:7600"), Some("tokens/admin.token"));
        let (name, context) = checked_context(&whole, &add("prod", false), &Contexts::default()).unwrap();
        let here = std::env::current_dir().unwrap();
        assert_eq!((name.as_str(), context.token_file), ("prod", here.join("tokens/admin.token")));
        assert_eq!(context.authority, Some(here.join("ca.pem")));
    }

    #[test]
    fn a_context_is_refused_without_address_or_token_and_replaces_none_by_chance() {
        let whole = connection(Some("https://headway.example:7600"), Some("admin.token"));
        let mut known = Contexts::default();
        let refused = |connection: &Connection, add: &Add, known: &Contexts| {
            let failure = checked_context(connection, add, known).unwrap_err();
            (failure.kind, failure.hint.unwrap_or_default())
        };
        let (kind, hint) = refused(&connection(None, Some("admin.token")), &add("prod", false), &known);
        assert!(kind == Kind::Usage && hint.contains("--url"), "{hint}");
        let (kind, hint) = refused(&connection(Some("https://h"), None), &add("prod", false), &known);
        assert!(kind == Kind::Usage && hint.contains("--token-file"), "{hint}");
        assert_eq!(refused(&whole, &add("../prod", false), &known).0, Kind::Usage);
        let (name, context) = checked_context(&whole, &add("prod", false), &known).unwrap();
        known.contexts.insert(name, context);
        let (kind, hint) = refused(&whole, &add("prod", false), &known);
        assert!(kind == Kind::Conflict && hint.contains("--replace"), "{hint}");
        assert!(checked_context(&whole, &add("prod", true), &known).is_ok());
    }

    #[test]
    fn contexts_fit_the_terminal() {
        let urls = (1..=3).map(|number| format!("https://headway-{number}.cluster.example:7600")).collect::<Vec<_>>();
        let row = vec![
            "*".to_owned(),
            "production".into(),
            urls.join(","),
            "/home/ada/.config/headway/tokens/production".into(),
        ];
        for width in [60, 80, 120, 160] {
            assert!(crate::table::widest(&COLUMNS, row.clone(), width) <= width, "{width}");
        }
    }
}
