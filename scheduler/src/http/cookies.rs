//! The cookie of a browser session: how it is named, set and read, and from where it counts.
//!
//! Browsers send a cookie by themselves, whoever has made them ask, and to every port of a host. So it bears the cluster's id in its name, no
//! script can read it, and it counts only where the page itself asks: by `Sec-Fetch-Site`, or `Origin` of a browser that does not say, and, for
//! whatever is no GET, by a header that no page of another origin can set.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use uuid::Uuid;

use super::problem::Problem;

/// What the page sends with every request that is no GET.
pub const PAGE: HeaderName = HeaderName::from_static("x-headway-page");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Set by a proxy that ends TLS; whoever sets it for himself gets a cookie that his browser does not send.
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// What this cluster's cookies are like.
#[derive(Clone, Debug)]
pub struct Cookies {
    name: String,
    tls: bool,
}

impl Cookies {
    /// `tls`: whether this server is reached by it.
    #[must_use]
    pub fn new(cluster: Uuid, tls: bool) -> Self {
        Self { name: format!("headway-{}", cluster.simple()), tls }
    }

    /// The secret that came with a request.
    pub fn secret<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        find(headers, &self.name_for(headers))
    }

    /// What the browser keeps of a login under way at the identity provider.
    pub fn login<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        find(headers, &self.name_of_login(headers))
    }

    /// Hands a browser the secret for this long.
    pub fn set(&self, headers: &HeaderMap, secret: &str, life: Duration) -> HeaderValue {
        self.cookie(headers, &self.name_for(headers), secret, "Strict", life)
    }

    /// Has a browser forget it.
    pub fn clear(&self, headers: &HeaderMap) -> HeaderValue {
        self.set(headers, "", Duration::ZERO)
    }

    /// The provider sends the browser back here, which is another site's doing: `Strict` would not come with it.
    pub fn set_login(&self, headers: &HeaderMap, text: &str, life: Duration) -> HeaderValue {
        self.cookie(headers, &self.name_of_login(headers), text, "Lax", life)
    }

    pub fn clear_login(&self, headers: &HeaderMap) -> HeaderValue {
        self.set_login(headers, "", Duration::ZERO)
    }

    fn cookie(&self, headers: &HeaderMap, name: &str, value: &str, site: &str, life: Duration) -> HeaderValue {
        let secure = if self.is_secure(headers) { "; Secure" } else { "" };
        let seconds = life.as_secs_f64().ceil();
        let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite={site}; Max-Age={seconds}{secure}");
        HeaderValue::from_str(&cookie).expect("ids, digits and base64 are header text")
    }

    fn name_of_login(&self, headers: &HeaderMap) -> String {
        format!("{}-login", self.name_for(headers))
    }

    /// Browsers take the prefix from nobody but this host, by TLS.
    fn name_for(&self, headers: &HeaderMap) -> String {
        if self.is_secure(headers) { format!("__Host-{}", self.name) } else { self.name.clone() }
    }

    fn is_secure(&self, headers: &HeaderMap) -> bool {
        self.tls || headers.get(FORWARDED_PROTO).is_some_and(|proto| proto == "https")
    }
}

/// A cookie of this name; two are none, since either may have been planted.
fn find<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let texts = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut ours = pairs.filter(|(name, _)| *name == wanted).map(|(_, value)| value);
    match (ours.next(), ours.next()) {
        (Some(value), None) => Some(value),
        _ => None,
    }
}

/// Whether a request that brings a cookie was made by the page.
pub fn made_by_page(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let origin = headers.get(header::ORIGIN);
    let own = match headers.get(FETCH_SITE).map(HeaderValue::as_bytes) {
        Some(site) => site == b"same-origin" || reads && site == b"none",
        // A browser that does not say where a GET comes from shows its answer to no page of another origin.
        None => match origin {
            Some(origin) => is_of_host(origin, headers.get(header::HOST)),
            None => reads,
        },
    };
    if own && (reads || headers.contains_key(&PAGE)) {
        return Ok(());
    }
    Err(Problem::new(
        axum::http::StatusCode::FORBIDDEN,
        "cross_origin",
        "a cookie counts only in what the page of this cluster itself asks for",
    )
    .hint("the page sends X-Headway-Page: 1 with whatever is no GET; scripts send a bearer token"))
}

fn is_of_host(origin: &HeaderValue, host: Option<&HeaderValue>) -> bool {
    let origin = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok());
    let authority = origin.as_ref().and_then(|origin| origin.authority());
    let host = host.and_then(|host| host.to_str().ok());
    authority.zip(host).is_some_and(|(authority, host)| authority.as_str().eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn cookies(tls: bool) -> Cookies {
        Cookies::new(Uuid::nil(), tls)
    }

    #[test]
    fn what_is_set_is_read_again_and_nothing_else() {
        for (tls, given) in [(false, vec![]), (true, vec![]), (false, vec![("x-forwarded-proto", "https")])] {
            let given = headers(&given);
            let set = cookies(tls).set(&given, "s3cret", Duration::from_secs(60));
            let set = set.to_str().unwrap();
            let (pair, attributes) = set.split_once(';').unwrap();
            let secure = tls || !given.is_empty();
            assert_eq!((pair.starts_with("__Host-"), attributes.contains("Secure")), (secure, secure), "{set}");
            assert!(attributes.contains("HttpOnly") && attributes.contains("SameSite=Strict"), "{set}");
            assert!(attributes.contains("Path=/;") && attributes.contains("Max-Age=60"), "{set}");
            let mut back = given.clone();
            back.insert(header::COOKIE, format!("other=1; {pair}; more=2").parse().unwrap());
            assert_eq!(cookies(tls).secret(&back), Some("s3cret"));
            back.insert(header::COOKIE, format!("{pair}; {pair}x").parse().unwrap());
            assert_eq!(cookies(tls).secret(&back), None, "one of them may have been planted");
        }
        let plain = headers(&[("cookie", &format!("headway-{}=planted", Uuid::nil().simple()))]);
        assert_eq!(cookies(true).secret(&plain), None, "by TLS only what came by TLS counts");
        let other = Cookies::new(Uuid::from_u128(1), false);
        assert_eq!(other.secret(&plain), None, "another cluster of this host");
    }

    #[test]
    fn what_is_kept_of_a_login_comes_back_from_the_provider_and_is_no_session() {
        let set = cookies(true).set_login(&HeaderMap::new(), "a.1.b", Duration::from_secs(600));
        let (pair, attributes) = set.to_str().unwrap().split_once(';').unwrap();
        assert!(
            attributes.contains("SameSite=Lax") && attributes.contains("HttpOnly") && attributes.contains("Secure")
        );
        let back = headers(&[("cookie", pair)]);
        assert_eq!((cookies(true).login(&back), cookies(true).secret(&back)), (Some("a.1.b"), None));
    }

    #[test]
    fn a_cookie_counts_only_where_the_page_itself_asks() {
        let page = ("x-headway-page", "1");
        let host = ("host", "h:7600");
        let asks = |method: Method, given: &[(&'static str, &str)]| made_by_page(&method, &headers(given)).is_ok();
        assert!(asks(Method::POST, &[page, ("sec-fetch-site", "same-origin")]));
        assert!(asks(Method::POST, &[page, host, ("origin", "http://h:7600")]));
        assert!(asks(Method::GET, &[]) && asks(Method::GET, &[("sec-fetch-site", "none")]));
        for wrong in [
            &[("sec-fetch-site", "same-origin")][..],
            &[page, ("sec-fetch-site", "same-site")],
            &[page, ("sec-fetch-site", "cross-site"), host, ("origin", "http://h:7600")],
            &[page, ("sec-fetch-site", "none")],
            &[page, host, ("origin", "http://h:7601")],
            &[page, host, ("origin", "null")],
            &[page, host],
            &[page],
        ] {
            assert!(!asks(Method::DELETE, wrong), "{wrong:?}");
        }
        assert!(!asks(Method::GET, &[("sec-fetch-site", "cross-site")]));
        assert!(!asks(Method::GET, &[host, ("origin", "http://elsewhere")]));
    }
}
