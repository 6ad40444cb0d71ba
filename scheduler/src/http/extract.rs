//! Axum's extractors with our errors: whatever is wrong with a path, a query or a body comes back as problem+json.

use axum::body::HttpBody as _;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, OptionalFromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headway_api::v1;
use serde::Serialize;

use super::problem::Problem;
use super::representation::SEPARATOR;

/// A JSON body, in or out.
#[derive(Debug, Default, FromRequest)]
#[from_request(via(axum::Json), rejection(Problem))]
pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

/// An absent or empty body is `None`, whatever its type is said to be: what it would say has defaults.
impl<S: Send + Sync, T: serde::de::DeserializeOwned> OptionalFromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Option<Self>, Problem> {
        if request.body().is_end_stream() {
            return Ok(None);
        }
        let body = <axum::Json<T> as OptionalFromRequest<S>>::from_request(request, state).await?;
        Ok(body.map(|axum::Json(value)| Self(value)))
    }
}

/// Path parameters.
#[derive(Debug, FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(Problem))]
pub struct Path<T>(pub T);

/// Query parameters.
#[derive(Debug, FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(Problem))]
pub struct Query<T>(pub T);

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => too_large(),
            StatusCode::UNSUPPORTED_MEDIA_TYPE => unsupported_media(),
            status @ StatusCode::UNPROCESSABLE_ENTITY => Problem::new(status, "invalid", rejection.body_text()),
            _ => Problem::bad_request(rejection.body_text()),
        }
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        Problem::not_found(rejection.body_text()).hint("ids are UUIDs as the API shows them")
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        Problem::bad_request(rejection.body_text())
    }
}

pub fn too_large() -> Problem {
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", "the body is larger than 2 MiB")
        .hint("submit fewer jobs at once")
}

pub fn unsupported_media() -> Problem {
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "the body has no content type we read")
        .hint("send application/json (job specifications may also be application/yaml)")
}

/// Why the caller does it; a body may be absent.
pub fn reason(body: Option<Json<v1::ReasonRequest>>) -> Option<String> {
    body.and_then(|Json(body)| body.reason)
}

/// A version as an entity tag.
pub fn etag(version: u64) -> String {
    format!("\"{version}\"")
}

/// The version that `If-Match` asks for; `*` is any. Whether it is the present one is for the engine to say: what is
/// compared here could be old by the time the change is made.
pub fn if_match(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(header::IF_MATCH).filter(|value| *value != "*") else { return Ok(None) };
    let tag = value.to_str().ok().map(str::trim);
    let version = tag.and_then(|tag| {
        let tag = tag.strip_prefix('"')?.strip_suffix('"')?;
        // What is behind the version is a digest of the body that was read.
        tag.split(SEPARATOR).next()?.parse::<u64>().ok()
    });
    version.filter(|version| *version > 0).map(Some).ok_or_else(|| {
        Problem::bad_request("If-Match is no entity tag of ours")
            .field("If-Match")
            .hint("send the ETag of what you have read as it is, or * for any version")
    })
}
