//! What a server answers while another leads: reads, of the rows as they were a moment ago, each with their age. What changes something, and what
//! only the leader's agents and loop know, is the leader's: it is refused before anything is done, with the leader's address. A server that
//! led and does not know yet who leads now answers the same way.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use chrono::SecondsFormat;
use headway_types::Timestamp;

use super::HttpState;
use super::conversions::time;
use super::problem::Problem;
use crate::driver::StandsBy;

const STANDBY: HeaderName = HeaderName::from_static("headway-standby");
const AS_OF: HeaderName = HeaderName::from_static("headway-as-of");
const AGE: HeaderName = HeaderName::from_static("headway-age-seconds");

/// Wraps all routes.
pub async fn checked(State(state): State<HttpState>, request: Request, next: Next) -> Response {
    if !request.uri().path().starts_with("/api/v1/") {
        return next.run(request).await;
    }
    let leaders = is_the_leaders(request.method(), request.uri().path());
    let Some(standing) = state.cluster.stands_by() else {
        if state.cluster.holds_the_lead() {
            return next.run(request).await;
        }
        // As after this process was stopped for a while: it is about to find out who leads now.
        if leaders {
            return Problem::unavailable(state.cluster.why_not_leading()).into_response();
        }
        let (as_of, age) = state.cluster.lead_ended();
        return as_read(next.run(request).await, as_of, age);
    };
    if leaders {
        return not_leading(&standing).into_response();
    }
    as_read(next.run(request).await, standing.as_of, standing.age())
}

/// Says how old the rows are that an answer was made from.
fn as_read(mut response: Response, as_of: Timestamp, age: Duration) -> Response {
    let headers = response.headers_mut();
    headers.insert(STANDBY, HeaderValue::from_static("true"));
    let as_of = time(as_of).to_rfc3339_opts(SecondsFormat::Millis, true);
    headers.extend(HeaderValue::from_str(&as_of).ok().map(|as_of| (AS_OF, as_of)));
    let age = format!("{:.1}", age.as_secs_f64());
    headers.extend(HeaderValue::from_str(&age).ok().map(|age| (AGE, age)));
    response
}

/// What only the leader does and knows. Questions that are posted are about its newest round.
fn is_the_leaders(method: &Method, path: &str) -> bool {
    let live = path == "/api/v1/stream" || path.ends_with("/logs");
    live || changes(method)
}

fn changes(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Nothing was done: the request is for another server.
pub fn not_leading(standing: &StandsBy) -> Problem {
    let detail = match standing.leader_url() {
        Some(url) => format!("this server is a standby; {url} leads"),
        None => "this server is a standby, and nobody says that he leads".to_owned(),
    };
    Problem::not_leading(detail, standing.leader_url().map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_something_and_what_agents_know_is_the_leaders() {
        for (method, path) in [
            (Method::POST, "/api/v1/jobs"),
            (Method::DELETE, "/api/v1/nodes/n1"),
            (Method::POST, "/api/v1/plans/simulate"),
            (Method::GET, "/api/v1/stream"),
            (Method::GET, "/api/v1/jobs/7/logs"),
        ] {
            assert!(is_the_leaders(&method, path), "{method} {path}");
        }
        for path in ["/api/v1/jobs", "/api/v1/overview", "/api/v1/leader", "/api/v1/jobs/7/events"] {
            assert!(!is_the_leaders(&Method::GET, path), "{path}");
        }
    }
}
