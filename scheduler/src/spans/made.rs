//! The spans there are, each with its fields. None of them costs anything where nothing is exported.

use std::time::Duration;

use axum::http::{HeaderMap, Method};
use headway_engine::{Event, SessionId};
use headway_planner::PlanInput;
use headway_types::{NodeId, NodeReport, PlanId, Term, TokenScope};
use tracing::field::Empty;
use tracing::{Span, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::TARGET;
use super::trace::{self, Cause};
use crate::store::StoreError;

/// What OpenTelemetry calls a span that ended badly.
const BAD: &str = "ERROR";

/// Whose request was let in, by what the token opens; in the extensions of the reply.
#[derive(Clone, Copy, Debug)]
pub struct Caller(pub TokenScope);

/// The span of a request, which continues the caller's trace, and the id of the trace that it is part of. `route`: as the table of routes
/// writes it.
pub fn request(method: &Method, route: &str, request: &str, headers: &HeaderMap) -> (Span, Option<String>) {
    let span = info_span!(
        target: TARGET,
        parent: None,
        "request",
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method.as_str(),
        http.route = route,
        http.response.status_code = Empty,
        headway.request_id = request,
        headway.principal = Empty,
    );
    let caller = trace::of_caller(headers);
    let of_caller = trace::id(&caller);
    if span.is_disabled() {
        return (span, of_caller);
    }
    // Fails only where nothing is exported.
    let _ = span.set_parent(caller);
    let trace = trace::id(&span.context()).or(of_caller);
    (span, trace)
}

/// What came of a request.
pub fn answered(span: &Span, status: u16, caller: Option<Caller>) {
    span.record("http.response.status_code", i64::from(status));
    if let Some(Caller(scope)) = caller {
        span.record("headway.principal", <&str>::from(scope));
    }
    if status >= 500 {
        span.record("otel.status_code", BAD);
    }
}

/// A round, from its input to its plan.
pub fn round(plan: PlanId) -> Span {
    info_span!(
        target: TARGET,
        parent: None,
        "round",
        otel.status_code = Empty,
        headway.plan_id = %plan,
        headway.jobs = Empty,
        headway.nodes = Empty,
        headway.deferred_jobs = Empty,
        headway.milliseconds = Empty,
        headway.outcome = Empty,
        headway.gap_ratio = Empty,
    )
}

/// What came of a round. `given_up`: it ended after nobody waited for it any more.
pub fn round_ended(span: &Span, input: Option<&PlanInput>, event: &Event, took: Duration, given_up: bool) {
    if span.is_disabled() {
        return;
    }
    if let Some(input) = input {
        span.record("headway.jobs", input.jobs.len() as i64);
        span.record("headway.nodes", input.nodes.len() as i64);
        span.record("headway.deferred_jobs", input.deferred.len() as i64);
    }
    span.record("headway.milliseconds", took.as_secs_f64() * 1_000.0);
    let outcome = match event {
        _ if given_up => "given_up",
        Event::PlanReady { plan } => {
            if let Some(gap) = plan.plan().report.gap {
                span.record("headway.gap_ratio", gap);
            }
            "ready"
        }
        Event::PlanRefused { .. } => "refused",
        _ => "failed",
    };
    span.record("headway.outcome", outcome);
    if outcome != "ready" {
        span.record("otel.status_code", BAD);
    }
}

/// A transaction of the loop, with the requests that it answers as links.
pub fn commit(term: Term, changes: usize, causes: Vec<Cause>) -> Span {
    let span = info_span!(
        target: TARGET,
        parent: None,
        "commit",
        otel.kind = "client",
        otel.status_code = Empty,
        headway.term = term.0 as i64,
        headway.changes = changes as i64,
        headway.requests = causes.len() as i64,
        headway.outcome = Empty,
    );
    causes.into_iter().for_each(|Cause(cause)| span.add_link(cause));
    span
}

/// What came of a transaction.
pub fn committed(span: &Span, result: &Result<(), StoreError>) {
    let outcome = match result {
        Ok(()) => "committed",
        Err(StoreError::Fenced { .. }) => "fenced",
        Err(StoreError::Conflict { .. }) => "conflict",
        Err(_) => "unknown",
    };
    span.record("headway.outcome", outcome);
    if result.is_err() {
        span.record("otel.status_code", BAD);
    }
}

/// The session of an agent, from its registration to its end.
pub fn agent_session(node: NodeId, session: SessionId) -> Span {
    info_span!(
        target: TARGET,
        parent: None,
        "agent session",
        otel.kind = "server",
        headway.node_id = %node,
        headway.session = session.0 as i64,
    )
}

/// A report of an agent, until the loop has it; of heartbeats there is none.
pub fn agent_report(node: NodeId, session: SessionId, report: &NodeReport) -> Span {
    if matches!(report, NodeReport::Heartbeat) {
        return Span::none();
    }
    info_span!(
        target: TARGET,
        parent: None,
        "agent report",
        otel.kind = "consumer",
        headway.node_id = %node,
        headway.session = session.0 as i64,
        headway.report = <&str>::from(report),
    )
}

/// A question to an agent, until it is answered.
pub fn agent_asked(node: NodeId) -> Span {
    info_span!(target: TARGET, "agent asked", otel.kind = "client", headway.node_id = %node)
}
