//! One login at an identity provider, by the authorisation code with PKCE: what the server does for a browser, and the command line where a
//! provider has no device flow. All that must not be guessed comes from one random secret, so that whoever began a login keeps nothing else.

use core::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Url;
use sha2::{Digest, Sha256};

/// Where a login begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning<'a> {
    /// The provider's authorisation endpoint.
    pub endpoint: &'a str,
    pub client_id: &'a str,
    pub scopes: &'a [String],
    /// Where the provider sends the browser afterwards.
    pub redirect_uri: &'a str,
}

/// A login that is under way; its secret never leaves whoever began it.
#[derive(Clone, PartialEq, Eq)]
pub struct Attempt([u8; 32]);

impl Attempt {
    /// `secret`: from the operating system, for this login alone.
    #[must_use]
    pub fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// One that was begun before: 43 characters of base64url.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        bytes.try_into().ok().map(Self)
    }

    /// As `read` takes it.
    #[must_use]
    pub fn written(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// Comes back with the code: whoever sends the browser here without having begun at ours does not know it.
    #[must_use]
    pub fn state(&self) -> String {
        self.derived("state")
    }

    /// Comes back within the id token, so that no other login's serves.
    #[must_use]
    pub fn nonce(&self) -> String {
        self.derived("nonce")
    }

    /// Goes with the code to the provider, so that nobody else can hand the code in (RFC 7636).
    #[must_use]
    pub fn verifier(&self) -> String {
        self.derived("verifier")
    }

    /// Where the browser goes first.
    ///
    /// # Errors
    /// Where the provider's endpoint is no URL.
    pub fn url(&self, at: &Beginning<'_>) -> Result<Url, String> {
        let mut url = Url::parse(at.endpoint).map_err(|error| format!("{}: {error}", at.endpoint))?;
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", at.client_id)
            .append_pair("redirect_uri", at.redirect_uri)
            .append_pair("scope", &at.scopes.join(" "))
            .append_pair("state", &self.state())
            .append_pair("nonce", &self.nonce())
            .append_pair("code_challenge", &challenge(&self.verifier()))
            .append_pair("code_challenge_method", "S256");
        Ok(url)
    }

    /// 256 bits of which no other such value can be told.
    fn derived(&self, what: &str) -> String {
        let digest = Sha256::new().chain_update(what).chain_update([0]).chain_update(self.0).finalize();
        URL_SAFE_NO_PAD.encode(digest)
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attempt(…)")
    }
}

/// Names and values of a query, decoded.
#[must_use]
pub fn read_query(query: &str) -> Vec<(String, String)> {
    let url = Url::parse(&format!("query:?{query}")).ok();
    url.map(|url| url.query_pairs().into_owned().collect()).unwrap_or_default()
}

/// S256 of RFC 7636.
fn challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_challenge_is_that_of_the_standard() {
        // RFC 7636, appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(challenge(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn a_login_is_read_as_it_was_written_and_its_parts_tell_nothing_of_each_other() {
        let attempt = Attempt::new([7; 32]);
        assert_eq!(Attempt::read(&attempt.written()), Some(attempt.clone()));
        for wrong in ["", "x", &attempt.written()[1..], "ä"] {
            assert_eq!(Attempt::read(wrong), None, "{wrong}");
        }
        let parts = [attempt.state(), attempt.nonce(), attempt.verifier(), attempt.written()];
        assert_eq!(parts.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
        assert!(parts.iter().all(|part| part.len() == 43));
        assert!(!format!("{attempt:?}").contains(&attempt.written()));
    }

    #[test]
    fn the_browser_is_sent_with_a_challenge_and_without_the_verifier() {
        let (attempt, scopes) = (Attempt::new([1; 32]), ["openid".to_owned(), "groups".to_owned()]);
        let at = Beginning {
            endpoint: "https://sso.example/auth?tenant=a",
            client_id: "headway",
            scopes: &scopes,
            redirect_uri: "http://127.0.0.1:9/callback",
        };
        let url = attempt.url(&at).unwrap();
        let find = |name: &str| url.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned();
        assert_eq!((find("tenant").as_str(), find("scope").as_str()), ("a", "openid groups"));
        assert_eq!((find("state"), find("nonce")), (attempt.state(), attempt.nonce()));
        assert_eq!(
            (find("code_challenge"), find("code_challenge_method").as_str()),
            (challenge(&attempt.verifier()), "S256")
        );
        assert!(!url.as_str().contains(&attempt.verifier()));
        assert!(attempt.url(&Beginning { endpoint: "no url", ..at }).is_err());
    }
}
