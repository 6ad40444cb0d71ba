//! The live stream: what changed, as server-sent events, resumable from the event log.
//!
//! Events of the log are sent one by one with their sequence number as id. Jobs, nodes and plans are sent as their
//! newest whole representation, at most twice a second each, however often they changed. A reader that falls behind
//! what the process remembers is told `reset` and fetches afresh; it never slows the scheduler.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures::Stream;
use headway_api::v1;
use headway_engine::record::EventRecord;
use headway_types::{JobId, NodeId, PlanId};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;

use super::HttpState;
use super::auth::Principal;
use super::extract::Query;
use super::problem::Problem;
use super::{conversions, lookup};
use crate::asking::{Asking, Foretold};
use crate::cluster::{Cluster, Feed};
use crate::metrics::OpenStream;
use crate::store::EventFilter;

const HEARTBEAT: Duration = Duration::from_secs(5);
/// Twice a second per subject.
const COALESCE: Duration = Duration::from_millis(500);
/// A reader further behind than this is better off with a fresh snapshot.
const RESUME_AT_MOST: u32 = 5_000;

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct StreamQuery {
    /// Comma-separated: jobs, nodes, plans, events. All if absent.
    topics: Option<String>,
    /// Resume after this event; `Last-Event-ID` takes precedence.
    since: Option<u64>,
}

/// Follow what happens, as server-sent events: `job`, `node`, `node_gone` (it was deleted), `plan`, `event`, and `reset` when the
/// reader has to fetch everything again.
#[utoipa::path(get, path = "/stream", tag = "cluster", params(StreamQuery),
    responses((status = 200, description = "Server-sent events", content_type = "text/event-stream", body = String)))]
pub async fn stream(
    State(state): State<HttpState>,
    caller: Principal,
    Query(query): Query<StreamQuery>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let topics = Topics::parse(query.topics.as_deref())?;
    let since = resume_point(&headers)?.or(query.since);
    Ok(Sse::new(follow(state.cluster, state.asking, caller, topics, since))
        .keep_alive(KeepAlive::new().interval(HEARTBEAT).text("alive")))
}

/// Which kinds of change a reader wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Topics {
    jobs: bool,
    nodes: bool,
    plans: bool,
    events: bool,
}

impl Topics {
    fn parse(text: Option<&str>) -> Result<Self, Problem> {
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            return Ok(Self { jobs: true, nodes: true, plans: true, events: true });
        };
        let mut topics = Self { jobs: false, nodes: false, plans: false, events: false };
        for name in text.split(',') {
            match name.trim() {
                "jobs" => topics.jobs = true,
                "nodes" => topics.nodes = true,
                "plans" => topics.plans = true,
                "events" => topics.events = true,
                other => {
                    return Err(Problem::bad_request(format!("there is no topic \"{other}\""))
                        .field("topics")
                        .hint("topics are jobs, nodes, plans, events"));
                }
            }
        }
        Ok(topics)
    }
}

fn resume_point(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let seq = value.to_str().ok().and_then(|text| text.parse().ok());
    seq.map(Some).ok_or_else(|| Problem::bad_request("Last-Event-ID is not a sequence number").field("last-event-id"))
}

/// Subjects that changed since the last flush.
#[derive(Debug, Default)]
struct Changed {
    jobs: BTreeSet<JobId>,
    nodes: BTreeSet<NodeId>,
    plans: BTreeSet<PlanId>,
}

impl Changed {
    fn note(&mut self, topics: Topics, feed: &Feed) {
        match feed {
            Feed::Job(job) | Feed::Steps { job, .. } if topics.jobs => {
                self.jobs.insert(*job);
            }
            Feed::Node(node) if topics.nodes => {
                self.nodes.insert(*node);
            }
            Feed::Plan(plan) if topics.plans => {
                self.plans.insert(*plan);
            }
            _ => {}
        }
    }
}

fn follow(
    cluster: Cluster,
    asking: Asking,
    reader: Principal,
    topics: Topics,
    since: Option<u64>,
) -> impl Stream<Item = Result<Event, Infallible>> {
    // Before the head is sent and before the log is read: nothing falls in between, repeats are dropped by number.
    let mut feed = cluster.subscribe();
    async_stream::stream! {
        let _open = OpenStream::count();
        let mut last = since.unwrap_or(0);
        if let Some(since) = since && topics.events {
            match missed(&cluster, since).await {
                Some((records, newest)) => {
                    last = newest;
                    for record in readable(&cluster, &reader, records).await {
                        yield Ok(logged(&record));
                    }
                }
                None => yield Ok(reset()),
            }
        }
        let mut changed = Changed::default();
        let mut flush = tokio::time::interval(COALESCE);
        flush.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                news = feed.recv() => match news {
                    Ok(news) => {
                        if let Feed::Event(record) = &*news && topics.events && record.seq > last {
                            last = record.seq;
                            for record in readable(&cluster, &reader, vec![record.clone()]).await {
                                yield Ok(logged(&record));
                            }
                        }
                        changed.note(topics, &news);
                    }
                    Err(RecvError::Lagged(_)) => {
                        changed = Changed::default();
                        yield Ok(reset());
                    }
                    Err(RecvError::Closed) => break,
                },
                _ = flush.tick() => {
                    for event in newest(&cluster, &asking.foretold(), &reader, std::mem::take(&mut changed)).await {
                        yield Ok(event);
                    }
                }
            }
        }
    }
}

/// Events after `since`, or `None` where there are too many or the log cannot be read.
async fn missed(cluster: &Cluster, since: u64) -> Option<(Vec<EventRecord>, u64)> {
    let filter = EventFilter { after: Some(since), limit: RESUME_AT_MOST, ..EventFilter::default() };
    let page = cluster.store().events(&filter).await.ok()?;
    let newest = page.items.last().map_or(since, |record| record.seq);
    page.next.is_none().then_some((page.items, newest))
}

/// Those that are the reader's to read. Where that cannot be found out they are left out: the log has them.
async fn readable(cluster: &Cluster, reader: &Principal, mut records: Vec<EventRecord>) -> Vec<EventRecord> {
    match reader.keep_readable(cluster, &mut records).await {
        Ok(()) => records,
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "stream leaves out events of unknown jobs");
            Vec::new()
        }
    }
}

/// What changed, as it is now. A subject that cannot be read is left out: the reader's next fetch shows it.
async fn newest(cluster: &Cluster, foretold: &Foretold, reader: &Principal, changed: Changed) -> Vec<Event> {
    let mut events = Vec::new();
    let view = cluster.view();
    for job in changed.jobs {
        if let Ok(job) = lookup::job(cluster, foretold, job).await
            && let Some(job) = reader.sight(&view, job)
        {
            events.push(named("job", &job));
        }
    }
    for node in changed.nodes {
        events.push(match view.nodes.get(&node) {
            Some(node) => named("node", &conversions::node(node, &view)),
            None => named("node_gone", &v1::NodeGone { id: node.0 }),
        });
    }
    for plan in changed.plans {
        if let Ok(plan) = lookup::plan(cluster, plan).await {
            events.push(named("plan", &conversions::plan_summary(&plan.summary())));
        }
    }
    events
}

fn logged(record: &EventRecord) -> Event {
    named("event", &conversions::event(record)).id(record.seq.to_string())
}

fn reset() -> Event {
    Event::default().event("reset").data("{}")
}

fn named(name: &str, value: &impl Serialize) -> Event {
    Event::default().event(name).json_data(value).expect("wire types are plain JSON")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn absent_topics_are_all_topics() {
        let all = Topics { jobs: true, nodes: true, plans: true, events: true };
        assert_eq!(Topics::parse(None).unwrap(), all);
        assert_eq!(Topics::parse(Some("jobs,nodes,plans,events")).unwrap(), all);
    }

    #[test]
    fn an_unknown_topic_is_named() {
        assert!(Topics::parse(Some("jobs,gpu")).is_err());
    }

    #[test]
    fn many_changes_of_one_job_are_one_message() {
        let topics = Topics::parse(Some("jobs")).unwrap();
        let mut changed = Changed::default();
        let job = JobId(uuid::Uuid::nil());
        changed.note(topics, &Feed::Job(job));
        changed.note(topics, &Feed::Job(job));
        changed.note(topics, &Feed::Node(NodeId(uuid::Uuid::nil())));
        assert_eq!(changed.jobs.len(), 1);
        assert!(changed.nodes.is_empty());
    }

    #[test]
    fn a_resume_point_is_a_number() {
        let headers =
            |value: &'static str| HeaderMap::from_iter([("last-event-id".parse().unwrap(), value.parse().unwrap())]);
        assert_eq!(resume_point(&headers("17")).unwrap(), Some(17));
        assert!(resume_point(&headers("x")).is_err());
        assert_eq!(resume_point(&HeaderMap::new()).unwrap(), None);
    }
}
