//! Traces across processes: what a caller says of its own (W3C `traceparent`), and which request led to what is done for many at once.

use axum::http::HeaderMap;
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{SpanContext, TraceContextExt as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;

/// A span that led to something, where one is being made.
#[derive(Clone, Debug)]
pub struct Cause(pub(super) SpanContext);

/// What is under way here; `None` where nothing is exported.
pub fn cause() -> Option<Cause> {
    let here = Context::current().span().span_context().clone();
    here.is_valid().then_some(Cause(here))
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(|name| name.as_str()).collect()
    }
}

/// The trace that the caller is in; an empty context where it says none, or one that is none.
pub(super) fn of_caller(headers: &HeaderMap) -> Context {
    TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(headers))
}

/// 32 hexadecimal digits; `None` where there is no trace.
pub(super) fn id(context: &Context) -> Option<String> {
    let span = context.span();
    let span = span.span_context();
    span.is_valid().then(|| span.trace_id().to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn told(traceparent: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert("traceparent", traceparent.parse().unwrap());
        id(&of_caller(&headers))
    }

    #[test]
    fn a_caller_names_its_trace_or_none() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(told(&format!("00-{trace}-00f067aa0ba902b7-01")).as_deref(), Some(trace));
        let zeros = "0".repeat(32);
        for wrong in ["", "x", &format!("00-{zeros}-00f067aa0ba902b7-01"), &format!("00-{trace}-00f067aa0ba902b7")] {
            assert_eq!(told(wrong), None, "{wrong}");
        }
        assert_eq!(id(&of_caller(&HeaderMap::new())), None);
    }
}
