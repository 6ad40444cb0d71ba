//! `headway audit …`: who did what, and what was refused; and whether all of that is as it was sealed.

use std::io::Write as _;
use std::path::PathBuf;

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use futures::StreamExt as _;
use headway_api::client::{AuditQuery, Client, VerifyQuery};
use headway_api::v1::{AuditBroken, AuditLine};
use headway_scheduler::{Anchor, verify_file};
use serde::Serialize;

use crate::context::Connection;
use crate::failure::{Failure, Kind};
use crate::moment::parse_moment;
use crate::output::{Output, Printer, moment};
use crate::table::Column;

/// A page of the interface.
const PAGE: u32 = 1_000;

#[derive(Subcommand, Clone, Debug)]
pub enum Audit {
    /// List what was done and refused, newest first.
    List(List),
    /// Where the chain ends: an id and a hash to keep elsewhere, by which it can be told later whether the end was cut off.
    Head,
    /// Verify that no row was changed, removed or put elsewhere since it was sealed, on the server or in an exported file; exit code 1 where one was.
    Verify(Verify),
    /// Write all sealed rows in their order, with -o jsonl (as without) or csv.
    Export(Export),
}

#[derive(Args, Clone, Debug)]
pub struct Verify {
    /// File that `headway audit export` wrote; no server is asked.
    file: Option<PathBuf>,
    /// Only rows from this moment on; what precedes them is taken on trust.
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true, conflicts_with = "file")]
    since: Option<DateTime<Utc>>,
    /// What `headway audit head` printed at some time: the chain must hold it.
    #[arg(long, value_name = "ID:HASH")]
    head: Option<Anchor>,
}

#[derive(Args, Clone, Debug)]
pub struct Export {
    /// Only rows from this moment on.
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    since: Option<DateTime<Utc>>,
    /// Only rows of before this moment.
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    until: Option<DateTime<Utc>>,
}

/// What was verified, for programs.
#[derive(Default, Serialize)]
struct Verified {
    rows: u64,
    /// Of a file: it begins with the first row there has been.
    from_the_first: Option<bool>,
    last: Option<String>,
    broken: Option<AuditBroken>,
}

#[derive(Args, Clone, Debug)]
pub struct List {
    /// Who.
    #[arg(long)]
    pub actor: Option<String>,
    /// The id of an operation of the interface ("cancel_job").
    #[arg(long)]
    pub action: Option<String>,
    /// What: job:ID, project:NAME, node:ID, user:NAME, token:ID or policy.
    #[arg(long)]
    pub subject: Option<String>,
    /// done or refused.
    #[arg(long)]
    pub result: Option<String>,
    /// Not before this moment.
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    pub since: Option<DateTime<Utc>>,
    /// Most lines.
    #[arg(long, default_value_t = 100)]
    pub limit: u32,
}

/// `output`: as it was asked for.
pub async fn run(
    connection: &Connection,
    print: &Printer,
    output: Option<Output>,
    audit: Audit,
) -> Result<(), Failure> {
    match audit {
        Audit::List(one) => list(&connection.client()?, print, one).await,
        Audit::Head => head(&connection.client()?, print).await,
        Audit::Verify(Verify { file: Some(file), head, .. }) => {
            let found = verify_file(&file, head).map_err(|error| Failure::from(anyhow::Error::new(error)))?;
            let broken = found.broken.map(|broken| AuditBroken {
                id: broken.id,
                what: <&str>::from(broken.fault).into(),
                detail: broken.detail,
            });
            let last = found.last.map(|last| last.to_string());
            report(print, &Verified { rows: found.rows, from_the_first: Some(found.from_the_first), last, broken })
        }
        Audit::Verify(Verify { since, head, .. }) => verify(&connection.client()?, print, since, head).await,
        Audit::Export(Export { since, until }) => {
            let form = match output {
                None | Some(Output::Jsonl) => "jsonl",
                Some(Output::Csv) => "csv",
                Some(_) => return Err(Failure::new(Kind::Usage, "the audit is exported with -o jsonl or csv")),
            };
            export(&connection.client()?, since, until, form).await
        }
    }
}

async fn head(client: &Client, print: &Printer) -> Result<(), Failure> {
    let head = client.audit_head().await?;
    if print.structured() {
        return print.value(&head);
    }
    match &head.anchor {
        Some(anchor) => say!("{anchor}")?,
        None => say!("Nothing is sealed yet")?,
    }
    aside!("headway: {} rows are sealed, {} wait (for {:.1} s)", head.sealed, head.unsealed, head.lag_seconds);
    if head.kept_by != "role" {
        aside!("headway: the server's role owns the audit and could change it (docs/people.md, \"Append-only\")");
    }
    Ok(())
}

async fn verify(
    client: &Client,
    print: &Printer,
    since: Option<DateTime<Utc>>,
    head: Option<Anchor>,
) -> Result<(), Failure> {
    let mut query = VerifyQuery { since, head: head.map(|head| head.to_string()), cursor: None };
    let mut found = Verified::default();
    loop {
        let page = client.verify_audit(&query).await?;
        found.rows += page.lines;
        found.last = page.last.or(found.last);
        found.broken = page.broken;
        if found.broken.is_some() || page.next_cursor.is_none() {
            return report(print, &found);
        }
        query = VerifyQuery { cursor: page.next_cursor, ..VerifyQuery::default() };
    }
}

fn report(print: &Printer, found: &Verified) -> Result<(), Failure> {
    if print.structured() {
        print.value(found)?;
    } else if found.broken.is_none() {
        let last = found.last.as_ref().map(|last| format!("; the last is {last}"));
        say!("{} rows are as they were sealed{}", found.rows, last.unwrap_or_default())?;
        if found.from_the_first == Some(false) {
            say!("The file does not begin with the first row there has been: what was before is taken on trust")?;
        }
    }
    match &found.broken {
        None => Ok(()),
        Some(broken) => {
            let what = broken.what.replace('_', " ");
            let told = format!("row {} is {what}: {}", broken.id, broken.detail);
            Err(Failure::new(Kind::Failed, told).hint(format!("the {} rows before it are sound", found.rows)))
        }
    }
}

/// As it comes: neither this side nor the other holds all of it.
async fn export(
    client: &Client,
    since: Option<DateTime<Utc>>,
    until: Option<DateTime<Utc>>,
    form: &'static str,
) -> Result<(), Failure> {
    let mut pieces = std::pin::pin!(client.export_audit(since, until, form).await?);
    let mut out = std::io::stdout().lock();
    while let Some(piece) = pieces.next().await {
        let broke = |error| Failure::from(error).hint("what was written is not whole: begin the export anew");
        out.write_all(&piece.map_err(broke)?)?;
    }
    Ok(out.flush()?)
}

async fn list(client: &Client, print: &Printer, list: List) -> Result<(), Failure> {
    let List { actor, action, subject, result, since, limit } = list;
    let mut query = AuditQuery { actor, action, subject, result, since, limit: None, cursor: None };
    let mut lines = Vec::new();
    loop {
        let left = limit.saturating_sub(u32::try_from(lines.len()).unwrap_or(u32::MAX));
        query.limit = Some(left.clamp(1, PAGE));
        let page = client.audit(&query).await?;
        lines.extend(page.items);
        query.cursor = page.next_cursor;
        if query.cursor.is_none() || left <= PAGE {
            break;
        }
    }
    lines.truncate(limit as usize);
    print.list(&lines, &COLUMNS, row, |line| line.id.to_string())?;
    if query.cursor.is_some() && !print.structured() {
        aside!("headway: there are more; ask for them with --limit");
    }
    Ok(())
}

const COLUMNS: [Column; 7] = [
    Column::new("AT"),
    Column::new("WHO").cut(6),
    Column::new("DID"),
    Column::new("TO").cut(12),
    Column::new("RESULT").rank(6).cut(8),
    Column::new("FROM").rank(1),
    Column::new("WHAT").rank(7).cut_late(12, 40),
];

fn row(line: &AuditLine) -> Vec<String> {
    let to = match line.subjects.as_slice() {
        [] => "-".to_owned(),
        [only] => only.clone(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    };
    let result = line.code.as_ref().map_or_else(|| line.result.clone(), |code| format!("{}: {code}", line.result));
    let what = line.reason.iter().cloned().chain(changes(line)).collect::<Vec<_>>().join("; ");
    vec![
        moment(line.at),
        line.actor.trim_start_matches("user:").to_owned(),
        line.action.clone(),
        to,
        result,
        line.address.clone().unwrap_or_else(|| "-".into()),
        what,
    ]
}

/// "spec.priority 50 -> 70" of each path that was there before and after.
fn changes(line: &AuditLine) -> Vec<String> {
    let (Some(before), Some(after)) =
        (line.before.as_ref().and_then(|all| all.as_object()), line.after.as_ref().and_then(|all| all.as_object()))
    else {
        return Vec::new();
    };
    let told = |value: Option<&serde_json::Value>| value.map_or_else(|| "-".to_owned(), ToString::to_string);
    let paths: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    // The line itself says when.
    let moment = |path: &&String| path.ends_with(".at") || path.ends_with(".since");
    paths
        .into_iter()
        .filter(|path| !moment(path))
        .map(|path| format!("{path} {} -> {}", told(before.get(path)), told(after.get(path))))
        .collect()
}
