//! `headway logs`: what a rank wrote, from the node it ran on.

use std::io::Write as _;
use std::time::Duration;

use clap::Args;
use futures::StreamExt as _;
use headway_api::agent::TAIL_LINES_AT_MOST;
use headway_api::client::{Client, ClientError, JobFilter, LogLines, LogPage, LogRequest};
use headway_api::v1::Job;
use headway_types::JobStateKind;

use super::resolve_job;
use crate::failure::{Failure, Kind};
use crate::moment::parse_moment;

/// How often a follower asks while there is nothing new.
const POLL: Duration = Duration::from_millis(500);

#[derive(Args, Clone, Debug)]
pub struct Logs {
    /// Id, unique end or beginning of one, or name [default: your newest job].
    pub job: Option<String>,
    /// Ranks to read: 3, or 0,3, or 0-7, or all. Of several the lines come in the order of their times.
    #[arg(long, default_value = "0")]
    pub rank: String,
    /// Only the last lines, of each rank; 100000 at most.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i64::from(TAIL_LINES_AT_MOST)))]
    pub tail: Option<u32>,
    /// Only what was written since: 10m, or a moment ("2026-03-01 14:02"); to a few seconds.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub since: Option<String>,
    /// Write before each line when it was written, to a few seconds.
    #[arg(long)]
    pub timestamps: bool,
    /// Of this attempt; the first is 1.
    #[arg(long, value_name = "N", conflicts_with_all = ["previous", "follow"], value_parser = clap::value_parser!(u32).range(1..))]
    pub attempt: Option<u32>,
    /// Of an earlier attempt: the one before the newest, or the one so many before it.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1", conflicts_with = "follow")]
    pub previous: Option<usize>,
    /// Go on as the job writes; wait where it has not begun.
    #[arg(short, long)]
    pub follow: bool,
}

pub async fn run(client: &Client, logs: Logs) -> Result<(), Failure> {
    let id = match &logs.job {
        Some(text) => resolve_job(client, text).await?,
        None => newest(client).await?,
    };
    let generation = match (logs.previous, logs.attempt) {
        (Some(back), _) => Some(earlier(client, &id, back).await?),
        (None, Some(number)) => Some(numbered(client, &id, number).await?),
        (None, None) => None,
    };
    match logs.rank.parse() {
        Ok(rank) if logs.since.is_none() && !logs.timestamps => {
            let request = LogRequest { rank, generation, offset: None, tail: logs.tail };
            one_rank(client, &id, request, logs.follow).await
        }
        _ => lines(client, &id, generation, logs).await,
    }
}

/// How long ago, as the scheduler reads it by its own clock, or a moment in RFC 3339.
fn since_in_wire_form(text: &str) -> Result<String, Failure> {
    if headway_api::spec::duration(text).is_ok() {
        return Ok(text.to_owned());
    }
    let moment =
        parse_moment(text).map_err(|why| Failure::new(Kind::Usage, format!("--since: {why}, or how long ago: 10m")))?;
    Ok(moment.to_rfc3339_opts(chrono::SecondsFormat::Millis, true))
}

/// Of several ranks, or with times: put together by the server.
async fn lines(client: &Client, id: &str, generation: Option<u64>, logs: Logs) -> Result<(), Failure> {
    let Logs { rank, tail, since, timestamps, follow, .. } = logs;
    let since = since.as_deref().map(since_in_wire_form).transpose()?;
    let wanted = LogLines { rank, generation, since, tail, timestamps, follow };
    let lines = match client.log_lines(id, &wanted).await {
        Ok(lines) => lines,
        Err(error) => return Err(not_yet(error)),
    };
    let mut lines = std::pin::pin!(lines);
    while let Some(text) = lines.next().await {
        std::io::stdout().write_all(&text?)?;
    }
    if follow {
        tell(&client.job(id).await?.job, &mut None);
    }
    Ok(())
}

/// Writes one rank's output byte by byte as it is. What was trimmed of it is said on standard error.
async fn one_rank(client: &Client, id: &str, mut request: LogRequest, follow: bool) -> Result<(), Failure> {
    let mut written_by = None;
    let mut told = None;
    let mut tail = request.tail.map(Tail::new);
    loop {
        let page = match page(client, id, &request, follow).await? {
            Some(page) => page,
            None => {
                let job = client.job(id).await?.job;
                if job.ended_at.is_some() {
                    return Err(never_ran(&job));
                }
                tell(&job, &mut told);
                tokio::time::sleep(POLL).await;
                continue;
            }
        };
        if written_by.is_some_and(|before| before != page.generation) {
            // The job was moved: the next generation writes a file of its own, from its beginning.
            written_by = Some(page.generation);
            request.offset = Some(0);
            continue;
        }
        written_by = Some(page.generation);
        if let Some(tail) = &mut tail {
            tail.count(&page);
        } else if let Some(note) = describe_trimmed(request.offset.unwrap_or(0), page.offset()) {
            aside!("{note}");
        }
        let mut out = std::io::stdout();
        out.write_all(&page.bytes)?;
        request = LogRequest { offset: Some(page.next_offset), tail: None, ..request };
        if !page.at_end {
            continue;
        }
        if follow {
            // A line that is not complete, or a progress bar, is to be seen now.
            out.flush()?;
        }
        if let Some(note) = tail.take().and_then(|tail| tail.describe_missing()) {
            aside!("{note}");
        }
        if !follow {
            return Ok(());
        }
        let job = client.job(id).await?.job;
        if job.ended_at.is_some() {
            tell(&job, &mut told);
            return Ok(());
        }
        if job.state == JobStateKind::Queued {
            tell(&job, &mut told);
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Describes output between two positions that is no longer kept.
fn describe_trimmed(wanted: u64, kept: u64) -> Option<String> {
    let bytes = kept.checked_sub(wanted).filter(|bytes| *bytes > 0)?;
    Some(format!("headway: {bytes} bytes of output were trimmed here; what follows begins with a whole line"))
}

/// The last lines that were asked for, and how many there were.
struct Tail {
    wanted: u32,
    /// Lines with their end.
    ended: u64,
    /// Whether a line without its end came last.
    is_open: bool,
    /// Where they begin.
    offset: Option<u64>,
}

impl Tail {
    fn new(wanted: u32) -> Self {
        Self { wanted, ended: 0, is_open: false, offset: None }
    }

    fn count(&mut self, page: &LogPage) {
        self.offset.get_or_insert(page.offset());
        self.ended += page.bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.is_open = page.bytes.last().map_or(self.is_open, |byte| *byte != b'\n');
    }

    /// Describes how many lines are kept where more were written and asked for.
    fn describe_missing(&self) -> Option<String> {
        let (wanted, offset) = (u64::from(self.wanted), self.offset.unwrap_or(0));
        let lines = self.ended + u64::from(self.is_open);
        let is_trimmed = offset > 0 && lines < wanted;
        is_trimmed.then(|| {
            format!("headway: {lines} of {wanted} lines are kept: the first {offset} bytes of this output were trimmed")
        })
    }
}

/// One page; for a follower `None` where the job has not run yet.
async fn page(client: &Client, id: &str, request: &LogRequest, follow: bool) -> Result<Option<LogPage>, Failure> {
    match client.logs(id, request).await {
        Ok(page) => Ok(Some(page)),
        Err(ClientError::Problem(problem)) if problem.code == "not_started" && follow => Ok(None),
        Err(error) => Err(not_yet(error)),
    }
}

fn not_yet(error: ClientError) -> Failure {
    match error {
        ClientError::Problem(problem) if problem.code == "not_started" => {
            let not_yet = Failure::new(Kind::Conflict, "the job has written nothing yet: it has not run");
            not_yet.hint("`headway logs -f` waits for it; `headway why` says what it waits for")
        }
        error => error.into(),
    }
}

/// The newest job of whoever calls.
async fn newest(client: &Client) -> Result<String, Failure> {
    let nobody = || Failure::new(Kind::Usage, "whose newest job? this token is nobody's").hint("name the job");
    let user = client.whoami().await?.user.ok_or_else(nobody)?;
    let filter = JobFilter { user: Some(user.clone()), limit: Some(1), ..JobFilter::default() };
    let newest = client.jobs(&filter).await?.items.into_iter().next();
    let none = || {
        Failure::new(Kind::NotFound, format!("{user} has submitted no job"))
            .hint("name one: `headway ps --all` lists them")
    };
    let newest = newest.ok_or_else(none)?;
    aside!("headway: {}, your newest job", newest.name);
    Ok(newest.id.to_string())
}

/// The generation of an attempt by its number, from 1 on.
async fn numbered(client: &Client, id: &str, number: u32) -> Result<u64, Failure> {
    let attempts = client.allocations(id).await?;
    attempts.get(number as usize - 1).map(|attempt| attempt.generation).ok_or_else(|| {
        Failure::new(Kind::NotFound, format!("there is no attempt {number}: the job has had {}", attempts.len()))
    })
}

/// The generation so many attempts before the newest.
async fn earlier(client: &Client, id: &str, back: usize) -> Result<u64, Failure> {
    let attempts = client.allocations(id).await?;
    let all = attempts.len();
    let earlier = all.checked_sub(back + 1).and_then(|index| attempts.get(index));
    earlier.map(|attempt| attempt.generation).ok_or_else(|| {
        let message = match all {
            0 => "the job has not run yet".to_owned(),
            1 => "the job has had one attempt: none is before it".to_owned(),
            all => format!("the job has had {all} attempts: {back} before the newest is more than there are"),
        };
        Failure::new(Kind::NotFound, message)
    })
}

fn never_ran(job: &Job) -> Failure {
    let why = job.state_cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
    let ended =
        if job.state == JobStateKind::Cancelled { "was cancelled".into() } else { format!("has {}", job.state) };
    Failure::new(Kind::Conflict, format!("{} {ended} without having run{why}", job.name))
}

/// A change of state on standard error, once, so that a silent log is no riddle.
fn tell(job: &Job, told: &mut Option<JobStateKind>) {
    if *told == Some(job.state) {
        return;
    }
    *told = Some(job.state);
    let why = job.state_cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
    match job.state {
        JobStateKind::Queued | JobStateKind::Held => aside!("headway: {} waits ({}){why}", job.name, job.state),
        JobStateKind::Starting => aside!("headway: {} starts", job.name),
        state => aside!("headway: {} is over ({state}){why}", job.name),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        logs: Logs,
    }

    #[test]
    fn a_tail_has_a_greatest_length() {
        let parse = |tail: &str| Line::try_parse_from(["logs", "llama", "--tail", tail]).map(|line| line.logs.tail);
        assert_eq!((parse("0").unwrap(), parse("100000").unwrap()), (Some(0), Some(TAIL_LINES_AT_MOST)));
        assert!(parse("100001").unwrap_err().to_string().contains("100000"), "the bound is named");
    }

    fn page(text: &str, offset: u64) -> LogPage {
        let bytes = text.as_bytes().to_vec();
        LogPage { next_offset: offset + bytes.len() as u64, bytes, at_end: true, generation: 1 }
    }

    #[test]
    fn a_tail_of_trimmed_output_reports_how_many_lines_are_kept() {
        let missing = |wanted: u32, offset: u64, texts: &[&str]| {
            let (mut tail, mut offset) = (Tail::new(wanted), offset);
            for text in texts {
                tail.count(&page(text, offset));
                offset += text.len() as u64;
            }
            tail.describe_missing().map(|note| note.split(" lines").next().unwrap().to_owned())
        };
        let kept = |text: &str| Some(format!("headway: {text}"));
        assert_eq!(missing(10, 1_000, &["a\nb\n"]), kept("2 of 10"));
        assert_eq!(missing(3, 1_000, &["a\nb\n"]), kept("2 of 3"));
        assert_eq!(missing(4, 1_000, &["a\nb", "b\nc"]), kept("3 of 4"), "a line in two pages is one");
        assert_eq!(missing(3, 1_000, &["a\nb\nc"]), None, "a line without its end is one");
        assert_eq!(missing(2, 1_000, &["a\nb\n", ""]), None);
        assert_eq!(missing(10, 0, &["a\nb\n"]), None, "the job wrote no more");
        assert_eq!(missing(0, 1_000, &[""]), None);
    }

    #[test]
    fn trimmed_output_is_reported_where_it_is_missing() {
        assert_eq!(describe_trimmed(7, 7), None);
        assert!(describe_trimmed(0, 300).unwrap().starts_with("headway: 300 bytes of output were trimmed here"));
        assert!(describe_trimmed(200, 300).unwrap().contains(" 100 bytes "), "also behind what was shown");
    }
}
