//! The errors of an operation, by status: those that every request may meet, and those that follow from what the operation takes. What
//! a handler declares as `4XX` stands for all that its subject may be refused for; a range itself says nothing to whoever reads the document.

use axum::http::{Method, StatusCode};
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{Content, ContentBuilder, HeaderBuilder, Ref, RefOr, Required};

const ANY_REFUSAL: &str = "4XX";
const UNKNOWN: &str = "There is none, or none that the caller may know of";

/// Writes out the replies of an operation whole: its errors, what each reply says, and whether one may say that nothing has changed.
pub fn complete(path: &str, method: &Method, operation: &mut Operation) {
    tell_conditional(method, operation);
    tell(path, method, operation);
    describe(method, operation);
}

/// A reply with an entity tag may be asked for on the condition that it has changed.
fn tell_conditional(method: &Method, operation: &mut Operation) {
    let reply = operation.responses.responses.get("200");
    let has_tag = matches!(reply, Some(RefOr::T(reply)) if reply.headers.contains_key("ETag"));
    if *method != Method::GET || !has_tag {
        return;
    }
    let condition = ParameterBuilder::new()
        .name("If-None-Match")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some("Entity tags of replies that are known already: 304 if the reply has one of them"))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build();
    operation.parameters.get_or_insert_default().push(RefOr::T(condition));
    operation.responses.responses.insert("304".to_owned(), RefOr::T(Response::default()));
}

/// Describes the replies whose handlers leave it to the status and the schema. OpenAPI demands a description of each.
fn describe(method: &Method, operation: &mut Operation) {
    for (status, response) in &mut operation.responses.responses {
        let RefOr::T(response) = response else { continue };
        if response.description.is_empty() {
            let schema = response.content.values().find_map(schema_in_words);
            response.description = description(method, status, schema.as_deref());
        }
    }
}

fn description(method: &Method, status: &str, schema: Option<&str>) -> String {
    match (status, schema) {
        ("200", Some(schema)) if *method == Method::GET => format!("The {schema}"),
        ("200", Some(schema)) => format!("Done; the reply is the {schema}"),
        ("201", Some(schema)) => format!("Created; the reply is the {schema}"),
        ("200", None) => "Done".to_owned(),
        ("201", None) => "Created".to_owned(),
        ("204", _) => "Done; the reply has no body".to_owned(),
        ("304", _) => "Not modified: the reply has an entity tag that If-None-Match names".to_owned(),
        ("404", _) => UNKNOWN.to_owned(),
        (status, _) => format!("Status {status}"),
    }
}

/// "job list", of a reference to `JobList`.
fn schema_in_words(content: &RefOr<Content>) -> Option<String> {
    let RefOr::T(content) = content else { return None };
    let reference = match content.schema.as_ref()? {
        RefOr::Ref(reference) => reference,
        // The first is the reply to a request without further parameters.
        RefOr::T(Schema::AnyOf(several)) => match several.items.first()? {
            RefOr::Ref(reference) => reference,
            RefOr::T(_) => return None,
        },
        RefOr::T(_) => return None,
    };
    let mut words = String::new();
    for letter in reference.ref_location.rsplit('/').next()?.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    Some(words)
}

/// Writes out the errors that an operation may be answered with.
fn tell(path: &str, method: &Method, operation: &mut Operation) {
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
    let forgets = is_log || has(ParameterIn::Query, Some("at")) || path.contains("/plans/{");
    let may = [
        (StatusCode::BAD_REQUEST, true, "A parameter or the body cannot be read"),
        (StatusCode::UNAUTHORIZED, true, "No token, or one that opens nothing"),
        (StatusCode::FORBIDDEN, true, "The token does not open this"),
        (StatusCode::NOT_FOUND, named || subject, UNKNOWN),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::http::openapi::{complete, routes};

    #[test]
    fn every_reply_has_a_description_and_none_is_a_mere_status() {
        let document = serde_json::to_value(complete(routes().into_openapi())).unwrap();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                for (status, reply) in operation["responses"].as_object().unwrap() {
                    let said = reply["description"].as_str().unwrap_or_default();
                    assert!(!said.is_empty() && !said.starts_with("Status "), "{method} {path} {status}: {reply}");
                }
            }
        }
    }

    #[test]
    fn a_reply_is_described_by_what_it_is() {
        assert_eq!(description(&Method::GET, "200", Some("job list")), "The job list");
        assert_eq!(description(&Method::POST, "201", Some("created token")), "Created; the reply is the created token");
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("JobDetail"))).build();
        assert_eq!(schema_in_words(&RefOr::T(content)).as_deref(), Some("job detail"));
    }
}
