//! `headway events`: the event log, newest first, as all lists are; `headway events chain`: what led to one of them and what came of it.

use chrono::{DateTime, TimeDelta, Utc};
use clap::{Args, Subcommand};
use headway_api::client::{Client, EventQuery};
use headway_api::v1::EventRecord;

use super::{resolve_job, short};
use crate::failure::Failure;
use crate::moment::parse_moment;
use crate::output::{Printer, moment};
use crate::table::Column;

/// A page of the interface.
const PAGE: u32 = 1_000;

#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Events {
    #[command(subcommand)]
    pub of: Option<OfOne>,
    /// Only of this job: id, unique end or beginning of one, or name.
    #[arg(long)]
    pub job: Option<String>,
    #[command(flatten)]
    pub wanted: Wanted,
}

#[derive(Subcommand, Clone, Debug)]
pub enum OfOne {
    /// What led to an event and what came of it, oldest first.
    Chain {
        /// Its number, the first column of the list.
        event: u64,
    },
}

/// Which events of a job, or of all.
#[derive(Args, Clone, Debug)]
pub struct Wanted {
    /// Only these kinds, comma-separated ("job.granted,job.moved").
    #[arg(long)]
    pub verb: Option<String>,
    /// Only what this user did, or "scheduler".
    #[arg(long)]
    pub actor: Option<String>,
    /// Only of this node, by name or id.
    #[arg(long)]
    pub node: Option<String>,
    /// Only of this plan.
    #[arg(long)]
    pub plan: Option<String>,
    /// Only of jobs of this project.
    #[arg(long)]
    pub project: Option<String>,
    /// Not before this moment ("2026-03-01 14:02"), or so long ago ("2h").
    #[arg(long, value_name = "TIME", value_parser = past, allow_hyphen_values = true)]
    pub since: Option<Past>,
    /// Before this moment, or so long ago ("30m").
    #[arg(long, value_name = "TIME", value_parser = past, allow_hyphen_values = true)]
    pub until: Option<Past>,
    /// At most this many.
    #[arg(long, default_value_t = 50)]
    pub limit: u32,
}

pub async fn run(client: &Client, print: &Printer, events: Events) -> Result<(), Failure> {
    match (events.of, events.job) {
        (Some(OfOne::Chain { event }), _) => chain(client, print, event).await,
        (None, Some(job)) => list(client, print, Some(resolve_job(client, &job).await?), events.wanted).await,
        (None, None) => list(client, print, None, events.wanted).await,
    }
}

async fn list(client: &Client, print: &Printer, job: Option<String>, wanted: Wanted) -> Result<(), Failure> {
    let Wanted { verb, actor, node, plan, project, since, until, limit } = wanted;
    let (since, until) = (on_its_clock(client, since).await?, on_its_clock(client, until).await?);
    let mut query = EventQuery { job, node, plan, project, verb, actor, since, until, ..EventQuery::default() };
    let mut found = Vec::new();
    loop {
        let left = limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
        query.limit = Some(left.clamp(1, PAGE));
        let page = client.search_events(&query).await?;
        found.extend(page.items);
        query.cursor = page.next_cursor;
        if query.cursor.is_none() || found.len() >= limit as usize {
            break;
        }
    }
    found.truncate(limit as usize);
    print.list(&found, &COLUMNS, row, |event| event.seq.to_string())?;
    if query.cursor.is_some() && !print.structured() {
        aside!("headway: there are more; ask for them with --limit, or narrow the search");
    }
    Ok(())
}

async fn chain(client: &Client, print: &Printer, event: u64) -> Result<(), Failure> {
    let chain = client.event_chain(event).await?;
    let because = |of: Option<u64>| of.map_or_else(|| "-".to_owned(), |seq| seq.to_string());
    print.list(
        &chain.items,
        &[COLUMNS[0], Column::new("BECAUSE OF"), COLUMNS[1], COLUMNS[2], COLUMNS[3], COLUMNS[4]],
        |link| {
            let mut row = row(&link.event);
            row.insert(1, because(link.because_of));
            row
        },
        |link| link.event.seq.to_string(),
    )
}

/// Who did it goes first: what is done by people says so.
const COLUMNS: [Column; 5] = [
    Column::new("EVENT"),
    Column::new("TIME").rank(6),
    Column::new("WHO").rank(1).cut(12),
    Column::new("WHAT"),
    Column::new("MESSAGE").cut_late(24, 60),
];

fn row(event: &EventRecord) -> Vec<String> {
    let who = match event.actor.split_once(':') {
        Some(("user", name)) => name.to_owned(),
        Some(("node", id)) if event.node_id.is_some_and(|node| node.to_string() == id) => {
            format!("node {}", event.node_name.as_deref().unwrap_or(short(id)))
        }
        Some(("node", id)) => format!("node {}", short(id)),
        _ => event.actor.clone(),
    };
    vec![event.seq.to_string(), moment(event.at), who, event.verb.clone(), event.message.clone()]
}

/// A moment, or so long before the cluster's present.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Past {
    At(DateTime<Utc>),
    Ago(TimeDelta),
}

fn past(text: &str) -> Result<Past, String> {
    let Ok(ago) = headway_api::spec::duration(text) else {
        return parse_moment(text).map(Past::At).map_err(|why| format!("{why}, or how long ago: 2h"));
    };
    TimeDelta::try_milliseconds((ago.0 * 1e3) as i64).map(Past::Ago).ok_or_else(|| format!("{text} is too long"))
}

/// The clock of an emulated cluster may run faster than ours.
async fn on_its_clock(client: &Client, past: Option<Past>) -> Result<Option<DateTime<Utc>>, Failure> {
    Ok(match past {
        None => None,
        Some(Past::At(at)) => Some(at),
        Some(Past::Ago(ago)) => client.overview().await?.at.checked_sub_signed(ago),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_past_is_a_moment_or_so_long_ago() {
        assert_eq!(past("2h"), Ok(Past::Ago(TimeDelta::hours(2))));
        assert_eq!(past("2026-11-23T10:00:00Z"), Ok(Past::At("2026-11-23T10:00:00Z".parse().expect("a moment"))));
        assert!(past("yesterday").is_err());
    }
}
