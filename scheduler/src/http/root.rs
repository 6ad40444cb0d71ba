//! What machines ask at the root: is it alive, is it ready, how is it doing, which version is it, under which licences. No
//! token needed: nothing here names a job or a user.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use headway_api::v1;

use super::HttpState;
use super::problem::Problem;
use crate::{metrics, web};

/// The process answers.
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// The loop leads and answers requests.
pub async fn readyz(State(state): State<HttpState>) -> Response {
    if state.cluster.ready() {
        // It answers and reports are heard, so it stays ready; whoever looks sees that plans are late.
        let trouble =
            state.cluster.view().trouble.as_ref().map(|trouble| {
                format!("ready, but {} rounds of late gave no plan: {}\n", trouble.rounds, trouble.message)
            });
        (StatusCode::OK, trouble.unwrap_or_else(|| "ready\n".to_owned())).into_response()
    } else {
        Problem::unavailable("the scheduler does not lead yet").into_response()
    }
}

/// Prometheus text format.
pub async fn scrape(State(state): State<HttpState>) -> Response {
    let Some(handle) = &state.metrics else {
        return Problem::not_found("metrics are not recorded in this process").into_response();
    };
    metrics::observe(&state.cluster.view());
    handle.run_upkeep();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], handle.render()).into_response()
}

pub async fn version(State(state): State<HttpState>) -> axum::Json<v1::Version> {
    axum::Json(v1::Version { version: env!("CARGO_PKG_VERSION").into(), build: state.build.into(), api: "v1".into() })
}

/// For people, who find it linked from the page.
pub async fn licenses() -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], web::licenses()).into_response()
}
