//! Who is calling and what they may do: bearer tokens, looked up by the SHA-256 of their secret.
//!
//! The secret itself is neither stored, compared nor logged. Only digests are looked up, so the time a look-up takes
//! tells nothing about a secret. An agent's token opens no REST route. What a caller may do is said in `access`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use axum::http::{HeaderMap, header, request::Parts};
use headway_engine::event::Actor;
use headway_types::TokenScope;
use headway_types::spec::Priority;
use sha2::{Digest, Sha256};

use super::HttpState;
use super::access::Act;
use super::problem::Problem;
use crate::store::{Token, TokenHash};

/// A token that was revoked elsewhere works for at most this long.
const REMEMBER: Duration = Duration::from_secs(5);
/// A token that opened something this short a time ago is looked up again whatever else comes from its address.
const KNOWN: Duration = Duration::from_secs(600);
const REMEMBER_AT_MOST: usize = 1_024;

/// The caller of a request.
#[derive(Clone, Debug)]
pub struct Principal {
    /// Who owns what the caller makes.
    user: String,
    pub token: Token,
}

impl Principal {
    /// An agent's token belongs to nobody and opens no route for people.
    fn of(token: Token) -> Result<Self, Problem> {
        match token.user.clone() {
            Some(user) => Ok(Self { user, token }),
            None => Err(Problem::forbidden("an agent's token opens no route for people")),
        }
    }

    /// How the audit log names the caller.
    pub fn actor(&self) -> Actor {
        Actor::User(self.user.clone())
    }

    pub fn name(&self) -> &str {
        &self.user
    }

    pub fn scope(&self) -> TokenScope {
        self.token.scope
    }

    /// The most a job may have by the caller's word: what comes before everybody's "high" is not for each to say.
    pub fn highest_priority(&self) -> Priority {
        if self.may(Act::RaisePriority).is_ok() { Priority(100) } else { Priority::HIGH }
    }
}

impl HttpState {
    /// Who sends this.
    pub async fn authenticate(&self, headers: &HeaderMap, address: Option<IpAddr>) -> Result<Principal, Problem> {
        Principal::of(self.tokens.find(bearer_digest(headers)?, address, self).await?)
    }
}

/// Whom `access` has let through.
impl FromRequestParts<HttpState> for Principal {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &HttpState) -> Result<Self, Problem> {
        parts.extensions.get::<Principal>().cloned().ok_or_else(|| {
            tracing::error!(path = %parts.uri.path(), "a route that nobody guards asks who calls");
            Problem::internal()
        })
    }
}

/// Tokens seen a moment ago, so that a page full of requests is one look-up.
#[derive(Clone, Default)]
pub struct TokenCache(Arc<Mutex<Recent>>);

/// By the secret's digest: when it was looked up, and what was found; nothing once any token was revoked.
type Recent = BTreeMap<[u8; 32], (Instant, Option<Token>)>;

impl TokenCache {
    async fn find(&self, bearer: Bearer, address: Option<IpAddr>, state: &HttpState) -> Result<Token, Problem> {
        let now = state.cluster.now();
        if let Some(token) = self.recall(&bearer.digest)
            && token.expires_at.is_none_or(|end| end > now)
        {
            return Ok(token);
        }
        if !self.knows(&bearer.digest) {
            state.wrong_tokens.admit(address, Instant::now())?;
        }
        match state.cluster.store().find_token(&bearer.hash, now).await? {
            Some(token) => {
                self.remember(bearer.digest, token.clone());
                Ok(token)
            }
            None => {
                self.entries().remove(&bearer.digest);
                Err(state.wrong_tokens.refuse(address, &bearer.digest, Instant::now()))
            }
        }
    }

    /// Has everything looked up again, so that a revoked token stops working at once in this process.
    pub fn clear(&self) {
        self.entries().values_mut().for_each(|(_, token)| *token = None);
    }

    fn recall(&self, digest: &[u8; 32]) -> Option<Token> {
        self.entries().get(digest).filter(|(seen, _)| seen.elapsed() < REMEMBER)?.1.clone()
    }

    /// Whether it opened something not long ago.
    fn knows(&self, digest: &[u8; 32]) -> bool {
        self.entries().get(digest).is_some_and(|(seen, _)| seen.elapsed() < KNOWN)
    }

    fn remember(&self, digest: [u8; 32], token: Token) {
        let mut entries = self.entries();
        for age in [KNOWN, REMEMBER] {
            if entries.len() >= REMEMBER_AT_MOST {
                entries.retain(|_, (seen, _)| seen.elapsed() < age);
            }
        }
        if entries.len() < REMEMBER_AT_MOST || entries.contains_key(&digest) {
            entries.insert(digest, (Instant::now(), Some(token)));
        }
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, Recent> {
        // The map is valid between any two of its operations, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A secret as far as this process keeps it: digests only.
struct Bearer {
    hash: TokenHash,
    digest: [u8; 32],
}

fn bearer_digest(headers: &HeaderMap) -> Result<Bearer, Problem> {
    let missing = || {
        Problem::unauthorized("this needs a bearer token")
            .hint("send `Authorization: Bearer <token>`; `headway up` prints one, `headway token create` makes more")
    };
    let value = headers.get(header::AUTHORIZATION).ok_or_else(missing)?;
    let text = value.to_str().map_err(|_| missing())?;
    let (scheme, secret) = text.split_once(' ').ok_or_else(missing)?;
    let secret = secret.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || secret.is_empty() {
        return Err(missing());
    }
    Ok(Bearer { hash: TokenHash::of(secret), digest: Sha256::digest(secret.as_bytes()).into() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use axum::http::HeaderValue;
    use headway_types::Timestamp;

    use super::*;

    fn principal(scope: TokenScope) -> Principal {
        let token = Token {
            id: uuid::Uuid::nil(),
            name: "ci".into(),
            user: Some("ada".into()),
            scope,
            created_at: Timestamp(0),
            expires_at: None,
        };
        Principal::of(token).unwrap()
    }

    fn authorization(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static(value))])
    }

    #[test]
    fn an_agent_token_opens_no_route_for_people() {
        let token = Token { user: None, scope: TokenScope::Agent, ..principal(TokenScope::User).token };
        assert!(Principal::of(token).is_err());
    }

    #[test]
    fn only_a_bearer_scheme_with_a_secret_counts() {
        assert!(bearer_digest(&authorization("Bearer abc")).is_ok());
        assert!(bearer_digest(&authorization("bearer abc")).is_ok());
        for wrong in ["Basic abc", "Bearer", "Bearer  ", "abc"] {
            assert!(bearer_digest(&authorization(wrong)).is_err(), "{wrong}");
        }
        assert!(bearer_digest(&HeaderMap::new()).is_err());
    }

    #[test]
    fn a_cleared_cache_knows_nobody() {
        let cache = TokenCache::default();
        cache.remember([7; 32], principal(TokenScope::User).token);
        assert!(cache.recall(&[7; 32]).is_some());
        cache.clear();
        assert!(cache.recall(&[7; 32]).is_none());
        assert!(cache.knows(&[7; 32]), "it is looked up again whatever else comes from its address");
    }
}
