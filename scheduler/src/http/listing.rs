//! The list of jobs: filters, orders, totals. What rows are filtered and sorted by lies in the store's indexes; what only the snapshot knows (goodput,
//! predicted starts) sorts jobs that have not ended, by orders that are kept for a moment. A list costs its page, and plans nothing.

mod ended;
mod orders;
mod query;
mod shown;
mod totals;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use headway_api::v1;
use headway_engine::view::{JobView, View};
use headway_types::{ArrayId, JobId};
use serde::Serialize;

use self::ended::Ended;
use self::orders::{Orders, Position};
use self::query::{Sort, Wanted};
use self::shown::{Live, Shown};
use self::totals::Totals;
use super::access::Seen;
use super::auth::Principal;
use super::extract::{Json, Query};
use super::problem::Problem;
use super::{HttpState, arrays, conversions, cursor, past, waiting};
use crate::asking::Foretold;
use crate::store::{JobFilter, ListedJob};

pub use self::query::{Fields, JOBS_AT_MOST, JobsQuery, id_end};

/// Whoever names jobs by their ids means one.
const FOUND_BY_ID: u32 = 1_000;

/// What lists remember from one to the next.
#[derive(Default)]
pub struct Memory {
    orders: Orders,
    totals: Totals,
    ended: Ended,
    live: Live,
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
    if let Some(end) = &wanted.id {
        wanted.filter.among = Some(state.cluster.store().jobs_by_id(end, FOUND_BY_ID).await?);
    }
    let totals = match wanted.totals {
        true => Some(state.listing.totals.of(&state.cluster, &wanted.filter).await?),
        false => None,
    };
    let (items, next_cursor) = match wanted.sort {
        Sort::Stored if wanted.collapsed => collapsed(&state, &wanted.filter).await?,
        Sort::Stored => {
            let page = state.cluster.store().list_jobs(&wanted.filter).await?;
            (stored(&state, &page.items).await?, page.next.map(|job| job.to_string()))
        }
        Sort::Live(key) => {
            let (view, foretold) = (state.cluster.view(), state.asking.foretold());
            let after = wanted.position.as_deref().map(str::parse::<Position>).transpose()?;
            let page = state.listing.orders.page(key, &view, &foretold, &wanted.filter, after);
            let shown = |job: &JobId| Some(live_row(&state, view.jobs.get(job)?, &view, &foretold));
            (page.items.iter().filter_map(shown).collect(), page.next.map(|next| next.to_string()))
        }
    };
    let view = state.cluster.view();
    let seen = |row: Arc<Shown>| match caller.sees(&view, &row.project, &row.owner) {
        Seen::Whole => Some(row),
        Seen::Outline => Some(Arc::new(row.outline())),
        Seen::Nothing => None,
    };
    let rows: Vec<Arc<Shown>> = items.into_iter().filter_map(seen).collect();
    let rest = Rest { next_cursor: next_cursor.map(cursor::bind), totals };
    let text = match &wanted.fields {
        None => written(rows.iter().map(|row| row.text.as_str()), &rest),
        Some(fields) => {
            let trimmed: Vec<String> = rows.iter().map(|row| fields.of(&row.text)).collect();
            written(trimmed.iter().map(String::as_str), &rest)
        }
    };
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

fn live_row(state: &HttpState, live: &Arc<JobView>, view: &View, foretold: &Foretold) -> Arc<Shown> {
    state.listing.live.row(live, || waiting::live_job(live, view, foretold))
}

/// A page with one row per array.
async fn collapsed(state: &HttpState, filter: &JobFilter) -> Result<(Vec<Arc<Shown>>, Option<String>), Problem> {
    let page = state.cluster.store().list_collapsed(filter).await?;
    let (jobs, of): (Vec<ListedJob>, Vec<Option<ArrayId>>) = page.items.into_iter().unzip();
    let known = arrays::of_page(state, of.iter().flatten().copied()).await?;
    let of: BTreeMap<JobId, ArrayId> = jobs.iter().zip(of).filter_map(|(job, of)| Some((job.id, of?))).collect();
    let rows = stored(state, &jobs).await?.into_iter().map(|row| {
        let array = of.get(&row.job).and_then(|array| known.get(array));
        array.map_or(Arc::clone(&row), |array| Arc::new(row.standing_for(array)))
    });
    Ok((rows.collect(), page.next.map(|job| job.to_string())))
}

/// Rows of a page. The records of jobs that have ended are read once and remembered.
async fn stored(state: &HttpState, items: &[ListedJob]) -> Result<Vec<Arc<Shown>>, Problem> {
    let (view, foretold) = (state.cluster.view(), state.asking.foretold());
    let ended = |job: &&ListedJob| !view.jobs.contains_key(&job.id);
    let mut known = state.listing.ended.of(items.iter().filter(ended));
    let unknown: Vec<JobId> =
        items.iter().filter(ended).map(|job| job.id).filter(|job| !known.contains_key(job)).collect();
    if !unknown.is_empty() {
        let limit = unknown.len() as u32;
        let filter = JobFilter { among: Some(unknown), limit, ..JobFilter::default() };
        for record in state.cluster.store().jobs(&filter).await?.items {
            let version = ListedJob { id: record.id, version: record.version };
            let job = Arc::new(Shown::of(&conversions::stored_job(&record)));
            if record.state.kind().is_final() {
                state.listing.ended.remember(version, &job);
            }
            known.insert(record.id, job);
        }
    }
    let shown = |job: &ListedJob| match view.jobs.get(&job.id) {
        Some(live) => Some(live_row(state, live, &view, &foretold)),
        None => known.get(&job.id).cloned(),
    };
    Ok(items.iter().filter_map(shown).collect())
}

/// What a list has beside its rows.
#[derive(Serialize)]
struct Rest {
    next_cursor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    totals: Option<v1::JobTotals>,
}

/// A `v1::JobList`, of rows that are JSON already.
fn written<'a>(rows: impl Iterator<Item = &'a str> + Clone, rest: &Rest) -> String {
    let rest = serde_json::to_string(rest).expect("wire types are plain JSON");
    let mut text = String::with_capacity(rows.clone().map(|row| row.len() + 1).sum::<usize>() + rest.len() + 16);
    text.push_str("{\"items\":[");
    for (at, row) in rows.enumerate() {
        if at > 0 {
            text.push(',');
        }
        text.push_str(row);
    }
    text.push_str("],");
    // Behind its opening brace: it has one member at least.
    text.push_str(&rest[1..]);
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::http::fixtures;

    #[test]
    fn a_list_of_texts_is_the_list_of_its_jobs() {
        let view = fixtures::running();
        let job = conversions::live_job(&view.jobs[&fixtures::job_id()], &view);
        for (count, next_cursor) in [(0, None), (1, Some("a\"b".to_owned())), (3, None)] {
            let items = vec![job.clone(); count];
            let rows: Vec<Shown> = items.iter().map(Shown::of).collect();
            let rest = Rest { next_cursor: next_cursor.clone(), totals: None };
            let text = written(rows.iter().map(|row| row.text.as_str()), &rest);
            let list = v1::JobList { items, next_cursor, totals: None };
            assert_eq!(text, serde_json::to_string(&list).unwrap());
        }
    }
}
