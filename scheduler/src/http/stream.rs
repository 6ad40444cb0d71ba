//! The live stream: what changed, as server-sent events, resumable from the event log.
//!
//! Events of the log are sent one by one with their sequence number as id, all of them and in order: a reader that falls behind what the process
//! remembers goes on from the log. Jobs, nodes and plans are sent as they are now, at most twice a second each, however often they changed: whole, or
//! to those who ask for patches only what has changed of them. Whoever falls behind with these is told `reset` and fetches afresh. Nothing is made for
//! a reader before it has taken what came before, so a slow one never slows the scheduler and holds no more memory than a fast one.

mod row;
mod rows;
mod wanted;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures::Stream;
use headway_api::v1;
use headway_engine::record::EventRecord;
use headway_types::{JobId, NodeId, PlanId};
use serde::Serialize;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use self::rows::{News, Reader, Rows};
pub use self::wanted::StreamQuery;
use self::wanted::{Part, Topics, Wanted};
use super::HttpState;
use super::auth::Principal;
use super::extract::Query;
use super::problem::Problem;
use super::{conversions, lookup};
use crate::asking::Asking;
use crate::cluster::{Cluster, Feed};
use crate::driver::Standing;
use crate::metrics::OpenStream;
use crate::shares::{Full, Place, Shares};
use crate::store::EventFilter;

const HEARTBEAT: Duration = Duration::from_secs(5);
/// Twice a second per subject.
const COALESCE: Duration = Duration::from_millis(500);
/// A reader further behind than this is better off with a fresh snapshot.
const RESUME_AT_MOST: u32 = 5_000;
const STREAMS_AT_MOST: usize = 500;
/// As many as a user has browsers.
const OF_ONE_USER: usize = 20;

/// What all streams share.
#[derive(Clone)]
pub struct Streams {
    rows: Rows,
    places: Shares,
}

impl Default for Streams {
    fn default() -> Self {
        Self { rows: Rows::default(), places: Shares::new(STREAMS_AT_MOST, OF_ONE_USER) }
    }
}

/// Follow what happens, as server-sent events: `job`, `node`, `node_gone` (it was deleted), `plan`, `event`, and `reset` when the
/// reader has to fetch everything again. With `patch=true` also `job_patch` and `node_patch`. The last is `not_leading` where another server has taken
/// over, with its address; from that one the stream is resumed as from this.
#[utoipa::path(get, path = "/stream", tag = "cluster", params(StreamQuery),
    responses((status = 200, description = "Server-sent events", content_type = "text/event-stream", body = String),
        (status = "4XX", body = headway_api::v1::Problem, content_type = "application/problem+json")))]
pub async fn stream(
    State(state): State<HttpState>,
    caller: Principal,
    Query(query): Query<StreamQuery>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let (wanted, since) = Wanted::of(query, &headers, &state.cluster)?;
    let place = state.streams.places.enter(caller.name()).map_err(|full| match full {
        Full::OfOne(most) => {
            let detail = format!("{most} streams of yours are open, which is the most of one user");
            Problem::too_many("too_many_streams", detail, Duration::from_secs(5))
                .hint("close some; one stream tells as many topics, jobs and nodes as you like")
        }
        Full::InAll(most) => Problem::unavailable(format!("{most} streams are open, which is the most")),
    })?;
    let last = match since {
        Some(since) => since,
        None => newest_event(&state.cluster).await?,
    };
    // Before the head is sent and before the log is read: nothing falls in between, repeats are dropped by number.
    let feed = state.cluster.subscribe();
    let following = Following {
        cluster: state.cluster,
        asking: state.asking,
        rows: state.streams.rows,
        caller,
        wanted: Arc::new(wanted),
        reader: Reader::default(),
        last,
    };
    Ok(Sse::new(following.tell(feed, since.is_some(), place))
        .keep_alive(KeepAlive::new().interval(HEARTBEAT).text("alive")))
}

async fn newest_event(cluster: &Cluster) -> Result<u64, Problem> {
    let newest = cluster.store().events(&EventFilter { limit: 1, ..EventFilter::default() }).await?;
    Ok(newest.items.first().map_or(0, |event| event.seq))
}

/// Subjects that changed since the last flush.
#[derive(Debug, Default)]
struct Changed {
    jobs: BTreeSet<JobId>,
    nodes: BTreeSet<NodeId>,
    plans: BTreeSet<PlanId>,
}

impl Changed {
    fn note(&mut self, topics: Topics, part: &Part, feed: &Feed) {
        if !part.may_have(feed) {
            return;
        }
        match feed {
            Feed::Job(job) if topics.jobs => {
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

    fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.nodes.is_empty() && self.plans.is_empty()
    }
}

/// One reader and how far it has come.
struct Following {
    cluster: Cluster,
    asking: Asking,
    rows: Rows,
    caller: Principal,
    wanted: Arc<Wanted>,
    reader: Reader,
    /// The newest event that was told, or passed over.
    last: u64,
}

impl Following {
    fn tell(
        mut self,
        mut feed: Receiver<Arc<Feed>>,
        resumes: bool,
        place: Place,
    ) -> impl Stream<Item = Result<Event, Infallible>> {
        async_stream::stream! {
            let _held = (OpenStream::count(), place);
            let topics = self.wanted.topics;
            if resumes && topics.events {
                for event in self.missed().await {
                    yield Ok(event);
                }
            }
            let mut changed = Changed::default();
            let mut standing = self.cluster.standing();
            let mut flush = tokio::time::interval(COALESCE);
            flush.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    news = feed.recv() => match news {
                        Ok(news) => {
                            if let Feed::Event(record) = &*news && topics.events && record.seq > self.last {
                                self.last = record.seq;
                                for event in self.logged(vec![record.clone()]).await {
                                    yield Ok(event);
                                }
                            }
                            changed.note(topics, &self.wanted.part, &news);
                        }
                        Err(RecvError::Lagged(_)) => {
                            changed = Changed::default();
                            self.reader.forget();
                            if topics.events {
                                for event in self.missed().await {
                                    yield Ok(event);
                                }
                            }
                            if topics.have_states() {
                                yield Ok(reset());
                            }
                        }
                        Err(RecvError::Closed) => break,
                    },
                    leader = another_leads(&mut standing) => {
                        yield Ok(named("not_leading", &v1::NotLeading { leader }));
                        break;
                    }
                    _ = flush.tick(), if !changed.is_empty() => {
                        for event in self.newest(std::mem::take(&mut changed)).await {
                            yield Ok(event);
                        }
                    }
                }
            }
        }
    }

    /// Events of the log that were not told. `reset` where there are too many, where the log cannot be read, and where
    /// it has not what the reader knows: the events after that were pruned, or a restore undid what the reader heard.
    async fn missed(&mut self) -> Vec<Event> {
        let filter = EventFilter { after: Some(self.last), limit: RESUME_AT_MOST, ..EventFilter::default() };
        let page = match self.cluster.store().events(&filter).await {
            Ok(page) if page.next.is_none() => page,
            _ => return vec![reset()],
        };
        match (page.items.first(), page.items.last()) {
            (Some(first), Some(last)) => {
                let pruned = first.seq > self.last + 1;
                self.last = last.seq;
                let mut told = if pruned { vec![reset()] } else { Vec::new() };
                told.extend(self.logged(page.items).await);
                told
            }
            _ => match newest_event(&self.cluster).await {
                Ok(newest) if newest < self.last => {
                    self.last = newest;
                    vec![reset()]
                }
                Ok(_) => Vec::new(),
                Err(_) => vec![reset()],
            },
        }
    }

    /// Those that are wanted and the reader's to read. Where that cannot be found out they are left out: the log has them.
    async fn readable(&self, mut records: Vec<EventRecord>) -> Vec<EventRecord> {
        self.wanted.part.keep_own(&self.cluster, &mut records).await;
        match self.caller.keep_readable(&self.cluster, &mut records).await {
            Ok(()) => records,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "stream leaves out events of unknown jobs");
                Vec::new()
            }
        }
    }

    /// Events as this reader may have them. Where what they are about cannot be named now, they are told without its name.
    async fn logged(&self, records: Vec<EventRecord>) -> Vec<Event> {
        let records = self.readable(records).await;
        let names = lookup::names(&self.cluster, &records).await.unwrap_or_else(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "stream names nothing that has ended");
            lookup::Names::default()
        });
        let told =
            |record: &EventRecord| named("event", &conversions::event(record, &names)).id(record.seq.to_string());
        records.iter().map(told).collect()
    }

    /// What changed, as it is now. A subject that cannot be read is left out: the reader's next fetch shows it.
    async fn newest(&mut self, changed: Changed) -> Vec<Event> {
        let (view, foretold) = (self.cluster.view(), self.asking.foretold());
        let (mut live, mut ended) = (Vec::new(), Vec::new());
        for id in changed.jobs {
            match view.jobs.get(&id) {
                Some(job) => live.push(Arc::clone(job)),
                None => ended.extend(self.ended(id).await),
            }
        }
        let news = News { view, foretold, live, ended, nodes: changed.nodes };
        let mut reader = std::mem::take(&mut self.reader);
        let (rows, caller, wanted) = (self.rows.clone(), self.caller.clone(), Arc::clone(&self.wanted));
        // Rows of thousands of jobs are no work for the threads that answer.
        let work = tokio::task::spawn_blocking(move || {
            let told = reader.tell(news, &rows, &caller, &wanted);
            (reader, told)
        });
        let mut told = match work.await {
            Ok((reader, told)) => {
                self.reader = reader;
                told
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "telling what changed broke down");
                vec![reset()]
            }
        };
        for plan in changed.plans {
            if let Ok(plan) = lookup::plan(&self.cluster, plan).await {
                told.push(named("plan", &conversions::plan_summary(&plan.summary())));
            }
        }
        told
    }

    /// A job that has ended, as the reader sees it.
    async fn ended(&self, id: JobId) -> Option<headway_api::v1::Job> {
        let job = lookup::job(&self.cluster, &self.asking.foretold(), id).await.ok()?;
        let project = self.wanted.part.project.as_ref();
        let own = project.is_none_or(|project| *project == job.project) && self.reader.follows(id, &self.wanted);
        if own { self.caller.sight(&self.cluster.view(), job) } else { None }
    }
}

/// Returns once another server leads, with its address if it has one.
async fn another_leads(standing: &mut Standing) -> Option<String> {
    if let Ok(known) = standing.wait_for(Option::is_some).await {
        return known.as_ref().and_then(|known| known.leader_url().map(str::to_owned));
    }
    // The loop has ended, and the feed says so.
    std::future::pending().await
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
    fn many_changes_of_one_job_are_one_message() {
        let topics = Topics::parse(Some("jobs")).unwrap();
        let mut changed = Changed::default();
        let job = JobId(uuid::Uuid::nil());
        let mut note = |feed| changed.note(topics, &Part::default(), &feed);
        note(Feed::Job(job));
        note(Feed::Job(job));
        note(Feed::Node(NodeId(uuid::Uuid::nil())));
        assert_eq!(changed.jobs.len(), 1);
        assert!(changed.nodes.is_empty());
    }
}
