//! A job's output, as its agent reads it from disk: a page, the last lines, or everything as it comes.

use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use headway_types::{Generation, JobId};
use serde::Deserialize;

use super::HttpState;
use super::access::Live;
use super::auth::Principal;
use super::extract::{Path, Query};
use super::lookup;
use super::problem::Problem;
use crate::cluster::{Cluster, LogError, LogPage, LogQuery};

const PAGE_BYTES: u32 = 256 * 1024;
/// How often a follower asks the agent while there is nothing new.
const POLL: Duration = Duration::from_secs(1);
const NEXT_OFFSET: HeaderName = HeaderName::from_static("x-next-offset");
const AT_END: HeaderName = HeaderName::from_static("x-log-end");
const GENERATION: HeaderName = HeaderName::from_static("x-generation");

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LogsQuery {
    /// Global rank; 0 if absent.
    rank: Option<u32>,
    /// Newest generation if absent.
    generation: Option<u64>,
    /// First byte; the reply's `X-Next-Offset` continues.
    offset: Option<u64>,
    /// Most bytes of one page.
    limit: Option<u32>,
    /// Only the last lines.
    tail: Option<u32>,
    /// Keep the reply open and send what is written, over restarts, until the job has ended.
    #[serde(default)]
    follow: bool,
}

/// Output of one rank of a job.
#[utoipa::path(get, path = "/jobs/{id}/logs", tag = "jobs", params(("id" = uuid::Uuid, Path), LogsQuery),
    responses(
        (status = 200, description = "Raw output", content_type = "text/plain", body = String,
            headers(("X-Next-Offset" = u64), ("X-Log-End" = bool), ("X-Generation" = u64))),
        (status = 404, body = headway_api::v1::Problem, content_type = "application/problem+json"),
    ))]
pub async fn logs(
    State(state): State<HttpState>,
    _caller: Principal,
    Path(id): Path<uuid::Uuid>,
    Query(query): Query<LogsQuery>,
) -> Result<Response, Problem> {
    let job = JobId(id);
    lookup::record(&state.cluster, job).await?;
    let first = LogQuery {
        generation: query.generation.map(Generation),
        rank: query.rank.unwrap_or(0),
        offset: query.offset.unwrap_or(0),
        limit: query.limit.unwrap_or(PAGE_BYTES).min(PAGE_BYTES),
        tail_lines: query.tail,
    };
    if query.follow {
        let text = [(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"))];
        let body = Body::from_stream(follow(state.cluster, job, first));
        return Ok((Extension(Live), text, body).into_response());
    }
    let page = state.cluster.logs(job, first).await?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (NEXT_OFFSET, HeaderValue::from(page.next_offset)),
        (AT_END, HeaderValue::from_static(if page.at_end { "true" } else { "false" })),
        (GENERATION, HeaderValue::from(page.generation.0)),
    ];
    Ok((headers, page.data).into_response())
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
                Err(LogError::NotStarted | LogError::NotConnected(_) | LogError::TimedOut(_)) if !over => {
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
