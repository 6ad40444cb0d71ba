//! `headway audit …`: who did what, and what was refused.

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use headway_api::client::{AuditQuery, Client};
use headway_api::v1::AuditLine;

use crate::failure::Failure;
use crate::output::{Printer, moment};
use crate::table::Column;

/// A page of the interface.
const PAGE: u32 = 1_000;

#[derive(Subcommand, Clone, Debug)]
pub enum Audit {
    /// List what was done and refused, newest first.
    List(List),
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
    /// Not before this moment (RFC 3339).
    #[arg(long, value_name = "TIME")]
    pub since: Option<DateTime<Utc>>,
    /// Most lines.
    #[arg(long, default_value_t = 100)]
    pub limit: u32,
}

pub async fn run(client: &Client, print: &Printer, audit: Audit) -> Result<(), Failure> {
    let Audit::List(List { actor, action, subject, result, since, limit }) = audit;
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
        eprintln!("headway: there are more; ask for them with --limit");
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
