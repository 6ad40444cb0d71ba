//! `Idempotency-Key` on whatever is posted: a repeated request with the same key and body is done once. The engine
//! keeps the keys, in the transaction that stores what they did, with the first reply, which a repetition gets. Requests that store
//! nothing (questions) need no key: asked again they are answered again. What takes no key (`openapi` has the list) refuses one: whoever
//! sends it believes that nothing is done twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use headway_engine::event::IdempotencyKey;
use sha2::{Digest, Sha256};

use super::access::Routes;
use super::extract::too_large;
use super::limits::BODY_BYTES;
use super::openapi::why_no_key;
use super::problem::Problem;
use crate::cluster::Cluster;
use crate::shown::Shown;

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub const KEY_NAME: &str = "Idempotency-Key";
/// The code of the refusal of a key.
pub const KEY_NOT_TAKEN: &str = "key_not_taken";
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The key of the request under way, and whether it had been used.
struct Once {
    key: String,
    route: String,
    request_hash: String,
    replayed: AtomicBool,
}

tokio::task_local! {
    static ONCE: Once;
}

/// Takes the key off a posted request, so that whatever it asks of the loop is done once.
pub async fn keyed(State(routes): State<Arc<Routes>>, request: Request, next: Next) -> Response {
    if request.method() != Method::POST || !request.headers().contains_key(&KEY) {
        return next.run(request).await;
    }
    if let Some(why) = routes.operation(&request).and_then(why_no_key) {
        return not_taken(request.uri().path(), why).into_response();
    }
    let key = match key_of(request.headers()) {
        Ok(key) => key,
        Err(problem) => return problem.into_response(),
    };
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_BYTES).await else { return too_large().into_response() };
    let (route, request_hash) = (format!("POST {}", head.uri.path()), hex::encode(Sha256::digest(&body)));
    let once = Once { key, route, request_hash, replayed: AtomicBool::new(false) };
    let answer = async {
        let mut response = next.run(Request::from_parts(head, Body::from(body))).await;
        if ONCE.with(|once| once.replayed.load(Ordering::Relaxed)) {
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
        }
        response
    };
    ONCE.scope(once, answer).await
}

/// Nothing is done: with a key that counts for nothing a repetition would do it again unnoticed.
fn not_taken(path: &str, why: &str) -> Problem {
    let detail = format!("POST {path} takes no {KEY_NAME}: {why}");
    let problem = Problem::new(StatusCode::BAD_REQUEST, KEY_NOT_TAKEN, detail).field(KEY_NAME);
    problem.hint("send it without the header; where an answer was lost, look at what there is before you ask again")
}

fn key_of(headers: &HeaderMap) -> Result<String, Problem> {
    let key = headers.get(&KEY).and_then(|value| value.to_str().ok());
    let key = key.filter(|key| !key.is_empty() && key.len() <= 255).map(ToOwned::to_owned);
    key.ok_or_else(|| Problem::bad_request("an Idempotency-Key has 1 to 255 printable characters").field(KEY_NAME))
}

/// The key of the request under way, in the caller's name.
pub fn key(principal: &str) -> Option<IdempotencyKey> {
    let key = |once: &Once| IdempotencyKey {
        principal: principal.to_owned(),
        route: once.route.clone(),
        key: once.key.clone(),
        request_hash: once.request_hash.clone(),
    };
    ONCE.try_with(key).ok()
}

/// What the request was answered when it was done.
pub async fn first_reply(cluster: &Cluster, key: &IdempotencyKey) -> Result<Response, Problem> {
    let kept = cluster.store().first_reply(key).await?;
    let Some(shown) = kept.as_deref().and_then(Shown::of_kept) else {
        let detail = format!("the request with the key {} was done, but its reply was not kept", key.key);
        return Err(Problem::new(StatusCode::CONFLICT, "reply_not_kept", detail)
            .hint("replies of an earlier release are not kept; look at what it was about"));
    };
    replayed();
    Ok(shown.into_response())
}

/// Says in the reply's head that nothing was done again.
pub fn replayed() {
    ONCE.try_with(|once| once.replayed.store(true, Ordering::Relaxed)).ok();
}
