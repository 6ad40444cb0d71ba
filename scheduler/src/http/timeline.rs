//! The timeline: which job and which node was in which state when, as bars of lanes. Read from the store with one query a kind for a page of lanes, drawn
//! off the reactor by `drawing`; nothing is planned or predicted for it.

mod drawing;
mod lanes;

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::State;
use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use headway_api::v1;
use headway_types::{JobId, NodeId, Seconds, Timestamp};
use serde::Deserialize;
use tokio::sync::Semaphore;

use self::lanes::{Jobs, Nodes};
use super::access::Seen;
use super::auth::Principal;
use super::conversions::time;
use super::extract::{Json, Query};
use super::problem::Problem;
use super::{HttpState, conversions, cursor, goodput, lookup};
use crate::store::{EventFilter, SpanFilter};

/// Six hours.
const USUAL: Seconds = Seconds(21_600.0);
/// A year and a bit, as of usage.
const LONGEST: Seconds = Seconds(400.0 * 86_400.0);
const LANES: u32 = 50;
pub const LANES_AT_MOST: u32 = 200;
const JOBS_AT_MOST: usize = 200;
const PLANS_AT_MOST: u32 = 200;
/// Allocations on the nodes of a page.
const HELD_AT_MOST: usize = 5_000;
/// Timelines that are drawn at once.
static SLOTS: Semaphore = Semaphore::const_new(2);

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct TimelineQuery {
    /// `job` (the newest first) or `node` (by name). `job` if absent.
    group: Option<String>,
    /// Six hours before `to` if absent; at most 400 days before it.
    from: Option<DateTime<Utc>>,
    /// Now if absent. What is still to come has reservations and predictions alone.
    to: Option<DateTime<Utc>>,
    /// Seconds below which states are drawn together; fitted to the span if absent, and no finer than a 2,000th of it.
    res: Option<f64>,
    /// Only these jobs: comma-separated ids, 200 at most.
    job: Option<String>,
    /// Only jobs of this project.
    project: Option<String>,
    /// Only this node, by id or name, also one that was deleted.
    node: Option<String>,
    /// Lanes; 50 if absent, 200 at most.
    limit: Option<u32>,
    /// The `next_cursor` of the page before, asked for with the same span and group.
    cursor: Option<String>,
}

/// What jobs or nodes were doing over a span of time: lanes of bars, with reservations, plans and predictions. Over a long span short states are drawn
/// together, and the reply says so (`aggregated`). A page may hold fewer lanes than its limit, and there are more as long as it has a `next_cursor`.
#[utoipa::path(get, path = "/timeline", tag = "cluster", params(TimelineQuery),
    responses((status = 200, body = v1::Timeline), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn timeline(
    State(state): State<HttpState>,
    caller: Principal,
    Query(query): Query<TimelineQuery>,
) -> Result<Json<v1::Timeline>, Problem> {
    let now = state.cluster.now();
    let frame = Frame::of(&query, now)?;
    let (plans, more_plans) = plans(&state, frame).await?;
    let (lanes, next_cursor, more_held, group) = match query.group.as_deref() {
        None | Some("job") => {
            let (lanes, next) = jobs(&state, &caller, &query, frame).await?;
            (lanes, next, false, "job")
        }
        Some("node") => {
            let (lanes, next, left_out) = nodes(&state, &caller, &query, frame).await?;
            (lanes, next, left_out, "node")
        }
        Some(other) => {
            let unknown = Problem::bad_request(format!("lanes cannot be grouped by \"{other}\"")).field("group");
            return Err(unknown.hint("group by job or node"));
        }
    };
    let view = state.cluster.view();
    let reservations = view.reservations.values().filter(|one| one.from < frame.to && one.until > frame.from);
    Ok(Json(v1::Timeline {
        from: time(frame.from),
        to: time(frame.to),
        now: time(now),
        group: group.into(),
        resolution_seconds: frame.resolution.map(|step| step.0),
        aggregated: frame.resolution.map(|step| format!("aggregated to {}", in_words(step))),
        lanes,
        next_cursor: next_cursor.map(cursor::bind),
        reservations: reservations.map(|one| conversions::reservation(one, &view)).collect(),
        plans,
        left_out: more_plans || more_held,
    }))
}

/// The span that is asked for and how finely.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub from: Timestamp,
    pub to: Timestamp,
    pub now: Timestamp,
    pub resolution: Option<Seconds>,
}

impl Frame {
    fn of(query: &TimelineQuery, now: Timestamp) -> Result<Self, Problem> {
        let to = query.to.map_or(now, conversions::timestamp);
        let from = query.from.map_or(to - USUAL, conversions::timestamp);
        let wrong = |field: &str, detail: &str| Err(Problem::bad_request(detail).field(field));
        if from >= to {
            return wrong("from", "a span begins before it ends");
        }
        if to.since(from) > LONGEST {
            return wrong("from", "a span is 400 days at most");
        }
        if query.res.is_some_and(|step| !(0.0..=1e9).contains(&step)) {
            return wrong("res", "a resolution is 0 s to 1e9 s");
        }
        let resolution = drawing::resolution(query.res.map(Seconds), to.since(from));
        Ok(Self { from, to, now, resolution })
    }

    /// Where bars end.
    pub fn end(self) -> Timestamp {
        self.to.min(self.now)
    }
}

async fn jobs(
    state: &HttpState,
    caller: &Principal,
    query: &TimelineQuery,
    frame: Frame,
) -> Result<(Vec<v1::TimelineLane>, Option<String>), Problem> {
    let store = state.cluster.store();
    let cursor = query.cursor.as_deref().map(job_position).transpose()?;
    let filter = SpanFilter {
        from: frame.from,
        to: frame.to,
        project: query.project.clone(),
        among: query.job.as_deref().map(named).transpose()?,
        out_of_sight: caller.out_of_sight(&state.cluster.view()),
        cursor,
        limit: query.limit.unwrap_or(LANES),
    };
    let page = store.jobs_within(&filter).await?;
    let view = state.cluster.view();
    let seen = page.items.into_iter().map(|job| (caller.sees(&view, &job.project, &job.owner), job));
    let shown: Vec<_> =
        seen.filter(|(seen, _)| *seen != Seen::Nothing).map(|(seen, job)| (job, seen == Seen::Whole)).collect();
    let ids: Vec<JobId> = shown.iter().map(|(job, _)| job.id).collect();
    let entries = store.job_entries(&ids, frame.from, frame.to).await?;
    let held = store.allocations_within(&ids, frame.from, frame.to).await?;
    let jobs = Jobs { shown, entries, held, view, foretold: state.asking.foretold() };
    let lanes = goodput::off_the_reactor(&SLOTS, move || jobs.draw(frame)).await?;
    Ok((lanes, page.next.map(|job| job.to_string())))
}

async fn nodes(
    state: &HttpState,
    caller: &Principal,
    query: &TimelineQuery,
    frame: Frame,
) -> Result<(Vec<v1::TimelineLane>, Option<String>, bool), Problem> {
    let store = state.cluster.store();
    let view = state.cluster.view();
    let mut known: BTreeSet<(String, NodeId)> =
        view.nodes.iter().map(|(id, node)| (node.node.inventory.name.clone(), *id)).collect();
    let former = store.former_nodes_within(frame.from, frame.to).await?;
    known.extend(former.into_iter().filter(|(id, _)| !view.nodes.contains_key(id)).map(|(id, name)| (name, id)));
    if let Some(node) = &query.node {
        let only = lookup::node_ever(&state.cluster, node).await?;
        known.retain(|(_, id)| *id == only);
    }
    let after = query.cursor.as_deref().map(node_position).transpose()?;
    let limit = query.limit.unwrap_or(LANES) as usize;
    let mut shown: Vec<(String, NodeId)> =
        known.into_iter().filter(|one| after.as_ref().is_none_or(|after| one > after)).take(limit + 1).collect();
    let more = shown.len() > limit;
    shown.truncate(limit);
    let next = shown.last().filter(|_| more).map(|(name, id)| format!("{id}:{name}"));
    let ids: Vec<NodeId> = shown.iter().map(|(_, id)| *id).collect();
    let entries = store.node_entries(&ids, frame.from, frame.to).await?;
    let (held, left_out) = held(state, caller, &ids, frame).await?;
    let nodes = Nodes { shown, entries, held, view };
    let lanes = goodput::off_the_reactor(&SLOTS, move || nodes.draw(frame)).await?;
    Ok((lanes, next, left_out))
}

/// Who had GPUs of these nodes; of jobs that are not the caller's to see it is told that somebody had.
async fn held(
    state: &HttpState,
    caller: &Principal,
    nodes: &[NodeId],
    frame: Frame,
) -> Result<(BTreeMap<NodeId, Vec<v1::TimelineHeld>>, bool), Problem> {
    let wanted: BTreeSet<NodeId> = nodes.iter().copied().collect();
    let view = state.cluster.view();
    let store = state.cluster.store();
    let mut found = Vec::new();
    let mut left_out = false;
    let mut rows = Box::pin(store.held(frame.from, frame.to));
    while let Some(row) = rows.try_next().await? {
        let seen = caller.sees(&view, &row.project, &row.owner) != Seen::Nothing;
        let allocation = &row.allocation;
        for slice in allocation.placement.slices().iter().filter(|slice| wanted.contains(&slice.node)) {
            let released = allocation.released.get(&slice.node).map(|release| release.at);
            if released.is_some_and(|at| at < frame.from) {
                continue;
            }
            let told = v1::TimelineHeld {
                job_id: seen.then_some(allocation.job.0),
                job_name: None,
                gpus: slice.gpus.len() as u32,
                from: time(allocation.granted_at),
                to: released.map(time),
            };
            found.push((slice.node, told));
        }
        if found.len() >= HELD_AT_MOST {
            left_out = true;
            break;
        }
    }
    // What it holds of the store is wanted for the names.
    drop(rows);
    let jobs: BTreeSet<JobId> = found.iter().filter_map(|(_, told)| told.job_id.map(JobId)).collect();
    let names = store.job_names(&jobs.into_iter().collect::<Vec<_>>()).await?;
    let mut by_node: BTreeMap<NodeId, Vec<v1::TimelineHeld>> = BTreeMap::new();
    for (node, told) in found {
        let job_name = told.job_id.and_then(|job| names.get(&JobId(job)).cloned());
        by_node.entry(node).or_default().push(v1::TimelineHeld { job_name, ..told });
    }
    by_node.values_mut().for_each(|held| held.sort_by_key(|one| (one.from, one.job_id)));
    Ok((by_node, left_out))
}

/// Plans that became the target within the span, and whether there were more.
async fn plans(state: &HttpState, frame: Frame) -> Result<(Vec<v1::TimelinePlan>, bool), Problem> {
    let filter = EventFilter {
        verbs: vec!["plan.adopted".into()],
        since: Some(frame.from),
        until: Some(frame.to),
        limit: PLANS_AT_MOST,
        ..EventFilter::default()
    };
    let page = state.cluster.store().events(&filter).await?;
    let plan = |event: headway_engine::record::EventRecord| {
        Some(v1::TimelinePlan { id: event.plan?.0, at: time(event.at), event: event.seq, message: event.message })
    };
    Ok((page.items.into_iter().filter_map(plan).collect(), page.next.is_some()))
}

fn named(text: &str) -> Result<Vec<JobId>, Problem> {
    let ids: Result<Vec<JobId>, _> = text.split(',').map(|id| id.trim().parse::<JobId>()).collect();
    let wrong = |detail: String| Problem::bad_request(detail).field("job");
    let ids = ids
        .map_err(|_| wrong(format!("\"{text}\" names no jobs")).hint("comma-separated ids, as GET /jobs shows them"))?;
    if ids.len() > JOBS_AT_MOST {
        return Err(wrong(format!("at most {JOBS_AT_MOST} jobs at once")));
    }
    Ok(ids)
}

/// Where a page of jobs ended.
fn job_position(given: &str) -> Result<JobId, Problem> {
    cursor::position(given)?.parse().map_err(|_| cursor::unknown())
}

/// Where a page of nodes ended: id, then name, which may have any sign in it.
fn node_position(given: &str) -> Result<(String, NodeId), Problem> {
    let (id, name) = cursor::position(given)?.split_once(':').ok_or_else(cursor::unknown)?;
    Ok((name.to_owned(), id.parse().map_err(|_| cursor::unknown())?))
}

/// "10 min".
fn in_words(step: Seconds) -> String {
    match step.0 {
        seconds if seconds >= 86_400.0 && seconds % 86_400.0 == 0.0 => format!("{} d", seconds / 86_400.0),
        seconds if seconds >= 3_600.0 && seconds % 3_600.0 == 0.0 => format!("{} h", seconds / 3_600.0),
        seconds if seconds >= 60.0 && seconds % 60.0 == 0.0 => format!("{} min", seconds / 60.0),
        seconds => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolution_is_told_in_the_largest_unit() {
        let told = [30.0, 600.0, 7_200.0, 86_400.0, 0.5].map(|step| in_words(Seconds(step)));
        assert_eq!(told, ["30 s", "10 min", "2 h", "1 d", "0.5 s"]);
    }
}
