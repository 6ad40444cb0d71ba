//! What keeps one caller from harming the rest: body size, request time, requests at once; and what makes each
//! request traceable: an id, its caller's trace, a span, a metric.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::SizeAbove;
use tracing::Instrument;

use super::problem::Problem;
use crate::server::Visitor;
use crate::{metrics, spans};

pub const BODY_BYTES: usize = 2 * 1024 * 1024;
const REQUEST_TIME: Duration = Duration::from_secs(30);
const REQUESTS_AT_ONCE: usize = 512;
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Wraps `router` so that every reply, of whatever origin, went through all limits. Streams are timed only until
/// their head is sent, which is the point where a streamed reply leaves the middleware.
pub fn limited(router: Router) -> Router {
    limited_to(router, REQUEST_TIME)
}

fn limited_to(router: Router, request_time: Duration) -> Router {
    router
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        // What is written while it is read (the stream, a log that is followed) is flushed whenever there is nothing more to write for the moment.
        .layer(CompressionLayer::new().compress_when(SizeAbove::new(1_024)))
        .layer(middleware::from_fn_with_state(request_time, timed))
        .layer(middleware::from_fn_with_state(Arc::new(Semaphore::new(REQUESTS_AT_ONCE)), admitted))
        .layer(middleware::from_fn(traced))
}

async fn timed(State(limit): State<Duration>, request: Request, next: Next) -> Response {
    match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::new(StatusCode::GATEWAY_TIMEOUT, "timed_out", "the request took too long")
            .hint("whether it was done is unknown; repeat it with the same Idempotency-Key")
            .into_response(),
    }
}

async fn admitted(State(slots): State<Arc<Semaphore>>, request: Request, next: Next) -> Response {
    match slots.try_acquire() {
        Ok(_slot) => next.run(request).await,
        Err(_) => Problem::unavailable("too many requests at once").into_response(),
    }
}

async fn traced(request: Request, next: Next) -> Response {
    if let Some(visitor) = request.extensions().get::<Visitor>() {
        visitor.speaks();
    }
    let id = request
        .headers()
        .get(&REQUEST_ID)
        .filter(|value| value.len() <= 64 && value.to_str().is_ok())
        .cloned()
        .unwrap_or_else(fresh_id);
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or("other".to_owned(), |path| path.as_str().to_owned());
    let shown = id.to_str().unwrap_or_default().to_owned();
    let (sent, trace) = spans::request(&method, &route, &shown, request.headers());
    let span = tracing::info_span!("http", %method, route, request_id = shown, trace_id = trace);
    let outer = sent.clone();
    let began = Instant::now();
    let answer = async move {
        let mut response = next.run(request).await;
        metrics::request_answered(method.as_str(), &route, response.status().as_u16(), began.elapsed());
        spans::answered(&sent, response.status().as_u16(), response.extensions().get().copied());
        tracing::debug!(status = response.status().as_u16(), took = ?began.elapsed(), "request answered");
        response.headers_mut().insert(REQUEST_ID, id);
        response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    };
    let answer = TRACE_ID_HERE.scope(trace, answer.instrument(span)).instrument(outer);
    REQUEST_ID_HERE.scope(shown, answer).await
}

tokio::task_local! {
    /// The request being answered, so that a problem can name it.
    pub static REQUEST_ID_HERE: String;
    /// The trace that it is part of, where there is one: its caller's, or that of the spans which are exported.
    pub static TRACE_ID_HERE: Option<String>;
}

fn fresh_id() -> HeaderValue {
    HeaderValue::from_str(&uuid::Uuid::now_v7().to_string()).expect("a UUID is a header value")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use axum::body::Body;
    use axum::routing::{get, post};
    use tower::ServiceExt;

    use super::*;
    use crate::http::extract::Json;

    fn app() -> Router {
        let routes = Router::new()
            .route("/never", get(std::future::pending::<()>))
            .route("/echo", post(|Json(value): Json<serde_json::Value>| async move { Json(value) }));
        limited_to(routes, Duration::from_millis(200))
    }

    #[tokio::test]
    async fn a_slow_request_ends_as_a_problem() {
        let response = app().oneshot(Request::get("/never").body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
    }

    #[tokio::test]
    async fn a_request_keeps_its_id() {
        let request = Request::post("/echo").header("x-request-id", "mine").body(Body::empty()).unwrap();
        assert_eq!(app().oneshot(request).await.unwrap().headers()[REQUEST_ID], "mine");
        let request = Request::post("/echo").body(Body::empty()).unwrap();
        assert_eq!(app().oneshot(request).await.unwrap().headers()[REQUEST_ID].len(), 36);
    }

    #[tokio::test]
    async fn a_body_over_two_mebibytes_is_refused() {
        let body = format!("\"{}\"", "x".repeat(BODY_BYTES));
        let request = Request::post("/echo").header("content-type", "application/json").body(Body::from(body)).unwrap();
        let response = app().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
    }
}
