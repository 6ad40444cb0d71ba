//! Texts that are the same for everybody who asks: made once, compressed once, and shared, so that telling them costs no memory and no
//! time. What is open to strangers is told by this alone.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::sync::{Mutex, OnceCell};

/// What is shorter is not worth compressing.
const SHORT: usize = 1_024;

/// A text that all its readers share; cheap to clone.
#[derive(Clone)]
pub struct Kept(Arc<Text>);

struct Text {
    plain: Bytes,
    packed: OnceCell<Bytes>,
}

impl Kept {
    pub fn new(plain: impl Into<Bytes>) -> Self {
        Self(Arc::new(Text { plain: plain.into(), packed: OnceCell::new() }))
    }

    /// The text in the form that whoever asks takes.
    pub async fn told(&self, media: &'static str, headers: &HeaderMap) -> Response {
        let media = (header::CONTENT_TYPE, HeaderValue::from_static(media));
        if self.0.plain.len() <= SHORT {
            return ([media], self.0.plain.clone()).into_response();
        }
        let varies = (header::VARY, HeaderValue::from_static("accept-encoding"));
        if !takes_gzip(headers) {
            return ([media, varies], self.0.plain.clone()).into_response();
        }
        let packed = (header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        ([media, varies, packed], self.packed().await).into_response()
    }

    /// Off the reactor, by the first who wants it.
    async fn packed(&self) -> Bytes {
        let pack = || async {
            let plain = self.0.plain.clone();
            tokio::task::spawn_blocking(move || pack(&plain)).await.expect("packing panics nowhere")
        };
        self.0.packed.get_or_init(pack).await.clone()
    }
}

fn pack(plain: &[u8]) -> Bytes {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(plain).and_then(|()| packed.finish()).expect("memory takes whatever is written").into()
}

/// Whether it is named and not forbidden (RFC 9110, 12.5.3).
fn takes_gzip(headers: &HeaderMap) -> bool {
    let told = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|told| told.to_str().ok());
    let mut codings = told.flat_map(|told| told.split(',')).map(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.trim().parse::<f32>().ok());
        (name.trim(), weight.unwrap_or(1.0))
    });
    codings.any(|(name, weight)| ["gzip", "x-gzip"].iter().any(|gzip| name.eq_ignore_ascii_case(gzip)) && weight > 0.0)
}

/// A text that is made anew at most so often, however many ask.
pub struct Renewed {
    rest: Duration,
    last: Mutex<Option<(Instant, Kept)>>,
}

impl Renewed {
    pub fn every(rest: Duration) -> Self {
        Self { rest, last: Mutex::default() }
    }

    /// The text, made off the reactor where it is too old. Who asks meanwhile waits for it.
    pub async fn text(&self, make: impl FnOnce() -> String + Send + 'static) -> Kept {
        let mut last = self.last.lock().await;
        if let Some((_, kept)) = last.as_ref().filter(|(at, _)| at.elapsed() < self.rest) {
            return kept.clone();
        }
        let made = tokio::task::spawn_blocking(make).await.unwrap_or_else(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "making a text broke down");
            String::new()
        });
        let kept = Kept::new(made);
        *last = Some((Instant::now(), kept.clone()));
        kept
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::to_bytes;

    use super::*;

    fn taking(codings: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(codings))])
    }

    async fn body(kept: &Kept, headers: &HeaderMap) -> Bytes {
        to_bytes(kept.told("text/plain", headers).await.into_body(), 1 << 20).await.unwrap()
    }

    #[tokio::test]
    async fn all_who_ask_are_told_from_the_same_memory() {
        let kept = Kept::new("a line of text\n".repeat(10_000));
        for headers in [HeaderMap::new(), taking("br, gzip;q=0.5")] {
            let (one, other) = (body(&kept, &headers).await, body(&kept, &headers).await);
            assert_eq!((one.as_ptr(), one.len()), (other.as_ptr(), other.len()));
        }
        let packed = body(&kept, &taking("gzip")).await;
        let mut plain = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&packed[..]), &mut plain).unwrap();
        assert!(packed.len() < 10_000 && plain.as_bytes() == kept.0.plain);
        let told = kept.told("text/plain", &taking("gzip")).await;
        assert_eq!(told.headers()["content-encoding"], "gzip");
        assert_eq!(told.headers()["vary"], "accept-encoding");
    }

    #[test]
    fn gzip_is_told_to_those_alone_who_take_it() {
        for (codings, takes) in [
            ("gzip", true),
            ("deflate, GZIP ; q=0.2", true),
            ("gzip;q=0", false),
            ("br", false),
            ("", false),
            ("gzipped", false),
        ] {
            assert_eq!(takes_gzip(&taking(codings)), takes, "{codings}");
        }
    }

    #[tokio::test]
    async fn many_who_ask_at_once_have_a_text_made_once() {
        let (renewed, made) = (Renewed::every(Duration::from_secs(3_600)), Arc::new(AtomicUsize::new(0)));
        let ask = || {
            let made = Arc::clone(&made);
            renewed.text(move || made.fetch_add(1, Ordering::Relaxed).to_string())
        };
        let texts = futures::future::join_all((0..100).map(|_| ask())).await;
        assert!(made.load(Ordering::Relaxed) == 1 && texts.iter().all(|text| text.0.plain == "0"));
        let renewed = Renewed::every(Duration::ZERO);
        assert_eq!(renewed.text(|| "1".into()).await.0.plain, "1");
        assert_eq!(renewed.text(|| "2".into()).await.0.plain, "2");
    }
}
