//! Who is calling and what they may do: bearer tokens, looked up by the SHA-256 of their secret.
//!
//! The secret itself is neither stored, compared nor logged. Only digests are looked up, so the time a look-up takes
//! tells nothing about a secret. An agent's token opens no REST route.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use axum::http::{HeaderMap, header, request::Parts};
use headway_engine::event::Actor;
use headway_types::TokenScope;
use headway_types::spec::Priority;
use sha2::{Digest, Sha256};

use super::HttpState;
use super::problem::Problem;
use crate::store::{Token, TokenHash};

/// A token that was revoked elsewhere works for at most this long.
const REMEMBER: Duration = Duration::from_secs(5);
const REMEMBER_AT_MOST: usize = 1_024;

/// The caller of a request, with at least the viewer's rights.
#[derive(Clone, Debug)]
pub struct Principal {
    pub token: Token,
}

impl Principal {
    /// How the audit log names the caller.
    pub fn actor(&self) -> Actor {
        Actor::User(self.token.name.clone())
    }

    pub fn name(&self) -> &str {
        &self.token.name
    }

    pub fn is_admin(&self) -> bool {
        self.token.scope == TokenScope::Admin
    }

    /// The most a job may have by the caller's word: what comes before everybody's "high" is not for each to say.
    pub fn highest_priority(&self) -> Priority {
        if self.is_admin() { Priority(100) } else { Priority::HIGH }
    }

    fn require(self, needed: TokenScope) -> Result<Self, Problem> {
        if self.token.scope >= needed {
            return Ok(self);
        }
        Err(Problem::forbidden(format!("this needs a token with the scope {needed}"))
            .hint(format!("your token \"{}\" has the scope {}", self.token.name, self.token.scope)))
    }
}

/// May submit jobs and act on them.
#[derive(Clone, Debug)]
pub struct UserPrincipal(pub Principal);

/// May act on nodes, plans, the policy and tokens.
#[derive(Clone, Debug)]
pub struct AdminPrincipal(pub Principal);

impl FromRequestParts<HttpState> for Principal {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &HttpState) -> Result<Self, Problem> {
        let hash = bearer_digest(&parts.headers)?;
        let token = state.tokens.find(hash, state).await?;
        Principal { token }.require(TokenScope::Viewer)
    }
}

impl FromRequestParts<HttpState> for UserPrincipal {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &HttpState) -> Result<Self, Problem> {
        Principal::from_request_parts(parts, state).await?.require(TokenScope::User).map(Self)
    }
}

impl FromRequestParts<HttpState> for AdminPrincipal {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &HttpState) -> Result<Self, Problem> {
        Principal::from_request_parts(parts, state).await?.require(TokenScope::Admin).map(Self)
    }
}

/// Tokens seen a moment ago, so that a page full of requests is one look-up.
#[derive(Clone, Default)]
pub struct TokenCache(Arc<Mutex<Recent>>);

/// By the secret's digest: when it was looked up, and what was found.
type Recent = BTreeMap<[u8; 32], (Instant, Token)>;

impl TokenCache {
    async fn find(&self, bearer: Bearer, state: &HttpState) -> Result<Token, Problem> {
        let now = state.cluster.now();
        if let Some(token) = self.recall(&bearer.digest)
            && token.expires_at.is_none_or(|end| end > now)
        {
            return Ok(token);
        }
        let found = state.cluster.store().find_token(&bearer.hash, now).await?;
        let token = found.ok_or_else(|| Problem::unauthorized("the token is unknown, revoked or expired"))?;
        self.remember(bearer.digest, token.clone());
        Ok(token)
    }

    /// Drops everything, so that a revoked token stops working at once in this process.
    pub fn clear(&self) {
        self.entries().clear();
    }

    fn recall(&self, digest: &[u8; 32]) -> Option<Token> {
        self.entries().get(digest).filter(|(seen, _)| seen.elapsed() < REMEMBER).map(|(_, token)| token.clone())
    }

    fn remember(&self, digest: [u8; 32], token: Token) {
        let mut entries = self.entries();
        if entries.len() >= REMEMBER_AT_MOST {
            entries.retain(|_, (seen, _)| seen.elapsed() < REMEMBER);
        }
        if entries.len() < REMEMBER_AT_MOST {
            entries.insert(digest, (Instant::now(), token));
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
    use axum::http::{HeaderValue, StatusCode};
    use headway_types::Timestamp;

    use super::*;

    fn principal(scope: TokenScope) -> Principal {
        Principal {
            token: Token {
                id: uuid::Uuid::nil(),
                name: "ada".into(),
                scope,
                created_at: Timestamp(0),
                expires_at: None,
            },
        }
    }

    fn authorization(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static(value))])
    }

    #[test]
    fn a_scope_includes_those_below_it() {
        assert!(principal(TokenScope::Admin).require(TokenScope::User).is_ok());
        assert!(principal(TokenScope::User).require(TokenScope::Viewer).is_ok());
        let refused = principal(TokenScope::Viewer).require(TokenScope::User).unwrap_err();
        assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    }

    #[test]
    fn an_agent_token_opens_no_route_for_people() {
        assert!(principal(TokenScope::Agent).require(TokenScope::Viewer).is_err());
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
    }
}
