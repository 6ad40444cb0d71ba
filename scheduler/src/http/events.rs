//! The event log: searched by what its lines name, and the chain of causes that a line stands in.

mod chain;

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::State;
use chrono::{DateTime, Utc};
use headway_api::v1;
use headway_engine::record::EventRecord;
use headway_types::{Generation, JobId, NodeId, PlanId};
use serde::Deserialize;
use uuid::Uuid;

use super::auth::Principal;
use super::extract::{Json, Path, Query};
use super::problem::Problem;
use super::{HttpState, conversions, lookup};
use crate::store::EventFilter;

pub const EVENTS_AT_MOST: u32 = 1_000;
const VERBS_AT_MOST: usize = 20;
/// What a chain is looked for in: events of a job or node before and after the one asked of, jobs and nodes and plans beside it.
const BEFORE: u32 = 60;
const AFTER: u32 = 30;
const BESIDE: usize = 10;
/// Plans whose causes are looked for.
const PLANS: usize = 3;

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Oldest first, after this sequence number; the page before gives it as `next_cursor`.
    after: Option<u64>,
    /// Newest first, before this sequence number (the `next_cursor` of the page before).
    cursor: Option<u64>,
    /// 100 if absent, 1000 at most.
    limit: Option<u32>,
    job: Option<Uuid>,
    /// Id or name, also of a node that was deleted.
    node: Option<String>,
    plan: Option<Uuid>,
    /// Of jobs of this project.
    project: Option<String>,
    /// What happened: comma-separated, 20 at most (`job.granted,job.moved`).
    verb: Option<String>,
    /// Who did it: a user's name, `scheduler`, or as events tell it (`user:ada`, `node:ID`).
    actor: Option<String>,
    /// From this moment on.
    since: Option<DateTime<Utc>>,
    /// Before this moment.
    until: Option<DateTime<Utc>>,
}

/// The event log of the cluster, without the events of jobs that are not the caller's to read: a page may hold fewer than its limit, none at times,
/// and there is more as long as it has a `next_cursor`.
#[utoipa::path(get, path = "/events", tag = "cluster", params(EventsQuery),
    responses((status = 200, body = v1::EventList), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn events(
    State(state): State<HttpState>,
    caller: Principal,
    Query(query): Query<EventsQuery>,
) -> Result<Json<v1::EventList>, Problem> {
    readable(&state, &caller, query).await
}

async fn readable(state: &HttpState, caller: &Principal, query: EventsQuery) -> Result<Json<v1::EventList>, Problem> {
    let out_of_sight = caller.out_of_sight(&state.cluster.view());
    if let Some(hidden) = out_of_sight {
        let of_job = match query.job {
            Some(job) => state.veils.hides(&state.cluster, &hidden, JobId(job)).await?,
            None => false,
        };
        if of_job || query.project.as_ref().is_some_and(|project| hidden.projects.contains(project)) {
            // As of one that does not exist, without a next page.
            return Ok(Json(v1::EventList { items: vec![], next_cursor: None }));
        }
    }
    page(state, caller, query).await
}

/// The event log of one job.
#[utoipa::path(get, path = "/jobs/{id}/events", tag = "jobs", params(("id" = Uuid, Path), EventsQuery),
    responses((status = 200, body = v1::EventList), (status = 404, body = v1::Problem, content_type = "application/problem+json")))]
pub async fn job_events(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    Query(query): Query<EventsQuery>,
) -> Result<Json<v1::EventList>, Problem> {
    lookup::record(&state.cluster, JobId(id)).await?;
    page(&state, &caller, EventsQuery { job: Some(id), ..query }).await
}

/// The event log of one node, also of one that was deleted, without the events of jobs that are not the caller's to read.
#[utoipa::path(get, path = "/nodes/{node}/events", tag = "nodes", params(("node" = String, Path), EventsQuery),
    responses((status = 200, body = v1::EventList), (status = 404, body = v1::Problem, content_type = "application/problem+json")))]
pub async fn node_events(
    State(state): State<HttpState>,
    caller: Principal,
    Path(node): Path<String>,
    Query(query): Query<EventsQuery>,
) -> Result<Json<v1::EventList>, Problem> {
    if query.node.is_some() {
        return Err(Problem::bad_request("the path names the node").field("node").hint("leave out ?node="));
    }
    let node = Some(node);
    readable(&state, &caller, EventsQuery { node, ..query }).await
}

/// What led to an event and what came of it, oldest first: a fault, the node it took, the job that stopped, the plan, the job's next start. Each
/// says which of them it follows from. Looked for among the events of its job, its node and its plan, and of jobs that a node took with it.
#[utoipa::path(get, path = "/events/{id}/chain", tag = "cluster", params(("id" = u64, Path)),
    responses((status = 200, body = v1::EventChain), (status = 404, body = v1::Problem, content_type = "application/problem+json")))]
pub async fn event_chain(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<u64>,
) -> Result<Json<v1::EventChain>, Problem> {
    let none = || Problem::not_found(format!("no event {id}"));
    let event = state.cluster.store().event(id).await?.ok_or_else(none)?;
    let mut around = around(&state, event).await?;
    caller.keep_readable(&state.cluster, &mut around).await?;
    if around.binary_search_by_key(&id, |event| event.seq).is_err() {
        return Err(none());
    }
    let names = lookup::names(&state.cluster, &around).await?;
    let link = |link: &chain::Link| v1::EventLink {
        event: conversions::event(link.event, &names),
        because_of: link.because_of,
    };
    Ok(Json(v1::EventChain { items: chain::chain(&around, id).iter().map(link).collect() }))
}

async fn page(state: &HttpState, caller: &Principal, query: EventsQuery) -> Result<Json<v1::EventList>, Problem> {
    let filter = filter(state, query).await?;
    let mut page = state.cluster.store().events(&filter).await?;
    caller.keep_readable(&state.cluster, &mut page.items).await?;
    let names = lookup::names(&state.cluster, &page.items).await?;
    Ok(Json(v1::EventList {
        items: page.items.iter().map(|event| conversions::event(event, &names)).collect(),
        next_cursor: page.next.map(|seq| seq.to_string()),
    }))
}

async fn filter(state: &HttpState, query: EventsQuery) -> Result<EventFilter, Problem> {
    let node = match query.node.as_deref() {
        None => None,
        Some(node) => Some(lookup::node_ever(&state.cluster, node).await?),
    };
    let told = |actor: &str| actor == "scheduler" || actor.contains(':');
    Ok(EventFilter {
        after: query.after,
        before: query.cursor,
        job: query.job.map(JobId),
        node,
        plan: query.plan.map(PlanId),
        project: query.project,
        actor: query.actor.map(|actor| if told(&actor) { actor } else { format!("user:{actor}") }),
        verbs: query.verb.as_deref().map(verbs).transpose()?.unwrap_or_default(),
        since: query.since.map(conversions::timestamp),
        until: query.until.map(conversions::timestamp),
        limit: query.limit.unwrap_or(100),
    })
}

fn verbs(text: &str) -> Result<Vec<String>, Problem> {
    let verbs: Vec<String> = text.split(',').map(|verb| verb.trim().to_owned()).collect();
    let wrong = |detail: String| {
        Problem::bad_request(detail).field("verb").hint("as events tell them: job.granted, node.lost, plan.adopted")
    };
    if let Some(none) = verbs.iter().find(|verb| !verb.contains('.')) {
        return Err(wrong(format!("\"{none}\" is nothing that happens")));
    }
    if verbs.len() > VERBS_AT_MOST {
        return Err(wrong(format!("at most {VERBS_AT_MOST} kinds of events at once")));
    }
    Ok(verbs)
}

/// The events that a chain is looked for in, in the order of the log: those of its job, of jobs that its node or its plan concerns, of the plans
/// near it, and what plans came from.
async fn around(state: &HttpState, of: EventRecord) -> Result<Vec<EventRecord>, Problem> {
    let seq = of.seq;
    let any = EventFilter::default;
    let of_job = |job: JobId| EventFilter { job: Some(job), ..any() };
    let of_node = |node: NodeId| EventFilter { node: Some(node), ..any() };
    let earlier = |filter: EventFilter| EventFilter { before: Some(seq), limit: BEFORE, ..filter };
    let later = |filter: EventFilter| EventFilter { after: Some(seq), limit: AFTER, ..filter };
    let mut found = Found { state, events: BTreeMap::from([(seq, of.clone())]) };
    if let Some(job) = of.job {
        found.take(earlier(of_job(job))).await?;
    }
    let adopted = EventFilter { verbs: vec![chain::ADOPTED.into()], ..any() };
    if chain::asks_for_a_round(&of.verb) {
        found.take(EventFilter { limit: 1, ..later(adopted) }).await?;
    }
    if let (Some(node), None) = (of.node, of.job) {
        found.take(later(of_node(node))).await?;
    }
    if chain::is_waited_for(&of.verb) {
        let verbs = vec![chain::UNBLOCKED.into(), "job.cancelled".into()];
        found.take_if(later(EventFilter { verbs, ..any() }), |one| chain::dependency(one) == of.job).await?;
    }
    for other in found.nearest(seq, chain::dependency) {
        found.take(earlier(of_job(other))).await?;
    }
    found.name_plans().await?;
    for plan in found.nearest(seq, |event| event.plan) {
        found.take(EventFilter { plan: Some(plan), limit: AFTER, ..any() }).await?;
    }
    for job in found.nearest(seq, |event| event.job.filter(|_| event.seq >= seq)) {
        found.take(later(of_job(job))).await?;
    }
    for node in found.nearest(seq, |event| event.node) {
        found.take(earlier(of_node(node))).await?;
    }
    let plans = found.nearest(seq, |event| (event.verb == chain::ADOPTED).then_some(event.seq));
    for plan in plans.into_iter().take(PLANS) {
        let verbs = chain::asking().map(str::to_owned).collect();
        found.take(EventFilter { before: Some(plan), verbs, limit: 1, ..any() }).await?;
    }
    Ok(found.events.into_values().collect())
}

/// Events by their number.
struct Found<'a> {
    state: &'a HttpState,
    events: BTreeMap<u64, EventRecord>,
}

impl Found<'_> {
    async fn take(&mut self, filter: EventFilter) -> Result<(), Problem> {
        self.take_if(filter, |_| true).await
    }

    async fn take_if(&mut self, filter: EventFilter, fits: impl Fn(&EventRecord) -> bool) -> Result<(), Problem> {
        let read = self.state.cluster.store().events(&filter).await?.items.into_iter().filter(fits);
        for event in read {
            self.events.entry(event.seq).or_insert(event);
        }
        Ok(())
    }

    /// What is named nearest to an event.
    fn nearest<T: Ord>(&self, seq: u64, named: impl Fn(&EventRecord) -> Option<T>) -> BTreeSet<T> {
        let mut events: Vec<&EventRecord> = self.events.values().collect();
        events.sort_by_key(|event| event.seq.abs_diff(seq));
        let mut nearest = BTreeSet::new();
        for one in events.into_iter().filter_map(named) {
            if nearest.len() < BESIDE {
                nearest.insert(one);
            }
        }
        nearest
    }

    /// Grants of an earlier release do not say whose plan they are; what was allocated does.
    async fn name_plans(&mut self) -> Result<(), Problem> {
        let keys: Vec<(JobId, Generation)> = self.events.values().filter_map(granted).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let held = self.state.cluster.store().allocations_of(&keys).await?;
        let plans: BTreeMap<_, _> = held.iter().map(|one| ((one.job, one.generation), one.plan)).collect();
        for event in self.events.values_mut() {
            if let Some(plan) = granted(event).and_then(|key| plans.get(&key)) {
                event.plan = *plan;
            }
        }
        Ok(())
    }
}

/// What a grant that names no plan was of ("g3").
fn granted(event: &EventRecord) -> Option<(JobId, Generation)> {
    let silent = event.plan.is_none() && chain::GRANTS.contains(&event.verb.as_str());
    let generation = event.detail.get("generation").filter(|_| silent)?;
    Some((event.job?, Generation(generation.trim_start_matches('g').parse().ok()?)))
}
