//! What machines ask at the root: is it alive, is it ready, how is it doing, which version is it, under which licences. No
//! token needed: nothing here names a job or a user.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use headway_api::v1;

use super::HttpState;
use super::problem::Problem;
use super::standby::not_leading;
use crate::{metrics, web};

/// However many ask, metrics are as old as this at most, and made no more often.
pub const SCRAPE_REST: Duration = Duration::from_secs(1);

/// The process answers.
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// The loop leads and answers requests. A standby is not ready, so that what spreads the load sends everything to the leader.
pub async fn readyz(State(state): State<HttpState>) -> Response {
    if let Some(standing) = state.cluster.stands_by() {
        let shown = format!("; what it shows is {:.1} s old", standing.age().as_secs_f64());
        not_leading(&standing).and(&shown).into_response()
    } else if state.cluster.ready() {
        (StatusCode::OK, in_words(&state)).into_response()
    } else {
        Problem::unavailable(state.cluster.why_not_leading()).into_response()
    }
}

/// It answers and reports are heard, so it stays ready; whoever looks sees that plans are late.
fn in_words(state: &HttpState) -> String {
    let (view, health) = (state.cluster.view(), state.cluster.rounds());
    let trouble = view
        .trouble
        .as_ref()
        .map(|trouble| format!("{} rounds of late gave no plan: {}", trouble.rounds, trouble.message));
    let late = view.late_round().map(|since| format!("a round has been under way for {}", since.words()));
    let left = (health.deferred > 0).then(|| format!("{} jobs wait for their goodput curves", health.deferred));
    let ahead = view.nodes_ahead().map(|told| format!("{told} (`headway admin readmit`)"));
    let doubted = view.clock_doubted();
    let returning = view.nodes_returning();
    let but: Vec<String> =
        ahead.into_iter().chain(returning).chain(doubted).chain(trouble).chain(late).chain(left).collect();
    if but.is_empty() { "ready\n".to_owned() } else { format!("ready, but {}\n", but.join("; ")) }
}

/// Prometheus text format, rendered at most once in `SCRAPE_REST`.
pub async fn scrape(State(state): State<HttpState>, headers: HeaderMap) -> Response {
    let Some(handle) = &state.metrics else {
        return Problem::not_found("metrics are not recorded in this process").into_response();
    };
    let (cluster, handle) = (state.cluster.clone(), handle.clone());
    let render = move || {
        let standing = cluster.stands_by();
        metrics::leads(cluster.ready());
        metrics::stands_by(standing.as_ref().map(|standing| standing.age()));
        match standing {
            None => metrics::observe(&cluster.view(), cluster.plan_age()),
            // The leader counts: sums over servers count once.
            Some(_) => metrics::observe(&cluster.view().without_rows(), None),
        }
        handle.run_upkeep();
        handle.render()
    };
    state.scraped.text(render).await.told("text/plain; version=0.0.4; charset=utf-8", &headers).await
}

pub async fn version(State(state): State<HttpState>) -> axum::Json<v1::Version> {
    axum::Json(v1::Version { version: env!("CARGO_PKG_VERSION").into(), build: state.build.into(), api: "v1".into() })
}

/// For people, who find it linked from the page.
pub async fn licenses(headers: HeaderMap) -> Response {
    web::kept_licenses().told("text/plain; charset=utf-8", &headers).await
}
