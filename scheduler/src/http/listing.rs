//! The list of jobs: filters, orders, totals. What rows are filtered and sorted by lies in the store's indexes; what only the snapshot knows (goodput,
//! predicted starts) sorts jobs that have not ended, by orders that are kept for a moment. A list costs its page, and plans nothing.

mod orders;
mod query;
mod totals;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use headway_api::v1;
use headway_engine::view::View;
use headway_types::JobId;
use serde::Serialize;

use self::orders::{Orders, Position};
use self::query::{Fields, Sort, Wanted};
use self::totals::Totals;
use super::access::Seen;
use super::auth::Principal;
use super::extract::{Json, Query};
use super::problem::Problem;
use super::{HttpState, conversions, past, waiting};
use crate::asking::Foretold;
use crate::cluster::Cluster;
use crate::store::{JobFilter, ListedJob};

pub use self::query::JobsQuery;

/// What lists remember from one to the next.
#[derive(Default)]
pub struct Memory {
    orders: Orders,
    totals: Totals,
}

/// Jobs, the newest first unless sorted by something else.
#[utoipa::path(get, path = "/jobs", tag = "jobs", params(JobsQuery),
    responses((status = 200, body = v1::JobList), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn list_jobs(
    State(state): State<HttpState>,
    caller: Principal,
    Query(query): Query<JobsQuery>,
) -> Result<Response, Problem> {
    let at = query.at;
    let wanted = Wanted::of(query)?;
    if let Some(at) = at {
        let mut then = past::jobs(&state.cluster, wanted.filter_of_the_past()?, at).await?;
        let view = state.cluster.view();
        then.items.retain(|job| caller.sees(&view, &job.project, &job.owner) != Seen::Nothing);
        return Ok(Json(then).into_response());
    }
    // Whoever is kept from some jobs is not told how many they are.
    let totals = match wanted.totals && caller.sees_all(&state.cluster.view()) {
        true => Some(state.listing.totals.of(&state.cluster, &wanted.filter).await?),
        false => None,
    };
    let (items, next_cursor) = match wanted.sort {
        Sort::Stored => stored(&state, &wanted.filter).await?,
        Sort::Live(key) => {
            let (view, foretold) = (state.cluster.view(), state.asking.foretold());
            let after = wanted.cursor.as_deref().map(str::parse::<Position>).transpose()?;
            let page = state.listing.orders.page(key, &view, &foretold, &wanted.filter, after);
            let shown = |job: &JobId| Some(waiting::live_job(view.jobs.get(job)?, &view, &foretold));
            (page.items.iter().filter_map(shown).collect(), page.next.map(|next| next.to_string()))
        }
    };
    let view = state.cluster.view();
    let items = items.into_iter().filter_map(|job| caller.sight(&view, job)).collect();
    let list = v1::JobList { items, next_cursor, totals };
    Ok(match &wanted.fields {
        None => Json(list).into_response(),
        Some(fields) => Json(trimmed(list, fields)).into_response(),
    })
}

/// A page in an order of the store's. A job that ended between the two looks is read as it ended.
async fn stored(state: &HttpState, filter: &JobFilter) -> Result<(Vec<v1::Job>, Option<String>), Problem> {
    let page = state.cluster.store().list_jobs(filter).await?;
    let (view, foretold) = (state.cluster.view(), state.asking.foretold());
    let missed: Vec<JobId> = page
        .items
        .iter()
        .filter(|job| job.ended.is_none() && !view.jobs.contains_key(&job.id))
        .map(|job| job.id)
        .collect();
    let missed = ended_meanwhile(&state.cluster, missed).await?;
    let items = page.items.into_iter().filter_map(|job| shown(job, &missed, &view, &foretold));
    Ok((items.collect(), page.next.map(|job| job.to_string())))
}

async fn ended_meanwhile(cluster: &Cluster, jobs: Vec<JobId>) -> Result<BTreeMap<JobId, v1::Job>, Problem> {
    if jobs.is_empty() {
        return Ok(BTreeMap::new());
    }
    let limit = jobs.len() as u32;
    let page = cluster.store().jobs(&JobFilter { among: Some(jobs), limit, ..JobFilter::default() }).await?;
    Ok(page.items.iter().map(|job| (job.id, conversions::stored_job(job))).collect())
}

fn shown(job: ListedJob, missed: &BTreeMap<JobId, v1::Job>, view: &Arc<View>, foretold: &Foretold) -> Option<v1::Job> {
    match (job.ended, view.jobs.get(&job.id)) {
        (Some(ended), _) => Some(conversions::stored_job(&ended)),
        (None, Some(live)) => Some(waiting::live_job(live, view, foretold)),
        (None, None) => missed.get(&job.id).cloned(),
    }
}

/// A list whose jobs have the fields asked for alone.
#[derive(Serialize)]
struct TrimmedList {
    items: Vec<serde_json::Value>,
    next_cursor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    totals: Option<v1::JobTotals>,
}

fn trimmed(list: v1::JobList, fields: &Fields) -> TrimmedList {
    let v1::JobList { items, next_cursor, totals } = list;
    TrimmedList { items: items.iter().map(|job| fields.of(job)).collect(), next_cursor, totals }
}
