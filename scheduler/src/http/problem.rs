//! Every error a REST caller sees: RFC 9457 problem+json with a stable code and a hint. It never shows the inside of
//! the scheduler (SQL, paths, secrets); the cause goes to the log.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headway_engine::outcome::Refusal;
use headway_engine::record::QuotaKind;

use super::limits;
use crate::cluster::{DISK_FULL, LogError, RequestError};
use crate::store::StoreError;

/// What a client should wait before it asks again.
const RETRY: Duration = Duration::from_secs(2);

/// And where another server may lead by then.
const TAKEOVER: Duration = Duration::from_secs(1);

/// An error reply under construction.
#[derive(Clone, Debug)]
pub struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: String,
    field: Option<String>,
    hint: Option<String>,
    retry_after: Option<Duration>,
    /// Whoever leads instead; boxed, since nearly no problem has it.
    leader: Option<Box<headway_api::v1::NotLeading>>,
}

impl Problem {
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), field: None, hint: None, retry_after: None, leader: None }
    }

    /// Says more in detail.
    pub fn and(mut self, more: &str) -> Self {
        self.detail.push_str(more);
        self
    }

    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// With more on what it is about.
    pub fn about(self, what: &str) -> Self {
        Self { detail: format!("{}: {what}", self.detail), ..self }
    }

    pub fn unauthorized(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
    }

    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail)
    }

    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail)
    }

    pub fn unknown_parameter(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "unknown_parameter", detail)
    }

    /// This server stands by; nothing was done.
    pub fn not_leading(detail: impl Into<String>, leader: Option<String>) -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "not_leading", detail);
        Self { retry_after: Some(TAKEOVER), leader: Some(Box::new(headway_api::v1::NotLeading { leader })), ..problem }
            .hint("ask the leader; give clients the addresses of all servers")
    }

    pub fn unavailable(detail: impl Into<String>) -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail);
        Self { retry_after: Some(RETRY), ..problem }
    }

    /// Too much of one kind from one caller.
    pub fn too_many(code: &'static str, detail: impl Into<String>, wait: Duration) -> Self {
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, code, detail);
        Self { retry_after: Some(wait), ..problem }
    }

    /// A bug or a broken store on our side; the details are in the log under the request id.
    pub fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the scheduler could not do this")
            .hint("the scheduler's log says why, under this reply's x-request-id")
    }

    pub fn code(&self) -> &'static str {
        self.code
    }

    pub fn detailed(&self) -> &str {
        &self.detail
    }

    pub fn hinted(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    pub fn retry_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Fenced { .. } => Self::unavailable("another scheduler leads now"),
            StoreError::DiskFull { .. } => Self::unavailable(DISK_FULL),
            error => {
                tracing::warn!(error = &error as &dyn std::error::Error, "store did not answer a reader");
                Self::unavailable("the store does not answer")
            }
        }
    }
}

impl From<RequestError> for Problem {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Busy | RequestError::Unavailable | RequestError::DiskFull => {
                Self::unavailable(error.to_string())
            }
            RequestError::TimedOut => {
                let problem = Self::new(StatusCode::GATEWAY_TIMEOUT, "timed_out", error.to_string());
                Self { retry_after: Some(RETRY), ..problem }
                    .hint("whether it was done is unknown; repeat it with the same Idempotency-Key")
            }
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            Refusal::NoSuchJob(_)
            | Refusal::NoSuchArray(_)
            | Refusal::NoSuchNode(_)
            | Refusal::NoSuchPlan(_)
            | Refusal::NoSuchProject(_)
            | Refusal::NoSuchReservation(_) => Self::not_found(detail),
            Refusal::VersionChanged { .. } => Self::new(StatusCode::PRECONDITION_FAILED, "version_changed", detail)
                .field("If-Match")
                .hint("read it again and decide afresh"),
            Refusal::KeyReused { .. } => Self::new(StatusCode::CONFLICT, "idempotency_key_reused", detail)
                .hint("use a fresh key for another request"),
            Refusal::WrongState(_) => Self::new(StatusCode::CONFLICT, "wrong_state", detail),
            Refusal::StalePlan { .. } => Self::new(StatusCode::CONFLICT, "stale_plan", detail)
                .hint("ask for a new proposal with POST /api/v1/plans/rebalance"),
            Refusal::OverQuota(over) => {
                let flag = match over.quota {
                    QuotaKind::Jobs => "jobs",
                    QuotaKind::Bytes => "bytes",
                };
                Self::new(StatusCode::CONFLICT, "user_quota_exceeded", detail).and("; nothing of it was done").hint(format!(
                    "wait until some have ended, or cancel some; an operator allows more with `headway user quota {} --{flag} N`",
                    over.user
                ))
            }
            Refusal::Invalid(_) => Self::invalid(detail),
        }
    }
}

impl From<LogError> for Problem {
    fn from(error: LogError) -> Self {
        let detail = error.to_string();
        match error {
            LogError::NotStarted => Self::new(StatusCode::CONFLICT, "not_started", detail),
            LogError::NoSuchRank { .. } => Self::not_found(detail),
            LogError::Gone(_) => Self::new(StatusCode::GONE, "gone", detail),
            LogError::NotConnected(_) | LogError::Store => Self::unavailable(detail),
            LogError::Busy(_) => {
                Self::too_many("too_many_requests", detail, Duration::from_secs(1)).hint("wait as Retry-After says")
            }
            LogError::TimedOut(_) => Self::new(StatusCode::GATEWAY_TIMEOUT, "timed_out", detail),
            LogError::Refused(_) => Self::new(StatusCode::BAD_GATEWAY, "agent_refused", detail),
        }
    }
}

/// Goes with the response, for whoever passes it on.
#[derive(Clone, Copy, Debug)]
pub struct Code(pub &'static str);

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = headway_api::v1::Problem {
            kind: "about:blank".into(),
            title: self.status.canonical_reason().unwrap_or("Error").into(),
            status: self.status.as_u16(),
            code: self.code.into(),
            detail: self.detail,
            field: self.field,
            hint: self.hint,
            leader: self.leader.and_then(|told| told.leader),
            request_id: limits::REQUEST_ID_HERE.try_with(String::clone).ok(),
            trace_id: limits::TRACE_ID_HERE.try_with(Option::clone).ok().flatten(),
        };
        let bytes = serde_json::to_vec(&body).expect("a problem is plain strings and a number");
        let mut response = (self.status, bytes).into_response();
        response.extensions_mut().insert(Code(self.code));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(wait) = self.retry_after {
            // Whoever has waited so long waits no more.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"headway\""));
        }
        response
    }
}
