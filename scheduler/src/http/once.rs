//! `Idempotency-Key` on whatever is posted: a repeated request with the same key and body is done once. The engine
//! keeps the keys, in the transaction that stores what they did; here they are read, and what a repetition is about is
//! looked up. Requests that store nothing (questions) need no key: asked again they are answered again.

use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use headway_engine::event::{IdempotencyKey, Request as EngineRequest};
use headway_engine::outcome::Reply;
use headway_types::{JobId, PlanId, ReservationId};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::extract::too_large;
use super::limits::BODY_BYTES;
use super::problem::Problem;
use super::{lookup, mismatched};
use crate::cluster::Cluster;

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
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
pub async fn keyed(request: Request, next: Next) -> Response {
    if request.method() != Method::POST || !request.headers().contains_key(&KEY) {
        return next.run(request).await;
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

fn key_of(headers: &HeaderMap) -> Result<String, Problem> {
    let key = headers.get(&KEY).and_then(|value| value.to_str().ok());
    let key = key.filter(|key| !key.is_empty() && key.len() <= 255).map(ToOwned::to_owned);
    key.ok_or_else(|| {
        Problem::bad_request("an Idempotency-Key has 1 to 255 printable characters").field("Idempotency-Key")
    })
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

/// What a repeated request was answered then, as it is now.
pub async fn repeated(cluster: &Cluster, request: &EngineRequest, subjects: &[Uuid]) -> Result<Reply, Problem> {
    let repeated = |reply| {
        ONCE.try_with(|once| once.replayed.store(true, Ordering::Relaxed)).ok();
        Ok(reply)
    };
    let (Some(subject), false) = (subjects.first().copied(), subjects.len() > 1) else {
        return Err(mismatched(&Reply::Repeated { subjects: subjects.to_vec() }));
    };
    match request {
        EngineRequest::Drain { .. }
        | EngineRequest::Cordon { .. }
        | EngineRequest::Uncordon { .. }
        | EngineRequest::MarkLost { .. } => {
            let view = cluster.view();
            let node = view.nodes.values().find(|node| node.node.inventory.node.0 == subject);
            let node = node.ok_or_else(|| Problem::not_found(format!("no node {subject}")))?;
            repeated(Reply::Node(node.node.clone()))
        }
        EngineRequest::Rebalance { .. } => repeated(Reply::Rebalance(PlanId(subject))),
        EngineRequest::Approve { .. } | EngineRequest::Reject { .. } => {
            repeated(Reply::Plan(lookup::plan(cluster, PlanId(subject)).await?))
        }
        EngineRequest::Reserve { .. } => {
            let view = cluster.view();
            let one = view.reservations.get(&ReservationId(subject));
            let one = one.ok_or_else(|| Problem::not_found(format!("reservation {subject} is over")))?;
            repeated(Reply::Reservation(one.clone()))
        }
        _ => repeated(Reply::Job(lookup::record(cluster, JobId(subject)).await?)),
    }
}
