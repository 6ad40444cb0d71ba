//! The errors of an operation, by status: those that every request may meet, and those that follow from what the operation takes. What
//! a handler declares as `4XX` stands for all that its subject may be refused for; a range itself says nothing to whoever reads the document.

use axum::http::{Method, StatusCode};
use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::{ContentBuilder, HeaderBuilder, Ref, RefOr};

const ANY_REFUSAL: &str = "4XX";

/// Writes out the errors that an operation may be answered with.
pub fn tell(path: &str, method: &Method, operation: &mut Operation) {
    let subject = operation.responses.responses.remove(ANY_REFUSAL).is_some();
    let has = |place: ParameterIn, name: Option<&str>| {
        operation.parameters.iter().flatten().any(|one| match one {
            RefOr::T(Parameter { parameter_in, name: known, .. }) => {
                *parameter_in == place && name.is_none_or(|name| name == known)
            }
            RefOr::Ref(_) => false,
        })
    };
    let named = has(ParameterIn::Path, None);
    let conditional = has(ParameterIn::Header, Some("If-Match"));
    let body = operation.request_body.is_some();
    let changes = *method != Method::GET;
    let is_log = path.ends_with("/logs");
    let forgets = has(ParameterIn::Query, Some("at")) || path.contains("/plans/{");
    let may = [
        (StatusCode::BAD_REQUEST, true, "A parameter or the body cannot be read"),
        (StatusCode::UNAUTHORIZED, true, "No token, or one that opens nothing"),
        (StatusCode::FORBIDDEN, true, "The token does not open this"),
        (StatusCode::NOT_FOUND, named || subject, "There is none, or none that the caller may know of"),
        (StatusCode::REQUEST_TIMEOUT, body || changes, "The body did not come in time"),
        (
            StatusCode::CONFLICT,
            subject || changes || named,
            "Its state does not allow it, a quota is used up, or its name means several",
        ),
        (StatusCode::GONE, forgets, "It was known once, and is not kept any longer"),
        (StatusCode::PRECONDITION_FAILED, conditional, "It is at another version than If-Match says"),
        (StatusCode::PAYLOAD_TOO_LARGE, body || *method == Method::POST, "The body is larger than 2 MiB"),
        (StatusCode::UNSUPPORTED_MEDIA_TYPE, body, "The body has no content type that is read here"),
        (StatusCode::UNPROCESSABLE_ENTITY, body || subject, "What is asked for contradicts itself or the cluster"),
        (
            StatusCode::TOO_MANY_REQUESTS,
            true,
            "The caller asks too fast, has too many bodies under way, or too many wrong tokens came from its address",
        ),
        (StatusCode::INTERNAL_SERVER_ERROR, true, "A fault of the scheduler; its log says more"),
        (StatusCode::BAD_GATEWAY, is_log, "The agent refuses to read the log"),
        (
            StatusCode::SERVICE_UNAVAILABLE,
            true,
            "Not now: it starts, is busy, or another server leads (`not_leading`, with its address in `leader`)",
        ),
        (StatusCode::GATEWAY_TIMEOUT, true, "It took too long; whether it was done is unknown"),
    ];
    for (status, _, what) in may.into_iter().filter(|(_, may, _)| *may) {
        let told = operation.responses.responses.entry(status.as_str().to_owned());
        told.or_insert_with(|| RefOr::T(problem(status, what)));
    }
}

fn problem(status: StatusCode, what: &str) -> Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    let response = ResponseBuilder::new().description(what).content("application/problem+json", content);
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            response.header("Retry-After", HeaderBuilder::new().description(Some("Seconds to wait")).build()).build()
        }
        _ => response.build(),
    }
}
