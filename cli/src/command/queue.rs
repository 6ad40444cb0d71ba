//! `headway queue …`: what waits for GPUs, in order, and why.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use headway_api::client::{Client, QueueFilter};
use headway_api::v1::{GpuRoom, Job, Queue as QueueReply, QueueShare, QueueTotals, QueuedJob};
use headway_types::JobStateKind;

use super::{resolve_job, short};
use crate::failure::{Failure, Kind};
use crate::output::{self, Format, Layout, Printer, age, duration};
use crate::table::Column;
use crate::top::{self, Top};

/// What the scheduler gives at once.
const JOBS_PER_PAGE: u32 = 500;
/// Reasons and projects that are told below a list.
const SHARES: usize = 4;

#[derive(Subcommand, Clone, Debug)]
pub enum Queue {
    /// List the jobs that wait, in the order in which they are expected to start.
    List(List),
    /// Where a job stands, and why it waits.
    Get {
        /// Id, the end of one, or name.
        job: String,
    },
    /// Jobs and the cluster, live in a terminal (`headway top`).
    Top(Top),
}

#[derive(Args, Clone, Debug)]
pub struct List {
    /// Only jobs of this project.
    #[arg(long)]
    pub project: Option<String>,
    /// Only jobs of this owner.
    #[arg(long)]
    pub user: Option<String>,
    /// Only jobs that wait for this reason ("not_enough_free", "quota", …).
    #[arg(long)]
    pub code: Option<String>,
    /// Only jobs that accept this GPU type ("H100").
    #[arg(long = "type", value_name = "GPU TYPE")]
    pub gpu_type: Option<String>,
    /// Only jobs with this in their name, in any case.
    #[arg(long, value_name = "PART")]
    pub name: Option<String>,
    /// At most this many.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
}

const COLUMNS: [Column; 12] = [
    Column::new("#"),
    Column::new("ID").rank(8),
    Column::new("NAME").cut(12),
    Column::new("GPUS"),
    Column::new("TYPE").rank(4).cut(6),
    Column::new("OWNER").rank(7).cut(5),
    Column::new("PROJECT").rank(3).cut(5),
    Column::new("WAITS").rank(9),
    Column::new("STARTS").rank(10),
    Column::new("PRIORITY").rank(2),
    Column::new("CODE").wide(),
    Column::new("WHY").cut_late(18, 44),
];

pub async fn run(client: &Client, print: &Printer, queue: Queue) -> Result<(), Failure> {
    match queue {
        Queue::List(list) => show(client, print, &list).await,
        Queue::Get { job } => one(client, print, &job).await,
        Queue::Top(of) => top::run(client, print, of).await,
    }
}

async fn show(client: &Client, print: &Printer, list: &List) -> Result<(), Failure> {
    let queue = gather(client, list).await?;
    print.list(&queue.items, &COLUMNS, |job| row(job, queue.at), |job| job.job_id.to_string())?;
    if print.format == Format::Table && print.layout != Layout::Csv {
        // Not among the rows: a pipe gets rows alone.
        aside!("{}", footer(&queue));
    }
    Ok(())
}

/// Page by page, as many as are wanted.
async fn gather(client: &Client, list: &List) -> Result<QueueReply, Failure> {
    let mut filter = QueueFilter {
        project: list.project.clone(),
        user: list.user.clone(),
        code: list.code.clone(),
        gpu_type: list.gpu_type.clone(),
        q: list.name.clone(),
        limit: Some(list.limit.min(JOBS_PER_PAGE)),
        ..QueueFilter::default()
    };
    let mut queue = client.queue(&filter).await?;
    while let (Some(cursor), left @ 1..) =
        (queue.next_cursor.take(), list.limit.saturating_sub(queue.items.len() as u32))
    {
        filter.limit = Some(left.min(JOBS_PER_PAGE));
        filter.cursor = Some(cursor);
        let page = client.queue(&filter).await?;
        queue.items.extend(page.items);
        queue.next_cursor = page.next_cursor;
    }
    Ok(queue)
}

async fn one(client: &Client, print: &Printer, job: &str) -> Result<(), Failure> {
    let id = resolve_job(client, job).await?;
    let queue = client.queue(&QueueFilter { job: Some(id.clone()), ..QueueFilter::default() }).await?;
    let Some(waits) = queue.items.first() else {
        return Err(elsewhere(&client.job(&id).await?.job));
    };
    if print.structured() {
        return print.value(waits);
    }
    if print.format == Format::Name {
        return Ok(say!("{}", waits.job_id)?);
    }
    let all = client.queue(&QueueFilter { limit: Some(1), ..QueueFilter::default() }).await?;
    Ok(say!("{}", told(waits, &all))?)
}

/// Of a job that is not in the queue: what it is instead, and where more is told.
fn elsewhere(job: &Job) -> Failure {
    let (name, state) = (&job.name, job.state);
    let hint = match state {
        JobStateKind::Held => format!("headway job release {name} puts it there"),
        JobStateKind::Failed | JobStateKind::Cancelled => {
            format!("headway why {name} tells how it ended, headway job requeue {name} puts it back")
        }
        _ => format!("headway why {name} tells why it has what it has"),
    };
    Failure::new(Kind::Conflict, format!("{name} does not wait for GPUs: it is {state}")).hint(hint)
}

fn row(job: &QueuedJob, now: DateTime<Utc>) -> Vec<String> {
    vec![
        job.place.to_string(),
        short(&job.job_id.to_string()).into(),
        job.name.clone(),
        gpus(job),
        types(job),
        job.owner.clone(),
        job.project.clone(),
        age(seconds(now, job.since)),
        job.waiting.p50.map_or("-".into(), |at| format!("~{}", duration(seconds(at, now)))),
        job.priority.to_string(),
        job.waiting.code.clone().unwrap_or_else(|| "-".into()),
        job.waiting.headline.clone(),
    ]
}

/// "8", "4-16".
fn gpus(job: &QueuedJob) -> String {
    if job.gpus_min == job.gpus_max { job.gpus_min.to_string() } else { format!("{}-{}", job.gpus_min, job.gpus_max) }
}

fn types(job: &QueuedJob) -> String {
    if job.gpu_types.is_empty() { "any".into() } else { job.gpu_types.join(",") }
}

fn seconds(later: DateTime<Utc>, earlier: DateTime<Utc>) -> f64 {
    (later - earlier).num_milliseconds() as f64 / 1_000.0
}

/// What all of the queue comes to, and what is free.
fn footer(queue: &QueueReply) -> String {
    let QueueTotals { jobs, gpus, by_code, by_project, .. } = &queue.totals;
    let waits = match *jobs {
        0 => "No job waits".into(),
        1 => format!("1 job waits for {}", output::gpus(*gpus)),
        jobs => format!("{jobs} jobs wait for {}", output::gpus(*gpus)),
    };
    let mut lines = vec![format!("{waits}; {}", free(queue.room.as_deref()))];
    let shares = [("by reason", by_code), ("by project", by_project)];
    lines.extend(shares.into_iter().filter(|(_, of)| of.len() > 1).map(|(by, of)| format!("{by}: {}", largest(of))));
    let shown = queue.items.len() as u64;
    if shown < *jobs {
        lines.push(format!("{shown} of {jobs} jobs; --limit {jobs} shows them all"));
    }
    lines.join("\n")
}

/// "12 are free (H100-80G: 12, for one job at most 8)".
fn free(room: Option<&[GpuRoom]>) -> String {
    let Some(room) = room else { return "no round has told yet what is free".into() };
    let total: u32 = room.iter().map(|of| of.gpus_free).sum();
    let some = room.iter().filter(|of| of.gpus_free > 0);
    let told = some.map(|of| format!("{}: {}, for one job at most {}", of.gpu_type, of.gpus_free, of.largest));
    let free = match total {
        0 => "none is free".into(),
        total => {
            let are = if total == 1 { "1 is".into() } else { format!("{total} are") };
            format!("{are} free ({})", told.collect::<Vec<_>>().join("; "))
        }
    };
    free + &reserved(room)
}

/// ", 4 more are reserved (r9)".
fn reserved(room: &[GpuRoom]) -> String {
    let total: u32 = room.iter().map(|of| of.gpus_reserved).sum();
    let by: BTreeSet<&str> = room.iter().flat_map(|of| &of.reservations).map(String::as_str).collect();
    if total == 0 {
        return String::new();
    }
    let are = if total == 1 { "is" } else { "are" };
    format!(", {total} more {are} reserved ({})", by.into_iter().collect::<Vec<_>>().join(", "))
}

/// "not_enough_free 12 jobs (96 GPUs), quota 3 jobs (24 GPUs), 2 more": who waits for most comes first.
fn largest(of: &std::collections::BTreeMap<String, QueueShare>) -> String {
    let mut shares: Vec<(&String, &QueueShare)> = of.iter().collect();
    shares.sort_by_key(|(_, share)| std::cmp::Reverse(share.gpus));
    let word = |jobs: u64| if jobs == 1 { "job" } else { "jobs" };
    let told = shares.iter().take(SHARES);
    let told =
        told.map(|(name, share)| format!("{name} {} {} ({})", share.jobs, word(share.jobs), output::gpus(share.gpus)));
    let more = shares.len().saturating_sub(SHARES);
    told.chain((more > 0).then(|| format!("{more} more"))).collect::<Vec<_>>().join(", ")
}

/// When a job starts, as far as anybody has said.
fn starts(job: &QueuedJob, now: DateTime<Utc>) -> String {
    let until = |at: DateTime<Utc>| duration(seconds(at, now));
    match (job.waiting.p10, job.waiting.p50, job.waiting.p90) {
        _ if job.waiting.code.as_deref() == Some("never") => "never, as the cluster is".into(),
        (_, Some(p50), Some(p90)) if p50 <= now && p90 > now => format!("any moment, likely within {}", until(p90)),
        (_, Some(p50), _) if p50 <= now => "any moment".into(),
        (Some(p10), Some(p50), Some(p90)) => {
            format!("in about {} (between {} and {} from now)", until(p50), until(p10), until(p90))
        }
        (Some(p10), Some(p50), None) => format!("in about {} (not before {} from now)", until(p50), until(p10)),
        (Some(p10), None, _) => format!("not before {} from now, likely much later", until(p10)),
        _ => "not predicted yet".into(),
    }
}

/// One job for people.
fn told(job: &QueuedJob, all: &QueueReply) -> String {
    let waited = duration(seconds(all.at, job.since));
    let word = if job.gpus_max == 1 { "GPU" } else { "GPUs" };
    let wants = match types(job).as_str() {
        "any" => format!("{} {word} of any type", gpus(job)),
        types => format!("{} {word} of {types}", gpus(job)),
    };
    let starts = starts(job, all.at);
    format!(
        "{}: place {} of {}\nwants   {wants}, priority {}\nwaits   {waited}\nstarts  {starts}\nwhy     {}\nnow     {}",
        job.name,
        job.place,
        all.totals.jobs.max(u64::from(job.place)),
        job.priority,
        job.waiting.headline,
        free(all.room.as_deref()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: &str = include_str!("../../tests/queue.json");

    fn queue() -> QueueReply {
        serde_json::from_str(QUEUE).expect("a queue as the scheduler writes it")
    }

    fn table(layout: Layout) -> String {
        let (printer, queue) = (Printer { layout, ..Printer::plain() }, queue());
        printer.rows(&COLUMNS, queue.items.iter().map(|job| row(job, queue.at)).collect())
    }

    #[test]
    fn a_queue_fits_eighty_columns() {
        insta::assert_snapshot!(table(Layout::Within(Some(80))));
    }

    #[test]
    fn a_queue_fits_one_hundred_and_twenty_columns() {
        insta::assert_snapshot!(table(Layout::Within(Some(120))));
    }

    #[test]
    fn a_queue_fits_two_hundred_columns() {
        insta::assert_snapshot!(table(Layout::Within(Some(200))));
    }

    #[test]
    fn wide_has_all_columns_whole() {
        insta::assert_snapshot!(table(Layout::Wide));
    }

    #[test]
    fn a_footer_says_what_waits_and_what_is_free() {
        insta::assert_snapshot!(footer(&queue()));
        let nothing =
            QueueReply { items: Vec::new(), totals: QueueTotals::default(), room: Some(Vec::new()), ..queue() };
        assert_eq!(footer(&nothing), "No job waits; none is free");
        let reserved = GpuRoom {
            gpu_type: "L4".into(),
            gpus_free: 0,
            largest: 0,
            gpus_reserved: 4,
            reservations: vec!["r9".into()],
        };
        let reserved = QueueReply { room: Some(vec![reserved]), ..nothing.clone() };
        assert_eq!(footer(&reserved), "No job waits; none is free, 4 more are reserved (r9)");
        assert_eq!(footer(&QueueReply { room: None, ..nothing }), "No job waits; no round has told yet what is free");
    }

    #[test]
    fn a_job_is_told_its_place() {
        let queue = queue();
        insta::assert_snapshot!(told(&queue.items[0], &queue));
        insta::assert_snapshot!(told(&queue.items[2], &queue));
    }

    #[test]
    fn who_is_not_in_the_queue_is_told_where_to_look() {
        let told = |state: JobStateKind| {
            let job = Job { name: "llama".into(), state, ..crate::command::ps::tests::jobs().remove(0) };
            let failure = elsewhere(&job);
            assert_eq!(failure.kind, Kind::Conflict);
            failure.to_string()
        };
        let held = "headway: llama does not wait for GPUs: it is held\n  hint: headway job release llama puts it there";
        assert_eq!(told(JobStateKind::Held), held);
        assert!(told(JobStateKind::Failed).contains("headway job requeue llama"));
        assert!(told(JobStateKind::Running).contains("headway why llama"));
    }

    #[test]
    fn a_start_that_was_foretold_for_a_moment_that_is_over_may_come_any_moment() {
        let (queue, later) = (queue(), "2026-03-01T15:00:00Z".parse().expect("a moment"));
        assert_eq!(starts(&queue.items[0], later), "any moment, likely within 40m00s");
        let mut never = queue.items[0].clone();
        never.waiting.code = Some("never".into());
        assert_eq!(starts(&never, later), "never, as the cluster is");
    }
}
