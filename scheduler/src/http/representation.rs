//! How bodies travel: content encodings of requests, and entity tags of replies.
//!
//! The entity tag of a reply to GET is the version of its resource and a digest of the body. `If-Match` compares the version alone: a change needs
//! the resource as it was read, whatever its live numbers are by then. `If-None-Match` compares the whole tag, so that 304 is only said of a
//! body that is the same to the last byte.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use super::problem::Problem;

/// Hexadecimal digits of a body's digest.
const DIGITS: usize = 16;
/// Between the version and the digest.
pub const SEPARATOR: char = '-';

/// Wraps all routes of the interface.
pub async fn checked(request: Request, next: Next) -> Response {
    if let Err(problem) = check_encoding(request.headers()) {
        return problem.into_response();
    }
    let (is_get, is_head) = (*request.method() == Method::GET, *request.method() == Method::HEAD);
    if !(is_get || is_head) || !request.uri().path().starts_with("/api/v1/") {
        return next.run(request).await;
    }
    if is_head {
        // The tag of a GET has a digest of a body that is not made here.
        let mut response = next.run(request).await;
        response.headers_mut().remove(header::ETAG);
        return response;
    }
    let known = request.headers().get(header::IF_NONE_MATCH).cloned();
    let response = next.run(request).await;
    match version_of(&response) {
        Some(version) => tagged(version, known.as_ref(), response).await,
        None => response,
    }
}

/// Refuses a compressed body by name: read as it is, it would be refused as something that it is not.
fn check_encoding(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(encoding) = headers.get(header::CONTENT_ENCODING) else { return Ok(()) };
    if encoding.as_bytes().eq_ignore_ascii_case(b"identity") {
        return Ok(());
    }
    let shown = encoding.to_str().unwrap_or("?");
    let detail = format!("bodies of requests are not taken in the encoding {shown}");
    let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail);
    Err(problem.field("Content-Encoding").hint("send the body uncompressed; it may have 2 MiB"))
}

/// The version of the resource that a reply shows, where it has one.
fn version_of(response: &Response) -> Option<u64> {
    let tag = response.headers().get(header::ETAG)?.to_str().ok()?;
    let is_shown = response.status() == StatusCode::OK;
    tag.strip_prefix('"')?.strip_suffix('"')?.parse().ok().filter(|_| is_shown)
}

async fn tagged(version: u64, known: Option<&HeaderValue>, response: Response) -> Response {
    let (mut head, body) = response.into_parts();
    let Ok(body) = to_bytes(body, usize::MAX).await else { return Problem::internal().into_response() };
    let digest = hex::encode(Sha256::digest(&body));
    let tag = format!("\"{version}{SEPARATOR}{}\"", &digest[..DIGITS]);
    let value = HeaderValue::from_str(&tag).expect("digits are a header value");
    head.headers.insert(header::ETAG, value);
    if known.is_some_and(|known| names(known, &tag)) {
        head.status = StatusCode::NOT_MODIFIED;
        head.headers.remove(header::CONTENT_TYPE);
        head.headers.remove(header::CONTENT_LENGTH);
        return Response::from_parts(head, Body::empty());
    }
    Response::from_parts(head, Body::from(body))
}

/// Whether `If-None-Match` names a tag: one of a list, weak or strong, or `*`.
fn names(known: &HeaderValue, tag: &str) -> bool {
    let Ok(known) = known.to_str() else { return false };
    known.split(',').map(str::trim).any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_among_several_weak_or_strong() {
        let tag = "\"7-0123456789abcdef\"";
        for (known, is_named) in [
            ("\"7-0123456789abcdef\"", true),
            ("\"1\", W/\"7-0123456789abcdef\"", true),
            ("*", true),
            ("\"7\"", false),
            ("7-0123456789abcdef", false),
        ] {
            assert_eq!(names(&HeaderValue::from_static(known), tag), is_named, "{known}");
        }
    }
}
