//! The list of jobs: filters, orders, totals. What rows are filtered and sorted by lies in the store's indexes; what only the snapshot knows (goodput,
//! predicted starts) sorts jobs that have not ended, by orders that are kept for a moment. A list costs its page, and plans nothing.

mod ended;
mod orders;
mod query;
mod totals;

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use headway_api::v1;
use headway_types::JobId;
use serde::Serialize;

use self::ended::Ended;
use self::orders::{Orders, Position};
use self::query::{Fields, Sort, Wanted};
use self::totals::Totals;
use super::auth::Principal;
use super::extract::{Json, Query};
use super::problem::Problem;
use super::{HttpState, conversions, past, waiting};
use crate::store::{JobFilter, ListedJob};

pub use self::query::JobsQuery;

/// What lists remember from one to the next.
#[derive(Default)]
pub struct Memory {
    orders: Orders,
    totals: Totals,
    ended: Ended,
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
    let out_of_sight = caller.out_of_sight(&state.cluster.view());
    let mut wanted = Wanted::of(query)?;
    wanted.filter.out_of_sight = out_of_sight;
    if let Some(at) = at {
        let then = past::jobs(&state.cluster, wanted.filter_of_the_past()?, at).await?;
        return Ok(Json(then).into_response());
    }
    let totals = match wanted.totals {
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

/// A page in an order of the store's. The records of jobs that have ended are read once and remembered.
async fn stored(state: &HttpState, filter: &JobFilter) -> Result<(Vec<v1::Job>, Option<String>), Problem> {
    let page = state.cluster.store().list_jobs(filter).await?;
    let (view, foretold) = (state.cluster.view(), state.asking.foretold());
    let ended = |job: &&ListedJob| !view.jobs.contains_key(&job.id);
    let mut known = state.listing.ended.of(page.items.iter().filter(ended));
    let unknown: Vec<JobId> =
        page.items.iter().filter(ended).map(|job| job.id).filter(|job| !known.contains_key(job)).collect();
    if !unknown.is_empty() {
        let limit = unknown.len() as u32;
        let filter = JobFilter { among: Some(unknown), limit, ..JobFilter::default() };
        for record in state.cluster.store().jobs(&filter).await?.items {
            let version = ListedJob { id: record.id, version: record.version };
            let job = Arc::new(conversions::stored_job(&record));
            if record.state.kind().is_final() {
                state.listing.ended.remember(version, &job);
            }
            known.insert(record.id, job);
        }
    }
    let shown = |job: &ListedJob| match view.jobs.get(&job.id) {
        Some(live) => Some(waiting::live_job(live, &view, &foretold)),
        None => known.get(&job.id).map(|job| v1::Job::clone(job)),
    };
    Ok((page.items.iter().filter_map(shown).collect(), page.next.map(|job| job.to_string())))
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
