//! A job's output, as its agents read it from disk: of one rank a page, the last lines, or everything as it comes; of several ranks, or with times, its lines.

mod followers;
mod lines;
mod merge;
mod wanted;

use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use chrono::Utc;
use futures::{Stream, StreamExt as _};
use headway_types::{Generation, JobId};
use serde::Deserialize;

use super::HttpState;
use super::access::Live;
use super::auth::Principal;
use super::extract::{Path, Query};
use super::lookup;
use super::problem::Problem;
use crate::cluster::{Cluster, LogError, LogPage, LogQuery};
pub use followers::Followers;
use lines::Lines;
use wanted::{Attempt, Ranks};

pub const PAGE_BYTES: u32 = 256 * 1024;
/// How often a follower asks the agent while there is nothing new.
const POLL: Duration = Duration::from_secs(1);
const NEXT_OFFSET: HeaderName = HeaderName::from_static("x-next-offset");
const AT_END: HeaderName = HeaderName::from_static("x-log-end");
const GENERATION: HeaderName = HeaderName::from_static("x-generation");

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LogsQuery {
    /// Global ranks: 3, or 0,3, or 0-7, or all that write; 64 at most, 0 if absent. Of several the lines come in the order of their times, each with its rank.
    rank: Option<String>,
    /// Newest generation if absent.
    generation: Option<u64>,
    /// Of this attempt, of which the first is 1, in place of a generation.
    attempt: Option<u32>,
    /// Of the attempt before the newest.
    #[serde(default)]
    previous: bool,
    /// Only what was written since: 10m, or a moment in RFC 3339; to a few seconds, and all where nobody knows.
    since: Option<String>,
    /// Write before each line when it was written, to a few seconds.
    #[serde(default)]
    timestamps: bool,
    /// First byte, of one rank without since and timestamps; the reply's `X-Next-Offset` continues.
    offset: Option<u64>,
    /// Most bytes of one page, likewise.
    limit: Option<u32>,
    /// Only the last lines, of each rank.
    tail: Option<u32>,
    /// Keep the reply open and send what is written, over restarts, until the job has ended or its reader may not read it any longer.
    #[serde(default)]
    follow: bool,
}

/// Output of a job's ranks. Of one rank, without `since` and `timestamps`, it comes in pages of raw bytes; else as lines, whole, while they are read.
#[utoipa::path(get, path = "/jobs/{id}/logs", tag = "jobs", params(("id" = uuid::Uuid, Path), LogsQuery),
    responses(
        (status = 200, description = "Raw output", content_type = "text/plain", body = String,
            headers(("X-Next-Offset" = u64), ("X-Log-End" = bool), ("X-Generation" = u64))),
        (status = 404, body = headway_api::v1::Problem, content_type = "application/problem+json"),
    ))]
pub async fn logs(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<uuid::Uuid>,
    Query(query): Query<LogsQuery>,
) -> Result<Response, Problem> {
    let job = JobId(id);
    let record = lookup::record(&state.cluster, job).await?;
    let attempt = wanted::attempt(query.generation, query.attempt, query.previous)?;
    let generation = generation_of(&state.cluster, job, attempt).await?;
    let ranks = wanted::ranks(query.rank.as_deref())?;
    let since_ms = query.since.as_deref().map(|since| wanted::since(since, Utc::now())).transpose()?;
    let only = match &ranks {
        Ranks::These(ranks) if ranks.len() == 1 => ranks.first().copied(),
        _ => None,
    };
    let place =
        query.follow.then(|| state.followers.admit(caller.name(), &state.cluster, (job, generation))).transpose()?;
    if let Some(rank) = only.filter(|_| since_ms.is_none() && !query.timestamps) {
        let first = LogQuery {
            generation,
            rank,
            offset: query.offset.unwrap_or(0),
            limit: query.limit.unwrap_or(PAGE_BYTES),
            tail_lines: query.tail,
            since_ms: None,
        };
        return one_rank(&state.cluster, job, first, place).await;
    }
    if let Some(name) = [("offset", query.offset.is_some()), ("limit", query.limit.is_some())]
        .into_iter()
        .find_map(|(name, given)| given.then_some(name))
    {
        return Err(Problem::bad_request(format!("{name} is for one rank without since and timestamps")).field(name));
    }
    let per = record.spec.role().run.per;
    let (tail, timestamps, follow) = (query.tail, query.timestamps, query.follow);
    let wanted = Lines { job, per, ranks, generation, since_ms, tail, timestamps, follow };
    match state.cluster.attempt(job, generation).await {
        Ok(attempt) if wanted.of(&attempt)?.len() > wanted::MOST_RANKS => return Err(wanted::too_many()),
        Ok(_) => {}
        Err(LogError::NotStarted) if follow => {}
        Err(error) => return Err(error.into()),
    }
    Ok(text(held(lines::stream(state.cluster, wanted), place)))
}

/// What a follower reads; its place is given back with it.
fn held(
    stream: impl Stream<Item = Result<Bytes, LogError>> + Send + 'static,
    place: Option<followers::Follower>,
) -> Body {
    Body::from_stream(stream.map(move |piece| {
        let _held = &place;
        piece
    }))
}

/// Written while it is read.
fn text(body: Body) -> Response {
    let text = [(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"))];
    (Extension(Live), text, body).into_response()
}

async fn one_rank(
    cluster: &Cluster,
    job: JobId,
    first: LogQuery,
    place: Option<followers::Follower>,
) -> Result<Response, Problem> {
    if place.is_some() {
        return Ok(text(held(follow(cluster.clone(), job, first), place)));
    }
    let page = cluster.logs(job, first).await?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (NEXT_OFFSET, HeaderValue::from(page.next_offset)),
        (AT_END, HeaderValue::from_static(if page.at_end { "true" } else { "false" })),
        (GENERATION, HeaderValue::from(page.generation.0)),
    ];
    Ok((headers, page.data).into_response())
}

/// Attempts are counted as the job's allocations are listed.
async fn generation_of(cluster: &Cluster, job: JobId, attempt: Attempt) -> Result<Option<Generation>, Problem> {
    let back = match attempt {
        Attempt::Newest => return Ok(None),
        Attempt::Generation(generation) => return Ok(Some(generation)),
        Attempt::Number(_) | Attempt::Previous => cluster.store().allocations(job).await?,
    };
    let index = match attempt {
        Attempt::Number(number) => (number as usize).checked_sub(1),
        _ => back.len().checked_sub(2),
    };
    let found = index.and_then(|index| back.get(index)).map(|one| one.generation);
    found.map(Some).ok_or_else(|| {
        let all = match back.len() {
            0 => "the job has not run yet".to_owned(),
            1 => "the job has had one attempt".to_owned(),
            all => format!("the job has had {all} attempts"),
        };
        Problem::not_found(all).field("attempt")
    })
}

/// Everything from `query` on. Ends with the job, or when the wanted generation is over.
fn follow(cluster: Cluster, job: JobId, mut query: LogQuery) -> impl Stream<Item = Result<Bytes, LogError>> {
    let pinned = query.generation.is_some();
    async_stream::stream! {
        let mut poll = tokio::time::interval(POLL);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let over = is_over(&cluster, job, query.generation, pinned);
            match cluster.logs(job, query.clone()).await {
                Ok(LogPage { generation, next_offset, data, at_end, .. }) => {
                    if !data.is_empty() {
                        yield Ok(Bytes::from(data));
                    }
                    query = LogQuery { generation: Some(generation), offset: next_offset, tail_lines: None, ..query };
                    if at_end && over {
                        break;
                    }
                    if at_end && let Some(next) = restarted(&cluster, job, generation, pinned) {
                        query = LogQuery { generation: Some(next), offset: 0, ..query };
                        continue;
                    }
                    if at_end {
                        poll.tick().await;
                    }
                }
                // Waiting for a first start, or for a node to come back, is what a follower is for.
                Err(
                    LogError::NotStarted | LogError::NotConnected(_) | LogError::TimedOut(_) | LogError::Busy(_),
                ) if !over => {
                    poll.tick().await;
                }
                Err(error) => {
                    yield Err(error);
                    break;
                }
            }
        }
    }
}

/// Asked before the last page is read, so that a page that reaches the end afterwards is complete.
fn is_over(cluster: &Cluster, job: JobId, generation: Option<Generation>, pinned: bool) -> bool {
    match cluster.view().jobs.get(&job) {
        None => true,
        Some(live) => pinned && generation.is_some_and(|pinned| pinned < live.job.generation),
    }
}

/// The generation that followed, once it has begun to write.
fn restarted(cluster: &Cluster, job: JobId, generation: Generation, pinned: bool) -> Option<Generation> {
    let view = cluster.view();
    let newest = view.jobs.get(&job)?.allocation.as_ref()?.generation;
    (!pinned && newest > generation).then_some(newest)
}
