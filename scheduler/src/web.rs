//! The web UI, embedded into the binary: hashed assets with a long cache life, `index.html` for every page of the
//! application. It never answers below `/api`, and never needs `web/dist` to exist when the binary is built.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use bytes::Bytes;
use rust_embed::{EmbeddedFile, RustEmbed};

use crate::kept::Kept;

#[derive(RustEmbed)]
#[folder = "../web/dist"]
#[allow_missing = true]
struct Dist;

/// Scripts and styles only from this origin; nothing may frame the UI. Inline styles are what the charts need.
const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
     img-src 'self' data:; connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; \
     frame-ancestors 'none'";

/// The REST API's reference, a page of its own (web/docs.html).
const REFERENCE: (&str, &str) = ("docs", "docs.html");

/// The worker's wheel in an index of packages (PEP 503; scripts/build-wheel.py), of which each folder is a page.
const PACKAGES: &str = "simple";

/// Vite puts a content hash into the names below this folder, so they never change.
const HASHED: &str = "assets/";

const NOT_BUILT: &str = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Headway</title></head>\
<body><h1>Headway is running</h1><p>This binary was built without the web UI. Run <code>npm ci &amp;&amp; npm run build\
</code> in <code>web/</code> and build the binary again.</p><p>The REST API is at <a href=\"/api/v1/openapi.json\">\
/api/v1</a>, metrics at <a href=\"/metrics\">/metrics</a>; the command line works as ever: <code>headway ps</code>.</p>\
</body></html>\n";

/// Headway's licence and notice, and those of everything that page and binary are made of (scripts/third-party-licenses.py).
#[must_use]
pub fn licenses() -> String {
    const THIRD_PARTY: &str = "third-party-licenses.txt";
    const NOT_LISTED: &str =
        "This binary was built without the list of what others contributed to it: `make web` writes it.\n";
    let others = Dist::get(THIRD_PARTY).map(|file| String::from_utf8_lossy(&file.data).into_owned());
    let parts = [include_str!("../../NOTICE"), include_str!("../../LICENSE"), others.as_deref().unwrap_or(NOT_LISTED)];
    parts.join(&format!("\n{}\n", "=".repeat(80)))
}

/// The same, for whoever asks a server.
pub fn kept_licenses() -> &'static Kept {
    static KEPT: LazyLock<Kept> = LazyLock::new(|| Kept::new(licenses()));
    &KEPT
}

/// The page or asset at `uri`, or `None` where the UI has nothing to say (another method, or a path of the API).
pub async fn page(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Response> {
    let path = uri.path().trim_start_matches('/');
    if !matches!(*method, Method::GET | Method::HEAD) || path == "api" || path.starts_with("api/") {
        return None;
    }
    if let Some(file) = Dist::get(path) {
        return Some(asset(path, file, headers).await);
    }
    if path == PACKAGES || path.starts_with(&format!("{PACKAGES}/")) {
        let page = format!("{}/index.html", path.trim_end_matches('/'));
        // Links of a folder's page begin at the folder.
        return match Dist::get(&page) {
            Some(_) if !path.ends_with('/') => Some(Redirect::permanent(&format!("/{path}/")).into_response()),
            Some(file) => Some(asset(&page, file, headers).await),
            None => None,
        };
    }
    if path.starts_with(HASHED) {
        return None;
    }
    let page = if path.trim_end_matches('/') == REFERENCE.0 { REFERENCE.1 } else { "index.html" };
    Some(match Dist::get(page) {
        Some(file) => asset(page, file, headers).await,
        None => respond(StatusCode::OK, "text/html; charset=utf-8", "no-store", NOT_BUILT.into_response()),
    })
}

async fn asset(path: &str, file: EmbeddedFile, headers: &HeaderMap) -> Response {
    let tag = format!("\"{}\"", hex::encode(&file.metadata.sha256_hash()[..16]));
    let cache = if path.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" };
    let fresh = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let media = media_type(path);
    let (status, body) = if fresh {
        (StatusCode::NOT_MODIFIED, ().into_response())
    } else {
        (StatusCode::OK, kept(file).told(media, headers).await)
    };
    let mut response = respond(status, media, cache, body);
    response.headers_mut().insert(header::ETAG, HeaderValue::from_str(&tag).expect("a quoted hex string is a header"));
    response
}

/// A file, known by its content: of a binary that was built for debugging they are read anew from disk, and may have changed.
fn kept(file: EmbeddedFile) -> Kept {
    static KEPT: Mutex<BTreeMap<[u8; 32], Kept>> = Mutex::new(BTreeMap::new());
    let mut all = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = all.entry(file.metadata.sha256_hash()).or_insert_with(|| {
        Kept::new(match file.data {
            Cow::Borrowed(bytes) => Bytes::from_static(bytes),
            Cow::Owned(bytes) => bytes.into(),
        })
    });
    kept.clone()
}

fn respond(status: StatusCode, media: &'static str, cache: &'static str, mut response: Response) -> Response {
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// The types a bundler emits; anything else is handed over as bytes.
fn media_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json" | "map") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("webmanifest") => "application/manifest+json",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(path: &str) -> Option<Response> {
        page(&Method::GET, &path.parse().expect("a path"), &HeaderMap::new()).await
    }

    #[tokio::test]
    async fn pages_of_the_application_are_html_with_a_content_security_policy() {
        for path in ["/", "/jobs", "/jobs/0192", "/docs"] {
            let response = get(path).await.expect("a page");
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(response.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8");
            let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().expect("text");
            assert!(policy.contains("script-src 'self'"), "{policy}");
        }
    }

    #[tokio::test]
    async fn the_reference_is_a_page_of_its_own() {
        let tag = async |path| get(path).await.and_then(|page| page.headers().get(header::ETAG).cloned());
        let built = Dist::get("docs.html").is_some();
        let (docs, jobs) = (tag("/docs").await, tag("/jobs").await);
        assert_eq!((docs.is_some(), docs != jobs), (built, built));
        assert_eq!(tag("/docs/").await, docs);
    }

    #[tokio::test]
    async fn the_workers_wheel_is_found_as_pip_looks_for_it() {
        assert!(get("/simple/no-such-package/").await.is_none(), "whoever looks for another package is sent elsewhere");
        let Some(index) = get("/simple/").await else {
            assert!(Dist::get("simple/index.html").is_none());
            return;
        };
        assert_eq!(index.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8");
        let moved = get("/simple/headway").await.expect("a page");
        assert_eq!(
            (moved.status(), &moved.headers()[header::LOCATION]),
            (StatusCode::PERMANENT_REDIRECT, &HeaderValue::from_static("/simple/headway/"))
        );
        let page = get("/simple/headway/").await.expect("a page");
        let page = axum::body::to_bytes(page.into_body(), 1 << 16).await.expect("a body");
        let page = String::from_utf8_lossy(&page);
        let link = page.split('"').find(|text| text.contains(".whl#sha256=")).expect("a link");
        let (name, sha256) = link.split_once("#sha256=").expect("a hash");
        let wheel = get(&format!("/simple/headway/{name}")).await.expect("a wheel");
        assert_eq!(wheel.headers()[header::CONTENT_TYPE], "application/octet-stream");
        let wheel = axum::body::to_bytes(wheel.into_body(), 1 << 24).await.expect("a body");
        assert_eq!(hex::encode(<sha2::Sha256 as sha2::Digest>::digest(&wheel)), sha256);
    }

    #[tokio::test]
    async fn the_api_and_missing_assets_are_not_pages() {
        assert!(get("/api/v1/nothing").await.is_none());
        assert!(get("/assets/gone-1234.js").await.is_none());
        assert!(page(&Method::POST, &Uri::from_static("/"), &HeaderMap::new()).await.is_none());
    }

    #[test]
    fn licences_are_our_own_and_those_of_others_or_say_that_they_are_not_listed() {
        let text = licenses();
        assert!(text.starts_with("Headway\n") && text.contains("Apache License"), "{text:.200}");
        let others = ["\ntokio ", "\nreact ", "\nRust standard library "];
        let listed = others.iter().filter(|name| text.contains(*name)).count();
        let expected = if Dist::get("third-party-licenses.txt").is_some() { others.len() } else { 0 };
        assert_eq!((listed, text.contains("`make web`")), (expected, expected == 0));
    }

    #[test]
    fn bundled_files_have_their_media_type() {
        assert_eq!(media_type("assets/index-4f2a.js"), "text/javascript; charset=utf-8");
        assert_eq!(media_type("favicon.svg"), "image/svg+xml");
        assert_eq!(media_type("LICENSE"), "application/octet-stream");
    }
}
